/*
 * Structs of other headers: each function that takes or fills one is given the smallest that it accepts, which ends
 * where the memory ends, and a larger one, as a later header has it.
 */
#include "core/registry/registration.h"
#include "tests/fixture.h"

#include <flhost/testing.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FUTURE = 24, JUNK = 0xa5 }; /* bytes that a later struct has more, and what is in them */

/* The first `size` bytes of a struct, saying so; what is behind them cannot be touched. Never freed. */
static void *cut(const void *whole, size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (size + page - 1) / page;
  char *memory = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint32_t own = (uint32_t)size;
  ck_assert_ptr_ne(memory, MAP_FAILED);
  ck_assert_int_eq(mprotect(memory + pages * page, page, PROT_NONE), 0);
  ck_assert_uint_eq(size % 8, 0);
  char *at = memory + pages * page - size;
  memcpy(at, whole, size);
  memcpy(at, &own, sizeof own);
  return at;
}

/* The struct with more behind it. */
static void *grown(const void *whole, size_t size) {
  char *at = malloc(size + FUTURE);
  uint32_t own = (uint32_t)size + FUTURE;
  ck_assert_ptr_nonnull(at);
  memcpy(at, whole, size);
  memset(at + size, JUNK, FUTURE);
  memcpy(at, &own, sizeof own);
  return at;
}

/* What a function filled: the size is the caller's still, and what flhost does not know of is zero. */
static void assert_filled(const void *at, size_t size, uint32_t own) {
  uint32_t found;
  memcpy(&found, at, sizeof found);
  ck_assert_uint_eq(found, own);
  for (size_t i = size; i < own; i++)
    ck_each(!((const char *)at)[i], "byte %zu of %u is not zero", i, (unsigned)own);
}

#define CUT(struct_, next_)        cut(&(struct_), offsetof(__typeof__(struct_), next_))
#define GROWN(struct_)             grown(&(struct_), sizeof(struct_))
#define ASSERT_FILLED(given_, own) assert_filled(given_, sizeof *(given_), own)

/* An array of `n` elements of which each is FUTURE bytes longer, and full of junk. */
static void *wide_array(size_t size, uint32_t n) {
  char *at = malloc((size + FUTURE) * n);
  ck_assert_ptr_nonnull(at);
  return memset(at, JUNK, (size + FUTURE) * n);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static int64_t shape[] = {2, 4};
static float from[8], to[8];
static DLTensor x = {.data = from, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
static DLTensor out = {.data = to, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = shape};
static fl_call seen;

/* What an implementation gets is whole, whoever calls. */
static fl_status note(void *self, fl_call *call) {
  (void)self;
  seen = *call;
  return call->count == 2 ? FL_OK : fl_fail(call, FL_EDEVICE, "broken");
}

enum { WORKSPACE = 512 };

static bool takes(void *self, const fl_call *call, const char **reason) {
  (void)self, (void)reason;
  return call->size >= sizeof *call;
}

static size_t wants(void *self, const fl_call *call) {
  (void)self;
  return call->size >= sizeof *call ? WORKSPACE : 0;
}

static fl_host *host_with_ops(uint32_t flags) {
  fl_host *host = test_host(NULL, flags);
  const char *const schemas[] = {"copy(Tensor x) -> Tensor out", "fails(Tensor x, int n) -> Tensor out",
                                 "maybe(Tensor? x) -> Tensor? out"};
  const char *const names[] = {"copy", "fails", "maybe"};
  for (int i = 0; i < 3; i++) {
    fl_op_def op = {.size = sizeof op, .schema = schemas[i], .flops = "numel(x)"};
    fl_impl impl = {.size = sizeof impl,
                    .op_name = names[i],
                    .impl_id = "reference.x",
                    .kind = FL_KIND_REFERENCE,
                    .devices = FL_DEVICE(kDLCPU),
                    .fn = note,
                    .supports_args = takes,
                    .workspace_size = wants};
    ck_ok(fl_register_op(host, &op));
    ck_ok(fl_register_impl(host, &impl));
  }
  return host;
}

static void assert_seen(const fl_value *values) {
  ck_assert_uint_ge(seen.size, sizeof seen);
  ck_assert_ptr_eq(seen.values, values);
  ck_assert_ptr_null(seen.stream);
  ck_assert_ptr_nonnull(seen.workspace); /* the host's: none was given */
  ck_assert_uint_ge(seen.workspace_size, WORKSPACE);
  seen = (fl_call){0};
}

/* By handle and by name, with arguments checked and trusted, outside and inside of a scope, with tensors and perhaps
 * without: each goes its own way through fl_invoke. */
START_TEST(a_call_is_made_whatever_its_size) {
  fl_host *host = host_with_ops(_i ? FL_HOST_NO_ARGUMENT_CHECKS : 0);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  const fl_call whole = FL_CALL(values);
  fl_call *const calls[] = {CUT(whole, stream), CUT(whole, workspace), GROWN(whole)};
  fl_scope scope;
  for (int scoped = 0; scoped < 2; scoped++) {
    if (scoped)
      ck_ok(fl_scope_prefer(host, "reference", &scope));
    for (int i = 0; i < 3; i++)
      for (int again = 0; again < 2; again++) {
        ck_ok(fl_invoke(fl_find_op(host, "copy"), calls[i]));
        assert_seen(values);
        ck_ok(fl_invoke(fl_find_op(host, "maybe"), calls[i]));
        assert_seen(values);
        ck_ok(fl_call_op(host, "copy", calls[i]));
        assert_seen(values);
      }
  }
  ck_ok(fl_scope_leave(&scope));
  free(calls[2]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_small_call_that_fails_has_its_message) {
  fl_host *host = host_with_ops(0);
  fl_value values[] = {fl_tensor(&x), fl_int(1), fl_tensor(&out)};
  const fl_call whole = FL_CALL(values);
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "fails"), CUT(whole, stream)), FL_EDEVICE);
  ck_contains(fl_error_message(), "broken");
  values[2] = fl_none();
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "fails"), CUT(whole, stream)), FL_EINVAL);
  ck_contains(fl_error_message(), "result 'out'");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_call_without_room_for_values_is_refused) {
  fl_host *host = host_with_ops(_i ? FL_HOST_NO_ARGUMENT_CHECKS : 0);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  size_t bytes;
  call.size = 8;
  ck_assert_int_eq(fl_invoke(fl_find_op(host, "copy"), &call), FL_EINVAL);
  ck_contains(fl_error_message(), "the call's size is 8 bytes, expected at least 16");
  ck_assert_int_eq(fl_check(fl_find_op(host, "copy"), &call), FL_EINVAL);
  ck_assert_int_eq(fl_workspace_size(fl_find_op(host, "copy"), &call, &bytes), FL_EINVAL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_is_asked_about_a_call_takes_any_size) {
  fl_host *host = host_with_ops(0);
  fl_op *op = fl_find_op(host, "copy");
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  const fl_call whole = FL_CALL(values);
  fl_call *const calls[] = {CUT(whole, stream), GROWN(whole)};
  fl_cost cost = {.size = sizeof cost};
  fl_tensor_spec spec;
  for (int i = 0; i < 2; i++) {
    size_t bytes = 0;
    ck_ok(fl_check(op, calls[i]));
    ck_ok(fl_infer(op, calls[i], &spec, 1, sizeof spec));
    ck_ok(fl_op_cost(op, calls[i], &cost));
    ck_ok(fl_workspace_size(op, calls[i], &bytes));
    ck_assert_uint_eq(bytes, WORKSPACE);
  }
  free(calls[1]);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------- what flhost takes */

START_TEST(options_of_any_size_make_a_host) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=ERROR", NULL};
  const fl_host_options whole = {.flags = FL_HOST_NO_PLUGINS, .environment = environment, .config_dir = "/nonexistent"};
  fl_host_options *const given[] = {CUT(whole, environment), CUT(whole, log), GROWN(whole)};
  fl_host *host;
  for (int i = 0; i < 3; i++) {
    ck_ok(fl_host_create(given[i], &host));
    fl_host_destroy(host);
  }
  given[2]->size = 4;
  ck_assert_int_eq(fl_host_create(given[2], &host), FL_EINVAL);
  ck_assert_str_eq(
      fl_error_message(),
      "fl_host_create: the options' size is 4 bytes, expected at least 8: set .size = sizeof(fl_host_options)");
  free(given[2]);
}
END_TEST

START_TEST(fields_of_any_size_make_a_policy) {
  const fl_policy_fields whole = {.prefer = "vendor", .strict = true};
  fl_policy_fields *const given[] = {CUT(whole, strict), GROWN(whole)};
  fl_policy *policy;
  for (int i = 0; i < 2; i++) {
    ck_ok(fl_policy_create(given[i], &policy));
    ck_assert_str_eq(fl_policy_get_fields(policy)->prefer, "vendor");
    ck_assert_int_eq(fl_policy_get_fields(policy)->strict, i);
    ck_assert_uint_eq(fl_policy_get_fields(policy)->size, sizeof whole);
    fl_policy_release(policy);
  }
  given[1]->size = 8;
  ck_assert_int_eq(fl_policy_create(given[1], &policy), FL_EINVAL);
  ck_contains(fl_error_message(), "the fields' size is 8 bytes, expected at least 16");
  free(given[1]);
}
END_TEST

START_TEST(orders_of_a_later_header_are_read) {
  enum { N = 3 };
  static const char *const ops[N] = {"c", "a", "b"}, *const tokens[] = {"vendor", "reference"};
  char *wide = wide_array(sizeof(fl_op_order), N);
  for (uint32_t i = 0; i < N; i++)
    *FL_AT((fl_op_order *)(void *)wide, sizeof(fl_op_order) + FUTURE, i) = (fl_op_order){ops[i], tokens, 2};
  fl_policy_fields fields = {.size = sizeof fields,
                             .per_op = (fl_op_order *)(void *)wide,
                             .n_per_op = N,
                             .per_op_size = sizeof(fl_op_order) + FUTURE};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  const fl_policy_fields *made = fl_policy_get_fields(policy);
  ck_assert_uint_eq(made->n_per_op, N);
  for (uint32_t i = 0; i < N; i++) {
    const fl_op_order *order = fl_order_at(made, i);
    ck_assert_int_eq(order->op[0], 'a' + (int)i);
    ck_assert_str_eq(order->tokens[1], "reference");
  }
  fl_policy_release(policy);
  fields.per_op_size = 0;
  ck_assert_int_eq(fl_policy_create(&fields, &policy), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "per_op_size is 0, expected sizeof(fl_op_order), 24");
  free(wide);
}
END_TEST

START_TEST(ops_and_implementations_of_any_size_are_registered) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.schema = "small(Tensor x) -> Tensor out", .rules = "x: T[d]; out: T[d]; T = float16"};
  fl_impl impl = {.op_name = "small",
                  .impl_id = "default.x",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = note,
                  .supports_args = takes};
  ck_ok(fl_register_op(host, CUT(op, rules)));
  ck_assert_str_eq(fl_op_rules(fl_find_op(host, "small")), "");
  ck_ok(fl_register_impl(host, CUT(impl, self)));
  op.schema = "large(Tensor x) -> Tensor out";
  impl.op_name = "large";
  fl_op_def *later_op = GROWN(op);
  fl_impl *later_impl = GROWN(impl);
  ck_ok(fl_register_op(host, later_op));
  ck_ok(fl_register_impl(host, later_impl));
  free(later_op);
  free(later_impl);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    if (!strcmp(fl_snapshot_op_name(snapshot, i), "small"))
      ck_assert(!fl_snapshot_impl(snapshot, i, 0)->has_supports_args);
    else if (!strcmp(fl_snapshot_op_name(snapshot, i), "large"))
      ck_assert(fl_snapshot_impl(snapshot, i, 0)->has_supports_args);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = "not here";
  return false;
}

START_TEST(components_of_any_size_are_registered) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  const fl_platform platform = {.device_type = kDLExtDev, .is_active = is_active};
  fl_component component = {.type = "platform", .name = "small", .functions = CUT(platform, device_count)};
  fl_platform *later = GROWN(platform);
  ck_ok(registry->register_component(registry, CUT(component, self)));
  component.name = "large";
  component.functions = later;
  fl_component *later_component = GROWN(component);
  ck_ok(registry->register_component(registry, later_component));
  ck_ok(fl_stage_commit(stage, NULL));
  free(later);
  free(later_component);
  fl_host_destroy(host);
}
END_TEST

/* The first row is for one type, the second for another; the end is a row of zeros. */
START_TEST(tolerances_of_a_later_header_are_read) {
  fl_host *host = test_host(NULL, 0);
  size_t size = sizeof(fl_tolerance) + FUTURE;
  fl_tolerance *wide = wide_array(sizeof(fl_tolerance), 3);
  *FL_AT(wide, size, 0) = (fl_tolerance){FL_FLOAT32, 1, 2};
  *FL_AT(wide, size, 1) = (fl_tolerance){FL_FLOAT16, 3, 4};
  *FL_AT(wide, size, 2) = (fl_tolerance){0};
  fl_op_def op = {.size = sizeof op, .schema = "op() -> ()", .tolerance = wide, .tolerance_size = (uint32_t)size};
  double atol, rtol;
  ck_ok(fl_register_op(host, &op));
  free(wide);
  fl_op_tolerance(fl_find_op(host, "op"), (DLDataType){kDLFloat, 16, 1}, &atol, &rtol);
  ck_assert(atol == 3 && rtol == 4);
  fl_op_tolerance(fl_find_op(host, "op"), (DLDataType){kDLOpaqueHandle, 64, 1}, &atol, &rtol);
  ck_assert(atol == 0 && rtol == 0);
  op.schema = "other() -> ()";
  op.tolerance_size = 8;
  ck_assert_int_eq(fl_register_op(host, &op), FL_EINVAL);
  ck_contains(fl_error_message(), "tolerance_size is 8, expected 24 to 65535, or 0 for 24");
  fl_host_destroy(host);
}
END_TEST

/* As a plugin that was built with a longer spec: its results lie further apart. */
static fl_status infer_widely(fl_call *call, fl_tensor_spec *results) {
  for (int i = 0; i < 2; i++) {
    fl_tensor_spec *spec = FL_AT(results, sizeof *spec + FUTURE, i);
    for (size_t j = 0; j < FUTURE; j++)
      if (((char *)(spec + 1))[j])
        return fl_fail(call, FL_EINTERNAL, "what the host lacks is not zero");
    spec->present = true;
    spec->ndim = 1;
    spec->dtype = call->values[0].v.tensor->dtype;
    spec->shape[0] = 10 + i;
    memset(spec + 1, JUNK, FUTURE);
  }
  return FL_OK;
}

START_TEST(results_are_inferred_in_the_size_of_the_op) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op,
                  .schema = "two(Tensor x) -> (Tensor a, Tensor b)",
                  .infer = infer_widely,
                  .spec_size = sizeof(fl_tensor_spec) + FUTURE};
  fl_value values[] = {fl_tensor(&x), fl_none(), fl_none()};
  const fl_call call = FL_CALL(values);
  fl_tensor_spec specs[2];
  ck_ok(fl_register_op(host, &op));
  ck_ok(fl_infer(fl_find_op(host, "two"), &call, specs, 2, sizeof *specs));
  ck_assert_int_eq(specs[0].shape[0], 10);
  ck_assert_int_eq(specs[1].shape[0], 11);
  op.schema = "three(Tensor x) -> Tensor a";
  op.spec_size = 1024;
  ck_assert_int_eq(fl_register_op(host, &op), FL_EINVAL);
  ck_contains(fl_error_message(), "spec_size is 1024, expected 88 to 512, or 0 for 88");
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------- what flhost gives */

START_TEST(specs_of_a_later_header_are_filled) {
  fl_host *host = host_with_ops(0);
  fl_op *op = fl_find_op(host, "copy");
  size_t size = sizeof(fl_tensor_spec) + FUTURE;
  fl_tensor_spec *wide = wide_array(sizeof *wide, 1);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  const fl_call call = FL_CALL(values);
  ck_ok(fl_infer(op, &call, wide, 1, size));
  ck_assert(wide->present && wide->ndim == 2 && wide->shape[1] == 4);
  for (size_t i = 0; i < FUTURE; i++)
    ck_each(!((char *)(wide + 1))[i], "byte %zu behind the spec is not zero", i);
  ck_assert_int_eq(fl_infer(op, &call, wide, 1, 80), FL_EINVAL);
  ck_contains(fl_error_message(), "spec_size is 80, expected sizeof(fl_tensor_spec), 88");
  free(wide);
  fl_host_destroy(host);
}
END_TEST

START_TEST(inputs_of_a_later_header_are_filled) {
  fl_host *host = test_host(NULL, 0);
  fl_op *op = fl_find_op(host, "gelu_and_mul");
  size_t size = sizeof(fl_input) + FUTURE;
  fl_input *wide = wide_array(sizeof *wide, 2), plain[2];
  uint32_t n;
  ck_ok(fl_generate_inputs(op, FL_FLOAT32, 1, 0, plain, 2, sizeof *plain));
  ck_ok(fl_generate_inputs(op, FL_FLOAT32, 1, 0, wide, 2, size));
  for (uint32_t i = 0; i < 2; i++)
    ck_assert_mem_eq(FL_AT(wide, size, i), &plain[i], sizeof *plain);
  ck_ok(fl_generate_bench_inputs(op, FL_FLOAT32, NULL, 0, plain, 2, sizeof *plain, &n));
  ck_ok(fl_generate_bench_inputs(op, FL_FLOAT32, NULL, 0, wide, 2, size, &n));
  for (uint32_t i = 0; i < 2; i++)
    ck_assert_mem_eq(FL_AT(wide, size, i), &plain[i], sizeof *plain);
  ck_assert_int_eq(fl_generate_inputs(op, FL_FLOAT32, 1, 0, wide, 2, 16), FL_EINVAL);
  ck_contains(fl_error_message(), "input_size is 16, expected sizeof(fl_input), 128");
  free(wide);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_cost_of_any_size_is_filled) {
  fl_host *host = host_with_ops(0);
  fl_op *op = fl_find_op(host, "copy");
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  const fl_call call = FL_CALL(values);
  fl_cost whole = {0}, *small = CUT(whole, flops), *later = GROWN(whole);
  ck_ok(fl_op_cost(op, &call, small));
  ck_assert(small->bytes == 64);
  ASSERT_FILLED(small, offsetof(fl_cost, flops));
  ck_ok(fl_op_cost(op, &call, later));
  ck_assert(later->flops == 8);
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 0;
  ck_assert_int_eq(fl_op_cost(op, &call, later), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "fl_op_cost: the cost's size is 0 bytes, expected at least 16: set .size = sizeof(fl_cost)");
  free(later);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_dimension_of_any_size_is_filled) {
  const fl_op_def def = {
      .size = sizeof def, .schema = "sized(Tensor x) -> Tensor out", .rules = "x: float32[d]; out: float32[d]"};
  fl_host *host = test_host(NULL, 0);
  ck_ok(fl_register_op(host, &def));
  fl_dimension whole = {0}, *small = CUT(whole, step), *later = GROWN(whole);
  ck_ok(fl_free_dimension(fl_find_op(host, "sized"), 0, small));
  ck_assert_str_eq(small->name, "d");
  ck_ok(fl_free_dimension(fl_find_op(host, "sized"), 0, later));
  ck_assert_int_eq(later->step, 1);
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 8;
  ck_assert_int_eq(fl_free_dimension(fl_find_op(host, "sized"), 0, later), FL_EINVAL);
  free(later);
  fl_host_destroy(host);
}
END_TEST

START_TEST(counters_of_any_size_are_filled) {
  fl_host *host = host_with_ops(FL_HOST_STATISTICS);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  fl_counters whole = {0}, *small = CUT(whole, fallbacks_not_supported), *later = GROWN(whole);
  ck_ok(fl_call_op(host, "copy", &call));
  ck_ok(fl_get_counters(host, "copy", "reference.x", small));
  ck_assert_uint_eq(small->calls, 1);
  ASSERT_FILLED(small, offsetof(fl_counters, fallbacks_not_supported));
  ck_ok(fl_get_counters(host, "copy", "reference.x", later));
  ck_assert_uint_eq(later->calls, 1);
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 8;
  ck_assert_int_eq(fl_get_counters(host, "copy", "reference.x", later), FL_EINVAL);
  ck_contains(fl_error_message(), "fl_get_counters: the counters' size is 8 bytes, expected at least 16");
  free(later);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_resolution_of_any_size_is_filled) {
  fl_host *host = host_with_ops(0);
  fl_resolution whole = {0}, *small = CUT(whole, self), *later = GROWN(whole);
  ck_ok(fl_resolve_op(host, "copy", kDLCPU, small));
  ck_assert(small->fn == note);
  ASSERT_FILLED(small, offsetof(fl_resolution, self));
  ck_ok(fl_resolve_op(host, "copy", kDLCPU, later));
  ck_assert_str_eq(later->impl_id, "reference.x");
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 0;
  ck_assert_int_eq(fl_resolve_op(host, "copy", kDLCPU, later), FL_EINVAL);
  ck_contains(fl_error_message(), "fl_resolve_op: the resolution's size is 0 bytes, expected at least 16");
  free(later);
  fl_host_destroy(host);
}
END_TEST

START_TEST(properties_of_any_size_are_filled) {
  fl_host *host = test_host(NULL, 0);
  DLDevice cpu = {kDLCPU, 0};
  fl_device_properties whole = {0}, *small = CUT(whole, name), *later = GROWN(whole);
  ck_ok(fl_device_get_properties(host, cpu, small));
  ck_assert_int_gt(small->units, 0);
  ASSERT_FILLED(small, offsetof(fl_device_properties, name));
  ck_ok(fl_device_get_properties(host, cpu, later));
  ck_assert_uint_gt(later->memory_total, 0);
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 0;
  ck_assert_int_eq(fl_device_get_properties(host, cpu, later), FL_EINVAL);
  ck_contains(fl_error_message(), "the properties' size is 0 bytes, expected at least 8");
  free(later);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_child_is_run_with_options_and_a_result_of_any_size) {
  const char *argv[] = {"/bin/sh", "-c", "exit 3", NULL};
  fl_child_options options = {.size = sizeof options, .argv = argv}, *wide = GROWN(options);
  fl_child_result whole = {0}, *small = CUT(whole, seconds), *later = GROWN(whole);
  ck_ok(fl_child_run(CUT(options, max_memory), small));
  ck_assert_int_eq(small->code, 3);
  ASSERT_FILLED(small, offsetof(fl_child_result, seconds));
  ck_ok(fl_child_run(wide, later));
  ck_assert_str_eq(later->words, "exited with status 3");
  ASSERT_FILLED(later, sizeof whole + FUTURE);
  later->size = 8;
  ck_assert_int_eq(fl_child_run(wide, later), FL_EINVAL);
  ck_contains(fl_error_message(), "the result's size is 8 bytes, expected at least 16");
  wide->size = 8;
  ck_assert_int_eq(fl_child_run(wide, later), FL_EINVAL);
  ck_contains(fl_error_message(), "the options' size is 8 bytes, expected at least 56");
  free(wide);
  free(later);
}
END_TEST

START_TEST(an_argument_says_its_size) {
  fl_host *host = test_host(NULL, 0);
  ck_assert_uint_eq(fl_op_argument(fl_find_op(host, "rms_norm"), 0)->size, sizeof(fl_argument));
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_call_is_made_whatever_its_size, 0, 2);
  tcase_add_test(tests, a_small_call_that_fails_has_its_message);
  tcase_add_loop_test(tests, a_call_without_room_for_values_is_refused, 0, 2);
  tcase_add_test(tests, what_is_asked_about_a_call_takes_any_size);
  tcase_add_test(tests, options_of_any_size_make_a_host);
  tcase_add_test(tests, fields_of_any_size_make_a_policy);
  tcase_add_test(tests, orders_of_a_later_header_are_read);
  tcase_add_test(tests, ops_and_implementations_of_any_size_are_registered);
  tcase_add_test(tests, components_of_any_size_are_registered);
  tcase_add_test(tests, tolerances_of_a_later_header_are_read);
  tcase_add_test(tests, results_are_inferred_in_the_size_of_the_op);
  tcase_add_test(tests, specs_of_a_later_header_are_filled);
  tcase_add_test(tests, inputs_of_a_later_header_are_filled);
  tcase_add_test(tests, a_cost_of_any_size_is_filled);
  tcase_add_test(tests, a_dimension_of_any_size_is_filled);
  tcase_add_test(tests, counters_of_any_size_are_filled);
  tcase_add_test(tests, a_resolution_of_any_size_is_filled);
  tcase_add_test(tests, properties_of_any_size_are_filled);
  tcase_add_test(tests, a_child_is_run_with_options_and_a_result_of_any_size);
  tcase_add_test(tests, an_argument_says_its_size);
}

int main(void) {
  return run_suite("struct_sizes", add_tests, 30);
}
