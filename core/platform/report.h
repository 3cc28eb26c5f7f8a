/* The report of platforms (H1): what `flhost platform` shows. */
#ifndef FLHOST_CORE_PLATFORM_REPORT_H
#define FLHOST_CORE_PLATFORM_REPORT_H

#include "core/platform/kind.h"

/* The full report: bus through hwloc; drivers opened, and plugins asked for their devices, in a child process. */
fl_status fl_platform_report_create(const fl_platform_kind *kinds, const char *active, const char *origin,
                                    const char *config_file, const fl_component_record *components, uint32_t n,
                                    fl_platform_report **report);

#endif
