/* What the plugins' own main files call. */
#ifndef FLHOST_GPU_PLUGIN_H
#define FLHOST_GPU_PLUGIN_H

#include <flhost/plugin.h>

/* Registers the platform and the implementations of every op that has kernels. */
fl_status gpu_register(fl_registry *registry);

#endif
