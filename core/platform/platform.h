/* The hardware platform: what is on the bus, which drivers open, which one platform is active (rules H). */
#ifndef FLHOST_CORE_PLATFORM_PLATFORM_H
#define FLHOST_CORE_PLATFORM_PLATFORM_H

#include "core/platform/kind.h"
#include "core/registry.h"

/*
 * The active platform, quickly: no bus scan, and no driver is touched. `kinds` are the processor and what plugins say
 * of their platforms, ended by a NULL name; `components` what they brought; `config_dir`, which may be NULL, has the
 * platform files. `forced` (or NULL) wins over all: a name or alias of a kind, the name of a component, or one that has
 * a file; FL_ECONFIG when it is none of them. Else it is the one component that is active, two are FL_EINVAL naming
 * both; else one that must not be asked and has a device node; else the processor. *plugin is the plugin of the
 * platform or NULL. The results live as long as what was given.
 */
fl_status fl_platform_activate(const fl_platform_kind *kinds, const char *config_dir, const char *forced,
                               const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin);

/* The first device node of a platform that exists, NULL if none does. */
const char *fl_platform_node(const fl_platform_kind *kind);
bool fl_component_is_platform(const fl_component_record *component);
/* The first of the platform of that name, NULL if none. */
const fl_component_record *fl_component_of_platform(const char *name, const fl_component_record *components,
                                                    uint32_t n);

/* The host's components as they are now, with their strings in the host: of each platform that must not be asked, since
 * the policy in force keeps its plugin's vendors out, why; behind them such platforms of plugins that are deferred.
 * NULL: out of memory. Takes the host's lock. */
fl_component_record *fl_platforms_take(fl_host *host, fl_arena *arena, uint32_t *n);
/* That reason for one of them, NULL if it may be asked. The host's lock is held. */
const char *fl_platform_not_asked(fl_host *host, const fl_component_record *component, fl_arena *arena);

/* The same as a component, of a platform that a plugin's file says it brings. The host's lock is held. */
fl_component_record fl_platform_of_file(fl_host *host, const char *plugin, const char *name, fl_arena *arena);

/* Asks a plugin's platform, if that may be, under the lock for that. */
bool fl_component_is_active(const fl_component_record *component, fl_said *said);

#endif
