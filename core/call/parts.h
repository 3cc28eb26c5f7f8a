/*
 * Fused ops by their parts (fl_op_def.parts): the implementation `reference.parts` of each op that says what it is made
 * of. Its calls are made under the policy in force; what lies between them is in the call's workspace.
 */
#ifndef FLHOST_CORE_CALL_PARTS_H
#define FLHOST_CORE_CALL_PARTS_H

#include "core/registry.h"

/* As fl_host_hooks has it: what the registry gives an op with parts, whose `self` it is. */
extern const fl_impl fl_parts_impl;

#endif
