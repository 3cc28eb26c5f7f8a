/* The entries of the built-in ops. What rooms above may use. */
#ifndef FLHOST_CORE_OPS_H
#define FLHOST_CORE_OPS_H

#include "core/ops/ops.h"

#endif
