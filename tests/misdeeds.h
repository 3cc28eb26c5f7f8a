/*
 * What the suites of containment share: an op whose first implementation does what a test says, and a second one that
 * is asked when that has failed.
 */
#ifndef FLHOST_TESTS_MISDEEDS_H
#define FLHOST_TESTS_MISDEEDS_H

#include "core/registry.h"
#include "tests/fixture.h"

/* How an implementation misbehaves. */
typedef fl_status (*misdeed)(fl_call *call);

static inline fl_status misbehave(void *self, fl_call *call) {
  return (*(misdeed *)self)(call);
}

/* The one that is asked when the first has failed: it wants the call as it was given. */
typedef struct second {
  fl_value *values;
  void *stream;
  int calls;
} second;

static second next;

static inline fl_status run_second(void *self, fl_call *call) {
  (void)self;
  next.calls++;
  ck_assert_ptr_eq(call->values, next.values);
  ck_assert_ptr_nonnull(call->message);
  ck_assert_uint_eq(call->message_size, 4096);
  ck_assert_int_eq(call->message[0], 0);
  return FL_OK;
}

static inline fl_status good_text(void *self, fl_call *call) {
  (void)self;
  next.calls++;
  call->values[call->count - 1] = fl_string("good");
  return FL_OK;
}

static inline void register_as(fl_host *host, const char *op, const char *id, fl_kind kind, fl_kernel_fn fn,
                               void *self) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = op,
                  .impl_id = id,
                  .kind = kind,
                  .devices = FL_DEVICE(kDLCPU) | FL_DEVICE(kDLExtDev),
                  .fn = fn,
                  .self = self};
  ck_ok(fl_register_impl(host, &impl));
}

/* A host with an op of that schema, which the misdeed runs first. */
static inline fl_host *host_with(const char *schema, misdeed *first, fl_kernel_fn second_fn) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op, .schema = schema};
  ck_ok(fl_register_op(host, &op));
  register_as(host, "op", "default.bad", FL_KIND_DEFAULT, misbehave, first);
  register_as(host, "op", "reference.good", FL_KIND_REFERENCE, second_fn, NULL);
  next = (second){0};
  return host;
}

static inline DLTensor vector(float *data, int64_t *n, DLDeviceType device) {
  return (DLTensor){.data = data, .device = {device, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = n};
}

/* Calls "op(Tensor x) -> Tensor out". */
static inline fl_status call_on(fl_host *host, DLDeviceType device) {
  float x[4] = {1, 2, 3, 4}, out[4];
  int64_t n = 4;
  DLTensor from = vector(x, &n, device), to = vector(out, &n, device);
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  next.values = values;
  fl_status status = fl_call_op(host, "op", &call);
  ck_assert_ptr_eq(call.values, values);
  ck_assert_uint_eq(call.count, 2);
  ck_assert_uint_eq(call.size, sizeof call);
  return status;
}

static const char *const copy_schema = "op(Tensor x) -> Tensor out";

static inline fl_status no_end_and_good(fl_call *call) {
  memset(call->message, 'x', call->message_size);
  return FL_OK;
}

static inline fl_status does_nothing(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

#endif
