/* The platform "ascend": see platform.c. */
#ifndef FLHOST_ASCEND_PLATFORM_H
#define FLHOST_ASCEND_PLATFORM_H

#include <flhost/plugin.h>

extern const fl_platform ascend_platform;

#endif
