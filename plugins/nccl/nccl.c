/* NCCL, between NVIDIA's devices. */
#include "plugins/nccl/plugin.h"

FL_PLUGIN("nccl", FLHOST_VERSION, "NVIDIA", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("nccl");

const nccl_vendor_facts nccl_vendor = {
    .name = "nccl",
    .title = "NCCL",
    .prefix = "nccl",
    .kind = FL_KIND_VENDOR,
    .id_size = NCCL_UNIQUE_ID_BYTES,
    .libraries = {"libnccl.so.2"},
    .beside_torch = {"../../nvidia/nccl/lib/libnccl.so.2", "libnccl.so.2"},
};

fl_status register_builtins(fl_registry *registry) {
  return nccl_register(registry);
}
