/* What a call costs: the counts of bytes and operations in an op's entry (fl_op_def.bytes, flops). */
#ifndef FLHOST_CORE_CASES_COST_H
#define FLHOST_CORE_CASES_COST_H

#include "core/schema.h"

/* Can the texts be read, after the rules? FL_EINVAL with the place, what was found and what is expected. */
fl_status fl_cost_check(const fl_schema *schema);

/* The counts of a call, of which fl_schema_bind has told the rest. FL_EINVAL: they give no number. */
fl_status fl_cost_evaluate(const fl_schema *schema, const fl_call *call, const fl_bindings *bindings,
                           const fl_tensor_spec *results, fl_cost *cost);

#endif
