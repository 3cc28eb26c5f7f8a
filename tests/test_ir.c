/* What vLLM's IR does with implementations of an op: identities, reserved names, running by parts, orders per op. */
#include "fixture.h"

#include "tests/scratch.h"

#include <flhost/dtype.h>

/* ------------------------------------------------------------------------------------------------------- identity */

static const char *uuid_of(fl_host *host, const char *op, const char *impl_id) {
  static char buffers[4][65];
  static int turn;
  char *uuid = buffers[turn++ % 4];
  ck_ok(fl_impl_uuid(host, op, impl_id, uuid));
  ck_assert_uint_eq(strspn(uuid, "0123456789abcdef"), 64);
  ck_assert_uint_eq(strlen(uuid), 64);
  return uuid;
}

/* SHA-256 of "op() -> str out\0default.x\0engine\0", made with another program. */
START_TEST(uuid_is_a_digest_of_schema_id_and_build) {
  test_impl impl = {.id = "default.x"};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  ck_assert_str_eq(uuid_of(host, "op", "default.x"),
                   "f8e3107de6eedd79c6abf125ea29b0d7ac84dc212ed2f7fbab829e6e7f725d6b");
  fl_host_destroy(host);
}
END_TEST

START_TEST(uuid_is_the_same_in_every_host_and_differs_by_each_part) {
  test_impl x = {.id = "default.x"}, y = {.id = "default.y"};
  fl_host *host = test_host(NULL, 0), *other = test_host(NULL, 0);
  test_op(host, "op");
  test_op(host, "op2");
  test_op(other, "op");
  test_register(host, "op", &x, 0, false);
  test_register(host, "op", &y, 0, false);
  test_register(host, "op2", &x, 0, false);
  test_register(other, "op", &x, 999, true); /* neither priority nor predicate is what it computes */
  const char *uuid = uuid_of(host, "op", "default.x");
  ck_assert_str_eq(uuid, uuid_of(other, "op", "default.x"));
  ck_assert_str_ne(uuid, uuid_of(host, "op", "default.y"));
  ck_assert_str_ne(uuid, uuid_of(host, "op2", "default.x"));
  fl_host_destroy(host);
  fl_host_destroy(other);
}
END_TEST

/* A host with one of the plugins that are built from good.c. */
static fl_host *host_with(const char *plugin) {
  char name[64];
  fl_host *host = test_host(NULL, 0);
  snprintf(name, sizeof name, "tests/plugins/%s.so", plugin);
  ck_ok(fl_load_plugin(host, built(name)));
  return host;
}

START_TEST(uuid_changes_with_the_build_of_a_plugin) {
  char before[65];
  fl_host *host = host_with("good");
  snprintf(before, sizeof before, "%s", uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
  host = host_with("good");
  ck_assert_str_eq(before, uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
  host = host_with("good_rebuilt");
  ck_assert_str_ne(before, uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(uuid_is_refused_where_nothing_tells_builds_apart) {
  char uuid[65] = "untouched";
  fl_host *host = host_with("good_anonymous");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scale", "vendor.good", uuid), FL_ENOTSUP);
  ck_assert_str_eq(fl_error_message(), "plugin 'good' of 'vendor.good' has no build id: link it with -Wl,--build-id");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scale", "vendor.goof", uuid), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "op 'test_scale' has no implementation 'vendor.goof'; did you mean 'vendor.good'?");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scail", "vendor.good", uuid), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op 'test_scail'; did you mean 'test_scale'?");
  ck_assert_str_eq(uuid, "untouched");
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- reserved names */

START_TEST(T1_native_is_the_reference) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=op=native|flagos", NULL};
  test_impl flagos = {.id = "default.x"}, reference = {.id = "reference.x"};
  fl_host *host = test_host(environment, 0);
  const char *ran;
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &reference, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "reference.x");
  reference.status = FL_EDEVICE;
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "default.x");
  fl_host_destroy(host);
}
END_TEST

static fl_status no_kernel(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "must not run");
}

START_TEST(reserved_names_are_refused) {
  static const struct {
    const char *impl_id, *vendor, *message;
  } cases[] = {{"native", "acme", "impl_id 'native' is reserved"},
               {"unfused", "acme", "impl_id 'unfused' is reserved"},
               {"vendor.native", "native", "vendor 'native' is reserved"},
               {"vendor.unfused", "unfused", "vendor 'unfused' is reserved"}};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_impl impl = {.size = sizeof impl,
                    .op_name = "op",
                    .impl_id = cases[i].impl_id,
                    .kind = FL_KIND_VENDOR,
                    .vendor = cases[i].vendor,
                    .devices = FL_DEVICE_ANY,
                    .fn = no_kernel};
    ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
    ck_contains(fl_error_message(), cases[i].message);
    impl.impl_id = "vendor.unfused_fast"; /* only the very words are reserved */
    impl.vendor = "natives";
    ck_assert_int_eq(fl_register_impl(host, &impl), i ? FL_EEXIST : FL_OK);
  }
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- fused, by parts */

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
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "rms_norm",
                  .impl_id = impl_id,
                  .kind = FL_KIND_REFERENCE,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = spy_norm,
                  .self = seen};
  ck_ok(fl_register_impl(host, &impl));
}

/* A host whose order for fused_add_rms_norm is the given one. */
static fl_host *host_with_order(const char *order) {
  char variable[128];
  const char *const environment[] = {variable, NULL};
  snprintf(variable, sizeof variable, "VLLM_FL_PER_OP=fused_add_rms_norm=%s;rms_norm=impl:reference.b", order);
  return test_host(environment, 0);
}

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1};

static DLTensor tensor_of(DLDataType dtype, void *data, int64_t *shape, int64_t *strides) {
  return (DLTensor){data, {kDLCPU, 0}, 2, dtype, shape, strides, 0};
}

static fl_status call_fused(fl_host *host, DLTensor *x, DLTensor *residual, DLTensor *out, DLTensor *residual_out) {
  fl_value values[] = {fl_tensor(x),   fl_tensor(residual),    fl_none(), fl_float(1e-5), fl_none(),
                       fl_tensor(out), fl_tensor(residual_out)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "fused_add_rms_norm", &call);
}

START_TEST(unfused_adds_and_calls_rms_norm_under_the_policy) {
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
  ck_assert_int_eq(test_log_count("INFO Op 'fused_add_rms_norm' using 'unfused' (kind=reference, vendor=None)"), 1);
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
START_TEST(unfused_rounds_the_sum_once_in_place_with_strided_rows) {
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
      ck_assert_float_eq(seen.x[j], element(&to, 0, 0));
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(unfused_of_no_tokens_does_nothing) {
  spy seen = {0};
  fl_host *host = host_with_order("unfused");
  register_norm(host, "reference.b", &seen);
  float x[4] = {1, 2, 3, 4};
  int64_t shape[] = {0, 4};
  DLTensor at = tensor_of(f32, x, shape, NULL);
  ck_ok(call_fused(host, &at, &at, &at, &at));
  fl_host_destroy(host);
}
END_TEST

/* With the real kernels: in float32 nothing is rounded between the parts, so that the results are the same bits. */
START_TEST(unfused_agrees_with_the_fused_reference) {
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

START_TEST(unfused_is_picked_by_name_only) {
  fl_resolution found = {.size = sizeof found};
  fl_explanation *explanation;
  fl_host *host = test_host(NULL, 0);
  ck_assert_int_eq(fl_resolve_op(host, "fused_add_rms_norm", kDLCPU, &found), FL_ENOIMPL);
  ck_assert_str_eq(fl_error_message(), "No available implementation for op='fused_add_rms_norm'. Registered: []");
  ck_ok(fl_explain(host, "fused_add_rms_norm", kDLCPU, &explanation));
  ck_assert_uint_eq(explanation->n_impls, 0);
  fl_explanation_free(explanation);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    ck_assert_uint_eq(fl_snapshot_impl_count(snapshot, i), 0);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);

  host = host_with_order("reference|unfused");
  ck_ok(fl_explain(host, "fused_add_rms_norm", kDLCPU, &explanation));
  ck_assert_str_eq(explanation->selected, "unfused");
  ck_assert_str_eq(fl_explained_at(explanation, 0)->plugin, "flhost");
  ck_contains(fl_explained_at(explanation, 0)->reason, "token 'unfused' of order reference > unfused");
  fl_explanation_free(explanation);
  ck_assert_int_eq(fl_resolve_op(host, "fused_add_rms_norm", kDLCUDA, &found), FL_ENOIMPL);
  ck_contains(fl_error_message(), "Registered: ['unfused']\n  unfused: works on cpu, the tensors are on cuda");
  fl_host_destroy(host);

  host = host_with_order("impl:unfused");
  ck_ok(fl_resolve_op(host, "fused_add_rms_norm", kDLCPU, &found));
  ck_assert_str_eq(found.impl_id, "unfused");
  fl_host_destroy(host);
}
END_TEST

/* A part that fails after the residual was overwritten is a failure, and no fallback may start from the sum. */
START_TEST(F6_unfused_in_place_does_not_claim_that_nothing_was_written) {
  static const struct {
    bool in_place;
    fl_status part, expected;
    const char *message;
  } cases[] = {{false, FL_ENOTSUP, FL_OK, ""}, /* the next candidate, `reference`, runs */
               {true, FL_ENOTSUP, FL_EINTERNAL, "it may have overwritten 'x' in place"},
               {true, FL_EINVAL, FL_EINVAL, "the spy was found out"},
               {true, FL_EDEVICE, FL_EDEVICE, "the spy was found out"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    spy seen = {.status = cases[i].part}, next = {0};
    fl_host *host = host_with_order("unfused|reference");
    register_norm(host, "reference.b", &seen);
    fl_impl fused = {.size = sizeof fused,
                     .op_name = "fused_add_rms_norm",
                     .impl_id = "reference.next",
                     .kind = FL_KIND_REFERENCE,
                     .devices = FL_DEVICE(kDLCPU),
                     .fn = spy_norm,
                     .self = &next};
    ck_ok(fl_register_impl(host, &fused));
    float x[2] = {1, 2}, residual[2] = {3, 4}, out[2], sum[2];
    int64_t shape[] = {1, 2};
    DLTensor a = tensor_of(f32, x, shape, NULL), r = tensor_of(f32, residual, shape, NULL);
    DLTensor o = tensor_of(f32, out, shape, NULL), s = tensor_of(f32, sum, shape, NULL);
    fl_status status = cases[i].in_place ? call_fused(host, &a, &r, &a, &r) : call_fused(host, &a, &r, &o, &s);
    ck_assert_int_eq(status, cases[i].expected);
    if (status)
      ck_contains(fl_error_message(), cases[i].message);
    ck_assert_int_eq(next.calls, !cases[i].in_place);
    ck_assert_int_eq(seen.calls, 1);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(unfused_without_parts_is_warned_of) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=silu_and_mul=unfused|reference", NULL};
  fl_host *host = test_host(environment, 0);
  ck_ok(fl_reset_global_policy(host)); /* the log of the creation is cleared */
  ck_assert_int_eq(
      test_log_count("WARNING VLLM_FL_PER_OP: token 'unfused' for op 'silu_and_mul': the host cannot run it by parts"),
      1);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- orders of one op */

/* An op with vendor.a, vendor.b and vendor.even (which takes no call of this test) and a reference. */
static fl_host *host_with_four(const char *const *environment) {
  static test_impl impls[4];
  static const char *const ids[] = {"vendor.a", "vendor.b", "vendor.even", "reference.x"};
  fl_host *host = test_host(environment, 0);
  test_op(host, "op");
  for (int i = 0; i < 4; i++) {
    impls[i] = (test_impl){.id = ids[i], .unsupported = i == 2};
    test_register(host, "op", &impls[i], 0, i == 2);
  }
  return host;
}

static const char *runs(fl_host *host) {
  const char *ran = NULL;
  ck_ok(test_call(host, "op", &ran));
  return ran;
}

#define ENTER(host, scope, ...)                                                                                        \
  fl_scope_op_order(host, "op", (const char *const[]){__VA_ARGS__},                                                    \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), scope)

START_TEST(P5_orders_of_one_op_nest_and_are_restored) {
  fl_host *host = host_with_four(NULL);
  fl_scope outer, inner, innermost;
  ck_assert_str_eq(runs(host), "vendor.b"); /* vendor.even is tried first, and takes nothing */
  ck_ok(ENTER(host, &outer, "vendor:a", "vendor:b"));
  ck_assert_str_eq(runs(host), "vendor.a");
  ck_ok(ENTER(host, &inner, "reference"));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_ok(ENTER(host, &innermost, "vendor:even"));
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL); /* an error leaves the scopes as they are */
  ck_ok(fl_scope_leave(&innermost));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_ok(fl_scope_op_order(host, "op", NULL, 0, &innermost)); /* none of its own */
  ck_assert_str_eq(runs(host), "vendor.b");
  ck_ok(fl_scope_leave(&innermost));
  ck_ok(fl_scope_leave(&inner));
  ck_ok(fl_scope_deny_vendors(host, (const char *const[]){"a"}, 1, &inner));
  ck_assert_str_eq(runs(host), "vendor.b"); /* a scope of another kind keeps the order */
  ck_ok(fl_scope_leave(&inner));
  ck_ok(fl_scope_leave(&outer));
  ck_assert_str_eq(runs(host), "vendor.b");
  fl_host_destroy(host);
}
END_TEST

static void *run_in_thread(void *host) {
  return (void *)(uintptr_t)!strcmp(runs(host), "vendor.b");
}

START_TEST(P5_order_of_one_op_is_the_threads_own) {
  fl_host *host = host_with_four(NULL);
  fl_scope scope;
  pthread_t thread;
  void *same;
  ck_ok(ENTER(host, &scope, "native"));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_assert_int_eq(pthread_create(&thread, NULL, run_in_thread, host), 0);
  ck_assert_int_eq(pthread_join(thread, &same), 0);
  ck_assert_ptr_nonnull(same);
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(host);
}
END_TEST

START_TEST(policy_with_the_order_of_one_op_leaves_the_rest_alone) {
  fl_policy *first = NULL, *second = NULL, *third = NULL;
  const char *const ab[] = {"vendor:a", "vendor:b"}, *const native[] = {"native"};
  fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  ck_ok(fl_policy_create(&fields, &first));
  ck_ok(fl_policy_with_op_order(first, "op", ab, 2, &second));
  ck_assert_str_eq(fl_policy_fingerprint(second), "prefer=flagos;st=1;per=op=vendor:a|vendor:b");
  ck_ok(fl_policy_with_op_order(second, "another", native, 1, &third));
  ck_assert_str_eq(fl_policy_fingerprint(third), "prefer=flagos;st=1;per=another=native;op=vendor:a|vendor:b");
  fl_policy_release(second);
  ck_ok(fl_policy_with_op_order(third, "op", native, 1, &second));
  ck_assert_str_eq(fl_policy_fingerprint(second), "prefer=flagos;st=1;per=another=native;op=native");
  fl_policy_release(third);
  ck_ok(fl_policy_with_op_order(second, "op", NULL, 0, &third));
  ck_assert_str_eq(fl_policy_fingerprint(third), "prefer=flagos;st=1;per=another=native");
  fl_policy_release(second);
  fl_policy_release(third);
  fl_policy_release(first);
}
END_TEST

START_TEST(T2_wrong_order_of_one_op_is_refused_and_enters_nothing) {
  fl_host *host = host_with_four(NULL);
  fl_scope scope;
  ck_assert_int_eq(ENTER(host, &scope, "nativ"), FL_EINVAL);
  ck_contains(fl_error_message(), "op 'op': 'nativ' is not a token");
  ck_contains(fl_error_message(), "did you mean 'native'?");
  ck_assert_int_eq(fl_scope_op_order(host, "silu_and_mull", NULL, 0, &scope), FL_ENOENT);
  ck_contains(fl_error_message(), "did you mean 'silu_and_mul'?");
  ck_assert_int_eq(fl_scope_op_order(host, NULL, NULL, 0, &scope), FL_EINVAL);
  ck_assert_int_eq(fl_scope_op_order(host, "op", NULL, 2, &scope), FL_EINVAL);
  ck_assert_int_eq(fl_scope_leave(&scope), FL_ESTATE);
  ck_assert_str_eq(runs(host), "vendor.b");
  fl_host_destroy(host);
}
END_TEST

static const char partial[] = "WARNING Op 'op': no implementation in its order takes all arguments, so that a call may "
                              "find none; add 'reference' to the end of the order";

START_TEST(order_that_may_find_nothing_is_warned_of_once) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=op=vendor:even", NULL};
  fl_host *host = host_with_four(environment);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
    ck_contains(fl_error_message(), "odd sizes only");
    fl_bump_policy_epoch(host);
  }
  ck_assert_int_eq(test_log_count(partial), 1);
  fl_host_destroy(host);
}
END_TEST

/* Who enters a scope may want that implementation and no other: there is no setting to correct. */
START_TEST(order_of_a_scope_is_not_warned_of) {
  static const char *const tokens[] = {"vendor:even"};
  fl_scope scope;
  fl_host *host = host_with_four(NULL);
  ck_ok(fl_scope_op_order(host, "op", tokens, 1, &scope));
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_ok(fl_scope_leave(&scope));
  ck_assert_int_eq(test_log_count(partial), 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(order_that_always_finds_something_is_not_warned_of) {
  static const char *const orders[] = {"PER_OP=op=vendor:even|native", "PER_OP=op=vendor:even|reference",
                                       "PER_OP=op=vendor:even|vendor:a", "PREFER=vendor"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    char variable[64];
    const char *const environment[] = {variable, NULL};
    snprintf(variable, sizeof variable, "VLLM_FL_%s", orders[i]);
    fl_host *host = host_with_four(environment);
    runs(host);
    ck_assert_int_eq(test_log_count(partial), 0);
    fl_host_destroy(host);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- tests */

static void add_tests(TCase *tests) {
  tcase_add_test(tests, uuid_is_a_digest_of_schema_id_and_build);
  tcase_add_test(tests, uuid_is_the_same_in_every_host_and_differs_by_each_part);
  tcase_add_test(tests, uuid_changes_with_the_build_of_a_plugin);
  tcase_add_test(tests, uuid_is_refused_where_nothing_tells_builds_apart);
  tcase_add_test(tests, T1_native_is_the_reference);
  tcase_add_test(tests, reserved_names_are_refused);
  tcase_add_test(tests, unfused_adds_and_calls_rms_norm_under_the_policy);
  tcase_add_test(tests, unfused_rounds_the_sum_once_in_place_with_strided_rows);
  tcase_add_test(tests, unfused_of_no_tokens_does_nothing);
  tcase_add_test(tests, unfused_agrees_with_the_fused_reference);
  tcase_add_test(tests, unfused_is_picked_by_name_only);
  tcase_add_test(tests, F6_unfused_in_place_does_not_claim_that_nothing_was_written);
  tcase_add_test(tests, unfused_without_parts_is_warned_of);
  tcase_add_test(tests, P5_orders_of_one_op_nest_and_are_restored);
  tcase_add_test(tests, P5_order_of_one_op_is_the_threads_own);
  tcase_add_test(tests, policy_with_the_order_of_one_op_leaves_the_rest_alone);
  tcase_add_test(tests, T2_wrong_order_of_one_op_is_refused_and_enters_nothing);
  tcase_add_test(tests, order_that_may_find_nothing_is_warned_of_once);
  tcase_add_test(tests, order_of_a_scope_is_not_warned_of);
  tcase_add_test(tests, order_that_always_finds_something_is_not_warned_of);
}

int main(void) {
  return run_suite("ir", add_tests, 10);
}
