/*
 * The Ascend plugin's ops against the reference, over generated calls: through the stand-in, which computes by what the
 * vendor documents of each operator's arguments. Compact, with gaps between rows, in place.
 */
#include "cli/trials/compare.h"
#include "cli/trials/fill.h"
#include "core/schema.h"
#include "tests/kernels.h"
#include "tests/npu.h"

#include <flhost/testing.h>

/* Of some ops few of the generated calls are such as the operators take: then more of them are made. */
enum {
  FEW_CALLS = 30,
  MOST_CALLS = 6000,
  ENOUGH = 30,
  SEED = 7,
  GAP = 16,
  MAX_VALUES = FL_SCHEMA_MAX_VALUES,
  MOST_ELEMENTS = 40000
};
enum { SAMPLE_CALLS = 6, SAMPLE_ELEMENTS = 3000 };

static bool sampled(void) {
  return sample() > 1;
}

static fl_host *host;

static void set_up(void) {
  npu_open();
  load_plugin();
  host = test_host(NULL, 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

/* A generated call, on the host and on the device. Arrays are by value: arguments, then results. */
typedef struct made_call {
  fl_op *op;
  uint32_t n_arguments, n;
  fl_input inputs[MAX_VALUES];
  owned *on_host[MAX_VALUES];
  npu_tensor *on_device[MAX_VALUES];
  fl_value host_values[MAX_VALUES], device_values[MAX_VALUES];
} made_call;

static void free_call(made_call *call) {
  for (uint32_t i = 0; i < call->n; i++) {
    unmake(call->on_host[i]);
    npu_free(call->on_device[i]);
  }
}

/* Arguments and the places of results on the host; false: this number makes no call. */
static bool make_on_host(made_call *call, fl_op *op, uint32_t dtype, uint64_t number) {
  fl_tensor_spec results[FL_SCHEMA_MAX_RESULTS];
  *call = (made_call){.op = op, .n_arguments = fl_op_argument_count(op)};
  call->n = call->n_arguments + fl_op_result_count(op);
  if (fl_generate_inputs(op, dtype, SEED, number, call->inputs, call->n_arguments, sizeof(fl_input)))
    return false;
  for (uint32_t i = 0; i < call->n_arguments; i++) {
    const fl_tensor_spec *spec = &call->inputs[i].spec;
    call->host_values[i] = call->inputs[i].value;
    if (!spec->present)
      continue;
    call->on_host[i] = make(spec->dtype, spec->ndim, spec->shape, 0);
    ck_assert(fill_tensor(&call->inputs[i], SEED + number * MAX_VALUES + i, false, call->on_host[i]->tensor.data));
    call->host_values[i] = fl_tensor(&call->on_host[i]->tensor);
  }
  fl_call with = {.size = sizeof with, .count = call->n_arguments, .values = call->host_values};
  if (fl_infer(op, &with, results, call->n - call->n_arguments, sizeof(fl_tensor_spec)))
    return false;
  for (uint32_t i = call->n_arguments; i < call->n; i++) {
    const fl_tensor_spec *spec = &results[i - call->n_arguments];
    call->on_host[i] = spec->present ? make(spec->dtype, spec->ndim, spec->shape, 0) : NULL;
    call->host_values[i] = spec->present ? fl_tensor(&call->on_host[i]->tensor) : fl_none();
  }
  with.count = call->n;
  return !fl_check(op, &with);
}

static bool is_small(const made_call *call) {
  for (uint32_t i = 0; i < call->n; i++)
    if (call->on_host[i] && count(&call->on_host[i]->tensor) > (sampled() ? SAMPLE_ELEMENTS : MOST_ELEMENTS))
      return false;
  return true;
}

/* The same on the device. Results that may be in place are, in every other call; the first tensor has gaps in every
 * third. */
static void make_on_device(made_call *call, uint64_t number) {
  for (uint32_t i = 0; i < call->n; i++) {
    const fl_argument *argument = fl_op_argument(call->op, i);
    int32_t source = i < call->n_arguments ? -1 : argument->alias;
    call->device_values[i] = call->host_values[i];
    if (!call->on_host[i])
      continue;
    if (source >= 0 && number % 2 && call->on_device[source]) {
      call->device_values[i] = call->device_values[source];
      continue;
    }
    const DLTensor *like = &call->on_host[i]->tensor;
    call->on_device[i] = npu_make(like->dtype, like->ndim, like->shape, !i && number % 3 == 2 ? GAP : 0);
    call->device_values[i] = fl_tensor(&call->on_device[i]->tensor);
    if (i < call->n_arguments)
      npu_write(call->on_device[i], like->data);
  }
}

/* What a result is as exact as: its own type; of this op a float32 one holds numbers that were rounded to x's. */
static DLDataType exactness_of(const made_call *call, uint32_t i) {
  bool rounded = !strcmp(fl_op_name(call->op), "mixer2_gated_rms_norm");
  return call->on_host[rounded ? 0 : i]->tensor.dtype;
}

/* Is it an argument that the op writes to, and no result is in its place? */
static bool is_written(const made_call *call, uint32_t i) {
  bool is_result = i >= call->n_arguments;
  for (uint32_t r = call->n_arguments; r < call->n; r++)
    is_result |= fl_op_argument(call->op, r)->alias == (int32_t)i;
  return !is_result && fl_op_argument(call->op, i)->mutates;
}

static int64_t index_at(const DLTensor *tensor, int64_t i) {
  return tensor->dtype.bits == 64 ? ((const int64_t *)tensor->data)[i] : ((const int32_t *)tensor->data)[i];
}

/* Two tokens for one row of a cache: CANN leaves open which of them stays. */
static bool has_a_slot_twice(const made_call *call) {
  const DLTensor *slots = NULL;
  for (uint32_t i = 0; i < call->n_arguments; i++)
    if (!strcmp(fl_op_argument(call->op, i)->name, "slot_mapping"))
      slots = &call->on_host[i]->tensor;
  for (int64_t i = 0; slots && i < slots->shape[0]; i++)
    for (int64_t j = 0; j < i; j++)
      if (index_at(slots, i) == index_at(slots, j) && index_at(slots, i) >= 0)
        return true;
  return false;
}

static void compare_result(const made_call *call, uint32_t i, uint64_t number) {
  const DLTensor *expected = &call->on_host[i]->tensor;
  int32_t source = fl_op_argument(call->op, i)->alias;
  const npu_tensor *from = call->on_device[i] ? call->on_device[i] : call->on_device[source];
  owned *result = make(expected->dtype, expected->ndim, expected->shape, 0);
  fl_tolerance tolerance = {0};
  fl_op_tolerance(call->op, exactness_of(call, i), &tolerance.atol, &tolerance.rtol);
  npu_read(from, result->tensor.data);
  comparison found = compare_tensors(&result->tensor, expected, tolerance.atol, tolerance.rtol, false);
  ck_assert_msg(found.pass, "%s, call %llu, result %s: %s", fl_op_name(call->op), (unsigned long long)number,
                fl_op_argument(call->op, i)->name, found.problem);
  unmake(result);
}

/* Runs it in both places; false: the plugin does not take it, and says why. */
static bool run_call(made_call *call, const fl_impl *impl, uint64_t number) {
  const char *reason;
  make_on_device(call, number);
  if (!npu_supports(impl, call->device_values, call->n, &reason)) {
    ck_assert_msg(reason && *reason, "%s: no reason", impl->op_name);
    return false;
  }
  check_call(impl->op_name, "reference.c", call->host_values, call->n);
  fl_status status = npu_call(impl, call->device_values, call->n);
  ck_assert_msg(status == FL_OK, "%s, call %llu: status %d: %s; the log:\n%s", impl->op_name,
                (unsigned long long)number, (int)status, npu_message, npu_control.log());
  npu_wait();
  for (uint32_t i = 0; i < call->n; i++)
    if (call->on_host[i] && (i >= call->n_arguments || is_written(call, i)))
      compare_result(call, i, number);
  return true;
}

/* How many of the calls were taken; those without elements, for which nothing is launched, do not count. */
static int run_calls(const fl_impl *impl, uint32_t dtype, bool expected) {
  int taken = 0;
  uint64_t few = sampled() ? SAMPLE_CALLS : FEW_CALLS, most = sampled() ? SAMPLE_CALLS : MOST_CALLS;
  fl_op *op = fl_find_op(host, impl->op_name);
  ck_assert_ptr_nonnull(op);
  for (uint64_t number = 0; number < few || (expected && taken < ENOUGH && number < most); number++) {
    made_call call;
    npu_control.clear();
    if (make_on_host(&call, op, dtype, number) && is_small(&call) && !has_a_slot_twice(&call))
      taken += run_call(&call, impl, number) && npu_control.count("launched");
    free_call(&call);
    npu_check_clean();
  }
  return taken;
}

static const char *const ops[] = {"silu_and_mul",
                                  "mul_and_silu",
                                  "gelu_and_mul",
                                  "fatrelu_and_mul",
                                  "swiglustep_and_mul",
                                  "situ_and_mul",
                                  "swigluoai_and_mul",
                                  "silu_and_mul_with_clamp",
                                  "gelu",
                                  "gelu_new",
                                  "gelu_fast",
                                  "quick_gelu",
                                  "relu2",
                                  "xielu",
                                  "add",
                                  "sigmoid_mul",
                                  "tensor_model_parallel_all_reduce",
                                  "rms_norm",
                                  "fused_add_rms_norm",
                                  "gemma_rms_norm",
                                  "layer_norm",
                                  "rms_norm_gated",
                                  "mixer2_gated_rms_norm",
                                  "rotary_embedding",
                                  "apply_rotary_emb",
                                  "replicated_linear",
                                  "column_parallel_linear",
                                  "row_parallel_linear",
                                  "parallel_lm_head",
                                  "logits_processor",
                                  "vocab_parallel_embedding",
                                  "conv2d",
                                  "conv3d",
                                  "topk_softmax",
                                  "grouped_topk",
                                  "moe_sum",
                                  "unquantized_fused_moe",
                                  "modular_fused_moe",
                                  "transformers_fused_moe",
                                  "fused_moe",
                                  "mm_encoder_attn",
                                  "reshape_and_cache",
                                  "concat_and_cache_mla",
                                  "quant_fp8",
                                  "scaled_int8_quant",
                                  "rms_norm_dynamic_per_token_quant",
                                  "scaled_mm",
                                  "merge_attn_states"};
enum { N_OPS = sizeof ops / sizeof ops[0] };

enum { HALVES = FL_FLOAT16 | FL_BFLOAT16, ALL_FLOATS = FL_FLOAT32 | HALVES };
static const uint32_t dtypes[] = {FL_FLOAT32, FL_FLOAT16, FL_BFLOAT16, FL_INT8};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* On each chip, in each element type that the implementation declares: some calls are taken, and all of these are
 * right. */
static void check_op(const char *chip, const char *op, uint32_t refused) {
  const fl_impl *impl = npu_find(op);
  ck_assert_msg(impl != NULL, "no implementation of %s", op);
  npu_control.set("soc", chip);
  for (int i = 0; i < N_DTYPES; i++) {
    uint32_t dtype = dtypes[i];
    if (!((impl->dtypes ? impl->dtypes : ALL_FLOATS) & dtype))
      continue;
    bool expected = !(refused & dtype);
    int taken = run_calls(impl, dtype, expected);
    ck_assert_msg(sampled() || (taken > 0) == expected, "%s on %s takes %d calls of element type %#x", op, chip, taken,
                  (unsigned)dtype);
  }
}

/* What a chip does not take of the ops' element types; of others it takes all. */
typedef struct refusal {
  const char *op;
  uint32_t dtypes;
} refusal;

static uint32_t refused_of(const refusal *refusals, const char *op, uint32_t others) {
  for (; refusals->op; refusals++)
    if (!strcmp(refusals->op, op))
      return refusals->dtypes;
  return others;
}

START_TEST(an_op_on_A2_gives_what_the_reference_gives) {
  static const refusal refusals[] = {
      {"conv2d", FL_FLOAT32}, {"conv3d", FL_FLOAT32}, {"quant_fp8", ALL_FLOATS}, {NULL, 0}};
  check_op("Ascend910B3", ops[_i], refused_of(refusals, ops[_i], 0));
}
END_TEST

/* Those that CANN does not have there take nothing, and bfloat16 is never taken. */
START_TEST(an_op_on_310P_takes_no_bfloat16) {
  enum { NO_FLOAT32 = FL_FLOAT32 | FL_BFLOAT16 };
  static const refusal taken[] = {{"silu_and_mul", FL_BFLOAT16},
                                  {"mul_and_silu", FL_BFLOAT16},
                                  {"gelu_and_mul", FL_BFLOAT16},
                                  {"fatrelu_and_mul", FL_BFLOAT16},
                                  {"swiglustep_and_mul", FL_BFLOAT16},
                                  {"gelu", FL_BFLOAT16},
                                  {"gelu_new", HALVES},
                                  {"gelu_fast", HALVES},
                                  {"sigmoid_mul", FL_BFLOAT16},
                                  {"tensor_model_parallel_all_reduce", FL_BFLOAT16},
                                  {"rms_norm", FL_BFLOAT16},
                                  {"fused_add_rms_norm", FL_BFLOAT16},
                                  {"rms_norm_gated", FL_BFLOAT16},
                                  {"mixer2_gated_rms_norm", FL_BFLOAT16},
                                  {"vocab_parallel_embedding", FL_BFLOAT16},
                                  {"moe_sum", FL_BFLOAT16},
                                  {"scaled_int8_quant", NO_FLOAT32},
                                  {"replicated_linear", NO_FLOAT32},
                                  {"column_parallel_linear", NO_FLOAT32},
                                  {"row_parallel_linear", NO_FLOAT32},
                                  {"parallel_lm_head", NO_FLOAT32},
                                  {"logits_processor", NO_FLOAT32},
                                  {"conv2d", NO_FLOAT32},
                                  {"conv3d", NO_FLOAT32},
                                  {NULL, 0}};
  check_op("Ascend310P3", ops[_i], refused_of(taken, ops[_i], ALL_FLOATS | FL_INT8));
}
END_TEST

START_TEST(an_op_on_950_gives_what_the_reference_gives) {
  static const refusal refusals[] = {{"xielu", ALL_FLOATS},
                                     {"unquantized_fused_moe", ALL_FLOATS},
                                     {"modular_fused_moe", ALL_FLOATS},
                                     {"transformers_fused_moe", ALL_FLOATS},
                                     {"fused_moe", ALL_FLOATS},
                                     {"mm_encoder_attn", ALL_FLOATS},
                                     {"reshape_and_cache", ALL_FLOATS},
                                     {"concat_and_cache_mla", ALL_FLOATS},
                                     {NULL, 0}};
  check_op("Ascend950PR_9599", ops[_i], refused_of(refusals, ops[_i], 0));
}
END_TEST

START_TEST(every_op_of_the_plugin_is_tested) {
  for (int i = 0; npu_at(i); i++) {
    bool found = !strcmp(npu_at(i)->op_name, "attention_backend");
    for (int j = 0; j < N_OPS; j++)
      found |= !strcmp(npu_at(i)->op_name, ops[j]);
    ck_assert_msg(found, "%s", npu_at(i)->op_name);
    ck_assert_str_eq(npu_at(i)->impl_id, "vendor.ascend");
    ck_assert_uint_eq(npu_at(i)->devices, FL_DEVICE(kDLExtDev));
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, an_op_on_A2_gives_what_the_reference_gives, 0, loop_cases(N_OPS));
  tcase_add_loop_test(tests, an_op_on_310P_takes_no_bfloat16, 0, loop_cases(N_OPS));
  tcase_add_loop_test(tests, an_op_on_950_gives_what_the_reference_gives, 0, loop_cases(N_OPS));
  tcase_add_test(tests, every_op_of_the_plugin_is_tested);
}

int main(void) {
  return run_suite("ascend_ops", add_tests, 120);
}
