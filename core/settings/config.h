/* Settings in force: their values, where each comes from, and what they say of ops and layers (rules C and L). */
#ifndef FLHOST_CORE_SETTINGS_CONFIG_H
#define FLHOST_CORE_SETTINGS_CONFIG_H

#include "core/settings/environment.h"

/* Immutable once loaded. */
typedef struct fl_config {
  fl_policy *policy;
  fl_check_mode check; /* VLLM_FL_CHECK */
  int log_level;
  fl_setting_value values[FL_N_SETTINGS]; /* by their rows, each with its origin */
  char *platform_file;                    /* the platform file that was read, or NULL */
} fl_config;

/*
 * Reads every setting. `platform` is the active platform's name. Warnings and (VLLM_FL_CHECK=warn) invalid settings go
 * to `log`; FL_ECONFIG with place, what was found, what is allowed and the nearest word for the first invalid one, and
 * all of them in the message, one a line.
 */
fl_status fl_config_load(const fl_config_sources *sources, const char *platform, fl_log *log, fl_config **config);
void fl_config_free(fl_config *config);

/* Origin of a setting: "VLLM_FL_PREFER", "file:3", "built-in". */
const char *fl_config_origin(const fl_config *config, fl_setting_id id);
/* Origin of an op's own order, NULL if it has none. */
const char *fl_config_op_origin(const fl_config *config, const char *op);

/* L1–L3: may the op use kind default? If not, *reason (into a buffer of the caller) names the list. */
bool fl_config_flagos_allowed(const fl_config *config, const char *op, char *reason, size_t size);
/* The same for a layer that is to be replaced, which a list may have by any of its names (ended by NULL). */
bool fl_config_oot_allowed(const fl_config *config, const char *const *names, char *reason, size_t size);
/* custom_ops: is the op enabled (else it runs its reference)? */
bool fl_config_op_enabled(const fl_config *config, const char *op);

#endif
