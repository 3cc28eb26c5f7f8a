/*
 * Settings: what is in force, and where each value comes from (rules C and L of the manual). One table in settings.c
 * lists every variable and YAML key; nothing else reads the environment.
 */
#ifndef FLHOST_CORE_SETTINGS_CONFIG_H
#define FLHOST_CORE_SETTINGS_CONFIG_H

#include "core/support.h"
#include <flhost/flhost.h>

/* Where settings come from. Borrowed. */
typedef struct fl_config_sources {
  const char *const *environment; /* NULL: the process's, and none in a set-uid program */
  const char *config_file, *config_dir, *platform, *plugin_path, *plugin_modules; /* options of the engine, or NULL */
  const char *default_config_dir;                                                 /* installed platform files */
  bool set_uid; /* ignore the process's environment, as in a set-uid program (where that is so anyway) */
  bool reload;  /* not the first time: what concerns names, not values, was said before */
} fl_config_sources;

/* A variable's value; NULL when unset or empty (C4). */
const char *fl_config_getenv(const fl_config_sources *sources, const char *name);

/* VLLM_FL_LOG_LEVEL, needed before all else; FL_LOG_INFO when unset or invalid (which fl_config_load reports). */
int fl_config_log_level(const fl_config_sources *sources);

/* The platform that options or VLLM_FL_PLATFORM force, as its canonical name, NULL if none ("auto" too). An unknown
 * name is returned as it is: a plugin may bring that platform. *origin says which. */
const char *fl_config_forced_platform(const fl_config_sources *sources, const char **origin);

/* What VLLM_FL_PLUGIN_PATH (colons) and VLLM_FL_PLUGIN_MODULES (commas), or the options in their place, list. *has_path
 * is false when the default directories apply. false: out of memory. */
bool fl_config_plugins(const fl_config_sources *sources, bool *has_path, fl_strings *path, fl_strings *modules);

/* A list setting that may be absent, with its origin. */
typedef struct fl_config_list {
  bool set;
  fl_strings names;
  char *origin; /* "VLLM_FL_FLAGOS_BLACKLIST", "policy.yaml:7", …; "built-in" when not set */
} fl_config_list;

/* Settings in force. Immutable once loaded. */
typedef struct fl_config {
  fl_policy *policy;
  fl_check_mode check;   /* VLLM_FL_CHECK */
  bool dispatch_enabled; /* VLLM_FL_PREFER_ENABLED */
  bool use_flaggems;     /* USE_FLAGGEMS */
  fl_config_list flagos_whitelist, flagos_blacklist;
  bool oot_enabled; /* with VLLM_FL_PREFER_ENABLED taken in */
  fl_config_list oot_whitelist, oot_blacklist;
  bool custom_ops_default;                  /* true: all, false: none */
  fl_strings custom_ops_on, custom_ops_off; /* +op, -op */
  int log_level;
  bool dispatch_debug;
  bool synchronize;              /* calls wait for the device */
  char *oplist_path;             /* FLAGGEMS_ENABLE_OPLIST_PATH or NULL */
  double retry_first, retry_max; /* seconds; first 0 = never */
  char *platform_file;           /* the platform file that was read, or NULL */
  char *config_dir;              /* where platform files are looked for */
  fl_setting *settings;          /* all, in the order of the manual's table; values as JSON text */
  uint32_t n_settings;
  struct fl_config_op_origin {
    char *op, *origin;
  } * op_origins; /* where each per-op order comes from */
  uint32_t n_op_origins;
} fl_config;

/*
 * Reads every setting. `platform` is the active platform's name. Warnings and (VLLM_FL_CHECK=warn) invalid settings go
 * to `log`; FL_ECONFIG with place, what was found, what is allowed and the nearest word for the first invalid one, and
 * all of them in the message, one a line.
 */
fl_status fl_config_load(const fl_config_sources *sources, const char *platform, fl_log *log, fl_config **config);
void fl_config_free(fl_config *config);

/* Origin of a setting by its name (YAML key or variable): "VLLM_FL_PREFER", "file:3", "built-in". */
const char *fl_config_origin(const fl_config *config, const char *name);
/* Origin of an op's own order, NULL if it has none. */
const char *fl_config_op_origin(const fl_config *config, const char *op);

/* L1–L3: may the op use kind default? If not, *reason (into a buffer of the caller) names the list. */
bool fl_config_flagos_allowed(const fl_config *config, const char *op, char *reason, size_t size);
bool fl_config_oot_allowed(const fl_config *config, const char *layer);
/* custom_ops: is the op enabled (else it runs its reference)? */
bool fl_config_op_enabled(const fl_config *config, const char *op);

#endif
