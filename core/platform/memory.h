/* The host's own memory as a backend of kDLCPU. */
#ifndef FLHOST_CORE_PLATFORM_MEMORY_H
#define FLHOST_CORE_PLATFORM_MEMORY_H

#include <flhost/plugin.h>

extern const fl_platform fl_host_memory;

#endif
