/* How each type of setting is read, from a variable and from a file, and printed. */
#ifndef FLHOST_CORE_SETTINGS_SETTING_TYPES_H
#define FLHOST_CORE_SETTINGS_SETTING_TYPES_H

#include "core/settings/orders.h"
#include "core/settings/yaml.h"

/* A value; which member counts is the type's affair. */
typedef struct fl_setting_value {
  bool set; /* false: no source has it, the built-in value holds */
  bool flag;
  double seconds;
  uint32_t number;
  char *word;
  fl_strings names;
  fl_orders orders;
  char *origin; /* "VLLM_FL_PREFER", "policy.yaml:3", "built-in" */
} fl_setting_value;

/* What is to be read: the text of a variable or option, or a node of a file. */
typedef struct fl_setting_source {
  fl_place place;
  const char *text; /* without white space around; NULL: the node is a list or a mapping */
  fl_yaml *yaml;
  const fl_yaml_node *node; /* NULL: of a variable */
} fl_setting_source;

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

typedef struct fl_setting_type {
  const char *name; /* in the manual */
  /* True when it gives a value; a problem was reported if not, or for the part that is left out. */
  bool (*read)(fl_problems *problems, const struct fl_setting_row *row, const fl_setting_source *source,
               fl_setting_value *value);
  void (*to_json)(const struct fl_setting_row *row, const fl_setting_value *value, fl_text *json);
} fl_setting_type;

/* A row of the table of settings. The manual's tables are made of it, too. */
typedef struct fl_setting_row {
  const char *variable; /* "" if none */
  const char *key;      /* YAML key or NULL */
  const fl_setting_type *type;
  const char *const *words; /* of a word: what is allowed, ended by NULL; NULL: anything */
  const char *expects;      /* what kind of words or names, in the manual; NULL: `words`, or the type's name */
  const char *builtin;      /* as one would write it in the variable; NULL: none */
  const char *unset;        /* what "none" means, in the manual; NULL: that */
  char separator;           /* of a list in a variable */
  uint32_t flags;
  const char *doc; /* one line; a word with an underscore in it is a name */
} fl_setting_row;

extern const fl_setting_type fl_type_bool, fl_type_word, fl_type_names, fl_type_custom_ops, fl_type_orders,
    fl_type_seconds, fl_type_number;

void fl_setting_value_free(fl_setting_value *value);

#endif
