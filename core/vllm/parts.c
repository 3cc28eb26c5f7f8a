/*
 * Fused ops by their parts: what the token `unfused` of an order picks. Each is an implementation that the host itself
 * has for the op; its parts are ops that are called under the policy in force. On the CPU only.
 */
#include "core/vllm/parts.h"

#include "core/registry.h"
#include "core/support.h"

#include <flhost/dtype.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------------- adding */

/* A row of sums, rounded once; it may be one of the summands. */
typedef void (*add_row_fn)(void *sum, const void *a, const void *b, int64_t n);

static void add_float32(void *sum, const void *a, const void *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    ((float *)sum)[i] = ((const float *)a)[i] + ((const float *)b)[i];
}

static void add_float16(void *sum, const void *a, const void *b, int64_t n) {
  const uint16_t *x = a, *y = b;
  for (int64_t i = 0; i < n; i++)
    ((uint16_t *)sum)[i] = fl_float_to_f16(fl_f16_to_float(x[i]) + fl_f16_to_float(y[i]));
}

static void add_bfloat16(void *sum, const void *a, const void *b, int64_t n) {
  const uint16_t *x = a, *y = b;
  for (int64_t i = 0; i < n; i++)
    ((uint16_t *)sum)[i] = fl_float_to_bf16(fl_bf16_to_float(x[i]) + fl_bf16_to_float(y[i]));
}

/* NULL: another element type. */
static add_row_fn add_row_for(DLDataType dtype) {
  if (dtype.code == kDLFloat && dtype.bits == 32 && dtype.lanes == 1)
    return add_float32;
  if (dtype.code == kDLFloat && dtype.bits == 16 && dtype.lanes == 1)
    return add_float16;
  return dtype.code == kDLBfloat && dtype.bits == 16 && dtype.lanes == 1 ? add_bfloat16 : NULL;
}

/* sum = a + b from dimension `dim` on, at these addresses; the last dimension is contiguous, as the schema wants it. */
static void add(add_row_fn add_row, const DLTensor *const tensors[3], char *sum, const char *a, const char *b,
                int dim) {
  int64_t n = tensors[0]->shape[dim], item = tensors[0]->dtype.bits / 8;
  if (dim == tensors[0]->ndim - 1) {
    add_row(sum, a, b, n);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    add(add_row, tensors, sum + i * fl_stride(tensors[0], dim) * item, a + i * fl_stride(tensors[1], dim) * item,
        b + i * fl_stride(tensors[2], dim) * item, dim + 1);
}

/* -------------------------------------------------------------------------------------------------------------- ops */

/*
 * residual_out = x + x_residual, then out = rms_norm(residual_out). The sum is done before rms_norm writes, so that
 * each result may be the argument it aliases. Where rms_norm takes nothing of the kind and the residual is overwritten
 * already, this is a failure: "not supported" would promise that nothing was written.
 */
static fl_status fused_add_rms_norm(void *self, fl_call *call) {
  enum { X, X_RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE, OUT, RESIDUAL_OUT };
  const fl_op *op = self;
  const fl_value *given = call->values;
  const DLTensor *x = given[X].v.tensor, *residual = given[X_RESIDUAL].v.tensor;
  DLTensor *sum = given[RESIDUAL_OUT].v.tensor;
  add_row_fn add_row = add_row_for(x->dtype);
  if (!add_row)
    return fl_fail(call, FL_ENOTSUP, "element type: float32, float16 or bfloat16 expected");
  add(add_row, (const DLTensor *const[]){sum, x, residual}, fl_data(sum), fl_data(x), fl_data(residual), 0);
  fl_value values[] = {fl_tensor(sum),       fl_none(),  given[WEIGHT], given[EPSILON],
                       given[VARIANCE_SIZE], given[OUT], fl_none()};
  fl_call norm = FL_CALL(values);
  norm.stream = call->stream;
  fl_status status = fl_invoke(fl_registry_find(op->host, "rms_norm"), &norm);
  bool in_place = fl_data(sum) == fl_data(residual) || fl_data(sum) == fl_data(x);
  if (status == FL_ENOIMPL || status == FL_ENOTSUP)
    return in_place ? FL_EINTERNAL : FL_ENOTSUP;
  return status;
}

static const struct {
  const char *op;
  fl_kernel_fn fn;
  uint32_t dtypes;
} unfused[] = {{"fused_add_rms_norm", fused_add_rms_norm, FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16}};

static fl_impl_record *record_create(fl_op *op, fl_kernel_fn fn, uint32_t dtypes) {
  const fl_impl impl = {
      .size = sizeof impl,
      .impl_id = "unfused",
      .kind = FL_KIND_REFERENCE,
      .devices = FL_DEVICE(kDLCPU),
      .dtypes = dtypes,
      .fn = fn,
      .self = op,
  };
  const fl_provider *provider = fl_registry_provider(op->host, "flhost", FLHOST_VERSION);
  fl_impl_record *record = provider ? fl_impl_record_create(&impl, provider, op) : NULL;
  if (record)
    atomic_init(&record->reason, NULL); /* always available; it is never asked */
  return record;
}

bool fl_parts_add(fl_op *op) {
  for (size_t i = 0; i < sizeof unfused / sizeof *unfused; i++)
    if (!strcmp(unfused[i].op, op->name))
      return (op->unfused = record_create(op, unfused[i].fn, unfused[i].dtypes)) != NULL;
  return true;
}
