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
} gpu_product;

typedef struct gpu_math_library {
  gpu_library base;
  bool adds_bias; /* itself; else the bias must stand in every row of `out` before the product */
  size_t (*workspace)(int ordinal, void *handle, const gpu_product *product); /* that the fastest way wants */
  int (*multiply)(int ordinal, void *handle, const gpu_product *product, void *workspace, size_t size, void *stream);
} gpu_math_library;

/* This plugin's. */
extern gpu_math_library gpu_math;

/* gpu_op.is_ready: see gpu_library_available. */
bool gpu_math_available(const char **reason);

/* Can the library have these sizes and strides? `reason` may be NULL. */
bool gpu_math_takes(const gpu_product *product, const char **reason);

/* The workspace that the fastest way wants on the call's device; 0 when that cannot be said. */
size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product);

/* Queues the product on the call's stream and device. With less workspace than gpu_product_workspace() it takes a way
 * that makes do with it. */
fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product);

#endif
