/* The hardware platform: what is on the bus, which drivers open, which one platform is active (rules H). */
#ifndef FLHOST_CORE_PLATFORM_H
#define FLHOST_CORE_PLATFORM_H

#include "core/registry.h"

/* Names of the built-in platforms, ended by NULL: "cpu", "cuda", "rocm", "ascend". */
extern const char *const fl_platform_names[];

/* "nvidia" → "cuda", "amd" → "rocm", "npu" → "ascend"; any other name is given back as it is. */
const char *fl_platform_canonical(const char *name);

/*
 * The active platform, quickly: no bus scan and no driver is touched where no device node exists. `forced` (or NULL)
 * wins over all. `components` are what plugins brought: one that is active beats the built-in ones, two are FL_EINVAL
 * naming both. *plugin is the plugin of the platform or NULL. *name lives as long as `forced`, the components, or for
 * ever.
 */
fl_status fl_platform_activate(const char *forced, const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin);

/* The full report: bus through hwloc, driver libraries opened in a child process's stead only when device nodes exist.
 */
fl_status fl_platform_report_create(const char *active, const char *origin, const char *config_file,
                                    const fl_component_record *components, uint32_t n, fl_platform_report **report);

#endif
