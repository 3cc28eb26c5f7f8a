/* FlagCX, between NVIDIA's devices; on one machine it does so by NCCL. It is FlagOS's own, and goes where that goes in
 * the order of kinds. */
#include "plugins/flagcx/flagcx_functions.h"
#include "plugins/nccl/plugin.h"

FL_PLUGIN("flagcx", FLHOST_VERSION, "FlagOS", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("flagcx");

const nccl_vendor_facts nccl_vendor = {
    .name = "flagcx",
    .title = "FlagCX",
    .prefix = "flagcx",
    .kind = FL_KIND_DEFAULT,
    .id_size = FLAGCX_UNIQUE_ID_BYTES,
};

fl_status register_builtins(fl_registry *registry) {
  return nccl_register(registry);
}
