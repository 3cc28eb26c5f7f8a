/* The ops of activation.c, for one that also runs experts. */
#ifndef FLHOST_GPU_ACTIVATION_H
#define FLHOST_GPU_ACTIVATION_H

#include "plugins/gpu/launch.h"

/* Queues the op of this name, which must be one of them, on a call of its own. */
fl_status gpu_activate(const char *name, fl_call *call);

#endif
