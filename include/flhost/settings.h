/*
 * flhost/settings.h: the settings in force, and where each comes from.
 */
#ifndef FLHOST_SETTINGS_H
#define FLHOST_SETTINGS_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One setting in force. */
typedef struct fl_setting {
  const char *name;     /* the YAML key, or the variable where there is none */
  const char *variable; /* "" if none */
  const char *value;    /* JSON text: true, "flagos", ["cuda"], {"op": ["vendor"]}, null */
  const char *origin;   /* "VLLM_FL_PREFER", "/etc/policy.yaml:3", "built-in", … */
  const char *doc;      /* one line */
} fl_setting;

/* All of them. */
typedef struct fl_settings {
  uint32_t size; /* sizeof(fl_settings) of the library */
  uint32_t n, item_size;
  const void *items; /* fl_setting_at */
} fl_settings;

/* Item i of the list; NULL: there are fewer. */
static inline const fl_setting *fl_setting_at(const fl_settings *list, uint32_t i) {
  return (const fl_setting *)fl_item_at(list->items, list->n, list->item_size, i);
}

/* Every setting in force and where it comes from. The caller frees it. */
FL_API fl_status fl_get_settings(fl_host *host, fl_settings **settings);
FL_API void fl_settings_free(fl_settings *settings);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_SETTINGS_H */
