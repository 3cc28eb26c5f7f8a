/* What nccl.so and rccl.so register. */
#ifndef FLHOST_NCCL_PLUGIN_H
#define FLHOST_NCCL_PLUGIN_H

#include "plugins/nccl/library.h"

fl_status nccl_register(fl_registry *registry);

#endif
