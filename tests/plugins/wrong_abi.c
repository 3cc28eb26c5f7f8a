/* Built for ABI 7.0. None of its code may run: the initialiser would end the process. */
#include <flhost/plugin.h>
#include <stdlib.h>

#undef FL_ABI_MAJOR
#undef FL_ABI_MINOR
#define FL_ABI_MAJOR 7
#define FL_ABI_MINOR 0
FL_PLUGIN("wrong_abi", "1", "Test", "MIT", "");

__attribute__((constructor)) static void end(void) {
  abort();
}

fl_status register_builtins(fl_registry *registry) {
  (void)registry;
  abort();
}
