/* Architectures of devices: does one reach the least that an implementation needs (fl_impl.min_arch)? */
#ifndef FLHOST_CORE_PLATFORM_ARCH_H
#define FLHOST_CORE_PLATFORM_ARCH_H

#include <stdbool.h>

/* The rule is that of plugin.h. True also where it says nothing: an unknown form, another vendor's. NULL and "" stand
 * for nothing known. */
bool fl_arch_reaches(const char *arch, const char *least);

#endif
