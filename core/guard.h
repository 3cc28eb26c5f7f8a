/* Calls that are watched: on copies between guard pages, compared with the reference, saved. What rooms above may
 * use. */
#ifndef FLHOST_CORE_GUARD_H
#define FLHOST_CORE_GUARD_H

#include "core/guard/watch.h"

#endif
