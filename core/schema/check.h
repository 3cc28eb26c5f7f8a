/* Checking a call against an op's schema, and what follows for its results. Reads no tensor data. */
#ifndef FLHOST_CORE_SCHEMA_CHECK_H
#define FLHOST_CORE_SCHEMA_CHECK_H

#include "core/schema/match.h"

/*
 * Checks a call: number and types of values, none only where optional, ranks, shapes and dtypes by the rules,
 * contiguous last dimension, all tensors on one device, an output that overlaps an argument only where the schema lets
 * it be that very tensor, the entry's own check. FL_EINVAL, message: "rms_norm: argument 'weight': shape [4], expected
 * [8] (H of 'x')". Reads no tensor data.
 */
fl_status fl_schema_check(const fl_schema *schema, const fl_call *call);

/* fl_infer's work: checks the arguments (results in the call, if any, are not looked at) and fills one spec a result.
 */
fl_status fl_schema_infer(const fl_schema *schema, const fl_call *call, fl_tensor_spec *results, uint32_t n_results);

/* fl_schema_infer with what it learns: *bindings, and a spec for each result of the schema. */
fl_status fl_schema_bind(const fl_schema *schema, const fl_call *call, fl_bindings *bindings, fl_tensor_spec *specs);

#endif
