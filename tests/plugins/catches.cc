// A kernel that throws, and a caller that catches what comes through the library.
#include <flhost/plugin.h>
#include <stdexcept>

extern "C" FL_EXPORT fl_status throws(void *, fl_call *) {
  throw std::runtime_error("out of patience");
}

extern "C" FL_EXPORT int catches(void (*call)(void *), void *user) {
  try {
    call(user);
    return 0;
  } catch (const std::exception &) {
    return 1;
  }
}
