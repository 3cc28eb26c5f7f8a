/* Forms of good calls against the full check: on random calls, what a remembered form passes the full check passes too.
 */
#include "core/call.h"
#include "core/cases.h"
#include "core/ops.h"
#include "tests/tensors.h"

/* A generator of our own, so that a failure can be repeated from its number. */
static uint64_t state;

static uint32_t dice(uint32_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state >> 33) % n;
}

/* Tensors of one random call, and what they point to. */
typedef struct random_call {
  fl_value values[FL_SCHEMA_MAX_VALUES];
  DLTensor tensors[FL_SCHEMA_MAX_VALUES];
  int64_t shapes[FL_SCHEMA_MAX_VALUES][FL_MAX_DIMS], strides[FL_SCHEMA_MAX_VALUES][FL_MAX_DIMS];
} random_call;

static DLDataType random_dtype(void) {
  const DLDataType few[] = {f32, f32, f32, f16, bf16, i32, i64, f64};
  return few[dice(8)];
}

/* Mostly sizes that go together, so that good calls are not rare. */
static void random_tensor(random_call *call, uint32_t i) {
  static const int64_t sizes[] = {4, 4, 4, 8, 8, 2, 1, 0, 16, 3};
  DLTensor *t = &call->tensors[i];
  *t = tensor(dice(4) ? f32 : random_dtype(), place(dice(6) ? (int)i : (int)dice(4)), (int)dice(4), call->shapes[i]);
  for (int d = 0; d < t->ndim; d++)
    call->shapes[i][d] = sizes[dice(10)];
  if (!dice(4)) {
    int64_t step = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
      call->strides[i][d] = step;
      step *= call->shapes[i][d] + (dice(3) ? 0 : (int64_t)dice(9) - 2);
    }
    t->strides = call->strides[i];
  }
  if (!dice(20))
    t->device.device_id = 1;
  if (!dice(30))
    t->data = NULL;
  if (!dice(10))
    t->byte_offset = dice(64);
}

static void random_value(const fl_schema *schema, random_call *call, uint32_t i) {
  static const char *const words[] = {"none", "tanh", "silu"};
  static const int64_t lists[][2] = {{1, 2}, {1, 2}, {2, 1}};
  const fl_argument *argument = &schema->values[i];
  fl_value *value = &call->values[i];
  if (argument->optional && !dice(3)) {
    *value = fl_none();
    return;
  }
  switch (dice(40) ? argument->type : (fl_type)dice(7)) {
  case FL_TENSOR:
    random_tensor(call, i);
    *value = fl_tensor(&call->tensors[i]);
    break;
  case FL_INT:
    *value = fl_int((int64_t)dice(9) - 1);
    break;
  case FL_FLOAT:
    *value = fl_float(dice(5) ? 1e-6 : -1.0);
    break;
  case FL_BOOL:
    *value = fl_bool(dice(2));
    break;
  case FL_STRING:
    *value = fl_string(words[dice(3)]);
    break;
  case FL_INT_LIST:
    *value = fl_ints(lists[dice(3)], dice(3));
    break;
  default:
    *value = fl_none();
  }
}

/* Makes results what they should be, most of the time: as inferred, at a place of their own or in place. */
static void fit_results(const fl_schema *schema, random_call *call) {
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_call inner = {.size = sizeof inner, .count = schema->n_arguments, .values = call->values};
  if (dice(5) == 0 || fl_schema_infer(schema, &inner, specs, schema->n_results))
    return;
  for (uint32_t r = 0; r < schema->n_results; r++) {
    uint32_t i = schema->n_arguments + r;
    int32_t alias = schema->values[i].alias;
    if (schema->values[i].type != FL_TENSOR)
      continue;
    if (!specs[r].present) {
      call->values[i] = fl_none();
    } else if (alias >= 0 && call->values[alias].type == FL_TENSOR && dice(2)) {
      call->values[i] = call->values[alias];
    } else {
      memcpy(call->shapes[i], specs[r].shape, sizeof call->shapes[i]);
      call->tensors[i] = tensor(specs[r].dtype, place(dice(12) ? (int)i : 0), specs[r].ndim, call->shapes[i]);
      call->values[i] = fl_tensor(&call->tensors[i]);
    }
  }
}

/* Makes arguments go together: like the first tensor, most of the time. */
static void fit_arguments(const fl_schema *schema, random_call *call) {
  const DLTensor *first = schema->device_argument >= 0 && call->values[schema->device_argument].type == FL_TENSOR
                              ? call->values[schema->device_argument].v.tensor
                              : NULL;
  for (uint32_t i = 0; first && i < schema->n_arguments; i++) {
    DLTensor *t = call->values[i].type == FL_TENSOR ? call->values[i].v.tensor : NULL;
    if (!t || t == first || !dice(3))
      continue;
    t->dtype = first->dtype;
    t->strides = NULL;
    t->ndim = dice(2) ? first->ndim : first->ndim ? 1 : 0;
    for (int d = 0; d < t->ndim; d++)
      t->shape[d] = first->shape[first->ndim - t->ndim + d];
  }
}

/* The same form, but for one thing here and there. */
static void alter(const fl_schema *schema, random_call *call) {
  uint32_t i = dice(schema->n_arguments + schema->n_results);
  if (call->values[i].type != FL_TENSOR) {
    random_value(schema, call, i);
    return;
  }
  DLTensor *t = call->values[i].v.tensor;
  switch (dice(8)) {
  case 0:
    t->data = place((int)dice(6));
    break;
  case 1:
    t->byte_offset = dice(200);
    break;
  case 2:
    t->device.device_id = (int)dice(2);
    break;
  case 3:
    t->dtype = random_dtype();
    break;
  case 4:
    if (t->ndim)
      t->shape[dice((uint32_t)t->ndim)] = dice(9);
    break;
  case 5:
    t->strides = NULL;
    break;
  case 6:
    random_value(schema, call, i);
    break;
  default:
    t->data = NULL;
  }
}

/* Who takes a short look is not told of more than who looks at everything. */
static bool has(const fl_checked_forms *forms, const fl_schema *schema, const fl_call *call) {
  bool known = fl_checked_form_has(forms, schema->id, call);
  if (!known && fl_checked_form_has_plain(forms, schema->id, call))
    ck_abort_msg("%s: passed by a short look alone", schema->op_name);
  return known;
}

static bool is_same(const fl_tensor_spec *a, const fl_tensor_spec *b) {
  return a->present == b->present && a->ndim == b->ndim && !memcmp(&a->dtype, &b->dtype, sizeof a->dtype) &&
         !memcmp(&a->device, &b->device, sizeof a->device) && !memcmp(a->shape, b->shape, sizeof a->shape);
}

/* Results of a form that is known are those that the rules give; whether there is any. An assertion that holds costs a
 * system call, which is too much here. */
static bool infers_the_same(const fl_checked_forms *forms, const fl_schema *schema, const fl_call *call) {
  fl_tensor_spec known[FL_SCHEMA_MAX_RESULTS], ruled[FL_SCHEMA_MAX_RESULTS];
  if (!fl_checked_form_infer(forms, schema, call, known))
    return false;
  if (fl_schema_infer(schema, call, ruled, schema->n_results))
    ck_abort_msg("%s: inferred, but %s", schema->op_name, fl_error_message());
  for (uint32_t r = 0; r < schema->n_results; r++)
    if (!is_same(&known[r], &ruled[r]))
      ck_abort_msg("%s: result %u is inferred otherwise", schema->op_name, (unsigned)r);
  return true;
}

/* Is each result a tensor that is there? */
static bool makes_tensors(const fl_schema *schema, const fl_call *call) {
  uint32_t r = 0;
  while (r < schema->n_results && call->values[schema->n_arguments + r].type == FL_TENSOR)
    r++;
  return r && r == schema->n_results;
}

static void compare(const fl_op_def *def, int calls) {
  fl_schema *schema = NULL;
  fl_checked_forms *forms = fl_checked_forms_create();
  ck_assert_int_eq(fl_schema_create_checked(def, &schema), FL_OK);
  uint32_t n = schema->n_arguments + schema->n_results;
  int passed = 0, good = 0;
  for (int number = 0; number < rounds(calls); number++) {
    random_call call;
    fl_call made = {.size = sizeof made, .count = n, .values = call.values};
    state = (uint64_t)number * 7919 + 1;
    for (uint32_t i = 0; i < n; i++)
      random_value(schema, &call, i);
    fit_arguments(schema, &call);
    fit_results(schema, &call);
    if (fl_schema_check(schema, &made))
      continue;
    good++;
    fl_checked_form_keep(forms, schema, &made);
    passed += has(forms, schema, &made);
    if (infers_the_same(forms, schema, &made) != (has(forms, schema, &made) && makes_tensors(schema, &made)))
      ck_abort_msg("%s, call %d: not inferred", schema->op_name, number);
    for (int change = 0; change < 20; change++) {
      alter(schema, &call);
      infers_the_same(forms, schema, &made);
      bool known = has(forms, schema, &made), full = fl_schema_check(schema, &made) == FL_OK;
      if (known && !full)
        ck_abort_msg("%s, call %d: passed, but %s", schema->op_name, number, fl_error_message());
      if (full && !dice(4))
        fl_checked_form_keep(forms, schema, &made);
    }
  }
  /* It must be of use, too: whatever is good once is good twice. */
  ck_assert_msg(good < 100 || passed * 10 >= good * 9, "%s: %d of %d good calls remembered", schema->op_name, passed,
                good);
  fl_schema_free(schema);
  fl_checked_forms_free(forms);
}

START_TEST(a_memo_is_of_one_schema_and_one_number_of_values) {
  fl_schema *a = make_schema("a(int n, str word) -> str out", NULL),
            *b = make_schema("a(int n, str word) -> str out", NULL);
  fl_checked_forms *forms = fl_checked_forms_create();
  char word[] = "silu", longer[] = "a word that is too long to be remembered";
  fl_value values[] = {fl_int(1), fl_string(word), fl_none()};
  fl_call call = FL_CALL(values);
  ck_assert(!has(forms, a, &call));
  fl_checked_form_keep(forms, a, &call);
  ck_assert(has(forms, a, &call));
  ck_assert(!has(forms, b, &call));
  word[0] = 'g'; /* the same pointer, another word */
  ck_assert(!has(forms, a, &call));
  word[0] = 's';
  values[0] = fl_int(2);
  ck_assert(!has(forms, a, &call));
  values[0] = fl_int(1);
  call.count = 2;
  ck_assert(!has(forms, a, &call));
  call.count = 3;
  values[1] = fl_string(longer);
  fl_checked_form_keep(forms, a, &call);
  ck_assert(!has(forms, a, &call));
  fl_checked_forms_free(forms);
  fl_schema_free(a);
  fl_schema_free(b);
}
END_TEST

START_TEST(a_memo_knows_lists_and_several_strings_by_what_they_say) {
  fl_schema *schema = make_schema("a(int[] sizes, str first, str second) -> str out", NULL);
  fl_checked_forms *forms = fl_checked_forms_create();
  int64_t sizes[] = {1, 128, 3, 4, 5};
  char second[] = "silu";
  fl_value values[] = {fl_ints(sizes, 2), fl_string("softmax"), fl_string(second), fl_none()};
  fl_call call = FL_CALL(values);
  fl_checked_form_keep(forms, schema, &call);
  ck_assert(has(forms, schema, &call));
  sizes[1] = 64; /* the same pointer, another list */
  ck_assert(!has(forms, schema, &call));
  sizes[1] = 128;
  second[0] = 'g';
  ck_assert(!has(forms, schema, &call));
  second[0] = 's';
  values[0].length = 1;
  ck_assert(!has(forms, schema, &call));
  values[0] = fl_ints(NULL, 2);
  ck_assert(!has(forms, schema, &call));
  values[0] = fl_ints(sizes, 2);
  ck_assert(has(forms, schema, &call));
  values[0] = fl_ints(sizes, 5); /* longer than what is remembered */
  fl_checked_form_keep(forms, schema, &call);
  ck_assert(!has(forms, schema, &call));
  fl_checked_forms_free(forms);
  fl_schema_free(schema);
}
END_TEST

START_TEST(a_memo_never_passes_what_the_full_check_refuses) {
  const fl_op_def *def = fl_builtin_ops[_i];
  compare(def, 20000);
}
END_TEST

START_TEST(a_memo_agrees_on_rules_of_all_kinds) {
  static const struct {
    const char *schema, *rules;
  } rows[] = {
      {"a(Tensor x, Tensor(a!) y) -> Tensor out", "x: T[..., 2*d]; y: T[d]; out: T[..., d]"},
      {"b(Tensor(a!) x, Tensor(b!)? r, Tensor? w) -> (Tensor(a) out, Tensor(b)? r_out)",
       "x: T[..., h]; r: T[..., h]; w: T|float32[h]; T = float32|float16"},
      {"c(Tensor x, int k) -> (Tensor v, Tensor ids)", "x: float32[t, e]; v: float32[t, k]; ids: int32[t, k]"},
      {"d(Tensor x, Tensor y) -> Tensor out", "x: T[n, 4]; y: S[n]; out: S[n, 8]"},
      {"e(Tensor x, Tensor free) -> Tensor out", "x: T[...]; out: T[...]"},
      {"f(Tensor x) -> Tensor", NULL},
  };
  fl_op_def def = {.size = sizeof def, .schema = rows[_i].schema, .rules = rows[_i].rules};
  compare(&def, 30000);
}
END_TEST

static void add_tests(TCase *tests) {
  int n = 0;
  tcase_add_test(tests, a_memo_is_of_one_schema_and_one_number_of_values);
  tcase_add_test(tests, a_memo_knows_lists_and_several_strings_by_what_they_say);
  while (fl_builtin_ops[n])
    n++;
  tcase_add_loop_test(tests, a_memo_never_passes_what_the_full_check_refuses, 0, n);
  tcase_add_loop_test(tests, a_memo_agrees_on_rules_of_all_kinds, 0, 6);
}

int main(void) {
  return run_suite("checked_forms", add_tests, 60);
}
