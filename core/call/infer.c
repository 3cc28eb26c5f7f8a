/* What the results of a call will be: for engines that make them. */
#include "core/call/checked_forms.h"
#include "core/registry.h"
#include "core/support.h"

/* A form that this thread called the op with before is only compared with that one. */
static bool is_known(const fl_op *op, const fl_call *call, fl_tensor_spec *specs) {
  return fl_self.kept && call && call->size == sizeof *call && call->values &&
         fl_checked_form_infer(fl_self.kept, op->schema, call, specs);
}

static fl_status infer(const fl_op *op, const fl_call *call, fl_tensor_spec *specs, uint32_t n_results) {
  fl_call shared;
  call = fl_call_with_ranks(op, call, &shared);
  return n_results <= op->schema->n_results && is_known(op, call, specs)
             ? FL_OK
             : fl_schema_infer(op->schema, call, specs, n_results);
}

fl_status fl_infer(const fl_op *op, const fl_call *call, fl_tensor_spec *results, uint32_t n_results,
                   size_t spec_size) {
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  if (n_results && spec_size < FL_FIRST_SPEC_SIZE)
    return fl_error(FL_EINVAL, "fl_infer: spec_size is %zu, expected sizeof(fl_tensor_spec), %zu", spec_size,
                    sizeof *specs);
  fl_status status = fl_registry_open_for(op, "fl_infer");
  if (!status)
    status = infer(op, call, specs, n_results);
  if (!status)
    fl_elements_give(results, spec_size, specs, sizeof *specs, n_results);
  return status;
}
