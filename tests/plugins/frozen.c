/* Built against the kept copy of the first header, as the plugins that are out in the world. */
#include "tests/abi/plugin-0.1.h"

#include "scale.h"

FL_PLUGIN("frozen", "1", "Test", "MIT", "");

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = scale_row("vendor.frozen", "frozen");
  fl_status status = registry->register_op(registry, &scale_op);
  return status ? status : registry->register_impl(registry, &impl);
}
