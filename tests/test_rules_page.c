/*
 * docs/rules.md and what cites it: each rule names tests that show it, and so does each promise of docs/security.md;
 * each id in a test's name, a comment or a message is a rule of the page. An id is a capital letter and a digit, R2;
 * ids in code are names of something else.
 */
#include "tests/scratch.h"

#include <ctype.h>
#include <glob.h>
#include <stdbool.h>

#define PAGE "docs/rules.md"

enum { MAX_RULES = 128, MAX_TESTS = 4096, MAX_NAME = 256 };

typedef struct test_place {
  char file[MAX_NAME], name[MAX_NAME];
} test_place;

static char rules[MAX_RULES][3]; /* "R2" */
static size_t n_rules;
static test_place *tests;
static size_t n_tests;

static char *text_of(const char *path) {
  size_t length;
  char *text = (char *)read_file(path, &length); /* with room for one byte more */
  text[length] = 0;
  return text;
}

static bool is_id(const char *at) {
  return isupper((unsigned char)at[0]) && isdigit((unsigned char)at[1]) && !isalnum((unsigned char)at[2]);
}

static bool is_rule(const char *id) {
  for (size_t i = 0; i < n_rules; i++)
    if (!strncmp(rules[i], id, 2))
      return true;
  return false;
}

/* Is it a letter that rules begin with? */
static bool is_family(char letter) {
  for (size_t i = 0; i < n_rules; i++)
    if (rules[i][0] == letter)
      return true;
  return false;
}

/* "C1_C6_a_config_file…" begins with C1 and C6. */
static bool begins_with(const char *name, const char *id) {
  for (; is_id(name) && name[2] == '_'; name += 3)
    if (!strncmp(name, id, 2))
      return true;
  return false;
}

static void find_rules(const char *page) {
  for (const char *at = page; (at = strstr(at, "\n### ")); at += 5) {
    const char *id = at + 5;
    ck_assert_msg(is_id(id) && id[2] == ' ', "%s: the heading '%.20s' has no id", PAGE, id);
    ck_assert_msg(!is_rule(id), "%s: %.2s stands there twice", PAGE, id);
    ck_assert_uint_lt(n_rules, MAX_RULES);
    memcpy(rules[n_rules++], id, 2);
  }
  ck_assert_uint_gt(n_rules, 40);
}

static void find_tests(void) {
  static const char mark[] = "START_TEST(";
  glob_t files;
  ck_assert_int_eq(glob("tests/test_*.c", 0, NULL, &files), 0);
  tests = calloc(MAX_TESTS, sizeof *tests);
  for (size_t i = 0; i < files.gl_pathc; i++) {
    char *text = text_of(files.gl_pathv[i]);
    for (char *at = text; (at = strstr(at, mark)); at += strlen(mark)) {
      if (at > text && at[-1] != '\n')
        continue;
      ck_assert_uint_lt(n_tests, MAX_TESTS);
      snprintf(tests[n_tests].file, MAX_NAME, "%s", files.gl_pathv[i]);
      sscanf(at + strlen(mark), "%255[A-Za-z0-9_]", tests[n_tests++].name);
    }
    free(text);
  }
  globfree(&files);
  ck_assert_uint_gt(n_tests, 500);
}

static bool has_test(const char *file, const char *name) {
  for (size_t i = 0; i < n_tests; i++)
    if (!strcmp(tests[i].file, file) && !strcmp(tests[i].name, name))
      return true;
  return false;
}

static char *page;

static void set_up(void) {
  page = text_of(PAGE);
  find_rules(page);
  find_tests();
}

static void tear_down(void) {
  free(page);
  free(tests);
}

START_TEST(each_rule_names_tests_that_begin_with_its_id) {
  for (char *at = page, *next; (at = strstr(at, "\n### ")); at = next) {
    const char *id = at + 5;
    next = strstr(at + 1, "\n### ");
    next = next ? next : at + strlen(at);
    int named = 0;
    for (const char *cited = at; (cited = strstr(cited, "`tests/")) && cited < next; cited++) {
      char file[MAX_NAME] = "", name[MAX_NAME] = "";
      ck_assert_msg(sscanf(cited, "`%255[^:`]:%255[A-Za-z0-9_]`", file, name) == 2, "%s, %.2s: %.40s", PAGE, id, cited);
      ck_assert_msg(has_test(file, name), "%s, %.2s: there is no test %s in %s", PAGE, id, name, file);
      ck_assert_msg(begins_with(name, id), "%s: the name of %s does not begin with %.2s", PAGE, name, id);
      named++;
    }
    ck_assert_msg(named, "%s: no test is named for %.2s", PAGE, id);
  }
}
END_TEST

/* Of docs/security.md: the rows of its table. */
START_TEST(each_promise_of_the_security_page_names_tests) {
  char *text = text_of("docs/security.md"), *begin = strstr(text, "\n## What is promised\n");
  ck_assert_ptr_nonnull(begin);
  char *end = strstr(begin + 1, "\n## ");
  ck_assert_ptr_nonnull(end);
  int promises = 0;
  for (char *line = strstr(begin, "\n|---"); (line = strstr(line, "\n| ")) && line < end; promises++) {
    char *next = strchr(++line, '\n');
    int named = 0;
    for (char *cited = line; (cited = strstr(cited, "`tests/")) && cited < next; cited++, named++) {
      char file[MAX_NAME] = "", name[MAX_NAME] = "";
      ck_assert_msg(sscanf(cited, "`%255[^:`]:%255[A-Za-z0-9_]`", file, name) == 2, "docs/security.md: %.40s", cited);
      ck_assert_msg(has_test(file, name), "docs/security.md: there is no test %s in %s", name, file);
    }
    ck_assert_msg(named, "docs/security.md: no test shows '%.60s'", line);
  }
  ck_assert_int_gt(promises, 15);
  free(text);
}
END_TEST

START_TEST(each_id_in_a_tests_name_is_a_rule) {
  for (size_t i = 0; i < n_tests; i++)
    for (const char *id = tests[i].name; is_id(id) && id[2] == '_'; id += 3)
      ck_assert_msg(is_rule(id), "%s: %s: %.2s is no rule of %s", tests[i].file, tests[i].name, id, PAGE);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ ids in the text */

/* What is read as a whole; of sources only comments and texts in quotes are. */
static const char *const pages[] = {".md", ".yaml", ".mk", ".py", ".sh", ".1", ".5", ".7"};
static const char *const sources[] = {".c", ".h", ".cu", ".cuh"};

static bool ends_in(const char *path, const char *const *suffixes, size_t n) {
  const char *dot = strrchr(path, '.');
  for (size_t i = 0; dot && i < n; i++)
    if (!strcmp(dot, suffixes[i]))
      return true;
  return false;
}

/* Blanks the code. */
static void keep_words(char *text) {
  enum { CODE, COMMENT, LINE_COMMENT, QUOTES, CHARACTER } in = CODE;
  for (char *at = text; *at; at++) {
    bool escaped = *at == '\\' && at[1] && (in == QUOTES || in == CHARACTER);
    if (in == CODE && (!strncmp(at, "/*", 2) || !strncmp(at, "//", 2)))
      in = at[1] == '*' ? COMMENT : LINE_COMMENT;
    else if (in == CODE && (*at == '"' || *at == '\''))
      in = *at == '"' ? QUOTES : CHARACTER;
    else if ((in == COMMENT && !strncmp(at, "*/", 2)) || (in == LINE_COMMENT && *at == '\n') ||
             (in == QUOTES && *at == '"') || (in == CHARACTER && *at == '\''))
      in = CODE;
    if ((in == CODE || in == CHARACTER) && *at != '\n')
      *at = ' ';
    if (escaped) {
      at[1] = at[1] == '\n' ? '\n' : ' ';
      at++;
    }
  }
}

static int n_cited;

/* "-O2" is an option, "DeepSeek-V2" a name. */
static void check_words(const char *path, const char *text) {
  int line = 1;
  for (const char *at = text; *at; at++) {
    line += *at == '\n';
    bool in_word = at > text && (isalnum((unsigned char)at[-1]) || strchr("_-", at[-1]));
    if (in_word || !is_id(at) || at[2] == '_' || !is_family(*at))
      continue;
    ck_assert_msg(is_rule(at), "%s:%d: %.2s is no rule of %s", path, line, at, PAGE);
    n_cited++;
  }
}

static int check_file(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status;
  (void)place;
  bool is_source = ends_in(path, sources, sizeof sources / sizeof *sources);
  if (type != FTW_F || (!is_source && !ends_in(path, pages, sizeof pages / sizeof *pages)))
    return 0;
  char *text = text_of(path);
  if (is_source)
    keep_words(text);
  check_words(path, text);
  free(text);
  return 0;
}

START_TEST(each_id_that_is_cited_is_a_rule) {
  static const char *const folders[] = {"core", "cli", "include", "plugins", "tests", "docs", "config", "examples"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    ck_assert_msg(nftw(folders[i], check_file, 16, FTW_PHYS) == 0, "%s", folders[i]);
  ck_assert_int_gt(n_cited, 60);
}
END_TEST

static void add_tests(TCase *cases) {
  tcase_add_checked_fixture(cases, set_up, tear_down);
  tcase_add_test(cases, each_rule_names_tests_that_begin_with_its_id);
  tcase_add_test(cases, each_promise_of_the_security_page_names_tests);
  tcase_add_test(cases, each_id_in_a_tests_name_is_a_rule);
  tcase_add_test(cases, each_id_that_is_cited_is_a_rule);
}

int main(void) {
  return run_suite("rules_page", add_tests, 30);
}
