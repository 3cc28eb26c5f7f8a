/* Publishing what a plugin staged: as a whole or not at all (rule R3), also when memory runs out. */
#ifndef FLHOST_CORE_REGISTRY_PUBLISH_H
#define FLHOST_CORE_REGISTRY_PUBLISH_H

#include "core/registry/stage.h"

/* Moves what is staged into the registry. After an error nothing is there of it, and all of it is staged still. The
 * host's lock is held. */
fl_status fl_stage_publish(fl_stage *stage);

/* Gives an op of the registry the implementation that runs it on the CPU, unless it has it. FL_ENOMEM. The host's lock
 * is held. */
fl_status fl_host_fallback_publish(fl_op *op);

#endif
