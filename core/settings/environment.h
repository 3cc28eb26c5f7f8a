/* Where settings come from: the environment, the engine's options, and what is read of both before all else. */
#ifndef FLHOST_CORE_SETTINGS_ENVIRONMENT_H
#define FLHOST_CORE_SETTINGS_ENVIRONMENT_H

#include "core/settings/setting_table.h"

/* Borrowed. */
typedef struct fl_config_sources {
  const char *const *environment; /* NULL: the process's, and none in a set-uid program */
  const char *config_file, *config_dir, *platform, *plugin_path, *plugin_modules; /* options of the engine, or NULL */
  const char *default_config_dir;                                                 /* installed platform files */
  /* The platform that a word in lower case names or is an alias of, NULL if it is none that is known; it lives as long
   * as the sources. Asked anew each time: platforms may come to be known. NULL: every word is taken as it is. */
  const char *(*find_platform)(const void *context, const char *word);
  const void *platform_context;
  bool set_uid; /* ignore the process's environment, as in a set-uid program (where that is so anyway) */
  bool reload;  /* not the first time: what concerns names, not values, was said before */
} fl_config_sources;

/* A variable's value; NULL when unset or empty (C4). */
const char *fl_config_getenv(const fl_config_sources *sources, const char *name);

/* VLLM_FL_LOG_LEVEL, needed before all else; FL_LOG_INFO when unset or invalid (which fl_config_load reports). */
int fl_config_log_level(const fl_config_sources *sources);

/* VLLM_FL_PROBE, needed before the settings are read; FL_PROBE_NEW when unset or invalid (which fl_config_load
 * reports).
 */
typedef enum fl_probe_mode { FL_PROBE_OFF, FL_PROBE_NEW, FL_PROBE_ALWAYS } fl_probe_mode;
fl_probe_mode fl_config_probe(const fl_config_sources *sources);

/* The platform that options or VLLM_FL_PLATFORM force, as find_platform names it, NULL if none ("auto" too). An unknown
 * name is returned as it is: a plugin may bring that platform. *origin says which. */
const char *fl_config_forced_platform(const fl_config_sources *sources, const char **origin);

/* What VLLM_FL_PLUGIN_PATH (colons) and VLLM_FL_PLUGIN_MODULES (commas), or the options in their place, list. *has_path
 * is false when the default directories apply. false: out of memory. */
bool fl_config_plugins(const fl_config_sources *sources, bool *has_path, fl_strings *path, fl_strings *modules);

/* The variable or option that sets a row, with its text; NULL when neither does. */
const char *fl_sources_text(const fl_config_sources *sources, const fl_setting_row *row, const char **source);

/* C2: says once which VLLM_FL_ variables are none, and that a set-uid program ignores all of them. */
void fl_sources_report(const fl_config_sources *sources, fl_problems *problems);

#endif
