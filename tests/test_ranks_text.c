/* What an entry says of ranks (fl_op_def.ranks, and `ranks` in rules): how it is read, and refused. */
#include "tests/fixture.h"

#include <string.h>

static const struct {
  const char *text, *message;
} wrong[] = {
    {"out = all_reduce(out)", "column 5: found '=', expected ',' or ':' behind the groups"},
    {": out = all_reduce(out)", "column 1: found ':', expected the name of a group, as in 'tp: …'"},
    {"a, b, c, d, e: ", "column 13: more than 4 groups"},
    {"tp: ou = all_reduce(out)", "column 5: found 'ou', expected an argument or result; did you mean 'out'?"},
    {"tp: out all_reduce(out)", "column 9: found 'all_reduce', expected '='"},
    {"tp: out = all_reduc(out)", "found 'all_reduc', expected what becomes of a result; did you mean 'all_reduce'?"},
    {"tp: out = part(out)", "found 'part', expected what becomes of a result"},
    {"tp: x = all_reduce(x)", "found 'all_reduce', expected what becomes of an argument"},
    {"tp: out = all_reduce(x)", "expected 'out', the value itself"},
    {"tp: out = all_reduce out", "expected '('"},
    {"tp: out = all_gather(out)", "expected ', -1' or ', 0', the dimension"},
    {"tp: x = all_gather(x, 1)", "expected ', 0', the dimension"},
    {"tp: out = all_reduce(out", "found the end, expected ')'"},
    {"tp: x = first(x)", "argument 'x' may not be none"},
    {"tp: x = none", "argument 'x' may not be none"},
    {"tp: n = part(n)", "'n' is not a tensor"},
    {"tp: out = all_reduce(out) if x", "'x' decides nothing, expected a bool argument or one that may be none"},
    {"tp: out = all_reduce(out) if not", "found the end, expected an argument"},
    {"tp: out = all_reduce(out); out = all_reduce(out)", "column 28: there are two steps for 'out'"},
    {"tp: out = all_reduce(out) x", "column 27: found 'x', expected ';' or the end"},
};
enum { N_WRONG = sizeof wrong / sizeof *wrong };

static fl_op_def with_ranks(const char *text) {
  return (fl_op_def){.size = sizeof(fl_op_def),
                     .schema = "f(Tensor x, Tensor? y, int n=1, bool b=False) -> Tensor out",
                     .rules = "x: T[..., d]; out: T[..., d*ranks] when b or T[..., d]",
                     .ranks = text};
}

START_TEST(wrong_text_is_refused_with_the_place) {
  fl_host *own = test_host(NULL, 0);
  const fl_op_def def = with_ranks(wrong[_i].text);
  ck_assert_int_eq(fl_register_op(own, &def), FL_EINVAL);
  ck_contains(fl_error_message(), wrong[_i].message);
  ck_contains(fl_error_message(), "ranks '");
  fl_host_destroy(own);
}
END_TEST

START_TEST(no_text_however_cut_is_read_beyond_its_end) {
  static const char whole[] =
      "ep, tp: x = all_gather(x, 0) if not b; y = first(y); n = none; out = all_gather(out, -1)";
  for (size_t n = 1; n <= sizeof whole; n++) {
    fl_host *own = test_host(NULL, 0);
    char *text = strndup(whole, n);
    fl_op_def def = with_ranks(text);
    def.schema = "f(Tensor x, Tensor? y, int? n=1, bool b=False) -> Tensor out";
    fl_status status = fl_register_op(own, &def);
    ck_assert(status == FL_OK || status == FL_EINVAL);
    free(text);
    fl_host_destroy(own);
  }
}
END_TEST

START_TEST(ranks_is_a_name_of_rules_only_where_ranks_matter) {
  fl_host *own = test_host(NULL, 0);
  const fl_op_def def = {
      .size = sizeof def, .schema = "g(Tensor x) -> Tensor out", .rules = "x: T[d]; out: T[d*ranks]"};
  ck_assert_int_eq(fl_register_op(own, &def), FL_EINVAL);
  ck_contains(fl_error_message(), "'ranks' does not follow from the arguments");
  fl_host_destroy(own);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, wrong_text_is_refused_with_the_place, 0, N_WRONG);
  tcase_add_test(tests, no_text_however_cut_is_read_beyond_its_end);
  tcase_add_test(tests, ranks_is_a_name_of_rules_only_where_ranks_matter);
}

int main(void) {
  return run_suite("ranks_text", add_tests, 60);
}
