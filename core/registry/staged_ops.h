/* Ops and implementations that a plugin registers: judged (rules R1 and R2) and staged. */
#ifndef FLHOST_CORE_REGISTRY_STAGED_OPS_H
#define FLHOST_CORE_REGISTRY_STAGED_OPS_H

#include "core/registry/stage.h"

/* Stages a row. An error says what is wrong with it; *row, which has a value before, gets its name then. */
fl_status fl_stage_op(fl_stage *stage, const fl_op_def *given, fl_row_name *row);
fl_status fl_stage_impl(fl_stage *stage, const fl_impl *given, fl_row_name *row);

/* The op of that name that the plugin itself has staged, NULL if there is none. */
fl_op *fl_staged_op(const fl_stage *stage, const char *name);

/* The rest is asked again when the rows are published: the host's lock is held. FL_EEXIST: the op is known with another
 * schema; the registry has an implementation of that id (R2). */
fl_status fl_check_same_op(const fl_op *known, const fl_schema *schema);
fl_status fl_check_free_id(const fl_stage *stage, fl_op *op, const char *impl_id);

/* The name that a schema begins with; it need not be parsed for that. */
void fl_name_of_schema(const char *schema, char name[FL_NAME_MAX + 1]);

/* Frees what is staged still. */
void fl_staged_ops_free(fl_stage *stage);

#endif
