/* Nothing is wrong with this one: an op and two implementations of it. */
#include "scale.h"

FL_PLUGIN("good", "1.2.3", "Good GmbH", "MIT", "");

fl_status register_builtins(fl_registry *registry) {
  fl_impl vendor = scale_row("vendor.good", "good"), reference = scale_row("reference.good", NULL);
  fl_status status = registry->register_op(registry, &scale_op);
  if (!status)
    status = registry->register_impl(registry, &vendor);
  return status ? status : registry->register_impl(registry, &reference);
}
