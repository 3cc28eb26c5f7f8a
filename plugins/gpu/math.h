/*
 * Matrix products by the vendor's own library: cuBLASLt or rocBLAS, behind one function. Which of the two is decided
 * when a plugin is linked: cublaslt.c or rocblas.c defines `gpu_math`. Once a device has its handle (library.h), a
 * product allocates nothing and waits for nothing, so that calls can be captured in a graph.
 */
#ifndef FLHOST_GPU_MATH_H
#define FLHOST_GPU_MATH_H

#include "plugins/gpu/library.h"

/* out [m, n] = x [m, k] weight [n, k]^T + bias [n], row-major; summed in float32, rounded once. Strides are elements
 * from one row to the next. Sizes are 1 or more. */
typedef struct gpu_product {
  gpu_dtype dtype; /* of all four */
  int64_t m, n, k;
  const void *x, *weight, *bias; /* bias: NULL for none */
  void *out;
  int64_t x_stride, weight_stride, out_stride;
  /* More than 0: that many such products at once, and x, weight and out are arrays in device memory of as many
   * addresses, all multiples of GPU_BATCH_ALIGNMENT, read when the stream gets there. There is no bias. */
  int32_t batch;
  bool onto; /* added to what stands in out, such as a bias in every row; then there is no other */
} gpu_product;

enum { GPU_BATCH_ALIGNMENT = GPU_VECTOR, GPU_MOST_BATCH = 65535 };

typedef struct gpu_math_library {
  gpu_library base;
  bool adds_bias;              /* itself; else a product has none */
  bool (*takes_batches)(void); /* once the library is open; NULL: it does not */
  /* The workspace that the fastest way wants; a status where there is no way. */
  int (*workspace)(int ordinal, void *handle, const gpu_product *product, size_t *size);
  int (*multiply)(int ordinal, void *handle, const gpu_product *product, void *workspace, size_t size, void *stream);
} gpu_math_library;

/* This plugin's. */
extern gpu_math_library gpu_math;

/* gpu_op.is_ready: see gpu_library_available. */
bool gpu_math_available(const char **reason);

/* The same for batches. */
bool gpu_math_takes_batches(const char **reason);

/* Can the library have these sizes and strides? `reason` may be NULL. */
bool gpu_math_takes(const gpu_product *product, const char **reason);

/* The workspace that the fastest way wants on the call's device; 0 when that cannot be said. */
size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product);

/* Has the library a way to compute it? FL_ENOTSUP where it has none, another status where that cannot be said; the
 * call's message has the words. */
fl_status gpu_ask_product(const gpu_op *op, fl_call *call, const gpu_product *product, size_t *workspace);

/* Queues the product on the call's stream and device. With less workspace than gpu_product_workspace() it takes a way
 * that makes do with it. */
fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product);

#endif
