/* The platform "ascend": see platform.c. */
#ifndef FLHOST_ASCEND_PLATFORM_H
#define FLHOST_ASCEND_PLATFORM_H

#include <flhost/plugin.h>

extern const fl_platform ascend_platform;

/* fl_platform.arch_reaches: Ascend910A < Ascend910B (B1 to B4) < Ascend910_93 < Ascend950; Ascend310P and Ascend310B
 * stand by themselves. */
bool ascend_arch_reaches(void *self, const char *arch, const char *least);

#endif
