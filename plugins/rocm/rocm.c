/*
 * The AMD backend. It links nothing of ROCm, so that it loads on every machine and can say what is missing: the
 * platform "rocm", and vendor.rocm for the ops that plugins/gpu has kernels of.
 */
#include "plugins/gpu/plugin.h"

FL_PLUGIN("rocm", FLHOST_VERSION, "AMD", "Apache-2.0", "");
FL_PLUGIN_VENDOR("rocm");
FL_PLUGIN_PLATFORM("rocm", "/dev/kfd,$FLHOST_ROCM_DRIVER");
/* The kernel's own module has no version. */
FL_PLUGIN_HARDWARE(
    "title: AMD; aliases: amd; device: rocm; pci: 1002 0300 0380 1200; nodes: /dev/kfd /dev/dri/renderD*;"
    "kernel: /sys/module/amdgpu; module: amdgpu; version: /sys/module/amdgpu/version;"
    "masks: ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES;"
    "driver: libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5; directories: $ROCM_PATH /opt/rocm");

fl_status register_builtins(fl_registry *registry) {
  return gpu_register(registry);
}
