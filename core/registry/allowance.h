/* What whoever runs the machine allows a plugin to register. */
#ifndef FLHOST_CORE_REGISTRY_ALLOWANCE_H
#define FLHOST_CORE_REGISTRY_ALLOWANCE_H

#include "core/registry/registration.h"

/* Kinds of rows, in the order of their bits: implementations by their kind, components by their type. */
enum {
  FL_FIRST_COMPONENT = 3,  /* before these kinds of implementations */
  FL_FIRST_CLASS_PATH = 6, /* from here on components that are paths of classes */
  FL_N_ROW_KINDS = 10,
  FL_N_COMPONENT_TYPES = FL_N_ROW_KINDS - FL_FIRST_COMPONENT,
  FL_N_CLASS_PATHS = FL_N_ROW_KINDS - FL_FIRST_CLASS_PATH,
  FL_ALL_ROW_KINDS = (1 << FL_N_ROW_KINDS) - 1
};
extern const char *const fl_row_kind_names[FL_N_ROW_KINDS];

/* Is a component of that type the path of a class? NULL is none. */
bool fl_is_class_path(const char *type);

typedef struct fl_allowance {
  const char *ops; /* "op_a,op_b"; NULL: all */
  uint32_t kinds;  /* bits 1 << place in fl_row_kind_names */
  const char *by;  /* the file that says so, for messages */
} fl_allowance;

/* From now on rows of other ops or kinds are refused. For FL_ALLOWANCES_MAX at most; borrowed. */
enum { FL_ALLOWANCES_MAX = 2 };
void fl_stage_allow(fl_stage *stage, const fl_allowance *allowance);

/* FL_EINVAL, with words: it is not allowed. */
fl_status fl_check_op_allowed(const fl_stage *stage, const char *op);
fl_status fl_check_kind_allowed(const fl_stage *stage, int32_t kind);
fl_status fl_check_component_allowed(const fl_stage *stage, const char *type);

#endif
