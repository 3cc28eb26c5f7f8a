/*
 * The table of settings (section 6 of the rules): one row says variable, YAML key, type, built-in value and what it is
 * for, and everything that reads, checks or lists settings goes through it.
 */
#ifndef FLHOST_CORE_SETTINGS_SETTING_TABLE_H
#define FLHOST_CORE_SETTINGS_SETTING_TABLE_H

#include "core/settings/setting_types.h"

/* Rows of the table, in its order. */
typedef enum fl_setting_id {
  FL_SETTING_PREFER_ENABLED,
  FL_SETTING_CONFIG,
  FL_SETTING_PLATFORM,
  FL_SETTING_PREFER,
  FL_SETTING_STRICT,
  FL_SETTING_HOST_FALLBACK,
  FL_SETTING_OP_BACKENDS,
  FL_SETTING_ALLOW_VENDORS,
  FL_SETTING_DENY_VENDORS,
  FL_SETTING_USE_FLAGGEMS,
  FL_SETTING_FLAGOS_WHITELIST,
  FL_SETTING_FLAGOS_BLACKLIST,
  FL_SETTING_FLAGOS_BLACKLIST_APPEND,
  FL_SETTING_OOT_ENABLED,
  FL_SETTING_OOT_WHITELIST,
  FL_SETTING_OOT_BLACKLIST,
  FL_SETTING_LOG_LEVEL,
  FL_SETTING_DISPATCH_DEBUG,
  FL_SETTING_SYNCHRONIZE,
  FL_SETTING_STATISTICS,
  FL_SETTING_PLUGIN_MODULES,
  FL_SETTING_PROBE,
  FL_SETTING_CHECK,
  FL_SETTING_CUSTOM_OPS,
  FL_SETTING_CONFIG_DIR,
  FL_SETTING_PLUGIN_PATH,
  FL_SETTING_PLUGINS_LOCK,
  FL_SETTING_OP_CONFIG,
  FL_SETTING_CPU_ISA,
  FL_SETTING_CPU_THREADS,
  FL_SETTING_COMMUNICATOR,
  FL_SETTING_COMM_TIMEOUT,
  FL_SETTING_COMM_CHECK,
  FL_SETTING_FLAGCX_PATH,
  FL_SETTING_OPLIST_PATH,
  FL_SETTING_PRESERVE_INPUTS,
  FL_SETTING_RETRY_FIRST,
  FL_SETTING_RETRY_MAX,
  FL_SETTING_GUARD,
  FL_SETTING_CANARY,
  FL_SETTING_EVIDENCE,
  FL_SETTING_PREPARE_WEIGHTS,
  FL_N_SETTINGS
} fl_setting_id;

extern const fl_setting_row fl_setting_table[FL_N_SETTINGS];

/* The row's name: its YAML key, or the variable where there is none. */
const char *fl_setting_name(const fl_setting_row *row);

/* The row with that key, or variable; NULL if none. */
const fl_setting_row *fl_setting_find(const char *name, bool is_key);

/* Nearest known key, or variable; NULL if none is near. */
const char *fl_setting_nearest(const char *name, bool is_key);

/* Why flhost has no such variable or key although the peer has; NULL for other names. */
const char *fl_setting_foreign(const char *name);

/* Reads a variable or option: true when it gives a value, which replaces *value. Empty text is unset (C4). */
bool fl_setting_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                          fl_setting_value *value);

/* Reads every key of a file into the values of its rows, and reports keys that are none. */
void fl_settings_from_yaml(fl_problems *problems, fl_yaml *yaml, fl_setting_value values[FL_N_SETTINGS]);

/* Gives every row without a value its built-in one. */
void fl_settings_add_builtin(fl_problems *problems, fl_setting_value values[FL_N_SETTINGS]);

#endif
