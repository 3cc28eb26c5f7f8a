/* Loads, but nothing of it can be used here. */
#include "scale.h"

FL_PLUGIN("unavailable", "1", "Test", "MIT", "");

static bool is_available(void *self, const char **reason) {
  (void)self;
  *reason = "no Acme device found";
  return false;
}

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = scale_row("vendor.unavailable", "unavailable");
  impl.is_available = is_available;
  fl_status status = registry->register_op(registry, &scale_op);
  return status ? status : registry->register_impl(registry, &impl);
}
