/* Scalar functions that several kernels are made of. The form that a type gets is as exact as a tensor of it shows. */
#ifndef FLHOST_GPU_FUNCTIONS_H
#define FLHOST_GPU_FUNCTIONS_H

#include "plugins/gpu/kernels/device.h"

/* x / (1 + exp(-x)) */
template <typename T> GPU_DEVICE float gpu_silu(float x) {
  return gpu_divide<T>(x, 1.0f + gpu_exp<T>(-x));
}

template <typename T> GPU_DEVICE float gpu_sigmoid(float x) {
  return gpu_divide<T>(1.0f, 1.0f + gpu_exp<T>(-x));
}

/* log(1 + exp(x)); above 20 that is x. */
GPU_DEVICE float gpu_softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

#endif
