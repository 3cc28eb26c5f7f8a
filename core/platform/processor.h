/* The processor as a platform: kDLCPU, which the host brings itself. */
#ifndef FLHOST_CORE_PLATFORM_PROCESSOR_H
#define FLHOST_CORE_PLATFORM_PROCESSOR_H

#include <flhost/plugin.h>

/* All but graphs, and no random numbers. */
extern const fl_platform fl_processor;

#endif
