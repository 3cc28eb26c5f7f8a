/*
 * Pages that are named exist: whoever reads a page, a comment or where a golden file's numbers come from, and goes
 * where that sends them, has to find something there. Looks at the whole tree, but for what was built.
 */
#include "tests/scratch.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_PAGES = 256 };

/* Pages of the tree, "docs/policy-guide.md". */
static char *pages[MAX_PAGES];
static size_t n_pages;

/* What a file has to say: its text, of a safetensors file the header. NULL: neither, so it names no page. */
static char *text_of(const char *path) {
  static const char suffix[] = ".safetensors";
  size_t length, name = strlen(path);
  unsigned char *bytes = read_file(path, &length), *text = bytes;
  if (name > strlen(suffix) && !strcmp(path + name - strlen(suffix), suffix)) {
    uint64_t header;
    ck_assert_msg(length >= sizeof header, "%s: no header", path);
    memcpy(&header, bytes, sizeof header);
    ck_assert_msg(header <= length - sizeof header, "%s: no header", path);
    text += sizeof header;
    length = header;
  }
  char *copy = memchr(text, 0, length) ? NULL : malloc(length + 1);
  if (copy) {
    memcpy(copy, text, length);
    copy[length] = 0;
  }
  free(bytes);
  return copy;
}

static bool is_page(const char *path) {
  size_t length = strlen(path);
  return length > 3 && !strcmp(path + length - 3, ".md");
}

/* What was built, what git keeps, and what an editor leaves. */
static bool is_foreign(const char *path, const struct FTW *place) {
  const char *name = path + place->base;
  return place->level == 1 && (!strcmp(name, "build") || !strcmp(name, build_dir()) ||
                               (*name == '.' && strcmp(name, ".ci") && strcmp(name, ".")));
}

static int (*each_file)(const char *path); /* nftw takes no argument for its function */

static int visit(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status;
  if (is_foreign(path, place))
    return FTW_SKIP_SUBTREE;
  if (type == FTW_F)
    each_file(path + strlen("./"));
  return FTW_CONTINUE;
}

static void for_each_file(int (*function)(const char *path)) {
  each_file = function;
  ck_assert_int_eq(nftw(".", visit, 16, FTW_PHYS | FTW_ACTIONRETVAL), 0);
}

static int add_page(const char *path) {
  if (is_page(path)) {
    ck_assert_uint_lt(n_pages, MAX_PAGES);
    pages[n_pages++] = strdup(path);
  }
  return 0;
}

static void find_pages(void) {
  for_each_file(add_page);
  ck_assert_uint_gt(n_pages, 10);
}

static void forget_pages(void) {
  while (n_pages)
    free(pages[--n_pages]);
}

/* -------------------------------------------------------------------------------------------------------- citations */

/* Names that tests make up. */
static const char *const made_up[] = {"page.md", "uide.md", "other/policy-guide.md"};

static bool is_made_up(const char *name) {
  for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++)
    if (!strcmp(name, made_up[i]))
      return true;
  return false;
}

/* A page may be named from where it lies ("../plugins/gpu/README.md"), from the root, or by its own name; or where it
 * is installed. */
static bool exists(const char *name) {
  static const char installed[] = "share/doc/flhost/";
  while (!strncmp(name, "./", 2) || !strncmp(name, "../", 3))
    name += name[1] == '.' ? 3 : 2;
  if (!strncmp(name, installed, strlen(installed)))
    name += strlen(installed);
  for (size_t i = 0; i < n_pages; i++) {
    size_t length = strlen(pages[i]), tail = strlen(name);
    if (tail <= length && !strcmp(pages[i] + length - tail, name) &&
        (tail == length || pages[i][length - tail - 1] == '/'))
      return true;
  }
  return false;
}

static bool is_part_of_path(char c) {
  return isalnum((unsigned char)c) || (c && strchr("_./-", c));
}

/* Asserts that each word of the text that ends in ".md" names a page. Absolute paths and addresses are none of ours.
 * How many there were. */
static int check_citations(const char *path, const char *text) {
  int n = 0;
  for (const char *end = text; (end = strstr(end, ".md")); end++) {
    const char *begin = end;
    char name[256];
    while (begin > text && is_part_of_path(begin[-1]))
      begin--;
    bool is_formatted = begin > text && begin[-1] == '%'; /* "%s.md" */
    if (begin == end || *begin == '/' || is_formatted || isalnum((unsigned char)end[3]) || end[3] == '_')
      continue;
    snprintf(name, sizeof name, "%.*s", (int)(end + strlen(".md") - begin), begin);
    if (is_made_up(name))
      continue;
    ck_each(exists(name), "%s names the page '%s', and there is none", path, name);
    n++;
  }
  return n;
}

static int n_citations, n_golden;

static int check_file(const char *path) {
  char *text = text_of(path);
  int n = text ? check_citations(path, text) : 0;
  n_citations += n;
  n_golden += n && !strncmp(path, "tests/golden/", strlen("tests/golden/"));
  free(text);
  return 0;
}

START_TEST(every_page_that_a_file_of_the_tree_or_a_golden_tensor_cites_is_there) {
  for_each_file(check_file);
  ck_assert_int_gt(n_citations, 300);
  ck_assert_int_gt(n_golden, 300);
}
END_TEST

START_TEST(a_page_that_is_not_there_is_noticed) {
  ck_assert(exists("docs/policy-guide.md"));
  ck_assert(exists("../policy-guide.md"));
  for (size_t i = 0; i < sizeof made_up / sizeof *made_up; i++)
    ck_assert_msg(!exists(made_up[i]), "%s", made_up[i]);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ links */

/* Asserts that what a page links to, "](../examples/policy.yaml)", is there. */
static int check_links(const char *path) {
  if (!is_page(path))
    return 0;
  char *text = text_of(path), target[PATH_MAX];
  const char *slash = strrchr(path, '/');
  for (const char *link = text; (link = strstr(link, "]("));) {
    link += strlen("](");
    int length = (int)strcspn(link, ")#");
    if (!length || !strncmp(link, "http", 4) || !strncmp(link, "@ref ", 5)) /* Doxygen's own */
      continue;
    snprintf(target, sizeof target, "%.*s%.*s", slash ? (int)(slash + 1 - path) : 0, path, length, link);
    ck_each(!access(target, F_OK), "%s links to '%s', and there is no such file", path, target);
    n_citations++;
  }
  free(text);
  return 0;
}

START_TEST(every_link_of_a_page_leads_somewhere) {
  for_each_file(check_links);
  ck_assert_int_gt(n_citations, 15);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, find_pages, forget_pages);
  tcase_add_test(tests, every_page_that_a_file_of_the_tree_or_a_golden_tensor_cites_is_there);
  tcase_add_test(tests, a_page_that_is_not_there_is_noticed);
  tcase_add_test(tests, every_link_of_a_page_leads_somewhere);
}

int main(void) {
  return run_suite("docs", add_tests, 60);
}
