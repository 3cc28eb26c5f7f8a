/* What an op says of itself: a public view of its schema. */
#include "core/cases.h"
#include "core/registry/registry.h"
#include "core/schema.h"
#include "core/support.h"

const char *fl_op_name(const fl_op *op) {
  return op->name;
}

const char *fl_op_schema(const fl_op *op) {
  return op->schema->text;
}

const char *fl_op_rules(const fl_op *op) {
  return op->schema->rules;
}

const char *fl_op_category(const fl_op *op) {
  return op->schema->category;
}

const char *fl_op_doc(const fl_op *op) {
  return op->schema->doc;
}

const char *fl_op_formula(const fl_op *op) {
  return op->schema->formula;
}

const char *fl_op_bytes(const fl_op *op) {
  return op->schema->bytes;
}

const char *fl_op_flops(const fl_op *op) {
  return op->schema->flops;
}

uint32_t fl_op_argument_count(const fl_op *op) {
  return op->schema->n_arguments;
}

uint32_t fl_op_result_count(const fl_op *op) {
  return op->schema->n_results;
}

const fl_argument *fl_op_argument(const fl_op *op, uint32_t index) {
  return index < op->schema->n_arguments + op->schema->n_results ? &op->schema->values[index] : NULL;
}

fl_tolerance fl_op_tolerance(const fl_op *op, DLDataType dtype) {
  return fl_schema_tolerance(op->schema, dtype);
}

fl_status fl_infer(const fl_op *op, const fl_call *call, fl_tensor_spec *results, uint32_t n_results) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_infer: the op is NULL");
  return fl_schema_infer(op->schema, call, results, n_results);
}

fl_status fl_op_cost(const fl_op *op, const fl_call *call, fl_cost *cost) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_op_cost: the op is NULL");
  if (!cost || cost->size < sizeof *cost)
    return fl_error(FL_EINVAL, "fl_op_cost: the cost has no size: set .size = sizeof(fl_cost)");
  fl_bindings bindings;
  fl_tensor_spec results[FL_SCHEMA_MAX_RESULTS];
  fl_status status = fl_schema_bind(op->schema, call, &bindings, results);
  return status ? status : fl_cost_evaluate(op->schema, call, &bindings, results, cost);
}

fl_status fl_check(const fl_op *op, const fl_call *call) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_check: the op is NULL");
  return fl_schema_check(op->schema, call);
}

fl_status fl_generate_inputs(const fl_op *op, uint32_t dtype, uint64_t seed, uint64_t number, fl_input *inputs,
                             uint32_t n_inputs) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_generate_inputs: the op is NULL");
  return fl_schema_generate_inputs(op->schema, dtype, seed, number, inputs, n_inputs);
}

fl_status fl_generate_bench_inputs(const fl_op *op, uint32_t dtype, const char *sizes, uint32_t number,
                                   fl_input *inputs, uint32_t n_inputs, uint32_t *n_calls) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_generate_bench_inputs: the op is NULL");
  return fl_schema_generate_bench_inputs(op->schema, dtype, sizes, number, inputs, n_inputs, n_calls);
}
