/* What gelu_and_mul_sparse takes its cut from, here and on GPUs. */
#ifndef FLHOST_PLUGINS_QUANTILE_H
#define FLHOST_PLUGINS_QUANTILE_H

/* The standard normal distribution's quantile, in the steps of PyTorch's float32. */
float normal_quantile(double probability);

#endif
