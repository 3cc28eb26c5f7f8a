/*
 * Whether implementations can run on this machine (rule R6): is_available, asked once a generation of the registry. It
 * is a plugin's code, which may crash or hang: nobody is asked whom the policy in force keeps out (`filter`, of
 * fl_vendor_filter). What another policy lets in is asked when that is in force.
 */
#ifndef FLHOST_CORE_PLATFORM_AVAILABILITY_H
#define FLHOST_CORE_PLATFORM_AVAILABILITY_H

#include "core/registry.h"

/* Asks is_available of each impl for the device type (0: any) that was not asked in `generation`, the registry's
 * when the filter was taken (R6): a call on the CPU starts no driver. Takes the availability lock, and nothing may be
 * held. */
void fl_registry_ask_availability(fl_host *host, const fl_op *op, const fl_policy *filter, uint32_t generation,
                                  int32_t device_type);

/* Every implementation of every op, and the devices whose architectures they need. Nothing may be held. */
void fl_registry_ask_all(fl_host *host, const fl_policy *filter);

/* Were they all asked? The host's lock is held. */
bool fl_registry_is_asked(const fl_host *host, const fl_policy *filter);

/* Locks the host at a moment when all that the policy in force in this thread lets in has been asked. Nothing may be
 * held before. The thread has joined (fl_thread_join): one that cannot would ask for ever. */
void fl_registry_lock_asked(fl_host *host);

#endif
