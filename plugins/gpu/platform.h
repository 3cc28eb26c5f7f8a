/* The platform component of a GPU plugin: devices and their memory; work.h has the rest. */
#ifndef FLHOST_GPU_PLATFORM_H
#define FLHOST_GPU_PLATFORM_H

#include "plugins/gpu/driver.h"

fl_status gpu_register_platform(fl_registry *registry);

/* A function of the component on a device, which the thread uses from begin to end. Its words are what `error` says. */
typedef struct gpu_visit {
  gpu_device *device;
  gpu_scope scope;
  const char *where; /* the function */
} gpu_visit;

/* Not FL_OK: there is nothing to end. */
fl_status gpu_visit_begin(gpu_visit *visit, int32_t ordinal, const char *where);
/* What becomes of `code`, which `step` met. */
fl_status gpu_visit_end(const gpu_visit *visit, gpu_code code, const char *step);

/* As gpu_has_part: FL_ENOTSUP. */
fl_status gpu_platform_has(gpu_part part, const char *where);

#endif
