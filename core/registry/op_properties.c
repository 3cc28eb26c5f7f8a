/* What an op says of itself: a public view of its schema. */
#include "core/cases.h"
#include "core/registry/in_force.h"
#include "core/registry/registry.h"
#include "core/schema.h"
#include "core/support.h"

const char *fl_op_name(const fl_op *op) {
  return op->name;
}

/* An op whose handle was given out before anybody looked for it is looked for now. */
static const fl_schema *schema_of(const fl_op *op) {
  static const fl_schema none = {.text = "",
                                 .rules = "",
                                 .category = "",
                                 .doc = "",
                                 .formula = "",
                                 .bytes = "",
                                 .flops = "",
                                 .parts = "",
                                 .ranks = ""};
  return fl_registry_open(op) ? &none : op->schema;
}

const char *fl_op_schema(const fl_op *op) {
  return schema_of(op)->text;
}

const char *fl_op_rules(const fl_op *op) {
  return schema_of(op)->rules;
}

const char *fl_op_category(const fl_op *op) {
  return schema_of(op)->category;
}

const char *fl_op_doc(const fl_op *op) {
  return schema_of(op)->doc;
}

const char *fl_op_formula(const fl_op *op) {
  return schema_of(op)->formula;
}

const char *fl_op_bytes(const fl_op *op) {
  return schema_of(op)->bytes;
}

const char *fl_op_flops(const fl_op *op) {
  return schema_of(op)->flops;
}

const char *fl_op_parts(const fl_op *op) {
  return schema_of(op)->parts;
}

const char *fl_op_ranks(const fl_op *op) {
  return schema_of(op)->ranks;
}

uint32_t fl_op_argument_count(const fl_op *op) {
  return schema_of(op)->n_arguments;
}

uint32_t fl_op_result_count(const fl_op *op) {
  return schema_of(op)->n_results;
}

const fl_argument *fl_op_argument(const fl_op *op, uint32_t index) {
  const fl_schema *schema = schema_of(op);
  return index < schema->n_arguments + schema->n_results ? &schema->values[index] : NULL;
}

void fl_op_tolerance(const fl_op *op, DLDataType dtype, double *atol, double *rtol) {
  fl_tolerance tolerance = fl_schema_tolerance(schema_of(op), dtype);
  *atol = tolerance.atol;
  *rtol = tolerance.rtol;
}

fl_status fl_op_cost(const fl_op *op, const fl_call *call, fl_cost *cost) {
  fl_bindings bindings;
  fl_tensor_spec results[FL_SCHEMA_MAX_RESULTS];
  fl_call shared;
  fl_cost found = {.size = sizeof found};
  fl_status status = fl_sized_check(cost, offsetof(fl_cost, flops), "fl_op_cost: the cost's", "fl_cost");
  if (!status)
    status = fl_registry_open_for(op, "fl_op_cost");
  if (!status)
    status = fl_schema_bind(op->schema, call = fl_call_with_ranks(op, call, &shared), &bindings, results);
  if (!status)
    status = fl_cost_evaluate(op->schema, call, &bindings, results, &found);
  if (!status)
    fl_sized_give(cost, &found, sizeof found);
  return status;
}

fl_status fl_check(const fl_op *op, const fl_call *call) {
  fl_call shared;
  fl_status status = fl_registry_open_for(op, "fl_check");
  return status ? status : fl_schema_check(op->schema, fl_call_with_ranks(op, call, &shared));
}

fl_status fl_generate_inputs(const fl_op *op, uint32_t dtype, uint64_t seed, uint64_t number, fl_input *inputs,
                             uint32_t n_inputs, size_t input_size) {
  return fl_generate_sized_inputs(op, dtype, NULL, seed, number, inputs, n_inputs, input_size);
}

fl_status fl_generate_sized_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint64_t seed, uint64_t number,
                                   fl_input *inputs, uint32_t n_inputs, size_t input_size) {
  fl_status status = fl_registry_open_for(op, "fl_generate_inputs");
  return status ? status
                : fl_schema_generate_inputs(op->schema, dtype, sizes, seed, number, inputs, n_inputs, input_size);
}

fl_status fl_free_dimension(const fl_op *op, uint32_t index, fl_dimension *dimension) {
  fl_status status =
      fl_sized_check(dimension, offsetof(fl_dimension, step), "fl_free_dimension: the dimension's", "fl_dimension");
  if (!status)
    status = fl_registry_open_for(op, "fl_free_dimension");
  return status ? status : fl_schema_free_dimension(op->schema, index, dimension);
}

fl_status fl_generate_bench_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint32_t number,
                                   fl_input *inputs, uint32_t n_inputs, size_t input_size, uint32_t *n_calls) {
  fl_status status = fl_registry_open_for(op, "fl_generate_bench_inputs");
  return status
             ? status
             : fl_schema_generate_bench_inputs(op->schema, dtype, sizes, number, inputs, n_inputs, input_size, n_calls);
}
