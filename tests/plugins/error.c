/* Fails to register, and says why. What it registered before must not stay. */
#include "scale.h"

FL_PLUGIN("error", "1", "Test", "MIT", "");

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = scale_row("vendor.error", "error");
  registry->register_op(registry, &scale_op);
  registry->register_impl(registry, &impl);
  registry->error(registry, "no licence for device 3");
  return FL_EDEVICE;
}
