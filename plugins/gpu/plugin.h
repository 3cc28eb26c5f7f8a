/* What the plugins' own main files call. */
#ifndef FLHOST_GPU_PLUGIN_H
#define FLHOST_GPU_PLUGIN_H

#include <flhost/plugin.h>

/* Registers the platform and the implementations of every op that has kernels. */
fl_status gpu_register(fl_registry *registry);

/* Registers a list that ends with a NULL name. */
struct gpu_op;
fl_status gpu_register_ops(fl_registry *registry, const struct gpu_op *ops);

/* Registers the experts that cuBLASLt computes. CUDA alone has it. */
fl_status gpu_register_cublaslt_experts(fl_registry *registry);

/* Registers what cuDNN computes. CUDA alone has it. */
fl_status gpu_register_cudnn(fl_registry *registry);

#endif
