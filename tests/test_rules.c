/* Rules of shapes and dtypes: what the compiler accepts and refuses, what matches, what follows for results. */
#include "tests/tensors.h"

#include <flhost/flhost.h>

/* ---------------------------------------------------------------------------------------------------- the compiler */

static const struct {
  const char *schema, *rules, *message; /* what follows "rules '…', " */
} mistakes[] = {
    {"f(Tensor weight) -> Tensor", "wieght: T[n]; out: T[n]",
     "column 1: found 'wieght', expected the name of an argument or result, or of a dtype variable; did you mean "
     "'weight'?"},
    {"f(Tensor x) -> Tensor", "x: flaot32[n]; out: float32[n]",
     "column 4: found 'flaot32', expected a dtype or a capital letter that stands for one; did you mean 'float32'?"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n]; T = flot16",
     "column 25: found 'flot16', expected a dtype; did you mean 'float16'?"},
    {"f(Tensor x) -> Tensor", "x T[n]", "column 3: found 'T', expected ':' and what the tensor must be"},
    {"f(Tensor x) -> Tensor", "x: T[n", "column 7: found the end, expected ',' or ']'"},
    {"f(Tensor x) -> Tensor", "x: T[n m]", "column 8: found 'm', expected ',' or ']'"},
    {"f(Tensor x) -> Tensor", "x: T[n,]",
     "column 8: found ']', expected a dimension: a number, a name or an expression"},
    {"f(Tensor x) -> Tensor", "x: T[2*]",
     "column 8: found ']', expected a dimension: a number, a name or an expression"},
    {"f(Tensor x) -> Tensor", "x: T[(n]", "column 8: found ']', expected ')'"},
    {"f(Tensor x) -> Tensor", "x: T[n, ...]",
     "column 9: found '...', expected a dimension: a number, a name or an expression"},
    {"f(Tensor x) -> Tensor", "x: T[010]", "column 6: found '010', expected a decimal number without leading zeros"},
    {"f(Tensor x) -> Tensor", "x: T[2n]", "column 6: found '2n', expected a number of 64 bits"},
    {"f(Tensor x) -> Tensor", "x: T[99999999999999999999]",
     "column 6: found '99999999999999999999', expected a number of 64 bits"},
    {"f(Tensor x) -> Tensor", "x: T[a,b,c,d,e,f,g,h,i]", "column 22: more than 8 dimensions"},
    {"f(Tensor x) -> Tensor", "x: T|U[n]", "column 6: found 'U', expected a dtype (only one may be a variable)"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n] y", "column 20: found 'y', expected ';' or the end"},
    {"f(Tensor x) -> Tensor", "x: T[n]; x: T[n]", "column 10: there are two rules for 'x'"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n]; T = int32; T = int64",
     "column 32: there are two rules for dtype variable 'T'"},
    {"f(Tensor x, int k) -> Tensor", "k: T[n]", "column 1: 'k' is not a tensor"},
    {"f(Tensor x, float k) -> Tensor", "x: T[k]", "column 6: argument 'k' is not an int"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[m]", "column 17: 'm' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n*m]; out: T[2]", "column 6: 'm' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n*n]; out: T[2]", "column 6: 'n' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[..., n]", "column 15: '...' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: int32[n]; out: T[n]",
     "column 19: dtype variable 'T' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T|int32[n]; out: int32[n]", "column 4: no argument is of dtype variable 'T' alone"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: int32|int64[n]", "column 15: a result needs one dtype"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T|int64[n]", "column 15: a result needs one dtype"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T", "column 15: a result needs dimensions in []"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n]; U = int32", "column 21: no argument is of dtype variable 'U' alone"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: O[n]; O = int8|float32 by size",
     "column 41: found 'size', expected the name of a str argument"},
    {"f(Tensor x, str kind, int size) -> Tensor", "x: T[n]; out: O[n]; O = int8|float32 by size",
     "column 41: found 'size', expected the name of a str argument"},
    {"f(Tensor x) -> Tensor", "x: T[n // 2]; out: T[n]", "column 6: 'n' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[max(n, 2)]; out: T[2]", "column 6: 'n' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[numel(...)]", "column 17: '...' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[numel(n)]",
     "column 23: found 'n', expected '...': the number of elements that the leading dimensions make"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[mxa(n, 2)]",
     "column 17: found 'mxa', expected given, numel, min or max before '('; did you mean 'max'?"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[min(n)]", "column 22: found ')', expected ','"},
    {"f(Tensor x, int[] pads) -> Tensor", "x: T[n]; out: T[pad[0]]",
     "column 17: found 'pad', expected an int[] argument before '['; did you mean 'pads'?"},
    {"f(Tensor x, int[] pads) -> Tensor", "x: T[n]; out: T[pads[n]]",
     "column 22: found 'n', expected the number of an element, from 0"},
    {"f(Tensor x, int[] pads) -> Tensor", "x: T[n]; out: T[pads[0, n]]", "column 23: found ',', expected ']'"},
    {"f(Tensor x, Tensor? y) -> Tensor", "x: T[n]; out: T[given(x)]",
     "column 23: found 'x', expected an argument that may be none; did you mean 'y'?"},
    {"f(Tensor x, Tensor y) -> Tensor", "x: T[n]; y: like x; out: T[n]",
     "column 13: only a result can be 'like' an argument"},
    {"f(Tensor x, int k) -> Tensor", "x: T[n]; out: like k",
     "column 20: found 'k', expected the name of a tensor argument; did you mean 'x'?"},
    {"f(Tensor x) -> Tensor", "x: T[n] when n > 1; out: T[n]",
     "column 9: only an alternative of a result can have a 'when'"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n] when m > 1", "column 19: 'm' does not follow from the arguments"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n] when n = 1", "column 27: found '=', expected ';' or the end"},
    {"f(Tensor x) -> Tensor", "x: T[n]; out: T[n] when n > 1 and",
     "column 34: found the end, expected a dimension: a number, a name or an expression"},
};

START_TEST(a_mistake_in_rules_is_answered_with_column_found_and_expected) {
  char expected[1024];
  fl_op_def def = {.size = sizeof def, .schema = mistakes[_i].schema, .rules = mistakes[_i].rules};
  fl_schema *schema = NULL;
  snprintf(expected, sizeof expected, "rules '%s', %s", mistakes[_i].rules, mistakes[_i].message);
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), expected);
  ck_assert_ptr_null(schema);
}
END_TEST

START_TEST(a_result_that_nothing_describes_is_refused) {
  static const struct {
    const char *schema, *rules;
  } rows[] = {{"f(int n) -> Tensor", NULL}, {"f(Tensor? x) -> Tensor", NULL}, {"f(Tensor x) -> Tensor", "x: T[n]"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fl_op_def def = {.size = sizeof def, .schema = rows[i].schema, .rules = rows[i].rules};
    fl_schema *schema = NULL;
    ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
    ck_assert_str_eq(fl_error_message(),
                     "f: nothing says the shape and dtype of result 'out': expected rules or infer");
  }
}
END_TEST

START_TEST(limits_of_the_compiler_are_errors) {
  static const struct {
    const char *begin, *repeated, *end, *message;
    int n;
  } rows[] = {{"x: T[", "(", "n", "more than 32 levels of parentheses", 33},
              {"x: T[n", "+1", "]", "more than 512 terms", 256},
              {"x: T[n]", " or T[n]", "", "more than 64 alternatives", 64}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char rules[2048];
    strcpy(rules, rows[i].begin);
    for (int j = 0; j < rows[i].n; j++)
      strcat(rules, rows[i].repeated);
    strcat(rules, rows[i].end);
    fl_op_def def = {.size = sizeof def, .schema = "f(Tensor x) -> ()", .rules = rules};
    fl_schema *schema = NULL;
    ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
    ck_assert_ptr_nonnull(strstr(fl_error_message(), rows[i].message));
  }
}
END_TEST

START_TEST(more_names_or_dtype_variables_than_there_is_room_for_are_errors) {
  fl_op_def def = {.size = sizeof def, .schema = "f(Tensor a, Tensor b, Tensor c, Tensor d, Tensor e) -> ()"};
  fl_schema *schema = NULL;
  char rules[512] = "";
  for (int i = 0; i < 33; i++) {
    if (i % 8 == 0)
      snprintf(rules + strlen(rules), 32, "%s%c: T[", i ? "]; " : "", 'a' + i / 8);
    snprintf(rules + strlen(rules), 32, "%sn%d", i % 8 ? ", " : "", i);
  }
  strcat(rules, "]");
  def.rules = rules;
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "more than 32 names"));
  def.rules = "a: A or B or C or D or E or F or G or H or I";
  ck_assert_int_eq(fl_schema_create_checked(&def, &schema), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "more than 8 dtype variables"));
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- matching */

/* One tensor of float32 against one clause; `expected` NULL: it matches. */
static const struct {
  const char *rules;
  int ndim;
  int64_t shape[4];
  const char *expected;
} shapes[] = {
    {"x: T", 3, {1, 2, 3}, NULL},
    {"x: T[]", 0, {0}, NULL},
    {"x: T[]", 1, {1}, "shape [1], expected []"},
    {"x: T[...]", 0, {0}, NULL},
    {"x: T[..., 2*d]", 1, {8}, NULL},
    {"x: T[..., 2*d]", 3, {5, 0, 8}, NULL},
    {"x: T[..., 2*d]", 1, {0}, NULL},
    {"x: T[..., 2*d]", 2, {3, 7}, "shape [3, 7], expected [..., 2*d]"},
    {"x: T[..., 2*d]", 0, {0}, "shape [], expected [..., 2*d]"},
    {"x: T[n, n]", 2, {3, 3}, NULL},
    {"x: T[n, n]", 2, {3, 4}, "shape [3, 4], expected [n, n]"},
    {"x: T[4, n]", 2, {4, 9}, NULL},
    {"x: T[4, n]", 2, {5, 9}, "shape [5, 9], expected [4, n]"},
    {"x: T[n+3]", 1, {3}, NULL},
    {"x: T[n+3]", 1, {2}, "shape [2], expected [n+3]"},
    {"x: T[3+n]", 1, {2}, "shape [2], expected [3+n]"},
    {"x: T[n-1]", 1, {0}, NULL},
    {"x: T[n-1, n]", 2, {4, 5}, NULL},
    {"x: T[n-1, n]", 2, {5, 4}, "shape [5, 4], expected [n-1, n]"},
    {"x: T[8-n, n]", 2, {3, 5}, NULL},
    {"x: T[8-n, n]", 2, {9, 0}, "shape [9, 0], expected [8-n, n]"},
    {"x: T[n/2, n]", 2, {3, 6}, NULL},
    {"x: T[n, n/2]", 2, {7, 3}, "shape [7, 3], expected [n, n/2]"},
    {"x: T[24/n, n]", 2, {6, 4}, NULL},
    {"x: T[24/n, n]", 2, {5, 4}, "shape [5, 4], expected [24/n, n]"},
    {"x: T[24/n, n]", 2, {0, 4}, "shape [0, 4], expected [24/n, n]"},
    {"x: T[n, 5*(n+1)-2]", 2, {2, 13}, NULL},
    {"x: T[n, 5*(n+1)-2]", 2, {2, 12}, "shape [2, 12], expected [n, 5*(n+1)-2]"},
    {"x: T[h*d, d]", 2, {12, 4}, NULL},
    {"x: T[h*d, d] or T[h]", 2, {13, 4}, "shape [13, 4], expected [h*d, 4] (h*d, d = 4 of 'x') or [h]"},
    {"x: T[n, n*4611686018427387904]", 2, {4, 0}, "shape [4, 0], expected [n, n*4611686018427387904]"},
    {"x: T[a] or T[a, b]", 2, {1, 2}, NULL},
    {"x: T[a] or T[a, b]", 3, {1, 2, 3}, "shape [1, 2, 3], expected [a] or [a, b]"},
    {"x: int32[a] or T[a, 2]", 2, {1, 3}, "shape [1, 3], expected [a, 2]"},
};

START_TEST(shapes_match_as_the_rules_say) {
  fl_schema *schema = make_schema("f(Tensor x) -> ()", shapes[_i].rules);
  DLTensor x = tensor(f32, place(0), shapes[_i].ndim, (int64_t *)shapes[_i].shape);
  char message[256];
  if (!shapes[_i].expected) {
    ACCEPTED(schema, fl_tensor(&x));
  } else {
    snprintf(message, sizeof message, "f: argument 'x': %s", shapes[_i].expected);
    REFUSED(schema, message, fl_tensor(&x));
  }
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_name_has_one_value_and_the_message_says_from_where) {
  fl_schema *schema =
      make_schema("f(Tensor x, Tensor weight, Tensor b, int k) -> ()", "x: T[..., 2*H]; weight: T[H]; b: T[2*H+1, k]");
  DLTensor x = tensor(f32, place(0), DIMS(3, 16)), w = tensor(f32, place(1), DIMS(8));
  DLTensor w4 = tensor(f32, place(1), DIMS(4)), b = tensor(f32, place(2), DIMS(17, 5));
  DLTensor b16 = tensor(f32, place(2), DIMS(16, 5));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&w), fl_tensor(&b), fl_int(5));
  REFUSED(schema, "f: argument 'weight': shape [4], expected [8] (H of 'x')", fl_tensor(&x), fl_tensor(&w4),
          fl_tensor(&b), fl_int(5));
  REFUSED(schema, "f: argument 'b': shape [16, 5], expected [17, 5] (2*H+1, H = 8 of 'x')", fl_tensor(&x),
          fl_tensor(&w), fl_tensor(&b16), fl_int(5));
  REFUSED(schema, "f: argument 'b': shape [17, 5], expected [17, 6] (argument 'k')", fl_tensor(&x), fl_tensor(&w),
          fl_tensor(&b), fl_int(6));
  fl_schema_free(schema);
}
END_TEST

START_TEST(leading_dimensions_are_the_same_everywhere) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor y) -> ()", "x: T[..., a]; y: U[..., b, a]");
  DLTensor x = tensor(f32, place(0), DIMS(2, 3, 16)), y = tensor(f16, place(1), DIMS(2, 3, 4, 16));
  DLTensor other = tensor(f16, place(1), DIMS(2, 5, 4, 16)), flat = tensor(f16, place(1), DIMS(4, 16));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&y));
  REFUSED(schema, "f: argument 'y': shape [2, 5, 4, 16], expected [2, 3, b, 16] (the leading dimensions of 'x')",
          fl_tensor(&x), fl_tensor(&other));
  REFUSED(schema, "f: argument 'y': shape [4, 16], expected [2, 3, b, 16] (the leading dimensions of 'x')",
          fl_tensor(&x), fl_tensor(&flat));
  fl_schema_free(schema);
}
END_TEST

START_TEST(dtypes_match_as_the_rules_say) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor y, Tensor z) -> ()",
                                  "x: T; y: T|float32; z: int32|int64 or T[]; T = float32|float16|bfloat16");
  DLTensor h = tensor(f16, place(0), DIMS(2)), f = tensor(f32, place(0), DIMS(2)), b = tensor(bf16, place(0), DIMS(2));
  DLTensor i = tensor(i32, place(1), DIMS(2)), d = tensor(f64, place(0), DIMS(2)),
           scalar = tensor(f16, place(1), 0, NULL);
  DLTensor odd = tensor((DLDataType){kDLComplex, 64, 1}, place(0), DIMS(2));
  ACCEPTED(schema, fl_tensor(&h), fl_tensor(&h), fl_tensor(&i));
  ACCEPTED(schema, fl_tensor(&h), fl_tensor(&f), fl_tensor(&scalar));
  ACCEPTED(schema, fl_tensor(&f), fl_tensor(&f), fl_tensor(&i));
  REFUSED(schema, "f: argument 'x': dtype float64, expected float32, float16 or bfloat16", fl_tensor(&d), fl_tensor(&f),
          fl_tensor(&i));
  REFUSED(schema, "f: argument 'x': dtype complex64, expected float32, float16 or bfloat16", fl_tensor(&odd),
          fl_tensor(&f), fl_tensor(&i));
  odd.dtype = (DLDataType){kDLUInt, 16, 1};
  REFUSED(schema, "f: argument 'x': dtype uint16, expected float32, float16 or bfloat16", fl_tensor(&odd),
          fl_tensor(&f), fl_tensor(&i));
  odd.dtype = (DLDataType){kDLFloat, 32, 4};
  REFUSED(schema, "f: argument 'x': dtype of type code 2, 32 bits, 4 lanes, expected float32, float16 or bfloat16",
          fl_tensor(&odd), fl_tensor(&f), fl_tensor(&i));
  REFUSED(schema, "f: argument 'y': dtype bfloat16, expected float16 (that of 'x') or float32", fl_tensor(&h),
          fl_tensor(&b), fl_tensor(&i));
  REFUSED(schema, "f: argument 'y': dtype float16, expected float32 (that of 'x')", fl_tensor(&f), fl_tensor(&h),
          fl_tensor(&i));
  REFUSED(schema, "f: argument 'z': dtype bfloat16, expected float16 (that of 'x'), int32 or int64", fl_tensor(&h),
          fl_tensor(&h), fl_tensor(&b));
  REFUSED(schema, "f: argument 'z': shape [2], expected []", fl_tensor(&h), fl_tensor(&h), fl_tensor(&h));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_str_argument_names_a_dtype) {
  fl_schema *schema =
      make_schema("f(Tensor x, str out_dtype=\"bfloat16\", Tensor? bias=None) -> Tensor out",
                  "x: T[n]; bias: O[n]; out: O[n]; T = float32|float16; O = float16|bfloat16 by out_dtype");
  DLTensor x = tensor(f32, place(0), DIMS(4)), h = tensor(f16, place(1), DIMS(4)), b = tensor(bf16, place(2), DIMS(4));
  DLTensor out = tensor(bf16, place(3), DIMS(4));
  ACCEPTED(schema, fl_tensor(&x), fl_string("bfloat16"), fl_tensor(&b), fl_tensor(&out));
  ACCEPTED(schema, fl_tensor(&x), fl_string("float16"), fl_none(), fl_tensor(&h));
  REFUSED(schema, "f: argument 'bias': dtype float16, expected bfloat16 (argument 'out_dtype')", fl_tensor(&x),
          fl_string("bfloat16"), fl_tensor(&h), fl_tensor(&b));
  REFUSED(schema, "f: result 'out': dtype bfloat16, expected float16", fl_tensor(&x), fl_string("float16"), fl_none(),
          fl_tensor(&b));
  REFUSED(schema, "f: argument 'out_dtype': \"int4\", expected \"float16\" or \"bfloat16\"", fl_tensor(&x),
          fl_string("int4"), fl_none(), fl_tensor(&h));
  REFUSED(schema,
          "f: argument 'out_dtype': \"bflaot16\", expected \"float16\" or \"bfloat16\"; did you mean 'bfloat16'?",
          fl_tensor(&x), fl_string("bflaot16"), fl_none(), fl_tensor(&h));
  fl_schema_free(schema);
}
END_TEST

START_TEST(what_depends_on_a_later_tensor_is_decided_then) {
  fl_schema *schema = make_schema("f(Tensor q, Tensor s, Tensor c) -> ()",
                                  "q: U[h*2*r]; s: T|float32[h]; c: T[r]; T = float32|float16|bfloat16");
  DLTensor q = tensor(i32, place(0), DIMS(24)), c = tensor(f16, place(1), DIMS(4)), c5 = tensor(f16, place(1), DIMS(5));
  DLTensor s = tensor(f16, place(2), DIMS(3)), s2 = tensor(f16, place(2), DIMS(2)), b = tensor(bf16, place(2), DIMS(3));
  ACCEPTED(schema, fl_tensor(&q), fl_tensor(&s), fl_tensor(&c));
  REFUSED(schema, "f: argument 'q': shape [24], expected [30] (h*2*r, h = 3 of 's', r = 5 of 'c')", fl_tensor(&q),
          fl_tensor(&s), fl_tensor(&c5));
  REFUSED(schema, "f: argument 'q': shape [24], expected [16] (h*2*r, h = 2 of 's', r = 4 of 'c')", fl_tensor(&q),
          fl_tensor(&s2), fl_tensor(&c));
  REFUSED(schema, "f: argument 's': dtype bfloat16, expected float16 (that of 'c') or float32", fl_tensor(&q),
          fl_tensor(&b), fl_tensor(&c));
  fl_schema_free(schema);
}
END_TEST

START_TEST(an_alternative_that_fails_leaves_no_trace) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor y) -> Tensor", "x: T[..., a, 2] or U[..., b, a]; y: V[a]; "
                                                                     "out: V[..., a]; T = float32; U = float32");
  DLTensor x = tensor(f32, place(0), DIMS(7, 5, 3)), y = tensor(f32, place(1), DIMS(3));
  DLTensor out = tensor(f32, place(2), DIMS(7, 3));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&y), fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

START_TEST(rules_of_an_absent_tensor_do_not_count) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor? y, Tensor? z) -> ()", "x: T[a]; y: T[b, a]; z: T[b*c, c]");
  DLTensor x = tensor(f32, place(0), DIMS(3)), z = tensor(f32, place(1), DIMS(12, 4)),
           y = tensor(f32, place(2), DIMS(5, 3));
  ACCEPTED(schema, fl_tensor(&x), fl_none(), fl_none());
  ACCEPTED(schema, fl_tensor(&x), fl_none(), fl_tensor(&z));
  REFUSED(schema, "f: argument 'z': shape [12, 4], expected [b*c, c] (b*c, b = 5 of 'y')", fl_tensor(&x), fl_tensor(&y),
          fl_tensor(&z));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_tensor_may_have_a_capital_letters_name) {
  fl_schema *schema = make_schema("f(Tensor A, Tensor D) -> Tensor", "A: T[D, N]; D: A[D]; out: A[N]; T = float32");
  DLTensor a = tensor(f32, place(0), DIMS(3, 4)), d = tensor(f16, place(1), DIMS(3)),
           out = tensor(f16, place(2), DIMS(4));
  ACCEPTED(schema, fl_tensor(&a), fl_tensor(&d), fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- results */

START_TEST(O6_results_follow_from_the_arguments) {
  fl_schema *schema =
      make_schema("f(Tensor ids, Tensor x, int k) -> (Tensor a, Tensor b, Tensor c)",
                  "ids: int32|int64[n]; x: T[..., 2*d]; a: T[..., d]; b: float32[n, 5*k, k-1]; c: int32[]");
  DLTensor ids = tensor(i64, NULL, DIMS(7)), x = tensor(bf16, NULL, DIMS(2, 3, 8));
  fl_value values[] = {fl_tensor(&ids), fl_tensor(&x), fl_int(2)};
  fl_call call = FL_CALL(values);
  fl_tensor_spec specs[3];
  ids.device = x.device = (DLDevice){kDLCUDA, 1};
  ck_assert_msg(fl_schema_infer(schema, &call, specs, 3) == FL_OK, "%s", fl_error_message());
  static const struct {
    int32_t ndim;
    int64_t shape[3];
    DLDataType dtype;
  } expected[] = {{3, {2, 3, 4}, {kDLBfloat, 16, 1}}, {3, {7, 10, 1}, {kDLFloat, 32, 1}}, {0, {0}, {kDLInt, 32, 1}}};
  for (int i = 0; i < 3; i++) {
    ck_assert(specs[i].present);
    ck_assert_int_eq(specs[i].ndim, expected[i].ndim);
    ck_assert_mem_eq(specs[i].shape, expected[i].shape, (size_t)expected[i].ndim * sizeof(int64_t));
    ck_assert_mem_eq(&specs[i].dtype, &expected[i].dtype, sizeof(DLDataType));
    ck_assert_int_eq(specs[i].device.device_type, kDLCUDA);
    ck_assert_int_eq(specs[i].device.device_id, 1);
  }
  fl_schema_free(schema);
}
END_TEST

START_TEST(O6_results_are_checked_against_what_follows) {
  fl_schema *schema = make_schema("f(Tensor x, int k) -> Tensor y", "x: T[..., 2*d]; y: T[..., d, k]");
  DLTensor x = tensor(f32, place(0), DIMS(3, 8)), good = tensor(f32, place(1), DIMS(3, 4, 2));
  DLTensor bad = tensor(f32, place(1), DIMS(3, 8, 2)), bad_k = tensor(f32, place(1), DIMS(3, 4, 1));
  DLTensor flat = tensor(f32, place(1), DIMS(4, 2)), half = tensor(f16, place(1), DIMS(3, 4, 2));
  ACCEPTED(schema, fl_tensor(&x), fl_int(2), fl_tensor(&good));
  REFUSED(schema, "f: result 'y': shape [3, 8, 2], expected [3, 4, 2] (d of 'x')", fl_tensor(&x), fl_int(2),
          fl_tensor(&bad));
  REFUSED(schema, "f: result 'y': shape [3, 4, 1], expected [3, 4, 2] (argument 'k')", fl_tensor(&x), fl_int(2),
          fl_tensor(&bad_k));
  REFUSED(schema, "f: result 'y': shape [4, 2], expected [3, 4, 2] (the leading dimensions of 'x')", fl_tensor(&x),
          fl_int(2), fl_tensor(&flat));
  REFUSED(schema, "f: result 'y': dtype float16, expected float32", fl_tensor(&x), fl_int(2), fl_tensor(&half));
  fl_schema_free(schema);
}
END_TEST

START_TEST(without_rules_a_result_is_as_the_first_tensor_or_the_one_that_it_may_be) {
  fl_schema *schema = make_schema("f(int n, Tensor x, Tensor(a!) y) -> (Tensor p, Tensor(a) q)", NULL);
  DLTensor x = tensor(f16, place(0), DIMS(3, 8)), y = tensor(i32, place(1), DIMS(5));
  DLTensor p = tensor(f16, place(2), DIMS(3, 8)), q = tensor(i32, place(3), DIMS(5));
  ACCEPTED(schema, fl_int(0), fl_tensor(&x), fl_tensor(&y), fl_tensor(&p), fl_tensor(&q));
  REFUSED(schema, "f: result 'p': dtype int32, expected float16 (that of 'x')", fl_int(0), fl_tensor(&x), fl_tensor(&y),
          fl_tensor(&q), fl_tensor(&q));
  REFUSED(schema, "f: result 'q': dtype float16, expected int32 (that of 'y')", fl_int(0), fl_tensor(&x), fl_tensor(&y),
          fl_tensor(&p), fl_tensor(&p));
  q.shape[0] = 6;
  REFUSED(schema, "f: result 'q': shape [6], expected [5] (that of 'y')", fl_int(0), fl_tensor(&x), fl_tensor(&y),
          fl_tensor(&p), fl_tensor(&q));
  fl_schema_free(schema);
}
END_TEST

START_TEST(an_alternative_of_a_result_is_the_first_that_follows) {
  fl_schema *schema = make_schema("f(Tensor q) -> Tensor", "q: T[n, h, d] or T[n, hd]; out: T[n, d, h] or T[n, hd]");
  DLTensor q3 = tensor(f32, place(0), DIMS(2, 3, 4)), q2 = tensor(f32, place(0), DIMS(2, 12));
  DLTensor out3 = tensor(f32, place(1), DIMS(2, 4, 3)), out2 = tensor(f32, place(1), DIMS(2, 12));
  ACCEPTED(schema, fl_tensor(&q3), fl_tensor(&out3));
  ACCEPTED(schema, fl_tensor(&q2), fl_tensor(&out2));
  REFUSED(schema, "f: result 'out': shape [2, 12], expected [2, 4, 3]", fl_tensor(&q3), fl_tensor(&out2));
  fl_schema_free(schema);
}
END_TEST

/* One expression over n = 7, `...` = [2, 3], k, and pads, flag, y: the size of the result, -1: none. */
static const struct {
  const char *expression;
  int64_t k, size;
} values_of[] = {
    {"n // 2", 0, 3},
    {"(n + 1) // 2", 0, 4},
    {"n // k", 0, -1},
    {"n // 2 * 2 + 1", 0, 7},
    {"(0 - n) // 2 + 10", 0, 6}, /* down, not towards zero */
    {"n // k + 10", -2, 6},
    {"min(n, k)", 3, 3},
    {"max(n, k)", 9, 9},
    {"max(n, min(k, 8)) - 1", 9, 7},
    {"numel(...)", 0, 6},
    {"max(numel(...), k)", 17, 17},
    {"pads[0] + 2*pads[1]", 0, 52},
    {"pads[2]", 0, -1},
    {"flag*5", 0, 5},
    {"given(y) + 2", 0, 2},
    {"given(k) + 2", 0, 3},
};

START_TEST(a_term_of_a_result_has_its_value) {
  char rules[256];
  snprintf(rules, sizeof rules, "x: T[..., n]; out: T[%s]", values_of[_i].expression);
  fl_schema *schema = make_schema("f(Tensor x, int? k, int[] pads, bool flag, Tensor? y) -> Tensor", rules);
  DLTensor x = tensor(f32, NULL, DIMS(2, 3, 7));
  const int64_t pads[] = {10, 21};
  fl_value values[] = {fl_tensor(&x), fl_int(values_of[_i].k), fl_ints(pads, 2), fl_bool(true), fl_none()};
  fl_call call = FL_CALL(values);
  fl_tensor_spec spec;
  ck_assert_int_eq(fl_schema_infer(schema, &call, &spec, 1), values_of[_i].size < 0 ? FL_EINVAL : FL_OK);
  if (values_of[_i].size >= 0) {
    ck_assert_int_eq(spec.ndim, 1);
    ck_assert_int_eq(spec.shape[0], values_of[_i].size);
  }
  fl_schema_free(schema);
}
END_TEST

/* Which of the alternatives counts: 1, 2 or 3, over x [n], k, pads. */
static const struct {
  const char *condition;
  int64_t k;
  bool holds;
} conditions[] = {
    {"k", 0, false},
    {"k", -3, true},
    {"k < 5", 5, false},
    {"k < 5", 4, true},
    {"k <= 5", 5, true},
    {"k <= 5", 6, false},
    {"k == n", 7, true},
    {"k == n", 6, false},
    {"k != n", 6, true},
    {"k != n", 7, false},
    {"k >= 2*n", 14, true},
    {"k >= 2*n", 13, false},
    {"k > 2*n", 15, true},
    {"k > 2*n", 14, false},
    {"k > 1 and k < 5", 3, true},
    {"k > 1 and k < 5", 1, false},
    {"k > 1 and k < 5", 5, false},
    {"k > 1 and k < 5 and k != 3", 3, false},
    {"n // k == 3", 2, true},
    {"n // k == 3", 0, false}, /* what has no value does not hold */
    {"n / k == 3", 2, false},
};

START_TEST(an_alternative_of_a_result_counts_when_its_condition_holds) {
  char rules[256];
  snprintf(rules, sizeof rules, "x: T[n]; out: int32[1] when %s or T[n, 2]", conditions[_i].condition);
  fl_schema *schema = make_schema("f(Tensor x, int k) -> Tensor", rules);
  DLTensor x = tensor(f32, place(0), DIMS(7)), held = tensor(i32, place(1), DIMS(1));
  DLTensor other = tensor(f32, place(2), DIMS(7, 2));
  ACCEPTED(schema, fl_tensor(&x), fl_int(conditions[_i].k), fl_tensor(conditions[_i].holds ? &held : &other));
  REFUSED(schema,
          conditions[_i].holds ? "f: result 'out': dtype float32, expected int32"
                               : "f: result 'out': dtype int32, expected float32",
          fl_tensor(&x), fl_int(conditions[_i].k), fl_tensor(conditions[_i].holds ? &other : &held));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_result_is_like_an_argument_that_is_given) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor? s) -> Tensor", "x: T[n]; out: like s or int32[n, 1]");
  DLTensor x = tensor(f32, place(0), DIMS(2)), s = tensor(f16, place(1), DIMS(3, 4));
  DLTensor as_s = tensor(f16, place(2), DIMS(3, 4)), own = tensor(i32, place(2), DIMS(2, 1));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&s), fl_tensor(&as_s));
  ACCEPTED(schema, fl_tensor(&x), fl_none(), fl_tensor(&own));
  REFUSED(schema, "f: result 'out': dtype int32, expected float16 (that of 's')", fl_tensor(&x), fl_tensor(&s),
          fl_tensor(&own));
  as_s.shape[0] = 2;
  REFUSED(schema, "f: result 'out': shape [2, 4], expected [3, 4] (that of 's')", fl_tensor(&x), fl_tensor(&s),
          fl_tensor(&as_s));
  fl_schema_free(schema);
}
END_TEST

/* A size does not tell an operand of //, min or max; it is compared once another tensor has. */
START_TEST(what_a_size_does_not_tell_is_compared) {
  fl_schema *schema = make_schema("f(Tensor a, Tensor b, Tensor? c, int[] p) -> ()",
                                  "a: T[n // 2]; b: T[n]; c: T[max(n, p[0]), given(c)]");
  DLTensor a = tensor(f32, place(0), DIMS(3)), b = tensor(f32, place(1), DIMS(7)), odd = tensor(f32, place(1), DIMS(8));
  DLTensor c = tensor(f32, place(2), DIMS(9, 1)), d = tensor(f32, place(2), DIMS(7, 1));
  const int64_t nine[] = {9};
  ACCEPTED(schema, fl_tensor(&a), fl_tensor(&b), fl_none(), fl_ints(nine, 1));
  ACCEPTED(schema, fl_tensor(&a), fl_tensor(&b), fl_tensor(&c), fl_ints(nine, 1));
  REFUSED(schema, "f: argument 'a': shape [3], expected [4] (n // 2, n = 8 of 'b')", fl_tensor(&a), fl_tensor(&odd),
          fl_none(), fl_ints(nine, 1));
  REFUSED(schema, "f: argument 'c': shape [7, 1], expected [9, 1] (max(n, p[0]), n = 7 of 'b')", fl_tensor(&a),
          fl_tensor(&b), fl_tensor(&d), fl_ints(nine, 1));
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_result_that_needs_what_was_not_given_is_an_error) {
  fl_schema *schema = make_schema("f(Tensor x, Tensor? y, int? k) -> Tensor", "x: T[a]; y: T[b]; out: T[a, b, k]");
  DLTensor x = tensor(f32, place(0), DIMS(2)), y = tensor(f32, place(1), DIMS(3)),
           out = tensor(f32, place(2), DIMS(2, 3, 4));
  ACCEPTED(schema, fl_tensor(&x), fl_tensor(&y), fl_int(4), fl_tensor(&out));
  REFUSED(schema, "f: result 'out' is T[a, b, k], and the arguments that are given do not say 'b', 'k'", fl_tensor(&x),
          fl_none(), fl_none(), fl_tensor(&out));
  REFUSED(schema, "f: result 'out' is T[a, b, k], which these arguments make impossible", fl_tensor(&x), fl_tensor(&y),
          fl_int(-1), fl_tensor(&out));
  fl_schema_free(schema);
}
END_TEST

START_TEST(the_dtypes_of_the_selecting_argument_are_known) {
  static const struct {
    const char *schema, *rules;
    uint32_t dtypes;
  } rows[] = {{"f(Tensor x) -> ()", NULL, 0},
              {"f(Tensor x) -> ()", "x: T", 0},
              {"f(Tensor x) -> ()", "x: T; T = float32|float16", FL_FLOAT32 | FL_FLOAT16},
              {"f(Tensor x) -> ()", "x: int32[n] or int64[n, 2]", FL_INT32 | FL_INT64},
              {"f(Tensor x) -> ()", "x: int32[n] or T[n, 2]", 0},
              {"f(Tensor? w, Tensor x) -> ()", "w: T; x: T|int8; T = float16", FL_FLOAT16 | FL_INT8},
              {"f(int x) -> ()", NULL, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fl_schema *schema = make_schema(rows[i].schema, rows[i].rules);
    ck_assert_uint_eq(fl_schema_dtypes(schema), rows[i].dtypes);
    fl_schema_free(schema);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_mistake_in_rules_is_answered_with_column_found_and_expected, 0,
                      sizeof mistakes / sizeof mistakes[0]);
  tcase_add_test(tests, a_result_that_nothing_describes_is_refused);
  tcase_add_test(tests, limits_of_the_compiler_are_errors);
  tcase_add_test(tests, more_names_or_dtype_variables_than_there_is_room_for_are_errors);
  tcase_add_loop_test(tests, shapes_match_as_the_rules_say, 0, sizeof shapes / sizeof shapes[0]);
  tcase_add_test(tests, a_name_has_one_value_and_the_message_says_from_where);
  tcase_add_test(tests, leading_dimensions_are_the_same_everywhere);
  tcase_add_test(tests, dtypes_match_as_the_rules_say);
  tcase_add_test(tests, a_str_argument_names_a_dtype);
  tcase_add_test(tests, what_depends_on_a_later_tensor_is_decided_then);
  tcase_add_test(tests, an_alternative_that_fails_leaves_no_trace);
  tcase_add_test(tests, rules_of_an_absent_tensor_do_not_count);
  tcase_add_test(tests, a_tensor_may_have_a_capital_letters_name);
  tcase_add_test(tests, O6_results_follow_from_the_arguments);
  tcase_add_test(tests, O6_results_are_checked_against_what_follows);
  tcase_add_test(tests, without_rules_a_result_is_as_the_first_tensor_or_the_one_that_it_may_be);
  tcase_add_test(tests, an_alternative_of_a_result_is_the_first_that_follows);
  tcase_add_loop_test(tests, a_term_of_a_result_has_its_value, 0, sizeof values_of / sizeof values_of[0]);
  tcase_add_loop_test(tests, an_alternative_of_a_result_counts_when_its_condition_holds, 0,
                      sizeof conditions / sizeof conditions[0]);
  tcase_add_test(tests, a_result_is_like_an_argument_that_is_given);
  tcase_add_test(tests, what_a_size_does_not_tell_is_compared);
  tcase_add_test(tests, a_result_that_needs_what_was_not_given_is_an_error);
  tcase_add_test(tests, the_dtypes_of_the_selecting_argument_are_known);
}

int main(void) {
  return run_suite("rules", add_tests, 10);
}
