/*
 * Bad calls of every built-in op, made from good ones: each argument and result in turn is spoilt in every way that
 * bad_calls.c has. Each must be refused with an error that names op and argument, and no implementation be called.
 * Indices in data are the implementations' to check: those of the CPU plugin must, before they write anything.
 *
 * `test_bad_calls --print FILE` writes the same calls as lines of JSON, for the tests of the Python package.
 */
#include "core/ops.h"
#include "tests/bad_calls.h"
#include "tests/fixture.h"

#include <jansson.h>
#include <stdatomic.h>

enum { CALLS = 6, NUMBERS = 300 };

static fl_host *host;
static atomic_int called;

static uint32_t count_builtin(void) {
  uint32_t n = 0;
  while (fl_builtin_ops[n])
    n++;
  return n;
}

static fl_op *builtin(int index) {
  char name[FL_NAME_MAX + 1];
  const char *schema = fl_builtin_ops[index]->schema;
  snprintf(name, sizeof name, "%.*s", (int)strcspn(schema, "("), schema);
  return fl_find_op(host, name);
}

/* ------------------------------------------------------------------------------------------------------- the host */

static fl_status count_call(void *self, fl_call *call) {
  (void)self;
  (void)call;
  atomic_fetch_add(&called, 1);
  return FL_OK;
}

/* A host in which every op has one implementation, which counts its calls. */
static void set_up(void) {
  host = test_host(NULL, 0);
  for (uint32_t i = 0; i < count_builtin(); i++) {
    const fl_impl impl = {.size = sizeof impl,
                          .op_name = fl_op_name(builtin((int)i)),
                          .impl_id = "default.counting",
                          .kind = FL_KIND_DEFAULT,
                          .devices = FL_DEVICE_ANY,
                          .fn = count_call};
    ck_ok(fl_register_impl(host, &impl));
  }
}

static void tear_down(void) {
  fl_host_destroy(host);
}

/* -------------------------------------------------------------------------------------------------- spoilt calls */

static fl_status invoke(made_call *call) {
  fl_call invoked = {.size = sizeof invoked, .count = call->n_values, .values = call->values};
  return fl_invoke(call->op, &invoked);
}

/* Is the message about the op and the value, or the result that no longer goes with it, or the tensor whose size a list
 * gives? */
static bool is_about(const char *message, const made_call *good, uint32_t index) {
  char op[FL_NAME_MAX + 3], name[FL_NAME_MAX + 3], element[FL_NAME_MAX + 3];
  snprintf(op, sizeof op, "%s: ", fl_op_name(good->op));
  snprintf(name, sizeof name, "'%s'", fl_op_argument(good->op, index)->name);
  snprintf(element, sizeof element, "%s[", fl_op_argument(good->op, index)->name);
  if (good->values[index].type == FL_INT_LIST && strstr(message, element))
    return true;
  if (!strcmp(name, "'x'") && strstr(message, ": argument 'x_scale': shape")) /* one for each of x's rows */
    return true;
  return !strncmp(message, op, strlen(op)) && (strstr(message, name) || strstr(message, ": result '"));
}

static void expect_refusal(const made_call *good, made_call *spoilt, uint32_t index, const bad_way *way, int variant) {
  int before = atomic_load(&called);
  fl_status status = invoke(spoilt);
  bool refused = status == FL_EINVAL && atomic_load(&called) == before && is_about(fl_error_message(), good, index);
  ck_assert_msg(refused || (!status && may_be_right(good, index, way, variant)), "%s, '%s': %s (%d): %s, %d calls: %s",
                fl_op_name(good->op), fl_op_argument(good->op, index)->name, way->name, variant, fl_status_name(status),
                atomic_load(&called) - before, fl_error_message());
}

/* The good call goes before: one like it, which the host remembers, must not hide what is wrong. */
START_TEST(O6_every_spoilt_argument_and_result_is_refused_by_name_and_nothing_is_called) {
  fl_op *op = builtin(_i);
  int made = 0;
  for (uint64_t number = 0; number < NUMBERS && made < rounds(CALLS); number++) {
    made_call *good = make_call(op, number);
    if (!good)
      continue;
    int before = atomic_load(&called);
    ck_ok(invoke(good));
    ck_assert_int_eq(atomic_load(&called), before + 1);
    spoil_everything(good, expect_refusal);
    free_call(good);
    made++;
  }
  ck_assert_int_gt(made, 0);
}
END_TEST

START_TEST(O6_a_call_of_another_length_is_refused) {
  fl_op *op = builtin(_i);
  fl_value values[FL_SCHEMA_MAX_VALUES + 1] = {{0}};
  uint32_t n = fl_op_argument_count(op) + fl_op_result_count(op);
  int before = atomic_load(&called);
  for (uint32_t count = 0; count <= n + 1; count += n == 1 ? 2 : n - 1) {
    fl_call call = {.size = sizeof call, .count = count, .values = values};
    if (count == n)
      continue;
    ck_assert_int_eq(fl_invoke(op, &call), FL_EINVAL);
    ck_contains(fl_error_message(), fl_op_name(op));
    ck_contains(fl_error_message(), "values, expected ");
  }
  ck_assert_int_eq(atomic_load(&called), before);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- indices in data */

/* A host with the CPU plugin in place of the other. */
static void load_cpu(void) {
  char path[4096];
  fl_host_destroy(host);
  host = test_host(NULL, 0);
  snprintf(path, sizeof path, "%s/plugins/cpu.so", build_dir());
  ck_ok(fl_load_plugin(host, path));
}

static fl_status invoke_impl(made_call *call, const char *impl_id) {
  char token[FL_NAME_MAX + 6];
  snprintf(token, sizeof token, "impl:%s", impl_id);
  const char *const tokens[] = {token};
  const fl_op_order order = {.op = fl_op_name(call->op), .tokens = tokens, .n_tokens = 1};
  const fl_policy_fields fields = {
      .size = sizeof fields, .strict = true, .per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)};
  fl_policy *policy;
  fl_scope scope;
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_scope_enter(host, policy, &scope));
  fl_status status = invoke(call);
  fl_scope_leave(&scope);
  fl_policy_release(policy);
  return status;
}

/* Integers that no tensor is looked up by: all numbers are right. */
static bool is_number(const char *name) {
  static const char *const names[] = {"qweight", "qzeros", "azp"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i]))
      return true;
  return false;
}

static bool is_index(const made_call *call, uint32_t index) {
  return !is_result(call, index) && is_tensor(call, index) && call->tensors[index].dtype.code == kDLInt &&
         call->tensors[index].dtype.bits > 8 && has_elements(call, index) &&
         !is_number(fl_op_argument(call->op, index)->name);
}

static void set_indices(made_call *call, uint32_t index, int64_t value) {
  size_t item = call->tensors[index].dtype.bits / 8u;
  int32_t narrow = (int32_t)value;
  for (size_t at = 0; at < call->bytes[index]; at += item)
    memcpy((char *)call->memory[index] + at, item == 8 ? (void *)&value : (void *)&narrow, item);
}

/* All of a call's memory, one tensor after the other. */
static char *snapshot(const made_call *call, size_t *size) {
  *size = 0;
  for (uint32_t i = 0; i < call->n_values; i++)
    *size += call->bytes[i];
  char *bytes = malloc(*size + 1), *to = bytes;
  ck_assert_ptr_nonnull(bytes);
  for (uint32_t i = 0; i < call->n_values; i++) {
    memcpy(to, call->memory[i] ? call->memory[i] : "", call->bytes[i]);
    to += call->bytes[i];
  }
  return bytes;
}

static void expect_index_refused(made_call *call, uint32_t index, const char *impl_id) {
  size_t size;
  char *before = snapshot(call, &size);
  fl_status status = invoke_impl(call, impl_id);
  char *after = snapshot(call, &size);
  const char *op = fl_op_name(call->op), *name = fl_op_argument(call->op, index)->name;
  ck_assert_msg(status == FL_EINVAL && is_about(fl_error_message(), call, index), "%s, %s, '%s': %s: %s", op, impl_id,
                name, fl_status_name(status), fl_error_message());
  ck_assert_msg(!memcmp(before, after, size), "%s, %s, '%s': something was written", op, impl_id, name);
  free(before);
  free(after);
}

static bool is_of_a_shard(const made_call *call) {
  enum { INPUT_IDS, WEIGHT, ORG_START, ORG_END };
  return call->values[ORG_END].type == FL_INT;
}

/* query_start_loc ends with 0: then nothing of the cache is read. */
static bool has_no_queries(const made_call *call) {
  enum { QUERY, KEY_CACHE, VALUE_CACHE, BLOCK_TABLE, QUERY_START_LOC };
  const DLTensor *starts = &call->tensors[QUERY_START_LOC];
  int64_t at = (starts->shape[0] - 1) * fl_stride(starts, 0);
  const void *data = fl_data(starts);
  return !(starts->dtype.bits == 64 ? ((const int64_t *)data)[at] : ((const int32_t *)data)[at]);
}

/* Indices that are out of range and no mistake. */
static const struct {
  const char *op, *argument;
  bool below, above;
  bool (*when)(const made_call *call); /* NULL: always */
} meant[] = {
    {"vocab_parallel_embedding", "input_ids", true, true, is_of_a_shard}, /* ids that are elsewhere */
    {"concat_and_cache_mla", "slot_mapping", true, false, NULL},          /* padding */
    {"reshape_and_cache", "slot_mapping", true, false, NULL},
    {"paged_attention", "block_table", true, true, has_no_queries},
    {"apply_penalties", "prompt_token_ids", true, true, NULL}, /* padding */
    {"apply_penalties", "output_token_ids", true, true, NULL},
    {"apply_top_k_top_p", "top_k", true, true, NULL}, /* all stay */
};

static bool is_meant(const made_call *call, uint32_t index, int64_t value) {
  for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
    if (!strcmp(meant[i].op, fl_op_name(call->op)) &&
        !strcmp(meant[i].argument, fl_op_argument(call->op, index)->name) && (!meant[i].when || meant[i].when(call)))
      return value < 0 ? meant[i].below : meant[i].above;
  return false;
}

START_TEST(O6_an_index_out_of_range_is_refused_by_name_before_anything_is_written) {
  static const char *const impls[] = {"reference.c", "default.flagos"};
  static const int64_t far[] = {-1000000, 1000000};
  load_cpu();
  fl_op *op = builtin(_i);
  int made = 0;
  for (uint64_t number = 0; number < NUMBERS && made < rounds(5 * CALLS); number++) {
    made_call *good = make_call(op, number);
    for (uint32_t index = 0; good && index < good->n_arguments; index++)
      for (int i = 0; i < 4 && is_index(good, index); i++) {
        if (is_meant(good, index, far[i / 2]))
          continue;
        made_call *call = make_call(op, number);
        set_indices(call, index, far[i / 2]);
        expect_index_refused(call, index, impls[i % 2]);
        free_call(call);
      }
    if (good) {
      free_call(good);
      made++;
    }
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------- as lines of JSON */

/* Numbers that JSON has not are texts. */
static json_t *float_json(double number) {
  char text[64];
  snprintf(text, sizeof text, "%.17g", number);
  return json_string(text);
}

static json_t *sizes_json(const int64_t *sizes, int n) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++)
    json_array_append_new(list, json_integer(sizes[i]));
  return list;
}

/* Whose memory it points into, and where. */
static json_t *data_json(const made_call *call, const void *data) {
  for (uint32_t i = 0; data && i < call->n_values; i++)
    if (call->memory[i] && (const char *)data >= (char *)call->memory[i] &&
        (const char *)data <= (char *)call->memory[i] + call->bytes[i])
      return json_pack("[i, I]", (int)i, (json_int_t)((const char *)data - (char *)call->memory[i]));
  return json_null();
}

static json_t *tensor_json(const made_call *call, uint32_t index) {
  const DLTensor *tensor = &call->tensors[index];
  int n = tensor->ndim < 0 ? 0 : tensor->ndim > FL_MAX_DIMS ? FL_MAX_DIMS : tensor->ndim;
  if (!call->values[index].v.tensor)
    return json_pack("{s: s}", "null", "tensor");
  return json_pack("{s: o, s: o, s: i, s: [i, i, i], s: [i, i], s: o}", "shape",
                   tensor->shape ? sizes_json(tensor->shape, n) : json_null(), "strides",
                   tensor->strides ? sizes_json(tensor->strides, n) : json_null(), "ndim", (int)tensor->ndim, "dtype",
                   tensor->dtype.code, tensor->dtype.bits, tensor->dtype.lanes, "device",
                   (int)tensor->device.device_type, (int)tensor->device.device_id, "data",
                   data_json(call, tensor->data));
}

static json_t *value_json(const made_call *call, uint32_t index) {
  const fl_value *value = &call->values[index];
  switch (value->type) {
  case FL_NONE:
    return json_null();
  case FL_TENSOR:
    return tensor_json(call, index);
  case FL_INT:
    return json_pack("{s: I}", "int", (json_int_t)value->v.i);
  case FL_FLOAT:
    return json_pack("{s: o}", "float", float_json(value->v.f));
  case FL_BOOL:
    return json_pack("{s: b}", "bool", value->v.b);
  case FL_STRING:
    return value->v.s ? json_pack("{s: s}", "string", value->v.s) : json_pack("{s: s}", "null", "string");
  case FL_INT_LIST:
    return value->v.ints || !value->length ? json_pack("{s: o}", "ints", sizes_json(value->v.ints, (int)value->length))
                                           : json_pack("{s: s}", "null", "ints");
  default:
    return json_pack("{s: i}", "other", (int)value->type);
  }
}

static FILE *printed;

static void print_json(json_t *object) {
  ck_assert_int_eq(json_dumpf(object, printed, JSON_COMPACT), 0);
  fputc('\n', printed);
  json_decref(object);
}

/* A call that is good, by the number that makes its arguments, and the size of each value's memory. */
static void print_good(const made_call *good, uint64_t number) {
  json_t *values = json_array(), *bytes = json_array();
  for (uint32_t i = 0; i < good->n_values; i++) {
    json_array_append_new(values, value_json(good, i));
    json_array_append_new(bytes, json_integer((json_int_t)good->bytes[i]));
  }
  print_json(json_pack("{s: s, s: I, s: o, s: o}", "op", fl_op_name(good->op), "number", (json_int_t)number, "values",
                       values, "bytes", bytes));
}

/* What became of one value of the good call before it. `right`: it may be right even so. */
static void print_spoilt(const made_call *good, made_call *spoilt, uint32_t index, const bad_way *way, int variant) {
  print_json(json_pack("{s: i, s: s, s: s, s: i, s: b, s: o}", "index", (int)index, "name",
                       fl_op_argument(good->op, index)->name, "way", way->name, "variant", variant, "right",
                       may_be_right(good, index, way, variant), "value", value_json(spoilt, index)));
}

static const char *printed_path;

START_TEST(the_calls_are_printed) {
  enum { OF_EACH_OP = 2 };
  printed = fopen(printed_path, "w");
  ck_assert_ptr_nonnull(printed);
  for (uint32_t i = 0; i < count_builtin(); i++)
    for (uint64_t number = 0, made = 0; number < NUMBERS && made < OF_EACH_OP; number++) {
      made_call *good = make_call(builtin((int)i), number);
      if (!good)
        continue;
      print_good(good, number);
      spoil_everything(good, print_spoilt);
      free_call(good);
      made++;
    }
  ck_assert_int_eq(fclose(printed), 0);
}
END_TEST

static void add_printing(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, the_calls_are_printed);
}

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, O6_every_spoilt_argument_and_result_is_refused_by_name_and_nothing_is_called, 0,
                      loop_cases((int)count_builtin()));
  tcase_add_loop_test(tests, O6_an_index_out_of_range_is_refused_by_name_before_anything_is_written, 0,
                      loop_cases((int)count_builtin()));
  tcase_add_loop_test(tests, O6_a_call_of_another_length_is_refused, 0, loop_cases((int)count_builtin()));
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--print")) {
    printed_path = argv[2];
    return run_suite("bad calls, printed", add_printing, 60);
  }
  return run_suite("bad calls", add_tests, 60);
}
