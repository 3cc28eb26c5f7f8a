/*
 * The slots of an op, one for each device type, and what stands in them. A slot is never empty: where nothing is bound
 * stands the op's own target, which resolves, binds and calls. Whatever makes a binding out of date takes it out here.
 */
#ifndef FLHOST_CORE_REGISTRY_SLOTS_H
#define FLHOST_CORE_REGISTRY_SLOTS_H

#include "core/registry/records.h"

/* Nothing is bound in them. */
void fl_slots_init(fl_slots *slots, const fl_op *op);

/* Puts what was resolved into a slot. The host's lock is held. */
void fl_slot_bind(fl_op *op, fl_bound *bound, _Atomic(const fl_target *) *slot);

/* Takes what an op has bound out of its slots: of `slots` alone, unless NULL; and not what has `record` for its first
 * candidate, unless NULL. The host's lock is held. */
void fl_unbind(fl_op *op, const fl_slots *slots, const fl_impl_record *record);

/* Everything resolved before is out of date: nothing is bound any more. The host's lock is held. */
void fl_host_advance(fl_host *host);

/* The same, and availability is to be asked again. The host's lock is held. */
void fl_registry_advance(fl_host *host);

/* Waits, where so much memory is retired that calls cannot have let go of it yet. For whoever changes what calls
 * depend on; holds no lock, and does nothing inside a call. */
void fl_host_bound_memory(fl_host *host);

#endif
