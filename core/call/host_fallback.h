/*
 * Calls on the CPU for tensors on a device (fl_policy_fields.host_fallback): the implementation `reference.host` of
 * each op that a policy wants it for. The call is made again, with copies, and goes where the policy in force sends it.
 */
#ifndef FLHOST_CORE_CALL_HOST_FALLBACK_H
#define FLHOST_CORE_CALL_HOST_FALLBACK_H

#include "core/registry.h"

/* As fl_host_hooks has it: `self` is the op. */
extern const fl_impl fl_host_fallback_impl;

#endif
