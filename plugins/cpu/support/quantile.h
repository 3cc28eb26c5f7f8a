/* What gelu_and_mul_sparse takes its cut from, here and on GPUs. */
#ifndef FLHOST_CPU_SUPPORT_QUANTILE_H
#define FLHOST_CPU_SUPPORT_QUANTILE_H

/* The standard normal distribution's quantile, in the steps of PyTorch's float32. */
float cpu_normal_quantile(double probability);

#endif
