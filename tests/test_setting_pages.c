/* The manual's pages that hold what the table of settings says: made from its rows, and committed as they are made. */
#include "tests/settings_support.h"

#include <sys/wait.h>

static const char *const pages[] = {"docs/policy-guide.md", "docs/man/flhost.1", "docs/man/flhost.yaml.5"};
enum { N_PAGES = sizeof pages / sizeof *pages };

/* Exit status of a shell command. */
static int run(const char *format, ...) FL_PRINTF(1, 2);
static int run(const char *format, ...) {
  char command[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(command, sizeof command, format, arguments);
  va_end(arguments);
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(the_committed_pages_are_what_the_rows_say) {
  ck_assert_msg(run("%s/setting-pages %s | diff -u %s -", build_dir(), pages[_i], pages[_i]) == 0,
                "run `make docs` and commit %s", pages[_i]);
}
END_TEST

/* The guide has every setting, flhost(1) every variable, flhost.yaml(5) every key. */
START_TEST(every_setting_stands_in_the_manual) {
  for (size_t id = 0; id < FL_N_SETTINGS; id++) {
    const fl_setting_row *row = &fl_setting_table[id];
    ck_assert_msg(run("grep -qF '%s` |' %s", fl_setting_name(row), pages[0]) == 0, "%s", fl_setting_name(row));
    if (*row->variable)
      ck_assert_msg(run("grep -qx '\\.It Ev %s' %s", row->variable, pages[1]) == 0, "%s", row->variable);
    if (row->key)
      ck_assert_msg(run("grep -qx '\\.It Ic %s' %s", row->key, pages[2]) == 0, "%s", row->key);
  }
}
END_TEST

START_TEST(a_page_that_cannot_be_made_is_an_error_with_its_reason) {
  static const char *const rows[][2] = {
      {"text\n<!-- settings: tabel -->\n<!-- settings: end -->\n", "page: a part that is none of table, beside, keys"},
      {"<!-- settings: table -->\ntext\n", "page: a part without end"},
      {"<!-- settings: table -->\n.\\\" settings: keys\n<!-- settings: end -->\n", "page: a part without end"}};
  scratch_dir scratch;
  scratch_begin(&scratch);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[16];
    snprintf(name, sizeof name, "%zu.page", i);
    const char *path = scratch_file(&scratch, name, rows[i][0]);
    ck_assert_int_eq(run("%s/setting-pages %s >%s.made 2>%s.said", build_dir(), path, path, path), 2);
    ck_assert_msg(run("test ! -s %s.made && grep -q '%s' %s.said", path, rows[i][1], path) == 0, "%s", rows[i][0]);
    ck_assert_int_eq(run("rm %s.made %s.said", path, path), 0);
  }
  ck_assert_int_eq(run("%s/setting-pages /no/such/page 2>/dev/null", build_dir()), 2);
  ck_assert_int_eq(run("%s/setting-pages 2>/dev/null", build_dir()), 2);
  scratch_end(&scratch);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, the_committed_pages_are_what_the_rows_say, 0, N_PAGES);
  tcase_add_test(tests, every_setting_stands_in_the_manual);
  tcase_add_test(tests, a_page_that_cannot_be_made_is_an_error_with_its_reason);
}

int main(void) {
  return run_suite("setting_pages", add_tests, 20);
}
