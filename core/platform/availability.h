/* Whether implementations can run on this machine (rule R6): is_available, asked once a generation of the registry. */
#ifndef FLHOST_CORE_PLATFORM_AVAILABILITY_H
#define FLHOST_CORE_PLATFORM_AVAILABILITY_H

#include "core/registry.h"

/* Asks is_available of each impl for the device type (0: any) that was not asked in this generation of the registry
 * (R6): a call on the CPU starts no driver. Takes the availability lock, and nothing may be held. */
void fl_registry_ask_availability(fl_host *host, const fl_op *op, int32_t device_type);

/* Locks the host at a moment when every implementation of every op has been asked. Nothing may be held before. */
void fl_registry_lock_asked(fl_host *host);

#endif
