/* Calls that are made up from the cases of a schema. */
#ifndef FLHOST_CORE_CASES_CALLS_H
#define FLHOST_CORE_CASES_CALLS_H

#include "core/schema.h"

/* fl_generate_inputs and fl_generate_bench_inputs of the op that has the schema. */
fl_status fl_schema_generate_inputs(const fl_schema *schema, uint32_t dtype, uint64_t seed, uint64_t number,
                                    fl_input *inputs, uint32_t n_inputs, size_t input_size);
fl_status fl_schema_generate_bench_inputs(const fl_schema *schema, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls);

#endif
