/* Matrix products by the vendor's library: see math.h. */
#include "plugins/gpu/math.h"

bool gpu_math_available(const char **reason) {
  return gpu_library_available(&gpu_math.base, reason);
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

size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product) {
  char words[GPU_WORDS];
  fl_call question = *call;
  fl_status status;
  gpu_scope scope;
  gpu_product p = with_strides(product);
  size_t size = 0;
  question.message = NULL;
  gpu_device *device = gpu_call_device(op, &question, &status);
  if (!device || gpu.call.enter(device, &scope))
    return 0;
  void *handle = gpu_library_handle(&gpu_math.base, device, call->stream, op->name, &status, words, sizeof words);
  if (handle)
    size = gpu_math.workspace(device->ordinal, handle, &p);
  gpu.call.leave(&scope);
  return size;
}

fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product) {
  fl_status status;
  gpu_scope scope;
  gpu_product p = with_strides(product);
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  gpu_code entered = gpu.call.enter(device, &scope);
  if (entered)
    return gpu_failed(device, entered, op->name, "choosing the device", call->message, call->message_size);
  void *handle =
      gpu_library_handle(&gpu_math.base, device, call->stream, op->name, &status, call->message, call->message_size);
  int code = 0;
  if (handle) {
    code = gpu_math.multiply(device->ordinal, handle, &p, call->workspace, call->workspace ? call->workspace_size : 0,
                             call->stream);
    gpu_note_launch(device, op->name);
  }
  gpu.call.leave(&scope);
  return code
             ? gpu_library_failed(&gpu_math.base, code, op->name, "a matrix product", call->message, call->message_size)
             : status;
}
