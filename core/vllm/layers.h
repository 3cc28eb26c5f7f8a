/* Out-of-tree replacement as the settings let it. The host's lock is held around all of these. */
#ifndef FLHOST_CORE_VLLM_LAYERS_H
#define FLHOST_CORE_VLLM_LAYERS_H

#include "core/registry.h"

/* The op that replaces a class, ready or not, whether or not that is allowed; NULL, with a message. */
fl_op *fl_layer_op(fl_host *host, const char *class);
/* The layers that an op replaces. */
const fl_replaced *fl_layers_of(const fl_host *host, const char *op, fl_arena *arena, uint32_t *n);

#endif
