/* The library's version. */
#include <flhost/flhost.h>

const char *fl_version(void) {
  return FLHOST_VERSION;
}
