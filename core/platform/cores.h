/* How many cores this process may use. */
#ifndef FLHOST_CORE_PLATFORM_CORES_H
#define FLHOST_CORE_PLATFORM_CORES_H

#include <sched.h>
#include <stdint.h>

/*
 * The processors that threads of this process's pool may run on: those of the process's first thread and of the calling
 * one, since engines bind either to a core of its own.
 */
typedef struct fl_processors {
  cpu_set_t *set; /* freed by whoever asked; NULL: unknown */
  size_t size;    /* of it, bytes */
} fl_processors;

fl_processors fl_usable_processors(void);

/* How many cores these are, of those that a control group's quota leaves: at least 1. Takes some milliseconds. */
uint32_t fl_usable_cores(const fl_processors *processors);

#endif
