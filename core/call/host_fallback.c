/* Running an op on the CPU for tensors on a device: see host_fallback.h. */
#include "core/call/host_fallback.h"

#include "core/call/invoke.h"
#include "core/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* As kernels want it. */
enum { ALIGNMENT = 256 };

/* A tensor of the call as it is on the CPU. */
typedef struct host_tensor {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  const DLTensor *original; /* NULL: it is the call's own, no tensor or on the host already */
  size_t span;              /* bytes, with the gaps between rows */
  void *owned;              /* NULL: it lies in the memory of an earlier one, which is the same on the device */
} host_tensor;

typedef struct host_call {
  fl_op *op;
  const fl_call *given;
  DLDevice device;
  fl_value values[FL_SCHEMA_MAX_VALUES];
  host_tensor tensors[FL_SCHEMA_MAX_VALUES];
  uint32_t n; /* values that were looked at */
} host_call;

/* ------------------------------------------------------------------------------------------------------ to the CPU */

/* The same memory on the device: a result that is an argument's tensor. */
static const host_tensor *same_memory(const host_call *h, const host_tensor *t) {
  for (uint32_t i = 0; i < h->n; i++) {
    const host_tensor *other = &h->tensors[i];
    if (other->original && fl_data(other->original) == fl_data(t->original) && other->span == t->span)
      return other;
  }
  return NULL;
}

static fl_status describe(host_tensor *t, const DLTensor *original, const char *name) {
  if (original->ndim > FL_MAX_DIMS)
    return fl_error(FL_ENOTSUP, "'%s' has %d dimensions, expected at most %d", name, (int)original->ndim, FL_MAX_DIMS);
  for (int32_t d = 0; d < original->ndim; d++) {
    t->shape[d] = original->shape[d];
    t->strides[d] = fl_stride(original, d);
    if (t->strides[d] < 0)
      return fl_error(FL_ENOTSUP, "'%s' has negative strides", name);
  }
  t->original = original;
  t->span = fl_tensor_span(original);
  t->tensor = (DLTensor){.device = {kDLCPU, 0},
                         .ndim = original->ndim,
                         .dtype = original->dtype,
                         .shape = t->shape,
                         .strides = original->strides ? t->strides : NULL};
  return FL_OK;
}

/* Gaps are read, too: one copy instead of one a row. */
static fl_status fetch(const host_call *h, const host_tensor *t) {
  if (!t->span)
    return FL_OK;
  return fl_device_copy(h->op->host, h->device, t->tensor.data, fl_data(t->original), t->span, FL_COPY_TO_HOST,
                        h->given->stream);
}

static fl_status bring(host_call *h, uint32_t i) {
  const fl_schema *schema = h->op->schema;
  const fl_value *value = &h->given->values[i];
  host_tensor *t = &h->tensors[i];
  t->original = NULL;
  t->owned = NULL;
  h->values[i] = *value;
  if (value->type != FL_TENSOR || fl_tensor_is_on_host(value->v.tensor))
    return FL_OK;
  fl_status status = describe(t, value->v.tensor, schema->values[i].name);
  if (status) {
    t->original = NULL;
    return status;
  }
  const host_tensor *same = same_memory(h, t);
  h->values[i] = fl_tensor(&t->tensor);
  if (same) {
    t->tensor.data = same->tensor.data;
    return FL_OK;
  }
  size_t size = (t->span + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
  t->tensor.data = t->owned = size > t->span ? aligned_alloc(ALIGNMENT, size) : NULL;
  if (!t->owned)
    return fl_error(FL_ENOMEM, "out of memory for a copy of '%s', %zu bytes", schema->values[i].name, t->span);
  return i < schema->n_arguments ? fetch(h, t) : FL_OK;
}

/* A copy would end the capture. */
static fl_status bring_all(host_call *h) {
  fl_backend backend;
  fl_status status = fl_backend_open(h->op->host, h->device, &backend);
  if (!status && fl_backend_is_captured(&backend, h->device, h->given->stream))
    status = fl_error(FL_ENOTSUP, "the stream is being captured in a graph, in which nothing runs on the CPU");
  for (; h->n < h->given->count && !status; h->n++)
    status = bring(h, h->n);
  return status;
}

static void give_back_memory(host_call *h) {
  for (uint32_t i = 0; i < h->n; i++)
    free(h->tensors[i].owned);
}

/* --------------------------------------------------------------------------------------------------------- and back */

static fl_status copy_run(void *user, void *to, const void *from, size_t size) {
  const host_call *h = user;
  return fl_device_copy(h->op->host, h->device, to, from, size, FL_COPY_TO_DEVICE, h->given->stream);
}

/* Elements only: somebody else may have written into the gaps. */
static fl_status take_back(host_call *h, fl_call *call) {
  const fl_schema *schema = h->op->schema;
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < h->n && !status; i++) {
    const host_tensor *t = &h->tensors[i];
    bool is_result = i >= schema->n_arguments;
    if (t->original && (is_result || fl_schema_is_state(schema, i)))
      status = fl_tensor_copy_with(t->original, &t->tensor, copy_run, h);
    else if (is_result && schema->values[i].type != FL_TENSOR) /* it was written by value */
      call->values[i] = h->values[i];
  }
  return status;
}

/* "Not supported" promises that nothing of the call's was written: nothing is before the CPU is done. */
static fl_status run_there(host_call *h, fl_call *call) {
  fl_status status = bring_all(h);
  if (status)
    return fl_fail(call, status == FL_ENOENT ? FL_ENOTSUP : status, "copying to the CPU: %s", fl_error_message());
  fl_call there = {.size = sizeof there, .count = h->n, .values = h->values};
  status = fl_invoke(h->op, &there);
  if (status)
    return fl_fail(call, status == FL_ENOIMPL ? FL_ENOTSUP : status, "on the CPU: %s", fl_error_message());
  status = take_back(h, call);
  return status ? fl_fail(call, status, "copying from the CPU: %s", fl_error_message()) : FL_OK;
}

static void warn_once(fl_op *op, DLDevice device) {
  if (atomic_load_explicit(&op->falls_back, memory_order_relaxed) || atomic_exchange(&op->falls_back, true))
    return;
  fl_log_line(&op->host->log, FL_LOG_WARNING,
              "Op '%s' runs on the CPU for tensors on %s, which are copied there and back (host_fallback)", op->name,
              fl_device_type_name(device.device_type));
}

static fl_status run(void *self, fl_call *call) {
  fl_op *op = self;
  const DLTensor *tensor = fl_call_tensor(op, call);
  host_call *h = tensor && call->count <= FL_SCHEMA_MAX_VALUES ? malloc(sizeof *h) : NULL;
  if (!h)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  h->op = op;
  h->given = call;
  h->device = tensor->device;
  h->n = 0;
  if (!op->host->statistics) /* else it was counted as any */
    fl_count_call(&fl_self, op->host_fallback->count);
  warn_once(op, h->device);
  fl_status status = run_there(h, call);
  give_back_memory(h);
  free(h);
  return status;
}

const fl_impl fl_host_fallback_impl = {
    .size = sizeof fl_host_fallback_impl,
    .impl_id = FL_HOST_IMPL,
    .kind = FL_KIND_REFERENCE,
    .priority = 0,
    .devices = FL_DEVICE_ANY & ~FL_DEVICE(kDLCPU),
    .fn = run,
};
