/* Calls a function that nobody defines (SYMBOL). */
#include <flhost/plugin.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

void SYMBOL(void);

fl_status register_builtins(fl_registry *registry) {
  (void)registry;
  SYMBOL();
  return FL_OK;
}
