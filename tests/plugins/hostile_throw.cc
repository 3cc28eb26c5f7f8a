// An exception that nobody catches, thrown through the host's frames.
#include <flhost/plugin.h>
#include <stdexcept>

FL_PLUGIN("registers-throw_out", "1", "Test", "MIT", "");

extern "C" fl_status register_builtins(fl_registry *) {
  throw std::runtime_error("acme has no driver");
}
