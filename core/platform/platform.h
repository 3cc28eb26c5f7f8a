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
 * both; else the processor. *plugin is the plugin of the platform or NULL. The results live as long as what was given.
 */
fl_status fl_platform_activate(const fl_platform_kind *kinds, const char *config_dir, const char *forced,
                               const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin);

/* The full report: bus through hwloc; drivers opened, and plugins asked for their devices, in a child process. */
fl_status fl_platform_report_create(const fl_platform_kind *kinds, const char *active, const char *origin,
                                    const char *config_file, const fl_component_record *components, uint32_t n,
                                    fl_platform_report **report);

/* What is known of a kind without its plugin's code. */
typedef struct fl_finding {
  const fl_platform_kind *kind;
  bool bus_known;
  uint32_t on_bus;
  const char *devices; /* their names */
  const char *node;
  fl_probe probe;
} fl_finding;

/* What a plugin says of its platform. */
typedef struct fl_plugin_finding {
  const char *plugin;
  bool loaded, active;
  char reason[256];     /* why it is not */
  fl_device_list *list; /* of an active one; malloc'ed. NULL: out of memory */
} fl_plugin_finding;

/* The steps of a platform as strings of an fl_strings: name, state, finding and advice of each. Either finding may be
 * NULL. false: out of memory. */
enum { FL_STEP_WORDS = 4, FL_STEPS_MAX = 6 };
bool fl_platform_steps(const fl_finding *finding, const fl_plugin_finding *plugin, fl_strings *words);

/* "; permission denied on /dev/kfd (mode 0660, group render): add the user to group 'render'"; nothing if it is not. */
void fl_platform_add_permission(const char *node, fl_text *text);

/* The first device node of a platform that exists, NULL if none does. */
const char *fl_platform_node(const fl_platform_kind *kind);
bool fl_component_is_platform(const fl_component_record *component);

/* Asks a plugin's platform, under the lock for that. */
bool fl_component_is_active(const fl_component_record *component, const char **reason);

#endif
