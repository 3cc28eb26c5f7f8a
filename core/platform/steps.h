/* The steps from a device on the bus to one that can be used (H1), as far as they were looked at. */
#ifndef FLHOST_CORE_PLATFORM_STEPS_H
#define FLHOST_CORE_PLATFORM_STEPS_H

#include "core/platform/kind.h"

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
  bool loaded, active, asked;
  const char *reason;   /* why it is not */
  fl_device_list *list; /* of an active one. NULL: out of memory, or it is not loaded */
} fl_plugin_finding;

/* The steps of a platform. Either finding may be NULL. */
const fl_platform_step *fl_platform_steps(const fl_finding *finding, const fl_plugin_finding *plugin, fl_arena *arena,
                                          uint32_t *n);

/* "; permission denied on /dev/kfd (mode 0660, group render): add the user to group 'render'"; nothing if it is not. */
void fl_platform_add_permission(const char *node, fl_text *text);

#endif
