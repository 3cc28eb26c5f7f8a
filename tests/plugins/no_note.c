/* Has the entry, but says nothing of itself. */
#include <flhost/plugin.h>

fl_status register_builtins(fl_registry *registry) {
  (void)registry;
  return FL_OK;
}
