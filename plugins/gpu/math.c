/* Matrix products by the vendor's library: see math.h. */
#include "plugins/gpu/math.h"

bool gpu_math_available(const char **reason) {
  return gpu_library_available(&gpu_math.base, reason);
}

bool gpu_math_takes_batches(const char **reason) {
  static char words[GPU_WORDS]; /* the host asks from one thread at a time */
  if (!gpu_math_available(reason))
    return false;
  if (gpu_math.takes_batches && gpu_math.takes_batches())
    return true;
  snprintf(words, sizeof words, "%s takes no arrays of addresses: is it too old?", gpu_math.base.title);
  *reason = words;
  return false;
}

/* Both libraries want rows that do not overlap, and sizes of 32 bits. */
bool gpu_math_takes(const gpu_product *p, const char **reason) {
  const char *none, **why = reason ? reason : &none;
  *why = p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->x_stride > INT32_MAX ||
                 p->weight_stride > INT32_MAX || p->out_stride > INT32_MAX
             ? "a matrix of more than 2147483647 rows or columns"
         : (p->m > 1 && (p->x_stride < p->k || p->out_stride < p->n)) || (p->n > 1 && p->weight_stride < p->k)
             ? "a matrix whose rows overlap"
             : NULL;
  return !*why;
}

/* A single row's stride says nothing: any that the library takes will do. */
static gpu_product with_strides(const gpu_product *product) {
  gpu_product p = *product;
  p.x_stride = p.x_stride < p.k ? p.k : p.x_stride;
  p.weight_stride = p.weight_stride < p.k ? p.k : p.weight_stride;
  p.out_stride = p.out_stride < p.n ? p.n : p.out_stride;
  return p;
}

static fl_status failed(const gpu_op *op, fl_call *call, int code, const char *step) {
  return code ? gpu_library_failed(&gpu_math.base, code, op->name, step, call->message, call->message_size) : FL_OK;
}

fl_status gpu_ask_product(const gpu_op *op, fl_call *call, const gpu_product *product, size_t *workspace) {
  fl_status status;
  gpu_scope scope;
  gpu_device *device;
  gpu_product p = with_strides(product);
  *workspace = 0;
  void *handle = gpu_library_enter(&gpu_math.base, op, call, &device, &scope, &status);
  if (!handle)
    return status;
  int code = gpu_math.workspace(device->ordinal, handle, &p, workspace);
  gpu.call.leave(&scope);
  return failed(op, call, code, "choosing an algorithm");
}

size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product) {
  char words[GPU_WORDS];
  size_t size;
  fl_call question = *call;
  question.message = words;
  question.message_size = sizeof words;
  return gpu_ask_product(op, &question, product, &size) ? 0 : size;
}

fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product) {
  fl_status status;
  gpu_scope scope;
  gpu_device *device;
  gpu_product p = with_strides(product);
  void *handle = gpu_library_enter(&gpu_math.base, op, call, &device, &scope, &status);
  if (!handle)
    return status;
  int code = gpu_math.multiply(device->ordinal, handle, &p, call->workspace, call->workspace ? call->workspace_size : 0,
                               call->stream);
  gpu_note_launch(device, op->name);
  gpu.call.leave(&scope);
  return failed(op, call, code, "a matrix product");
}
