/* Telling what may be mended by itself from what may not. */
#ifndef FLHOST_CORE_PLUGINS_SHORTAGE_H
#define FLHOST_CORE_PLUGINS_SHORTAGE_H

#include <stdbool.h>

/* Did a plugin fail for want of descriptors or memory, which may be there later? `reason`: why it failed. */
bool fl_is_shortage(const char *reason);

#endif
