/* RCCL, between AMD's devices: NCCL's interface under names of its own. */
#include "plugins/nccl/plugin.h"

FL_PLUGIN("rccl", FLHOST_VERSION, "AMD", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("rccl");

const nccl_vendor_facts nccl_vendor = {
    .name = "rccl",
    .title = "RCCL",
    .prefix = "nccl",
    .kind = FL_KIND_VENDOR,
    .id_size = NCCL_UNIQUE_ID_BYTES,
    .libraries = {"librccl.so.1", "librccl.so"},
    .root = "ROCM_PATH",
    .usual_root = "/opt/rocm",
    .beside_torch = {"librccl.so.1", "librccl.so"},
};

fl_status register_builtins(fl_registry *registry) {
  return nccl_register(registry);
}
