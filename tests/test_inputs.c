/* Cases of ops, and the calls that fl_generate_inputs makes of them. */
#include "tests/fixture.h"

#include <flhost/testing.h>
#include <math.h>

enum { MANY = 60, SEED = 3 };

static fl_host *host;

static void set_up(void) {
  host = test_host(NULL, 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

static const char rules[] = "x: T[..., 2*d]; weight: T|float32[d]; ids: int32|int64[n]; table: int32[n, m]; "
                            "out: T[..., d]; T = float32|bfloat16";

/* An op with an argument of each kind. */
static fl_op *op_with(const char *cases) {
  const fl_op_def def = {.size = sizeof def,
                         .schema = "op(Tensor x, Tensor? weight, Tensor ids, Tensor? table, int n, str mode, "
                                   "float? scale=None, int[] list=[3], bool flag=False, int count=4) -> Tensor out",
                         .rules = rules,
                         .cases = cases};
  ck_ok(fl_register_op(host, &def));
  return fl_find_op(host, "op");
}

enum { X, WEIGHT, IDS, TABLE, N, MODE, SCALE, LIST, FLAG, COUNT, N_ARGUMENTS };

static void refused(const char *cases, const char *message) {
  const fl_op_def def = {.size = sizeof def,
                         .schema = "op(Tensor x, Tensor? weight, Tensor ids, Tensor? table, int n, str mode, "
                                   "float? scale=None, int[] list=[3], bool flag=False, int count=4) -> Tensor out",
                         .rules = rules,
                         .cases = cases};
  ck_assert_int_eq(fl_register_op(host, &def), FL_EINVAL);
  ck_contains(fl_error_message(), message);
}

START_TEST(every_choice_is_taken_and_expressions_use_what_is_chosen) {
  fl_input in[N_ARGUMENTS];
  int sizes[3] = {0}, modes[2] = {0}, weights[2] = {0}, lists[2] = {0}, leading[2] = {0};
  fl_op *op = op_with("...: [7] [2, 3]; d: 4 8 16; n: d/2; m: n+1; mode: fast \"very slow\"; ids: 0..n*2-1; "
                      "weight: none 0.5..2; list: [1, -1] []; count: 9");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    int64_t d = in[X].spec.shape[in[X].spec.ndim - 1] / 2;
    ck_assert(d == 4 || d == 8 || d == 16);
    sizes[d / 8]++;
    leading[in[X].spec.ndim == 3]++;
    ck_assert_int_eq(in[X].spec.shape[0], in[X].spec.ndim == 3 ? 2 : 7);
    ck_assert_int_eq(in[N].value.v.i, d / 2);
    ck_assert_int_eq(in[IDS].spec.shape[0], d / 2);
    ck_assert_int_eq(in[IDS].contents, FL_CONTENTS_RANGE);
    ck_assert_double_eq(in[IDS].high, (double)d - 1);
    if (in[TABLE].spec.present)
      ck_assert_int_eq(in[TABLE].spec.shape[1], d / 2 + 1);
    modes[!strcmp(in[MODE].value.v.s, "very slow")]++;
    ck_assert(!strcmp(in[MODE].value.v.s, "very slow") || !strcmp(in[MODE].value.v.s, "fast"));
    weights[in[WEIGHT].spec.present]++;
    lists[in[LIST].value.length == 2]++;
    ck_assert_int_eq(in[LIST].value.type, FL_INT_LIST);
    ck_assert_int_eq(in[COUNT].value.v.i, 9);
  }
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(sizes[i], MANY / 3);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(modes[i], MANY / 2);
    ck_assert_int_eq(weights[i], MANY / 2);
    ck_assert_int_eq(lists[i], MANY / 2);
    ck_assert_int_eq(leading[i], MANY / 2);
  }
}
END_TEST

START_TEST(given_sizes_go_before_those_of_the_cases) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with("...: [7] [2, 3]; d: 4 8 16; n: d/2; m: n+1; mode: fast; ids: 0..n*2-1");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_sized_inputs(op, 0, "d: 8196; ...: [3, 2]", SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    ck_assert_int_eq(in[X].spec.ndim, 3);
    ck_assert_int_eq(in[X].spec.shape[0], 3);
    ck_assert_int_eq(in[X].spec.shape[2], 2 * 8196);
    ck_assert_int_eq(in[IDS].spec.shape[0], 4098);
  }
  ck_assert_int_eq(fl_generate_sized_inputs(op, 0, "d: 8195", SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)),
                   FL_EINVAL); /* half of it is no size */
  ck_assert_int_eq(fl_generate_sized_inputs(op, 0, "e: 1", SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_EINVAL);
  ck_contains(fl_error_message(), "sizes 'e: 1'");
  ck_assert_int_eq(fl_generate_sized_inputs(op, 0, "mode: fast", SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)),
                   FL_EINVAL);
  ck_contains(fl_error_message(), "'mode' is neither a dimension nor an int");
}
END_TEST

/* Not those that others determine, and not the value of an int argument. */
START_TEST(dimensions_whose_size_is_free_are_told_with_what_they_are_multiples_of) {
  static const struct {
    const char *name;
    int64_t step;
  } expected[] = {{"d", 4}, {"...", 1}};
  fl_dimension found = {.size = sizeof found};
  fl_op *op = op_with("d: 4 8 20; n: d/2; m: n+1; mode: fast; ids: 0..n*2-1");
  for (uint32_t i = 0; i < 2; i++) {
    ck_ok(fl_free_dimension(op, i, &found));
    ck_assert_str_eq(found.name, expected[i].name);
    ck_assert_int_eq(found.step, expected[i].step);
  }
  ck_assert_int_eq(fl_free_dimension(op, 2, &found), FL_ENOENT);
  ck_contains(fl_error_message(), "op has no dimension 2 whose size is free");
  ck_assert_int_eq(fl_free_dimension(NULL, 0, &found), FL_ENOENT);
}
END_TEST

START_TEST(what_has_no_clause_takes_what_usually_makes_sense) {
  fl_input in[N_ARGUMENTS];
  int flags = 0, tables = 0, empty = 0, float32 = 0;
  fl_op *op = op_with("mode: fast");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    flags += in[FLAG].value.v.b;
    tables += in[TABLE].spec.present;
    for (int32_t d = 0; d < in[X].spec.ndim; d++)
      empty += in[X].spec.shape[d] == 0;
    float32 += in[X].spec.dtype.code == kDLFloat;
    ck_assert_int_eq(in[X].contents, FL_CONTENTS_NORMAL);
    ck_assert_int_eq(in[IDS].contents, FL_CONTENTS_RANGE);
    ck_assert_int_eq(in[SCALE].value.type, FL_NONE);
    ck_assert_int_eq(in[LIST].value.v.ints[0], 3);
    ck_assert_int_eq(in[COUNT].value.v.i, 4);
    ck_assert_int_eq(in[IDS].spec.shape[0], in[N].value.v.i);
  }
  ck_assert_int_eq(flags, MANY / 2);
  ck_assert_int_eq(tables, MANY / 2);
  ck_assert_int_eq(float32, MANY / 2);
  ck_assert_int_gt(empty, 0);
}
END_TEST

START_TEST(contents_of_tensors_are_as_written) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with("mode: fast; n: 5; x: moderate; weight: normal; ids: distinct 0..n-1; table: ascending -1..2*n");
  ck_ok(fl_generate_inputs(op, 0, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)));
  ck_assert_int_eq(in[X].contents, FL_CONTENTS_MODERATE);
  ck_assert_int_eq(in[WEIGHT].contents, FL_CONTENTS_NORMAL);
  ck_assert_int_eq(in[IDS].contents, FL_CONTENTS_DISTINCT);
  ck_assert_int_eq(in[TABLE].contents, FL_CONTENTS_ASCENDING);
  ck_assert_double_eq(in[IDS].high, 4);
  ck_assert_double_eq(in[TABLE].low, -1);
  ck_assert_double_eq(in[TABLE].high, 10);
}
END_TEST

START_TEST(a_tensor_comes_with_another_one_or_instead_of_it) {
  fl_input in[N_ARGUMENTS];
  int with = 0;
  fl_op *op = op_with("mode: fast; weight: none normal; table: with weight [2, 3] 0..1");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    ck_assert(in[WEIGHT].spec.present == in[TABLE].spec.present);
    with += in[TABLE].spec.present;
    if (in[TABLE].spec.present)
      ck_assert(in[TABLE].spec.shape[0] == 2 && in[TABLE].spec.shape[1] == 3);
  }
  ck_assert_int_eq(with, MANY / 2);
}
END_TEST

START_TEST(without_is_the_contrary_of_with) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with("mode: fast; weight: none normal; table: without weight 0..1");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    ck_assert(in[WEIGHT].spec.present != in[TABLE].spec.present);
  }
}
END_TEST

START_TEST(a_clause_may_follow_the_choice_of_another) {
  fl_input in[N_ARGUMENTS];
  int seen[3] = {0};
  fl_op *op =
      op_with("mode: fast; count: 1 2 3; ids: as count 10..11 20..21 30..31; weight: as ids none normal normal");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    int64_t choice = in[COUNT].value.v.i;
    ck_assert_double_eq(in[IDS].low, 10 * (double)choice);
    ck_assert_int_eq(in[WEIGHT].spec.present, choice > 1);
    seen[choice - 1]++;
  }
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(seen[i], MANY / 3);
}
END_TEST

START_TEST(a_choice_may_name_the_element_type_of_one_of_the_rules_alternatives) {
  enum { WEIGHT_HERE, SCALE_HERE, N_HERE };
  const fl_op_def def = {.size = sizeof def,
                         .schema = "op(Tensor w, Tensor? scale=None) -> Tensor out",
                         .rules = "w: T[n, k] or int8|uint8[n, k/2]; scale: float32[1] or float32[n] or int32[n]; "
                                  "out: float32[n]; T = float32|bfloat16",
                         .cases = "k: 8; n: 3; w: T -1..1 uint8 0..255 int8 -9..9; "
                                  "scale: as w none int32 [1] 0..1 float32 [n] 0..1"};
  fl_input in[N_HERE];
  int seen[3] = {0};
  ck_ok(fl_register_op(host, &def));
  fl_op *op = fl_find_op(host, "op");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, SEED, i, in, N_HERE, sizeof(fl_input)));
    const fl_tensor_spec *w = &in[WEIGHT_HERE].spec, *scale = &in[SCALE_HERE].spec;
    int which = w->dtype.bits != 8 ? 0 : w->dtype.code == kDLUInt ? 1 : 2;
    ck_assert_int_eq(w->shape[1], which ? 4 : 8);
    ck_assert_double_eq(in[WEIGHT_HERE].high, which == 0 ? 1 : which == 1 ? 255 : 9);
    ck_assert_int_eq(scale->present, which > 0);
    if (which) {
      ck_assert_int_eq(scale->dtype.code, which == 1 ? kDLInt : kDLFloat);
      ck_assert_int_eq(scale->shape[0], which == 1 ? 1 : 3);
    }
    seen[which]++;
  }
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(seen[i], MANY / 3);
}
END_TEST

START_TEST(the_element_type_that_is_asked_for_is_that_of_the_first_variable) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with("mode: fast; weight: normal");
  int float32 = 0;
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, FL_BFLOAT16, SEED, i, in, N_ARGUMENTS, sizeof(fl_input)));
    ck_assert_int_eq(in[X].spec.dtype.code, kDLBfloat);
    float32 += in[WEIGHT].spec.dtype.code == kDLFloat;
  }
  ck_assert_int_eq(float32, MANY / 2);
  ck_assert_int_eq(fl_generate_inputs(op, FL_FLOAT16, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "op does not take float16");
}
END_TEST

START_TEST(an_element_type_that_a_str_names_is_that_of_its_tensors) {
  enum { X_HERE, BIAS, OUT_DTYPE, N_HERE };
  const fl_op_def def = {.size = sizeof def,
                         .schema = "op(Tensor x, Tensor bias, str out_dtype=\"float16\") -> Tensor out",
                         .rules = "x: T[n]; bias: O[n]; out: O[n]; O = float16|bfloat16 by out_dtype",
                         .cases = "out_dtype: float16 bfloat16"};
  fl_input in[N_HERE];
  int seen[2] = {0};
  ck_ok(fl_register_op(host, &def));
  fl_op *op = fl_find_op(host, "op");
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, FL_FLOAT32, SEED, i, in, N_HERE, sizeof(fl_input)));
    bool brain = !strcmp(in[OUT_DTYPE].value.v.s, "bfloat16");
    ck_assert_int_eq(in[X_HERE].spec.dtype.bits, 32);
    ck_assert_int_eq(in[BIAS].spec.dtype.code, brain ? kDLBfloat : kDLFloat);
    ck_assert_int_eq(in[BIAS].spec.dtype.bits, 16);
    seen[brain]++;
  }
  ck_assert_int_eq(seen[0], MANY / 2);
}
END_TEST

START_TEST(a_seed_gives_the_same_calls_and_another_one_others) {
  fl_input in[N_ARGUMENTS], again[N_ARGUMENTS], other[N_ARGUMENTS];
  fl_op *op = op_with("mode: fast");
  int different = 0;
  for (uint64_t i = 0; i < MANY; i++) {
    ck_ok(fl_generate_inputs(op, 0, 1, i, in, N_ARGUMENTS, sizeof(fl_input)));
    ck_ok(fl_generate_inputs(op, 0, 1, i, again, N_ARGUMENTS, sizeof(fl_input)));
    ck_ok(fl_generate_inputs(op, 0, 2, i, other, N_ARGUMENTS, sizeof(fl_input)));
    ck_assert_mem_eq(in, again, sizeof in);
    different += memcmp(in, other, sizeof in) != 0;
  }
  ck_assert_int_gt(different, MANY / 2);
}
END_TEST

START_TEST(a_call_that_cannot_be_is_refused_with_the_reason) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with("mode: fast; d: 3; n: d/2");
  ck_assert_int_eq(fl_generate_inputs(op, 0, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_EINVAL);
  ck_contains(fl_error_message(), "3 / 2 is not exact");
  ck_assert_int_eq(fl_generate_inputs(op, 0, SEED, 0, in, 3, sizeof(fl_input)), FL_EINVAL);
  ck_assert_int_eq(fl_generate_inputs(op, 3, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_EINVAL);
  ck_assert_int_eq(fl_generate_inputs(NULL, 0, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_ENOENT);
}
END_TEST

START_TEST(a_string_without_clause_and_default_is_named) {
  fl_input in[N_ARGUMENTS];
  fl_op *op = op_with(NULL);
  ck_assert_int_eq(fl_generate_inputs(op, 0, SEED, 0, in, N_ARGUMENTS, sizeof(fl_input)), FL_EINVAL);
  ck_contains(fl_error_message(), "nothing says what argument 'mode' may be");
}
END_TEST

START_TEST(bad_cases_are_refused_with_the_place) {
  refused("dd: 4", "cases 'dd: 4', column 1: found 'dd', expected a dimension of the rules, an argument or '...'");
  refused("wieght: normal", "did you mean 'weight'?");
  refused("d 4", "column 3: found '4', expected ':' and the choices");
  refused("d:", "found the end, expected a choice");
  refused("d: 4; d: 5", "there are two clauses for 'd'");
  refused("d: 4 none", "column 6: this cannot be none");
  refused("d: e", "'e' is neither a dimension of the rules nor an int");
  refused("d: 2*scale", "'scale' is neither a dimension of the rules nor an int");
  refused("d: n; n: 4", "'n' has its own clause further on");
  refused("d: d", "'d' has its own clause further on");
  refused("d: (4", "found the end, expected ')'");
  refused("d: 4x", "expected an operator or the end of '4x'");
  refused("d: 010", "found '010', expected a decimal number without leading zeros");
  refused("list: [08]", "found '08', expected a decimal number without leading zeros");
  refused("ids: 0", "expected what is in the tensor: normal, moderate, or LOW..HIGH");
  refused("ids: 0..", "expected a number, a name or an expression in parentheses");
  refused("scale: much", "found 'much', expected a number");
  refused("flag: maybe", "found 'maybe', expected true or false");
  refused("mode: \"fast", "expected '\"' at the end of the text");
  refused("list: 3", "found '3', expected a list of integers in []");
  refused("list: [x]", "found 'x', expected an integer");
  refused("...: [-1]", "a size is negative");
  refused("ids: none", "this cannot be none");
  refused("table: with ids none; weight: with table normal", "a tensor argument before this one");
  refused("ids: with x 0..1", "'ids' cannot be none");
  refused("ids: as count 0..1; count: 4", "'as' and the name of what has a clause before this one expected");
  refused("ids: as cuont 0..1", "'as' and the name of what has a clause before this one expected");
  refused("count: 1 2; ids: as count 0..1", "1 choices, expected 2, as the clause has that it follows");
  refused("ids: int8 0..1", "the rules do not let 'ids' be 'int8'");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, every_choice_is_taken_and_expressions_use_what_is_chosen);
  tcase_add_test(tests, given_sizes_go_before_those_of_the_cases);
  tcase_add_test(tests, dimensions_whose_size_is_free_are_told_with_what_they_are_multiples_of);
  tcase_add_test(tests, what_has_no_clause_takes_what_usually_makes_sense);
  tcase_add_test(tests, contents_of_tensors_are_as_written);
  tcase_add_test(tests, a_tensor_comes_with_another_one_or_instead_of_it);
  tcase_add_test(tests, without_is_the_contrary_of_with);
  tcase_add_test(tests, a_clause_may_follow_the_choice_of_another);
  tcase_add_test(tests, a_choice_may_name_the_element_type_of_one_of_the_rules_alternatives);
  tcase_add_test(tests, the_element_type_that_is_asked_for_is_that_of_the_first_variable);
  tcase_add_test(tests, an_element_type_that_a_str_names_is_that_of_its_tensors);
  tcase_add_test(tests, a_seed_gives_the_same_calls_and_another_one_others);
  tcase_add_test(tests, a_call_that_cannot_be_is_refused_with_the_reason);
  tcase_add_test(tests, a_string_without_clause_and_default_is_named);
  tcase_add_test(tests, bad_cases_are_refused_with_the_place);
}

int main(void) {
  return run_suite("inputs", add_tests, 30);
}
