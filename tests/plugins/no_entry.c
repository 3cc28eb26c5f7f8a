/* The entry's name is misspelt. */
#include <flhost/plugin.h>

FL_PLUGIN("no_entry", "1", "Test", "MIT", "");

FL_EXPORT fl_status register_builtin(fl_registry *registry);
fl_status register_builtin(fl_registry *registry) {
  return registry->register_op(registry, NULL);
}
