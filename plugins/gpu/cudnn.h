/*
 * cuDNN as far as this plugin uses it: types as the library has them, so that nothing of CUDA is needed to build
 * (tests/cuda-headers holds them against the vendor's header), and convolutions by its graph interface. cudnn.c opens
 * the library and has the ops, cudnn_plans.c keeps a plan for each form, cudnn_graph.c makes one.
 */
#ifndef FLHOST_GPU_CUDNN_H
#define FLHOST_GPU_CUDNN_H

#include "plugins/gpu/cudnn_functions.h"
#include "plugins/gpu/kernels/arguments/convolution.h"
#include "plugins/gpu/library.h"

#include <stddef.h>
#include <stdint.h>

typedef int cudnnStatus_t, cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t;
typedef void *cudnnHandle_t, *cudnnBackendDescriptor_t, *cudaStream_t;

enum {
#define DNN_CONSTANT(name, value) name = (value),
  DNN_CONSTANTS(DNN_CONSTANT)
#undef DNN_CONSTANT
};

/* Filled when the library is opened. */
typedef struct cudnn_functions {
#define DNN_FIELD(result, name, field, arguments) result(*field) arguments;
  DNN_FUNCTIONS(DNN_FIELD)
#undef DNN_FIELD
} cudnn_functions;
extern cudnn_functions cudnn;

/* ----------------------------------------------------------------------------------------------------------- graphs */

enum { CUDNN_X, CUDNN_WEIGHT, CUDNN_OUT, CUDNN_BIAS, CUDNN_TENSORS };
enum { CUDNN_DIMS = GPU_SPACE + 2 };

/* A convolution without its data: all that a plan may depend on. Compared as bytes: no padding, and zeros where two
 * dimensions of space leave a place. */
typedef struct cudnn_form {
  int64_t shape[CUDNN_TENSORS][CUDNN_DIMS], strides[CUDNN_TENSORS][CUDNN_DIMS]; /* bias: [1, n, 1, 1] */
  int64_t stride[GPU_SPACE], padding[GPU_SPACE], dilation[GPU_SPACE];
  int64_t workspace;                  /* at most */
  uint8_t alignment[CUDNN_TENSORS];   /* of their first elements, in bytes */
  uint8_t ordinal, dtype, ndim, bias; /* bias: is there one? */
} cudnn_form;
_Static_assert(sizeof(cudnn_form) == (2 * CUDNN_TENSORS * CUDNN_DIMS + 3 * GPU_SPACE + 2) * sizeof(int64_t),
               "whole words, no padding");

/* A plan, and what it was made of, which lives as long. */
enum { CUDNN_DESCRIPTORS = 16 };
typedef struct cudnn_plan {
  cudnnBackendDescriptor_t descriptors[CUDNN_DESCRIPTORS], execution;
  int n;
  int64_t workspace;
} cudnn_plan;

/* The plan that the library likes best of those that round as the op's definition wants: products and sums in float32,
 * which excludes TF32 and transforms, and the same result each time. `device` is a finalised DEVICEPROP. A status of
 * the library: without one that serves it is CUDNN_STATUS_NOT_SUPPORTED. */
cudnnStatus_t cudnn_make_plan(const cudnn_form *form, cudnnBackendDescriptor_t device, cudnn_plan *plan);

/* ------------------------------------------------------------------------------------------------------------ plans */

/* A device's: the library lets one thread at a time use a handle. */
typedef struct cudnn_context {
  pthread_mutex_t lock;
  cudnnHandle_t handle;
  cudnnBackendDescriptor_t device;
} cudnn_context;

/* Kept for the life of the process. */
typedef struct cudnn_choice {
  cudnn_form of;
  cudnn_plan plan;        /* n is 0: the library has none, for this reason */
  atomic_bool ran;        /* once: its kernels are loaded, so that it can be captured */
  atomic_bool refused;    /* when it ran */
  char reason[GPU_WORDS]; /* says why for both */
} cudnn_choice;

/* The form's, made if need be, with the device entered. NULL with a static reason where there is none and none can be
 * made now; `code` is then the library's status, or 0. */
cudnn_choice *cudnn_find_plan(cudnn_context *context, const cudnn_form *form, void *stream, cudnnStatus_t *code,
                              const char **reason);

/* Queues it on the stream. `data` are addresses by CUDNN_X and so on. */
cudnnStatus_t cudnn_run_plan(cudnn_context *context, cudnn_choice *choice, void *const *data, void *workspace,
                             void *stream);

/* The library: the plugin of its vendor says where it is to be looked for. */
extern gpu_library gpu_cudnn;

#endif
