/* Fused ops by their parts (fl_op_def.parts): the text, when an op has the implementation that runs them, and calls. */
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <flhost/dtype.h>
#include <flhost/testing.h>

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1};

static DLTensor tensor_of(DLDataType dtype, void *data, int64_t *shape, int64_t *strides) {
  return (DLTensor){data, {kDLCPU, 0}, 2, dtype, shape, strides, 0};
}

/* -------------------------------------------------------------------------------------------------------- the text */

static const struct {
  const char *parts, *message;
} wrong[] = {
    {"both = add(x)", "found the end, but no part makes result 'sum'"},
    {"sum = add(x, y); sum = add(x, y)", "column 18: 'sum' is made twice"},
    {"sum, sum = add(x, y)", "column 6: 'sum' is made twice"},
    {"t = add(x, y); t = add(x, y); sum = add(t, y)", "column 16: 't' is made twice"},
    {"x = add(x, y)", "'x' is an argument, expected a result of the op or a new name"},
    {"text = add(x, y)", "result 'text' is not a tensor"},
    {"sum = join(x, y)", "'join' is the op itself"},
    {"sum = add(sum, y)", "column 11: result 'sum' is not made yet"},
    {"t = add(t, y); sum = add(t, y)",
     "column 9: found 't', expected a value of the op, or a tensor that a part before"},
    {"sum = add(x, yy)",
     "found 'yy', expected a value of the op, or a tensor that a part before makes; did you mean 'y'?"},
    {"sum = add(x, y); t = add(x, y)",
     "column 26: argument 'x' may be overwritten by then: a result before may be in its"},
    {"sum add(x, y)", "column 5: found 'add', expected ',' or '=' and an op with its operands"},
    {"sum = add x, y", "expected '(' and the operands"},
    {"sum = add(x, y", "found the end, expected ',' or ')'"},
    {"sum = add(x, y) t = add(x, y)", "column 17: found 't', expected ';' or the end"},
    {"sum = add()", "found ')', expected"},
    {"sum = add(y=y, x)", "column 16: found 'x', expected an operand with its argument's name"},
    {"sum = add(x[:d], y)", "expected a slice of the last dimension, as in x[..., :d]"},
    {"sum = add(x[..., d], y)", "expected ':' of a slice, as in x[..., :d]"},
    {"sum = add(x[..., :e], y)", "found 'e', expected a dimension's name of the rules"},
    {"sum = add(x[..., :d/], y)", "expected a number, a name or an expression in parentheses"},
    {"sum = add(x[..., :d, y)", "expected"},
    {"sum = add(n[..., :d], y)", "'n' is not a tensor"},
    {"sum = add(x, \"y)", "expected '\"' at the end of the text"},
    {"sum = add(x, 010)", "expected a decimal number without leading zeros"},
    {"sum = add(x, y);;", "column 17: found ';', expected"},
};
enum { N_WRONG = sizeof wrong / sizeof *wrong };

START_TEST(wrong_text_is_refused_with_the_place) {
  fl_host *host = test_host(NULL, 0);
  const fl_op_def def = {.size = sizeof def,
                         .schema = "join(Tensor(a!) x, Tensor y, int n=1) -> (Tensor(a) sum, str text)",
                         .rules = "x: T[..., d]; y: T[..., d]",
                         .parts = wrong[_i].parts};
  const fl_op_def without = {.size = sizeof without,
                             .schema = "join(Tensor(a!) x, Tensor y, int n=1) -> Tensor(a) sum",
                             .rules = "x: T[..., d]; y: T[..., d]",
                             .parts = wrong[_i].parts};
  ck_assert_int_eq(fl_register_op(host, strstr(wrong[_i].message, "text' is not") ? &def : &without), FL_EINVAL);
  ck_contains(fl_error_message(), wrong[_i].message);
  ck_contains(fl_error_message(), "parts '");
  fl_host_destroy(host);
}
END_TEST

START_TEST(no_text_however_cut_is_read_beyond_its_end) {
  static const char whole[] = "t, _ = f(x[..., d // 2:], n=n, s=\"a;b=c(\", l=[1, 2], y=None); sum = add(x=x, y=t)";
  for (size_t n = 0; n <= sizeof whole; n++) {
    fl_host *host = test_host(NULL, 0);
    char *text = strndup(whole, n);
    const fl_op_def def = {.size = sizeof def,
                           .schema = "join(Tensor(a!) x, Tensor y, int n=1) -> Tensor(a) sum",
                           .rules = "x: T[..., d]; y: T[..., d]",
                           .parts = text};
    fl_status status = fl_register_op(host, &def);
    ck_assert_int_eq(status, n && n < strlen(whole) ? FL_EINVAL : FL_OK);
    if (!status)
      ck_assert_str_eq(fl_op_parts(fl_find_op(host, "join")), text);
    free(text);
    fl_host_destroy(host);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------- when an op has its parts run */

/* add, whose x and y are float32 rows; it says nothing of other types. */
typedef struct adder {
  fl_status status;
  bool refuses;
} adder;

static bool adder_takes(void *self, const fl_call *call, const char **reason) {
  const adder *a = self;
  (void)call;
  return !a->refuses || fl_reason(reason, "not today");
}

static fl_status adder_run(void *self, fl_call *call) {
  const adder *a = self;
  const DLTensor *x = call->values[0].v.tensor, *y = call->values[1].v.tensor, *out = call->values[2].v.tensor;
  if (a->status)
    return fl_fail(call, a->status, "the adder does not want to");
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t j = 0; j < x->shape[1]; j++)
      ((float *)fl_data(out))[i * fl_stride(out, 0) + j] =
          ((const float *)fl_data(x))[i * fl_stride(x, 0) + j] + ((const float *)fl_data(y))[i * fl_stride(y, 0) + j];
  return FL_OK;
}

static void register_on(fl_host *host, const char *op, const char *impl_id, uint64_t devices, fl_kernel_fn fn,
                        void *self, bool (*takes)(void *, const fl_call *, const char **)) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = op,
                  .impl_id = impl_id,
                  .kind = FL_KIND_REFERENCE,
                  .devices = devices,
                  .fn = fn,
                  .self = self,
                  .supports_args = takes};
  ck_ok(fl_register_impl(host, &impl));
}

static void register_add(fl_host *host, adder *a) {
  register_on(host, "add", "reference.adder", FL_DEVICE(kDLCPU), adder_run, a, adder_takes);
}

static fl_status never(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "must not run");
}

/* "reference.c 0x2" of each implementation that explain tells of, in its order. */
static const char *known(fl_host *host, const char *op, int32_t device) {
  static char text[512];
  fl_explanation *explanation;
  text[0] = 0;
  ck_ok(fl_explain(host, op, device, &explanation));
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    const fl_explained *impl = fl_explained_at(explanation, i);
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s%s", impl->impl_id,
             explanation->selected && !strcmp(explanation->selected, impl->impl_id) ? "* " : " ");
  }
  fl_explanation_free(explanation);
  return text;
}

START_TEST(it_comes_and_goes_with_what_runs_the_parts) {
  fl_host *host = test_host(NULL, 0);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "");
  register_on(host, "add", "reference.a", FL_DEVICE(kDLCPU) | FL_DEVICE(kDLCUDA), never, NULL, NULL);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "");
  register_on(host, "rms_norm", "reference.n", FL_DEVICE(kDLCPU) | FL_DEVICE(kDLROCM), never, NULL, NULL);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "reference.parts* ");
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCUDA), "reference.parts ");
  ck_assert_str_eq(known(host, "rms_norm_static_fp8_quant", kDLCPU), ""); /* quant_fp8 */
  register_on(host, "rms_norm", "reference.m", FL_DEVICE(kDLCUDA), never, NULL, NULL);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCUDA), "reference.parts* ");
  register_on(host, "fused_add_rms_norm", "reference.own", FL_DEVICE(kDLCPU), never, NULL, NULL);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "reference.own* reference.parts ");
  ck_ok(fl_withdraw_impl(host, "add", "reference.a"));
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "reference.own* ");
  ck_ok(fl_withdraw_impl(host, "fused_add_rms_norm", "reference.own"));
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "");
  register_on(host, "add", "reference.b", FL_DEVICE(kDLCPU), never, NULL, NULL);
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "reference.parts* ");
  fl_host_destroy(host);
}
END_TEST

START_TEST(neither_it_nor_the_host_can_be_withdrawn) {
  fl_host *host = test_host(NULL, 0);
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  ck_assert_int_eq(fl_withdraw_impl(host, "fused_add_rms_norm", "reference.parts"), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "implementation 'reference.parts' of op 'fused_add_rms_norm' is of plugin "
                                       "'flhost', and goes with that");
  ck_assert_int_eq(fl_withdraw_plugin(host, "flhost"), FL_ENOENT);
  ck_contains(known(host, "fused_add_rms_norm", kDLCPU), "reference.parts");
  ck_ok(fl_withdraw_plugin(host, "cpu"));
  ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "");
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  ck_contains(known(host, "fused_add_rms_norm", kDLCPU), "reference.parts");
  fl_host_destroy(host);
}
END_TEST

/* "a: is said of the impl by explain". */
static void ck_reason(fl_host *host, const char *op, int32_t device, const char *reason) {
  fl_explanation *explanation;
  ck_ok(fl_explain(host, op, device, &explanation));
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    if (!strcmp(fl_explained_at(explanation, i)->impl_id, "reference.parts"))
      ck_contains(fl_explained_at(explanation, i)->reason, reason);
  fl_explanation_free(explanation);
}

static bool is_off(void *self, const char **reason) {
  (void)self;
  return fl_reason(reason, "it is switched off");
}

START_TEST(it_is_no_candidate_where_nothing_that_is_available_runs_a_part) {
  adder a = {0};
  static const char *const environment[] = {"VLLM_FL_DENY_VENDORS=acme", NULL};
  for (int denied = 0; denied < 2; denied++) {
    fl_host *host = test_host(denied ? environment : NULL, 0);
    register_add(host, &a);
    fl_impl norm = {.size = sizeof norm,
                    .op_name = "rms_norm",
                    .impl_id = "vendor.acme",
                    .kind = FL_KIND_VENDOR,
                    .vendor = "acme",
                    .devices = FL_DEVICE(kDLCPU),
                    .fn = never,
                    .is_available = denied ? NULL : is_off};
    ck_ok(fl_register_impl(host, &norm));
    ck_assert_str_eq(known(host, "fused_add_rms_norm", kDLCPU), "reference.parts ");
    ck_reason(host, "fused_add_rms_norm", kDLCPU, "nothing runs its part 'rms_norm' there");
    fl_resolution found = {.size = sizeof found};
    ck_assert_int_eq(fl_resolve_op(host, "fused_add_rms_norm", kDLCPU, &found), FL_ENOIMPL);
    ck_contains(fl_error_message(), "reference.parts: nothing runs its part 'rms_norm' there");
    ck_assert_int_eq(fl_resolve_op(host, "fused_add_rms_norm", kDLCUDA, &found), FL_ENOIMPL);
    ck_contains(fl_error_message(), "reference.parts: works on cpu, the tensors are on cuda");
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(T1_unfused_native_and_reference_name_it) {
  static const struct {
    const char *order, *selected;
  } cases[] = {{"unfused", "reference.parts*"},
               {"impl:reference.parts", "reference.parts*"},
               {"reference", "reference.own*"},
               {"unfused|reference", "reference.parts*"},
               {"native", "reference.own*"},
               {"impl:reference.own|unfused", "reference.own*"},
               {"impl:reference.own", "reference.own*"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char variable[128];
    const char *const environment[] = {variable, NULL};
    adder a = {0};
    snprintf(variable, sizeof variable, "VLLM_FL_PER_OP=fused_add_rms_norm=%s", cases[i].order);
    fl_host *host = test_host(environment, 0);
    register_add(host, &a);
    register_on(host, "rms_norm", "reference.n", FL_DEVICE(kDLCPU), never, NULL, NULL);
    register_on(host, "fused_add_rms_norm", "reference.own", FL_DEVICE(kDLCPU), never, NULL, NULL);
    ck_contains(known(host, "fused_add_rms_norm", kDLCPU), cases[i].selected);
    fl_host_destroy(host);
  }
}
END_TEST

/* P3: an order that lists neither the reference nor it never runs it. */
START_TEST(P3_an_order_without_it_does_not_run_it) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=fused_add_rms_norm=flagos|vendor", NULL};
  fl_resolution found = {.size = sizeof found};
  adder a = {0};
  fl_host *host = test_host(environment, 0);
  register_add(host, &a);
  register_on(host, "rms_norm", "reference.n", FL_DEVICE(kDLCPU), never, NULL, NULL);
  ck_assert_int_eq(fl_resolve_op(host, "fused_add_rms_norm", kDLCPU, &found), FL_ENOIMPL);
  ck_contains(fl_error_message(), "reference.parts: no token of the order matches it: flagos > vendor");
  fl_host_destroy(host);
}
END_TEST

START_TEST(unfused_without_parts_is_warned_of) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=silu_and_mul=unfused|reference;silu_and_mul_quant=unfused",
                                            NULL};
  fl_host *host = test_host(environment, 0);
  ck_ok(fl_reset_global_policy(host)); /* the log of the creation is cleared */
  ck_assert_int_eq(test_log_count("WARNING VLLM_FL_PER_OP: token 'unfused' for op 'silu_and_mul': it has no parts"), 1);
  ck_assert_ptr_null(strstr(test_log.text, "silu_and_mul_quant"));
  fl_host_destroy(host);
}
END_TEST

/* With dispatch off an op runs its reference; where it has none of its own there, its vendor's, and not the parts. */
START_TEST(dispatch_off_prefers_a_vendors_to_the_parts) {
  static const char *const environment[] = {"VLLM_FL_PREFER_ENABLED=false", NULL};
  adder a = {0};
  fl_host *host = test_host(environment, 0);
  register_add(host, &a);
  register_on(host, "rms_norm", "reference.n", FL_DEVICE(kDLCPU), never, NULL, NULL);
  fl_impl fused = {.size = sizeof fused,
                   .op_name = "fused_add_rms_norm",
                   .impl_id = "vendor.acme",
                   .kind = FL_KIND_VENDOR,
                   .vendor = "acme",
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = never};
  ck_ok(fl_register_impl(host, &fused));
  ck_contains(known(host, "fused_add_rms_norm", kDLCPU), "vendor.acme*");
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------- fused_add_rms_norm by its parts */

/* An rms_norm that hands its x through, as float32, and counts. */
typedef struct spy {
  int calls, calls_with_residual;
  fl_status status;
  float x[16];
  double epsilon;
} spy;

static float element(const DLTensor *tensor, int64_t row, int64_t column) {
  int64_t i = (tensor->ndim > 1 ? row * fl_stride(tensor, 0) : 0) + column;
  if (tensor->dtype.bits == 32)
    return ((const float *)fl_data(tensor))[i];
  uint16_t bits = ((const uint16_t *)fl_data(tensor))[i];
  return tensor->dtype.code == kDLBfloat ? fl_bf16_to_float(bits) : fl_f16_to_float(bits);
}

static fl_status spy_norm(void *self, fl_call *call) {
  spy *seen = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[5].v.tensor;
  int64_t columns = x->shape[x->ndim - 1], rows = x->ndim > 1 ? x->shape[0] : 1;
  seen->calls++;
  seen->calls_with_residual += call->values[1].type != FL_NONE || call->values[6].type != FL_NONE;
  seen->epsilon = call->values[3].v.f;
  if (seen->status)
    return fl_fail(call, seen->status, "the spy was found out");
  for (int64_t i = 0; i < rows * columns; i++)
    seen->x[i] = element(x, i / columns, i % columns);
  memset(fl_data(out), 0xff, out->dtype.bits / 8);
  return FL_OK;
}

static void register_norm(fl_host *host, const char *impl_id, spy *seen) {
  register_on(host, "rms_norm", impl_id, FL_DEVICE(kDLCPU), spy_norm, seen, NULL);
}

/* A host with the CPU's ops whose order for fused_add_rms_norm is the given one, and whose rms_norm is a spy's. */
static fl_host *host_with_order(const char *order) {
  char variable[128];
  const char *const environment[] = {variable, NULL};
  snprintf(variable, sizeof variable, "VLLM_FL_PER_OP=fused_add_rms_norm=%s;rms_norm=impl:reference.b", order);
  fl_host *host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  return host;
}

static fl_status call_fused(fl_host *host, DLTensor *x, DLTensor *residual, DLTensor *out, DLTensor *residual_out) {
  fl_value values[] = {fl_tensor(x),   fl_tensor(residual),    fl_none(), fl_float(1e-5), fl_none(),
                       fl_tensor(out), fl_tensor(residual_out)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "fused_add_rms_norm", &call);
}

START_TEST(its_calls_are_made_under_the_policy) {
  spy a = {0}, b = {0};
  fl_host *host = host_with_order("unfused");
  register_norm(host, "reference.a", &a);
  register_norm(host, "reference.b", &b);
  float x[] = {1, 2, 3, 4, 5, 6}, residual[] = {10, 20, 30, 40, 50, 60}, out[6] = {0}, sum[6] = {0};
  int64_t shape[] = {2, 3};
  DLTensor tensors[] = {tensor_of(f32, x, shape, NULL), tensor_of(f32, residual, shape, NULL),
                        tensor_of(f32, out, shape, NULL), tensor_of(f32, sum, shape, NULL)};
  ck_ok(call_fused(host, &tensors[0], &tensors[1], &tensors[2], &tensors[3]));
  for (int i = 0; i < 6; i++) {
    ck_assert_float_eq(b.x[i], 11.0f * (float)(i + 1));
    ck_assert_float_eq(sum[i], b.x[i]);
    ck_assert_float_eq(x[i], (float)(i + 1));
    ck_assert_float_eq(residual[i], 10.0f * (float)(i + 1));
  }
  ck_assert_double_eq(b.epsilon, 1e-5);
  ck_assert_int_eq(a.calls, 0);
  ck_assert_int_eq(b.calls, 1);
  ck_assert_int_eq(b.calls_with_residual, 0);
  ck_assert_int_eq(test_log_count("INFO Op 'fused_add_rms_norm' using 'reference.parts' (kind=reference, vendor=None)"),
                   1);
  ck_assert_int_eq(test_log_count("INFO Op 'rms_norm' using 'reference.b' (kind=reference, vendor=None)"), 1);
  fl_scope scope;
  const char *const order[] = {"impl:reference.a"};
  fl_policy *policy = NULL;
  fl_op_order orders[] = {{"fused_add_rms_norm", (const char *const[]){"unfused"}, 1}, {"rms_norm", order, 1}};
  fl_policy_fields fields = {
      .size = sizeof fields, .per_op = orders, .n_per_op = 2, .per_op_size = sizeof(fl_op_order)};
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_scope_enter(host, policy, &scope));
  ck_ok(call_fused(host, &tensors[0], &tensors[1], &tensors[2], &tensors[3]));
  ck_ok(fl_scope_leave(&scope));
  fl_policy_release(policy);
  ck_assert_int_eq(a.calls, 1);
  ck_assert_int_eq(b.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* 1 + 2^-8 * 1.5 is half-way or beyond between neighbours of both small types: the sum that is handed on is the rounded
 * one, and what is in the gaps between rows stays. In place. */
START_TEST(the_sum_is_rounded_once_in_place_with_strided_rows) {
  static const struct {
    const DLDataType *dtype;
    uint16_t one, small, rounded;
  } cases[] = {{&bf16, 0x3f80, 0x3bc0, 0x3f81}, /* 1 + 0.005859375 -> 1.0078125 */
               {&bf16, 0x3f80, 0x3b80, 0x3f80}, /* 1 + 2^-8, a tie, to even */
               {&f16, 0x3c00, 0x1200, 0x3c01},  /* 1 + 0.75 * 2^-10 -> 1 + 2^-10 */
               {&f16, 0x3c00, 0x1000, 0x3c00}}; /* 1 + 2^-11, a tie, to even */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    spy seen = {0};
    fl_host *host = host_with_order("unfused");
    register_norm(host, "reference.b", &seen);
    uint16_t x[10], residual[14];
    int64_t shape[] = {2, 4}, x_strides[] = {5, 1}, residual_strides[] = {7, 1};
    for (int j = 0; j < 10; j++)
      x[j] = cases[i].one;
    for (int j = 0; j < 14; j++)
      residual[j] = cases[i].small;
    DLTensor at = tensor_of(*cases[i].dtype, x, shape, x_strides);
    DLTensor to = tensor_of(*cases[i].dtype, residual, shape, residual_strides);
    ck_ok(call_fused(host, &at, &to, &at, &to));
    for (int j = 0; j < 14; j++)
      ck_assert_uint_eq(residual[j], j % 7 < 4 ? cases[i].rounded : cases[i].small);
    for (int j = 1; j < 10; j++)
      ck_assert_uint_eq(x[j], cases[i].one);
    ck_assert_uint_eq(x[0], 0xffff); /* where the spy writes its result */
    for (int j = 0; j < 8; j++)
      ck_assert_float_eq(seen.x[j], element(&to, j / 4, j % 4));
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(no_tokens_are_no_trouble) {
  spy seen = {0};
  fl_host *host = host_with_order("unfused");
  register_norm(host, "reference.b", &seen);
  float x[4] = {1, 2, 3, 4}, residual[4] = {0};
  int64_t shape[] = {0, 4};
  DLTensor at = tensor_of(f32, x, shape, NULL), to = tensor_of(f32, residual, shape, NULL);
  ck_ok(call_fused(host, &at, &to, &at, &to));
  fl_host_destroy(host);
}
END_TEST

/* With the real kernels: in float32 nothing is rounded between the parts, so that the results are the same bits. */
START_TEST(the_parts_agree_with_the_fused_reference) {
  enum { ROWS = 7, COLUMNS = 96, N = ROWS * COLUMNS };
  static float x[N], residual[N], out[2][N], sum[2][N];
  int64_t shape[] = {ROWS, COLUMNS};
  for (int i = 0; i < N; i++) {
    x[i] = (float)((i * 37) % 101) / 17.0f - 3.0f;
    residual[i] = (float)((i * 53) % 89) / 13.0f - 2.0f;
  }
  for (int i = 0; i < 2; i++) {
    fl_policy *policy = NULL;
    const char *const order[] = {i ? "unfused" : "impl:reference.c"};
    fl_op_order orders[] = {{"fused_add_rms_norm", order, 1}};
    fl_policy_fields fields = {.size = sizeof fields,
                               .prefer = "reference",
                               .per_op = orders,
                               .n_per_op = 1,
                               .per_op_size = sizeof(fl_op_order)};
    fl_host *host = test_host(NULL, 0);
    ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
    ck_ok(fl_policy_create(&fields, &policy));
    ck_ok(fl_set_global_policy(host, policy));
    fl_policy_release(policy);
    DLTensor tensors[] = {tensor_of(f32, x, shape, NULL), tensor_of(f32, residual, shape, NULL),
                          tensor_of(f32, out[i], shape, NULL), tensor_of(f32, sum[i], shape, NULL)};
    ck_ok(call_fused(host, &tensors[0], &tensors[1], &tensors[2], &tensors[3]));
    fl_host_destroy(host);
  }
  ck_assert(!memcmp(sum[0], sum[1], sizeof sum[0]));
  ck_assert(!memcmp(out[0], out[1], sizeof out[0]));
  ck_assert_float_ne(out[0][0], 0);
}
END_TEST

/* A part that fails after the residual was overwritten is a failure, and no fallback may start from the sum. */
START_TEST(F6_in_place_it_does_not_claim_that_nothing_was_written) {
  static const struct {
    bool in_place;
    fl_status part, expected;
    const char *message;
  } cases[] = {{false, FL_ENOTSUP, FL_OK, ""}, /* the next candidate, `reference`, runs */
               {true, FL_ENOTSUP, FL_EINTERNAL, "it may have overwritten"},
               {true, FL_EINVAL, FL_EINVAL, "part 'rms_norm': rms_norm: the spy was found out"},
               {true, FL_EDEVICE, FL_EDEVICE, "part 'rms_norm': All 1 implementation(s) failed for op='rms_norm'"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    spy seen = {.status = cases[i].part}, next = {0};
    fl_host *host = host_with_order("unfused|impl:reference.next");
    register_norm(host, "reference.b", &seen);
    register_on(host, "fused_add_rms_norm", "reference.next", FL_DEVICE(kDLCPU), spy_norm, &next, NULL);
    float x[2] = {1, 2}, residual[2] = {3, 4}, out[2], sum[2];
    int64_t shape[] = {1, 2};
    DLTensor a = tensor_of(f32, x, shape, NULL), r = tensor_of(f32, residual, shape, NULL);
    DLTensor o = tensor_of(f32, out, shape, NULL), s = tensor_of(f32, sum, shape, NULL);
    fl_status status = cases[i].in_place ? call_fused(host, &a, &r, &a, &r) : call_fused(host, &a, &r, &o, &s);
    ck_assert_msg(status == cases[i].expected, "case %zu: %d, %s", i, status, fl_error_message());
    if (status)
      ck_contains(fl_error_message(), cases[i].message);
    ck_assert_int_eq(next.calls, !cases[i].in_place);
    ck_assert_int_eq(seen.calls, 1);
    fl_host_destroy(host);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------- ops of the engine's */

/* scale(x, by): float32 rows; its int and text are looked at, too. */
static fl_status scale(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[4].v.tensor;
  double by = call->values[1].v.f;
  (void)self;
  if (call->values[2].v.i != 7 || strcmp(call->values[3].v.s, "as a default"))
    return fl_fail(call, FL_EINTERNAL, "other attributes were expected");
  for (int64_t i = 0; i < x->shape[0]; i++)
    for (int64_t j = 0; j < x->shape[1]; j++)
      ((float *)fl_data(out))[i * fl_stride(out, 0) + j] =
          (float)by * ((const float *)fl_data(x))[i * fl_stride(x, 0) + j];
  return FL_OK;
}

static fl_host *host_with_scale(void) {
  static const fl_op_def def = {.size = sizeof def,
                                .schema =
                                    "scale(Tensor x, float by=1.0, int n=7, str text=\"as a default\") -> Tensor out",
                                .rules = "x: T[m, d]; out: T[m, d]; T = float32"};
  static adder a;
  fl_host *host = test_host(NULL, 0);
  ck_ok(fl_register_op(host, &def));
  register_on(host, "scale", "reference.scale", FL_DEVICE(kDLCPU), scale, NULL, NULL);
  a = (adder){0};
  register_add(host, &a);
  return host;
}

static fl_status fold(fl_host *host, const char *parts) {
  const fl_op_def def = {.size = sizeof def,
                         .schema = "fold(Tensor x, float by) -> Tensor out",
                         .rules = "x: T[m, 2*d]; out: T[m, d]; T = float32",
                         .parts = parts};
  return fl_register_op(host, &def);
}

/* out = by * (3 * first half + second half), of rows with gaps. */
static fl_status call_fold(fl_host *host, float out[4], void *workspace, size_t size) {
  static float x[] = {1, 2, 10, 20, -1, 3, 4, 30, 40, -1};
  int64_t shape[] = {2, 4}, strides[] = {5, 1}, out_shape[] = {2, 2};
  DLTensor given = tensor_of(f32, x, shape, strides), made = tensor_of(f32, out, out_shape, NULL);
  fl_value values[] = {fl_tensor(&given), fl_float(2), fl_tensor(&made)};
  fl_call call = FL_CALL(values);
  call.workspace = workspace;
  call.workspace_size = size;
  return fl_call_op(host, "fold", &call);
}

START_TEST(slices_literals_and_what_lies_between) {
  static const char *const texts[] = {
      "t = scale(x[..., :d], by=3, n=7); u = add(t, x[..., d:]); out = scale(u, by)",
      "t = scale(x[..., 0:d], 3.0, text=\"as a default\"); u = add(x[..., d:2*d], y=t); out = scale(u, by=by)",
      "t=scale(x=x,by=3);u=add(t[..., :d//1],scale_less[..., d + 0:])", /* refused: a name that nobody makes */
      "_ = scale(x); w = scale(x[..., : (2*d)/2], 3); u = add(w, x[..., d:]); out = scale(u, by)"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    fl_host *host = host_with_scale();
    fl_status status = fold(host, texts[i]);
    ck_assert_int_eq(status, i == 2 ? FL_EINVAL : FL_OK);
    float out[4] = {0};
    if (!status) {
      ck_ok(call_fold(host, out, NULL, 0));
      const float expected[] = {26, 52, 78, 104};
      ck_assert_msg(!memcmp(out, expected, sizeof out), "%zu: %g %g %g %g", i, (double)out[0], (double)out[1],
                    (double)out[2], (double)out[3]);
    }
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(what_lies_between_is_in_the_workspace) {
  _Alignas(256) static char workspace[4096];
  size_t wanted = 0;
  float out[4], x[8] = {0};
  int64_t shape[] = {2, 4}, out_shape[] = {2, 2};
  DLTensor given = tensor_of(f32, x, shape, NULL), made = tensor_of(f32, out, out_shape, NULL);
  fl_value values[] = {fl_tensor(&given), fl_float(2), fl_tensor(&made)};
  fl_call call = FL_CALL(values);
  fl_host *host = host_with_scale();
  ck_ok(fold(host, "t = scale(x[..., :d], 3); u = add(t, x[..., d:]); out = scale(u, by)"));
  ck_ok(fl_workspace_size(fl_find_op(host, "fold"), &call, &wanted));
  ck_assert_uint_eq(wanted, 512);
  memset(workspace, 0x55, sizeof workspace);
  ck_ok(call_fold(host, out, workspace, wanted));
  ck_assert_float_eq(out[3], 104);
  for (size_t i = wanted; i < sizeof workspace; i++)
    ck_assert_int_eq(workspace[i], 0x55);
  ck_assert_float_eq(((const float *)workspace)[0], 3);
  ck_assert_int_eq(call_fold(host, out, workspace, wanted - 1), FL_ENOIMPL);
  ck_contains(fl_error_message(), "reference.parts: not supported: it needs a workspace of 512 bytes");
  fl_host_destroy(host);
}
END_TEST

static const struct {
  const char *parts, *message;
} unfit[] = {
    {"out = nothing(x)", ""}, /* not even listed */
    {"out = scale(x, 1, 2, 3, 4)", "part 'scale': argument 'text' is given a literal of another type"},
    {"out = scale(x, 1, 2, \"a\", 4)", "part 'scale': it has 4 arguments"},
    {"out = scale(x, buy=1)", "part 'scale': it has no argument 'buy'"},
    {"out = scale(x, out=x)", "part 'scale': it has no argument 'out'"},
    {"out = scale(x, x=x)", "part 'scale': argument 'x' is given twice"},
    {"out = scale(by=1)", "part 'scale': argument 'x' is not given"},
    {"out = scale(x, n=1.5)", "part 'scale': argument 'n' is given a literal of another type"},
    {"out = scale(x, by=None)", "part 'scale': argument 'by' is given a literal of another type"},
    {"out, t = scale(x)", "part 'scale': it has 1 results"},
    {"out = scale(by)", "part 'scale': "},
    {"out = scale(x[..., 2*d+1:])", "part 'scale': a slice 5:4 of 4 elements"},
    {"out = scale(x[..., d/3:])", "part 'scale': "},
    {"out = scale(x)", "part 'scale': "}, /* of another shape than the op's result */
};
enum { N_UNFIT = sizeof unfit / sizeof *unfit };

START_TEST(what_does_not_fit_the_op_of_a_part_is_said_when_it_is_called) {
  float out[4];
  fl_host *host = host_with_scale();
  ck_ok(fold(host, unfit[_i].parts));
  ck_assert_int_ne(call_fold(host, out, NULL, 0), FL_OK);
  ck_contains(fl_error_message(), unfit[_i].message);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_part_that_comes_later_is_found) {
  float out[4];
  fl_host *host = test_host(NULL, 0);
  static adder a;
  ck_ok(fold(host, "out = add(x[..., :d], x[..., d:])"));
  ck_assert_int_eq(call_fold(host, out, NULL, 0), FL_ENOIMPL);
  a = (adder){0};
  register_add(host, &a);
  ck_ok(call_fold(host, out, NULL, 0));
  ck_assert_float_eq(out[0], 11);
  a.refuses = true;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(call_fold(host, out, NULL, 0), FL_ENOIMPL);
  ck_contains(fl_error_message(), "reference.parts: not supported: part 'add': reference.adder: not today");
  a.refuses = false;
  a.status = FL_EDEVICE;
  ck_assert_int_eq(call_fold(host, out, NULL, 0), FL_EDEVICE);
  ck_contains(fl_error_message(), "part 'add': ");
  ck_contains(fl_error_message(), "the adder does not want to");
  fl_host_destroy(host);
}
END_TEST

/* Parts of parts: down to the last, and round in a circle nowhere. */
START_TEST(parts_may_have_parts_and_circles_end) {
  float x[4] = {1, 2, 3, 4}, out[4] = {0};
  int64_t shape[] = {2, 2};
  DLTensor given = tensor_of(f32, x, shape, NULL), made = tensor_of(f32, out, shape, NULL);
  fl_value values[] = {fl_tensor(&given), fl_tensor(&made)};
  fl_call call = FL_CALL(values);
  fl_op_def def = {.size = sizeof def, .rules = "x: T[m, d]; out: T[m, d]; T = float32"};
  fl_host *host = host_with_scale();
  def.schema = "outer(Tensor x) -> Tensor out";
  def.parts = "out = inner(x)";
  ck_ok(fl_register_op(host, &def));
  ck_assert_int_eq(fl_call_op(host, "outer", &call), FL_ENOIMPL);
  def.schema = "inner(Tensor x) -> Tensor out";
  def.parts = "t = scale(x, 2); out = scale(t, 3)";
  ck_ok(fl_register_op(host, &def));
  ck_ok(fl_call_op(host, "outer", &call));
  ck_assert_float_eq(out[3], 24);
  def.schema = "left(Tensor x) -> Tensor out";
  def.parts = "out = right(x)";
  ck_ok(fl_register_op(host, &def));
  def.schema = "right(Tensor x) -> Tensor out";
  def.parts = "out = left(x)";
  ck_ok(fl_register_op(host, &def));
  ck_assert_str_eq(known(host, "left", kDLCPU), "");
  adder refuses = {.refuses = true}; /* both are listed now, and nothing takes the call */
  register_on(host, "left", "reference.l", FL_DEVICE(kDLCPU), adder_run, &refuses, adder_takes);
  ck_assert_str_eq(known(host, "right", kDLCPU), "reference.parts* ");
  ck_assert_int_eq(fl_call_op(host, "left", &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "reference.l: not supported: not today");
  ck_assert_int_eq(fl_call_op(host, "right", &call), FL_ENOIMPL);
  fl_host_destroy(host);
}
END_TEST

/* What is declared twice is one op: the first text stays. */
START_TEST(an_op_declared_again_keeps_its_parts) {
  float out[4];
  fl_host *host = host_with_scale();
  ck_ok(fold(host, "t = scale(x[..., :d], 3); u = add(t, x[..., d:]); out = scale(u, by)"));
  ck_ok(fold(host, "out = add(x[..., :d], x[..., d:])"));
  ck_ok(fold(host, NULL));
  ck_ok(call_fold(host, out, NULL, 0));
  ck_assert_float_eq(out[0], 26);
  fl_host_destroy(host);
}
END_TEST

static fl_op *shared_op;

static void *call_many(void *unused) {
  (void)unused;
  for (int i = 0; i < 200; i++) {
    float x[] = {1, 2, 10, 20, 3, 4, 30, 40}, out[4] = {0};
    int64_t shape[] = {2, 4}, out_shape[] = {2, 2};
    DLTensor given = tensor_of(f32, x, shape, NULL), made = tensor_of(f32, out, out_shape, NULL);
    fl_value values[] = {fl_tensor(&given), fl_float(2), fl_tensor(&made)};
    fl_call call = FL_CALL(values);
    if (fl_invoke(shared_op, &call) || out[0] != 26 || out[3] != 104) /* NOLINT: whole numbers */
      return (void *)1;
  }
  return NULL;
}

START_TEST(threads_link_and_run_the_parts_at_once) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  fl_host *host = host_with_scale();
  ck_ok(fold(host, "t = scale(x[..., :d], 3); u = add(t, x[..., d:]); out = scale(u, by)"));
  shared_op = fl_find_op(host, "fold");
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_many, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *wrong_result;
    pthread_join(threads[i], &wrong_result);
    ck_assert_ptr_null(wrong_result);
  }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, wrong_text_is_refused_with_the_place, 0, N_WRONG);
  tcase_add_test(tests, no_text_however_cut_is_read_beyond_its_end);
  tcase_add_test(tests, it_comes_and_goes_with_what_runs_the_parts);
  tcase_add_test(tests, neither_it_nor_the_host_can_be_withdrawn);
  tcase_add_test(tests, it_is_no_candidate_where_nothing_that_is_available_runs_a_part);
  tcase_add_test(tests, T1_unfused_native_and_reference_name_it);
  tcase_add_test(tests, P3_an_order_without_it_does_not_run_it);
  tcase_add_test(tests, unfused_without_parts_is_warned_of);
  tcase_add_test(tests, dispatch_off_prefers_a_vendors_to_the_parts);
  tcase_add_test(tests, its_calls_are_made_under_the_policy);
  tcase_add_test(tests, the_sum_is_rounded_once_in_place_with_strided_rows);
  tcase_add_test(tests, no_tokens_are_no_trouble);
  tcase_add_test(tests, the_parts_agree_with_the_fused_reference);
  tcase_add_test(tests, F6_in_place_it_does_not_claim_that_nothing_was_written);
  tcase_add_test(tests, slices_literals_and_what_lies_between);
  tcase_add_test(tests, what_lies_between_is_in_the_workspace);
  tcase_add_loop_test(tests, what_does_not_fit_the_op_of_a_part_is_said_when_it_is_called, 0, N_UNFIT);
  tcase_add_test(tests, a_part_that_comes_later_is_found);
  tcase_add_test(tests, parts_may_have_parts_and_circles_end);
  tcase_add_test(tests, an_op_declared_again_keeps_its_parts);
  tcase_add_test(tests, threads_link_and_run_the_parts_at_once);
}

int main(void) {
  return run_suite("parts", add_tests, 20);
}
