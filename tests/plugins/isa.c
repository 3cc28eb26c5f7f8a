/* Needs instructions (ISA) that no machine has. None of its code may run. */
#include <flhost/plugin.h>
#include <stdlib.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", ISA);

__attribute__((constructor)) static void end(void) {
  abort();
}

fl_status register_builtins(fl_registry *registry) {
  (void)registry;
  return FL_OK;
}
