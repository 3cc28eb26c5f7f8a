/*
 * The table of settings (section 6 of the rules): one row says variable, YAML key, type, built-in value and what it is
 * for, and everything that reads, checks or lists settings goes through it.
 */
#ifndef FLHOST_CORE_SETTINGS_SETTINGS_H
#define FLHOST_CORE_SETTINGS_SETTINGS_H

#include "core/settings/yaml.h"
#include "core/support.h"

/* Rows of the table, in its order. */
typedef enum fl_setting_id {
  FL_SETTING_PREFER_ENABLED,
  FL_SETTING_CONFIG,
  FL_SETTING_PLATFORM,
  FL_SETTING_PREFER,
  FL_SETTING_STRICT,
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
  FL_SETTING_PLUGIN_MODULES,
  FL_SETTING_CHECK,
  FL_SETTING_CUSTOM_OPS,
  FL_SETTING_CONFIG_DIR,
  FL_SETTING_PLUGIN_PATH,
  FL_SETTING_OP_CONFIG,
  FL_SETTING_FLAGCX_PATH,
  FL_SETTING_OPLIST_PATH,
  FL_SETTING_PRESERVE_INPUTS,
  FL_SETTING_RETRY_FIRST,
  FL_SETTING_RETRY_MAX,
  FL_N_SETTINGS
} fl_setting_id;

/* The order of one op, and where it stands. */
typedef struct fl_order {
  char *op, *origin;
  fl_strings tokens;
  unsigned line, column;
  uint32_t rank; /* of several for one op, the last counts */
  bool absent;   /* the op stands there without an order; gone once finished */
} fl_order;

typedef struct fl_orders {
  fl_order *items; /* once finished: sorted by op, one for each */
  uint32_t n, capacity;
} fl_orders;

/* A value; which member counts is the type's affair. */
typedef struct fl_setting_value {
  bool set; /* false: no source has it, the built-in value holds */
  bool flag;
  double seconds;
  char *word;
  fl_strings names;
  fl_orders orders;
  char *origin;
} fl_setting_value;

enum {
  FL_SETTING_BLANK_COUNTS = 1 << 0, /* a variable of white space only is read (an empty list, no boolean), not unset */
  FL_SETTING_PEER_DIGITS = 1 << 1,  /* the peer takes no other boolean than 1 and 0 in the variable */
  FL_SETTING_EMPTY_IS_ALL = 1 << 2, /* an empty list lifts the restriction */
  FL_SETTING_NONE_IS_NULL = 1 << 3, /* a list that is not set prints as null, not as [] */
  FL_SETTING_FATAL = 1 << 4,        /* an invalid value is an error whatever VLLM_FL_CHECK says */
  FL_SETTING_OF_OPS = 1 << 5,       /* a source of op_backends: ignored beside a complete file, C1 */
  FL_SETTING_PLAIN_NAMES = 1 << 6   /* a list of names that hold no white space */
};

struct fl_setting_row;

/* How values of one kind are read and printed. from_…: true when it gives a value; a problem was reported if not. */
typedef struct fl_setting_type {
  bool (*from_text)(fl_problems *problems, const struct fl_setting_row *row, const char *source, const char *text,
                    fl_setting_value *value);
  bool (*from_yaml)(fl_problems *problems, const struct fl_setting_row *row, fl_yaml *yaml, const fl_yaml_node *node,
                    fl_setting_value *value);
  void (*to_json)(const struct fl_setting_row *row, const fl_setting_value *value, fl_text *json);
} fl_setting_type;

extern const fl_setting_type fl_type_bool, fl_type_word, fl_type_names, fl_type_custom_ops, fl_type_orders,
    fl_type_seconds;

typedef struct fl_setting_row {
  const char *variable; /* "" if none */
  const char *key;      /* YAML key or NULL */
  const fl_setting_type *type;
  const char *builtin;      /* as one would write it in the variable; NULL: none */
  const char *const *words; /* of a word: what is allowed, ended by NULL; NULL: anything */
  char separator;           /* of a list in a variable */
  uint32_t flags;
  const char *doc;
} fl_setting_row;

extern const fl_setting_row fl_setting_table[FL_N_SETTINGS];

/* The row's name: its YAML key, or the variable where there is none. */
const char *fl_setting_name(const fl_setting_row *row);

/* The row with that variable or key, NULL if none. */
const fl_setting_row *fl_setting_by_variable(const char *variable);
const fl_setting_row *fl_setting_by_key(const char *key);

/* Nearest known variable or key, NULL if none is near. */
const char *fl_setting_nearest_variable(const char *variable);
const char *fl_setting_nearest_key(const char *key);

/* Why flhost has no such variable or key although the peer has; NULL for other names. */
const char *fl_setting_foreign(const char *name);

/* Reads a variable or option: true when it gives a value, which replaces *value. Empty text is unset (C4). */
bool fl_setting_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                          fl_setting_value *value);

/* Reads every key of a file into the values of its rows, and reports keys that are none. */
void fl_settings_from_yaml(fl_problems *problems, fl_yaml *yaml, fl_setting_value values[FL_N_SETTINGS]);

/* Gives every row without a value its built-in one. */
void fl_settings_add_builtin(fl_problems *problems, fl_setting_value values[FL_N_SETTINGS]);

void fl_setting_add_json(const fl_setting_row *row, const fl_setting_value *value, fl_text *json);

void fl_setting_value_free(fl_setting_value *value);

/* Adds an order; the tokens become the order's, and are empty again. NULL: the op stands there without a usable order,
 * which takes an earlier one out of force, too. */
void fl_orders_add(fl_problems *problems, fl_orders *orders, const char *op, size_t length, fl_strings *tokens,
                   fl_place place);

/* Sorts by op and keeps the last order of each, if it is one. `file` is reported as naming an op twice, unless NULL. */
void fl_orders_finish(fl_problems *problems, fl_orders *orders, const char *file);
const fl_order *fl_orders_find(const fl_orders *orders, const char *op);
void fl_orders_free(fl_orders *orders);

#endif
