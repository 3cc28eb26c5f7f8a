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

/* Several of them. */
typedef struct fl_settings {
  const fl_setting *settings;
  uint32_t n;
} fl_settings;

/* Every setting in force and where it comes from. The caller frees it. */
FL_API fl_status fl_get_settings(fl_host *host, fl_settings **settings);
FL_API void fl_settings_free(fl_settings *settings);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_SETTINGS_H */
