/* Of the platform component of a GPU plugin: streams, events, pinned host memory, pools, graphs, health. */
#ifndef FLHOST_GPU_WORK_H
#define FLHOST_GPU_WORK_H

#include <flhost/plugin.h>

void gpu_add_work(fl_platform *platform);

#endif
