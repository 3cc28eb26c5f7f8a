/* Fused ops by their parts. */
#ifndef FLHOST_CORE_VLLM_PARTS_H
#define FLHOST_CORE_VLLM_PARTS_H

#include "core/registry.h"

/* fl_host_hooks.add_parts: gives an op that can be run by its parts the implementation that does so. false: out of
 * memory. */
bool fl_parts_add(fl_op *op);

#endif
