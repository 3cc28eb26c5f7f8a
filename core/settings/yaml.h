/*
 * YAML files with the place of every value, read as PyYAML's safe loader reads them (YAML 1.1: `no` is false), since
 * the policy files of the peer are read here unchanged. Nothing but yaml.c includes libyaml.
 */
#ifndef FLHOST_CORE_SETTINGS_YAML_H
#define FLHOST_CORE_SETTINGS_YAML_H

#include "core/support.h"

typedef struct fl_yaml fl_yaml;
typedef struct yaml_node_s fl_yaml_node;

typedef enum fl_yaml_kind {
  FL_YAML_NULL,
  FL_YAML_BOOL,
  FL_YAML_INT,
  FL_YAML_FLOAT,
  FL_YAML_STRING,
  FL_YAML_LIST,
  FL_YAML_MAP
} fl_yaml_kind;

/* Parses and checks. FL_ENOENT: no such file; FL_EINVAL: not a regular file; FL_ECONFIG: the message says what is
 * wrong, with path and, in the text, line and column. */
fl_status fl_yaml_load(const char *path, fl_yaml **yaml);

/* The two steps, for who wants to read on in what parses: until it is checked, keys may be anything. FL_ECONFIG where a
 * tag is not YAML's own for simple values, a value holds NUL, a key is no scalar or merges, a second document follows.
 */
fl_status fl_yaml_parse(const char *path, fl_yaml **yaml);
fl_status fl_yaml_check(fl_yaml *yaml);
void fl_yaml_free(fl_yaml *yaml);

/* NULL when the file is empty. Nodes belong to the file. */
const fl_yaml_node *fl_yaml_root(fl_yaml *yaml);

fl_place fl_yaml_place(const fl_yaml *yaml, const fl_yaml_node *node);
fl_yaml_kind fl_yaml_kind_of(const fl_yaml_node *node);
const char *fl_yaml_kind_name(fl_yaml_kind kind); /* "a list" */

/* What Python's bool() gives for the value. */
bool fl_yaml_truth(const fl_yaml_node *node);

/* A scalar as it is written, and as Python's str() gives the value (a bool: "True"). */
const char *fl_yaml_text(const fl_yaml_node *node);
const char *fl_yaml_string(const fl_yaml_node *node);

/* Number of items of a list, or of pairs of a map; 0 for a scalar. */
uint32_t fl_yaml_count(const fl_yaml_node *node);
const fl_yaml_node *fl_yaml_item(fl_yaml *yaml, const fl_yaml_node *list, uint32_t index);
/* Keys are scalars once the file is checked. */
const fl_yaml_node *fl_yaml_key(fl_yaml *yaml, const fl_yaml_node *map, uint32_t index);
const fl_yaml_node *fl_yaml_value(fl_yaml *yaml, const fl_yaml_node *map, uint32_t index);

#endif
