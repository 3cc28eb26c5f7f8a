/*
 * What the suites of guarded mode and canary mode share: an op with an implementation that goes wrong in one of many
 * ways, a reference that does not, calls of it on the host and on a device, and what must have become of them.
 */
#ifndef FLHOST_TESTS_WATCHED_H
#define FLHOST_TESTS_WATCHED_H

#include "core/call.h"
#include "core/guard.h"
#include "tests/device.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <flhost/testing.h>
#include <math.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

/* What an implementation of "twice" does besides. */
typedef enum fault {
  NONE,
  BEHIND,       /* writes the float behind its result */
  FAR_BEHIND,   /* writes 100 floats behind it */
  BEFORE,       /* writes the float before it */
  INPUT,        /* writes its input */
  SAME_INPUT,   /* writes into its input what stands there */
  UNWRITTEN,    /* leaves all rows but the first */
  GAP,          /* writes between the rows */
  NOT_A_NUMBER, /* gives NaN */
  WRONG,        /* adds one */
  THIRD_WRONG,  /* does so in its third call */
  PATTERN       /* gives what guarded mode fills memory with */
} fault;

typedef struct subject {
  const char *id;
  fault fault;
  _Atomic int calls;
} subject;

static inline float *row_of(const DLTensor *tensor, int64_t row) {
  return (float *)fl_data(tensor) + row * fl_stride(tensor, 0);
}

static inline void misbehave(const subject *s, const DLTensor *x, const DLTensor *out, int call) {
  int64_t rows = x->shape[0], columns = x->shape[1];
  volatile float *first = row_of(out, 0), *end = row_of(out, rows - 1) + columns, *input = row_of(x, 0);
  switch (s->fault) {
  case BEHIND:
    end[0] = 1;
    break;
  case FAR_BEHIND:
    end[100] = 1;
    break;
  case BEFORE:
    first[-1] = 1;
    break;
  case INPUT:
    input[1] = -1;
    break;
  case SAME_INPUT:
    input[1] = input[1];
    break;
  case GAP:
    first[columns] = 1;
    break;
  case NOT_A_NUMBER:
    first[0] = NAN;
    break;
  case PATTERN:
    memset((float *)first, 0xfb, sizeof *first);
    break;
  case THIRD_WRONG:
    first[0] += call == 3;
    break;
  case WRONG:
    first[0] += 1;
    break;
  default:;
  }
}

/* "twice": out = 2 x */
static inline fl_status twice(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  int number = ++s->calls;
  for (int64_t i = 0; i < (s->fault == UNWRITTEN ? 1 : x->shape[0]); i++)
    for (int64_t j = 0; j < x->shape[1]; j++)
      row_of(out, i)[j] = 2 * row_of(x, i)[j];
  misbehave(s, x, out, number);
  return FL_OK;
}

static inline void add(fl_host *host, const char *op, subject *s, fl_kernel_fn fn, int32_t device_type) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = op,
                  .impl_id = s->id,
                  .kind = strncmp(s->id, "reference.", 10) ? FL_KIND_DEFAULT : FL_KIND_REFERENCE,
                  .devices = FL_DEVICE(device_type),
                  .fn = fn,
                  .self = s};
  ck_ok(fl_register_impl(host, &impl));
}

static inline void add_op(fl_host *host, const char *schema, const char *rules) {
  fl_op_def op = {.size = sizeof op, .schema = schema, .rules = rules};
  ck_ok(fl_register_op(host, &op));
}

static subject bad, good;

static inline fl_host *host_with(fault what, const char *setting) {
  char evidence[PATH_MAX + 64];
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=DEBUG", setting, evidence, NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  bad = (subject){.id = "default.bad", .fault = what};
  good = (subject){.id = "reference.good"};
  add(host, "twice", &bad, twice, kDLCPU);
  add(host, "twice", &good, twice, kDLCPU);
  return host;
}

/* Rows of 8 with room between them, so that a tensor ends where a page may end. */
typedef struct data {
  _Alignas(256) float x[64], out[64];
  int64_t shape[2], strides[2];
  DLTensor x_tensor, out_tensor;
} data;

enum { ROWS = 4, COLUMNS = 8 };

static inline void fill(data *d, int64_t stride) {
  *d = (data){.shape = {ROWS, COLUMNS}, .strides = {stride, 1}};
  for (int i = 0; i < 64; i++)
    d->x[i] = (float)i;
  d->x_tensor = (DLTensor){d->x, {kDLCPU, 0}, 2, float32, d->shape, d->strides, 0};
  d->out_tensor = (DLTensor){d->out, {kDLCPU, 0}, 2, float32, d->shape, d->strides, 0};
}

static inline fl_status call_twice(fl_host *host, data *d) {
  fl_value values[] = {fl_tensor(&d->x_tensor), fl_tensor(&d->out_tensor)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "twice", &call);
}

static inline void check_right(const data *d) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) {
      float x = (float)(i * d->strides[0] + j);
      ck_assert_float_eq(row_of(&d->x_tensor, i)[j], x);
      ck_assert_float_eq(row_of(&d->out_tensor, i)[j], 2 * x);
    }
}

/* A call that goes right, whoever misbehaved. */
static inline void call_right(fl_host *host, int64_t stride) {
  data d;
  fill(&d, stride);
  ck_ok(call_twice(host, &d));
  check_right(&d);
}

static inline fl_counters counters_of(fl_host *host, const char *id) {
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "twice", id, &counters));
  return counters;
}

/* Why the implementation is skipped. */
static inline void check_failed(fl_host *host, const char *reason) {
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, "twice", &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "default.bad");
  ck_contains(fl_failed_impl_at(failed, 0)->reason, reason);
  fl_failed_impls_free(failed);
  fl_counters counters = counters_of(host, "default.bad");
  ck_assert_uint_eq(counters.failures, 1);
  ck_assert_uint_eq(counters.fallbacks_failed, 1);
}

/* --------------------------------------------------------------------------------------------------------- a device */

static fl_host *on_host; /* of the device's test, for its kernels */

/* Writes to the device's memory as its own kernels do. */
static inline fl_status twice_there(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  float values[ROWS * COLUMNS];
  float *to = (float *)fl_data(out) + (s->fault == BEHIND);
  s->calls++;
  fl_device_copy(on_host, x->device, values, fl_data(x), sizeof values, FL_COPY_TO_HOST, NULL);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    values[i] *= 2;
  if (s->fault == WRONG)
    values[5] += 1;
  return fl_device_copy(on_host, out->device, to, values, sizeof values, FL_COPY_TO_DEVICE, NULL);
}

static inline void check_on_device(fault what, const char *setting, bool fallback, const char *reason) {
  static subject there = {.id = "default.bad"}, right = {.id = "default.a_right"}, reference = {.id = "reference.good"};
  char evidence[PATH_MAX + 64];
  float values[ROWS * COLUMNS], expected[ROWS * COLUMNS];
  matrix x, out;
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = on_host = device_host((const char *const[]){setting, evidence, NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  there.fault = what;
  add(host, "twice", &there, twice_there, kDLExtDev);
  if (fallback)
    add(host, "twice", &right, twice_there, kDLExtDev);
  add(host, "twice", &reference, twice, kDLCPU);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    expected[i] = 2 * (values[i] = (float)i);
  matrix_make(&x, host, device0, ROWS, COLUMNS, values);
  matrix_make(&out, host, device0, ROWS, COLUMNS, NULL);
  fl_value call_values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(call_values);
  ck_ok(fl_call_op(host, "twice", &call));
  matrix_check(&out, expected, ROWS * COLUMNS);
  if (reason)
    check_failed(host, reason);
  else
    ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  matrix_free(&x);
  matrix_free(&out);
  ck_assert_uint_eq(test_device->allocations, 0);
  fl_host_destroy(host);
}

#endif
