/*
 * The AMD backend. It links nothing of ROCm, so that it loads on every machine and can say what is missing: the
 * platform "rocm", and vendor.rocm for the ops that plugins/gpu has kernels of.
 */
#include "plugins/gpu/plugin.h"

FL_PLUGIN("rocm", FLHOST_VERSION, "AMD", "Apache-2.0", "");
FL_PLUGIN_PLATFORM("rocm", "/dev/kfd,$FLHOST_ROCM_DRIVER");

fl_status register_builtins(fl_registry *registry) {
  return gpu_register(registry);
}
