/* What knows no host: text, errors, logging, files, tensors, threads and what they may still be reading. What rooms
 * above may use. */
#ifndef FLHOST_CORE_SUPPORT_H
#define FLHOST_CORE_SUPPORT_H

#include "core/support/arena.h"
#include "core/support/array.h"
#include "core/support/child.h"
#include "core/support/clock.h"
#include "core/support/element_types.h"
#include "core/support/error.h"
#include "core/support/hash.h"
#include "core/support/likely.h"
#include "core/support/log.h"
#include "core/support/probes.h"
#include "core/support/problems.h"
#include "core/support/read_file.h"
#include "core/support/said.h"
#include "core/support/scan.h"
#include "core/support/sized.h"
#include "core/support/tensor.h"
#include "core/support/text.h"
#include "core/support/thread.h"

#endif
