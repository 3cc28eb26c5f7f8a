/* The hardware platform: what is on the bus, which drivers open, which one platform is active (rules H). */
#ifndef FLHOST_CORE_PLATFORM_PLATFORM_H
#define FLHOST_CORE_PLATFORM_PLATFORM_H

#include "core/platform/probe.h"
#include "core/registry.h"

/* One built-in platform: how its devices show on the bus, in the file system and through their driver. */
typedef struct fl_platform_kind {
  const char *name, *title; /* "cuda", "NVIDIA" */
  int32_t device_type;      /* of its tensors */
  const char *aliases[3];   /* ended by NULL */
  uint16_t pci_vendor;
  uint16_t pci_classes[4]; /* base class and subclass, 0x0302; ended by 0 */
  const char *nodes[3];    /* without one of them there is nothing to ask; ended by NULL */
  const char *patterns[5]; /* all device nodes that a user must be able to open; ended by NULL */
  const char *kernel[3];   /* files that are there when the kernel driver is loaded; ended by NULL */
  const char *module;      /* its name; NULL: it has several */
  const char *versions[3]; /* files that name its version; ended by NULL */
  const char *masks[4];    /* variables that hide devices from a process; ended by NULL */
  fl_driver driver;
} fl_platform_kind;

/* Of which the first needs no device ("cpu"); ended by a NULL name. */
extern const fl_platform_kind fl_platform_kinds[];

/* Names of the built-in platforms, ended by NULL: "cpu", "cuda", "rocm", "ascend". */
extern const char *const fl_platform_names[];

/* "nvidia" → "cuda", "amd" → "rocm", "npu" → "ascend"; any other name is given back as it is. */
const char *fl_platform_canonical(const char *name);

/*
 * The active platform, quickly: no bus scan, and no driver is touched where no device node exists. `forced` (or NULL)
 * wins over all; FL_ECONFIG when it is neither built in nor brought by a plugin. `components` are what plugins brought:
 * one that is active beats the built-in ones, two are FL_EINVAL naming both. Of the built-in ones it is the first of
 * the table that has a device. *plugin is the plugin of the platform or NULL. *name lives as long as the components, or
 * for ever.
 */
fl_status fl_platform_activate(const char *forced, const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin);

/* The full report: bus through hwloc, drivers opened (and, where a device node exists, asked) in a child process. */
fl_status fl_platform_report_create(const char *active, const char *origin, const char *config_file,
                                    const fl_component_record *components, uint32_t n, fl_platform_report **report);

/* Both, among other platforms than the built-in ones. */
fl_status fl_platform_activate_among(const fl_platform_kind *kinds, const char *forced,
                                     const fl_component_record *components, uint32_t n, const char **name,
                                     const char **plugin);
fl_status fl_platform_report_among(const fl_platform_kind *kinds, const char *active, const char *origin,
                                   const char *config_file, const fl_component_record *components, uint32_t n,
                                   fl_platform_report **report);

/* What is known of a built-in platform. */
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
  bool active;
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
