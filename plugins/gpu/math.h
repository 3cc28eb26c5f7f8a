/*
 * Matrix products by the vendor's own library: cuBLASLt or rocBLAS, behind one function. Which of the two is decided
 * when a plugin is linked: cublaslt.c or rocblas.c defines `gpu_math`. The library is opened when an op that needs it
 * is first asked for, and never linked; what is missing is said in words.
 *
 * A handle is made for a device when it is first needed, and kept. A product allocates nothing and waits for nothing
 * after that, so that calls can be captured in a graph.
 */
#ifndef FLHOST_GPU_MATH_H
#define FLHOST_GPU_MATH_H

#include "plugins/gpu/launch.h"

/* out [m, n] = x [m, k] weight [n, k]^T + bias [n], row-major; summed in float32, rounded once. Strides are elements
 * from one row to the next. Sizes are 1 or more. */
typedef struct gpu_product {
  gpu_dtype dtype; /* of all four */
  int64_t m, n, k;
  const void *x, *weight, *bias; /* bias: NULL for none */
  void *out;
  int64_t x_stride, weight_stride, out_stride;
} gpu_product;

/* What a library's status means. */
typedef struct gpu_math_status {
  int code;
  const char *name;
  fl_status status;
} gpu_math_status;

typedef struct gpu_math_library {
  const char *title;               /* "cuBLASLt" */
  const char *setting;             /* variable that names a library to open in its place */
  const gpu_symbol *symbols;       /* ended by a NULL name; all are needed */
  const gpu_symbol *optional;      /* ended by a NULL name */
  const gpu_math_status *statuses; /* ended by a NULL name; 0 is success in both libraries */
  bool adds_bias;                  /* itself; else the bias must stand in every row of `out` before the product */
  int (*create)(void **handle);    /* on the device that was entered */
  int (*prepare)(void *handle);    /* a handle that was just made; may be NULL */
  int (*destroy)(void *handle);    /* when prepare() failed */
  size_t (*workspace)(int ordinal, void *handle, const gpu_product *product); /* that the fastest way wants */
  int (*multiply)(int ordinal, void *handle, const gpu_product *product, void *workspace, size_t size, void *stream);
  driver library;
} gpu_math_library;

/* This plugin's. */
extern gpu_math_library gpu_math;

/* Reads the setting. At registration. */
void gpu_math_choose_library(void);

/* gpu_op.is_ready: is the library there, with all that is needed? Makes the handle of the thread's device if the thread
 * uses one already. */
bool gpu_math_available(const char **reason);

/* Can the library have these sizes and strides? `reason` may be NULL. */
bool gpu_math_takes(const gpu_product *product, const char **reason);

/* The workspace that the fastest way wants on the call's device; 0 when that cannot be said. */
size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product);

/* Queues the product on the call's stream and device. With less workspace than gpu_product_workspace() it takes a way
 * that makes do with it. */
fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product);

#endif
