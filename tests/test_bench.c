/* The benchmark runs and reports every row; what its figures are is not for a test to say. */
#include "tests/scratch.h"

#include <jansson.h>
#include <stdbool.h>
#include <sys/wait.h>

static const char *const row_ids[] = {"handle",
                                      "library",
                                      "handle_library",
                                      "handle_archive",
                                      "typed",
                                      "supports_args",
                                      "name",
                                      "scope",
                                      "threads",
                                      "checks",
                                      "checks_residual",
                                      "resolve",
                                      "resolve_logged",
                                      "many_call",
                                      "many_call_all",
                                      "many_time",
                                      "many_plugin",
                                      "many_memory",
                                      "many_op_memory",
                                      "off",
                                      "statistics",
                                      "statistics_threads",
                                      "start",
                                      "start_called",
                                      "start_empty",
                                      "start_many",
                                      "start_tried",
                                      NULL};
static const char *const cost_ids[] = {"pointer",  "library", "handle", "counted", "name", "checked",
                                       "refcount", "mutex",   "rwlock", "openssl", NULL};

/* Runs a program of build/bench, with nothing printed; its exit status. */
static int run(const char *name, const char *first, const char *second, const char *third) {
  const char *program = built(name);
  int status;
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    execl(program, name, first, second, third, (char *)NULL);
    _exit(127);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static json_t *load(const char *path) {
  json_error_t error;
  json_t *report = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(report != NULL, "%s:%d: %s", path, error.line, error.text);
  return report;
}

static const char *string_of(const json_t *object, const char *key) {
  const char *string = json_string_value(json_object_get(object, key));
  ck_assert_msg(string != NULL, "'%s' is no string", key);
  return string;
}

static void assert_ids(const json_t *list, const char *const *ids) {
  size_t n = 0;
  for (; ids[n]; n++)
    ck_assert_str_eq(string_of(json_array_get(list, n), "id"), ids[n]);
  ck_assert_uint_eq(json_array_size(list), n);
}

/* Both numbers, or null. True: numbers. */
static bool is_spread(const json_t *spread) {
  if (json_is_null(spread))
    return false;
  ck_assert(json_is_number(json_object_get(spread, "median")));
  ck_assert(json_is_number(json_object_get(spread, "minimum")));
  return true;
}

/* A row has a figure, and with a target a verdict; or it says why not. */
static void assert_row(const json_t *row) {
  const char *id = string_of(row, "id");
  bool measured = is_spread(json_object_get(row, "value"));
  ck_assert_msg(measured || *string_of(row, "note"), "%s: no figure, and no word why", id);
  ck_assert_msg(json_is_boolean(json_object_get(row, "met")) ==
                    (measured && (json_is_number(json_object_get(row, "target")) || !strcmp(id, "off"))),
                "%s: met", id);
  ck_assert_int_eq(is_spread(json_object_get(row, "subject")), measured);
  ck_assert_msg(is_spread(json_object_get(row, "reference")) ==
                    (measured && strcmp(string_of(row, "kind"), "absolute") != 0),
                "%s: reference", id);
}

START_TEST(the_benchmark_reports_every_row) {
  static const char *const machine[] = {"cpu", "architecture", "kernel", "compiler", "flhost", "date", NULL};
  const char *file = in_scratch("report.json");
  size_t i;
  json_t *one;
  ck_assert_int_eq(setenv("TMPDIR", scratch, 1), 0);
  ck_assert_int_eq(run("bench/dispatch", "--quick", "--json", file), 0);
  json_t *report = load(file);
  ck_assert(json_is_true(json_object_get(report, "quick")));
  for (i = 0; machine[i]; i++)
    ck_assert_str_ne(string_of(json_object_get(report, "machine"), machine[i]), "");
  assert_ids(json_object_get(report, "rows"), row_ids);
  json_array_foreach(json_object_get(report, "rows"), i, one) assert_row(one);
  assert_ids(json_object_get(report, "costs"), cost_ids);
  json_array_foreach(json_object_get(report, "costs"), i, one)
      ck_assert(is_spread(json_object_get(one, "one_thread")) || *string_of(one, "note"));
  ck_assert_uint_gt(json_array_size(json_object_get(report, "python")), 0);
  json_array_foreach(json_object_get(report, "python"), i, one)
      ck_assert(json_is_number(json_object_get(one, "ns")) || *string_of(one, "note"));
  json_decref(report);
}
END_TEST

START_TEST(a_wrong_option_is_refused) {
  ck_assert_int_eq(run("bench/dispatch", "--quikc", NULL, NULL), 2);
  ck_assert_int_eq(run("bench/report", NULL, NULL, NULL), 2);
  ck_assert_int_eq(run("bench/plot", NULL, NULL, NULL), 2);
}
END_TEST

/* A report of two rows, one of them without a figure. */
static const char *write_report(void) {
  return write_text(
      "small.json",
      "{\"machine\": {\"cpu\": \"A & B\", \"processors\": 2, \"kernel\": \"K\", \"compiler\": \"C\", \"flhost\": \"1\","
      " \"date\": \"2026-01-02T03:04:05Z\", \"load\": 0.5}, \"quick\": false, \"rows\": ["
      "{\"id\": \"handle\", \"what\": \"by handle\", \"baseline\": \"pointer\", \"kind\": \"difference\", \"unit\": "
      "\"ns\","
      " \"target\": 2.0, \"bound\": \"at most\", \"value\": {\"median\": 1.5, \"minimum\": 1.25}, \"subject\":"
      " {\"median\": 2.5, \"minimum\": 2.25}, \"reference\": {\"median\": 1.0, \"minimum\": 1.0}, \"met\": true,"
      " \"note\": \"\"},"
      "{\"id\": \"threads\", \"what\": \"two threads\", \"baseline\": \"one\", \"kind\": \"ratio\", \"unit\": \"ns\","
      " \"target\": 1.9, \"bound\": \"at least\", \"value\": null, \"subject\": null, \"reference\": null, \"met\": "
      "null,"
      " \"note\": \"one processor\"}],"
      "\"costs\": [{\"id\": \"mutex\", \"name\": \"mutex <lock>\", \"one_thread\": {\"median\": 14.0, \"minimum\": "
      "13.0},"
      " \"two_threads\": {\"median\": 150.25, \"minimum\": 100.0}, \"note\": \"\"}],"
      "\"python\": [{\"name\": \"torch.ops\", \"ns\": null, \"note\": \"absent\"}]}");
}

static char *text_of(const char *path) {
  size_t length;
  char *text = (char *)read_file(path, &length);
  text[length] = 0;
  return text;
}

START_TEST(figures_replace_what_stands_between_the_marks) {
  const char *report = write_report();
  const char *page = write_text("page.md", "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n");
  ck_assert_int_eq(run("bench/report", report, page, NULL), 0);
  char *text = text_of(page);
  ck_assert(!strncmp(text, "before\n<!-- figures -->\nA & B, 2 processors", 43));
  ck_assert_ptr_null(strstr(text, "old"));
  ck_assert_ptr_nonnull(strstr(text, "| by handle | 2.50 ns | pointer: 1.00 ns | +1.50 ns | ≤ 2 ns | yes |\n"));
  ck_assert_ptr_nonnull(strstr(text, "| two threads |  | one:  |  | ≥ 1.9 × |  |\n"));
  ck_assert_ptr_nonnull(strstr(text, "- two threads: one processor.\n"));
  ck_assert_ptr_nonnull(strstr(text, "| mutex <lock> | 14.00 ns | 150 ns |  |\n"));
  ck_assert_ptr_nonnull(strstr(text, "| torch.ops |  | | absent |\n<!-- end of figures -->\nafter\n"));
  free(text);
}
END_TEST

START_TEST(a_page_without_marks_stays_as_it_is) {
  const char *page = write_text("page.md", "no marks\n");
  ck_assert_int_eq(run("bench/report", write_report(), page, NULL), 1);
  char *text = text_of(page);
  ck_assert_str_eq(text, "no marks\n");
  free(text);
}
END_TEST

START_TEST(the_drawing_has_a_bar_for_each_figure) {
  const char *figure = in_scratch("figure.svg");
  ck_assert_int_eq(run("bench/plot", write_report(), figure, NULL), 0);
  char *text = text_of(figure);
  size_t bars = 0, length = strlen(text);
  for (const char *at = text; (at = strstr(at, "height=\"12\" fill=")); at++)
    bars++;
  ck_assert_uint_eq(bars, 2 + 2 + 1); /* the legend; mutex on one thread and on two; by handle */
  ck_assert(!strncmp(text, "<svg ", 5) && !strcmp(text + length - 7, "</svg>\n"));
  ck_assert_ptr_nonnull(strstr(text, ">mutex &#60;lock&#62;</text>"));
  ck_assert_ptr_nonnull(strstr(text, ">1.5 ns (at most 2)</text>"));
  ck_assert_ptr_nonnull(strstr(text, "A &#38; B, 2 processors"));
  free(text);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
  tcase_add_test(tests, the_benchmark_reports_every_row);
  tcase_add_test(tests, a_wrong_option_is_refused);
  tcase_add_test(tests, figures_replace_what_stands_between_the_marks);
  tcase_add_test(tests, a_page_without_marks_stays_as_it_is);
  tcase_add_test(tests, the_drawing_has_a_bar_for_each_figure);
}

int main(void) {
  return run_suite("bench", add_tests, 60);
}
