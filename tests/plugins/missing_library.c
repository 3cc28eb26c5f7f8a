/* Needs a library that is not installed; as itself (absent.so), or as the library between (absent_middle.so). */
#include <flhost/plugin.h>

#ifdef NAME
FL_PLUGIN(NAME, "1", "Test", "MIT", "");
fl_status register_builtins(fl_registry *registry) {
  (void)registry;
  return FL_OK;
}
#endif
