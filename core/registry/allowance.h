/* What whoever runs the machine allows a plugin to register. */
#ifndef FLHOST_CORE_REGISTRY_ALLOWANCE_H
#define FLHOST_CORE_REGISTRY_ALLOWANCE_H

#include "core/registry/registration.h"

/* Kinds of rows, in the order of their bits: implementations by their kind, components by their type. */
enum { FL_N_ROW_KINDS = 6, FL_ALL_ROW_KINDS = (1 << FL_N_ROW_KINDS) - 1 };
extern const char *const fl_row_kind_names[FL_N_ROW_KINDS];

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
