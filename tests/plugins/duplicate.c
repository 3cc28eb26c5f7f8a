/* The second row has the first one's id; the third is fine. Built with and without FL_PLUGIN_SKIP_REFUSED. */
#include "scale.h"

FL_PLUGIN_WITH_FLAGS(NAME, "1", "Test", "MIT", "", FLAGS);

fl_status register_builtins(fl_registry *registry) {
  fl_impl first = scale_row("vendor.twice", "twice"), third = scale_row("reference.once", NULL);
  registry->register_op(registry, &scale_op);
  registry->register_impl(registry, &first);
  registry->register_impl(registry, &first);
  registry->register_impl(registry, &third);
  return FL_OK;
}
