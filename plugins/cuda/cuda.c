/*
 * The NVIDIA backend. It links nothing of CUDA, so that it loads on every machine and can say what is missing: the
 * platform "cuda", vendor.cuda for the ops that plugins/gpu has kernels of, vendor.cuda.cublaslt for experts by
 * cuBLASLt, and vendor.cuda.cudnn for what cuDNN computes.
 */
#include "plugins/gpu/cudnn.h"
#include "plugins/gpu/plugin.h"

FL_PLUGIN("cuda", FLHOST_VERSION, "NVIDIA", "Apache-2.0", "");
FL_PLUGIN_VENDOR("cuda");
FL_PLUGIN_PLATFORM("cuda", "/dev/nvidiactl,/dev/dxg,$FLHOST_CUDA_DRIVER");
FL_PLUGIN_HARDWARE("title: NVIDIA; aliases: nvidia; device: cuda; pci: 10de 0300 0302;"
                   "nodes: /dev/nvidiactl /dev/nvidia[0-9]* /dev/nvidia-uvm;"
                   "kernel: /proc/driver/nvidia/version /dev/dxg; module: nvidia; version: /proc/driver/nvidia/version;"
                   "masks: CUDA_VISIBLE_DEVICES; driver: libcuda.so.1");

fl_status register_builtins(fl_registry *registry) {
  gpu_library_choose(&gpu_cudnn);
  return gpu_register(registry);
}
