/* Calls that are made up from the cases of a schema. */
#ifndef FLHOST_CORE_CASES_CALLS_H
#define FLHOST_CORE_CASES_CALLS_H

#include "core/schema.h"

#include <flhost/testing.h>

/* fl_generate_sized_inputs, fl_generate_bench_inputs and fl_free_dimension of the op that has the schema. */
fl_status fl_schema_generate_inputs(const fl_schema *schema, uint32_t dtype, const char *sizes, uint64_t seed,
                                    uint64_t number, fl_input *inputs, uint32_t n_inputs, size_t input_size);
fl_status fl_schema_generate_bench_inputs(const fl_schema *schema, uint32_t dtype, const char *sizes, uint32_t number,
                                          fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls);
fl_status fl_schema_free_dimension(const fl_schema *schema, uint32_t index, fl_dimension *dimension);

#endif
