/* The platform component of a GPU plugin: devices and their memory. */
#ifndef FLHOST_GPU_PLATFORM_H
#define FLHOST_GPU_PLATFORM_H

#include <flhost/plugin.h>

fl_status gpu_register_platform(fl_registry *registry);

#endif
