/* What a plugin may register: see allowance.h. */
#include "core/registry/allowance.h"

#include "core/registry/stage.h"
#include "core/support.h"

#include <string.h>

const char *const fl_row_kind_names[FL_N_ROW_KINDS] = {
    "flagos", "vendor",       "reference",         "platform",
    "layer",  "communicator", "attention_backend", "mla_attention_backend",
    "worker", "model_runner"};

bool fl_is_class_path(const char *type) {
  uint32_t i = FL_FIRST_CLASS_PATH;
  while (i < FL_N_ROW_KINDS && (!type || strcmp(fl_row_kind_names[i], type) != 0))
    i++;
  return i < FL_N_ROW_KINDS;
}

void fl_stage_allow(fl_stage *stage, const fl_allowance *allowance) {
  if (stage->n_allowed < FL_ALLOWANCES_MAX)
    stage->allowed[stage->n_allowed++] = allowance;
}

fl_status fl_check_op_allowed(const fl_stage *stage, const char *op) {
  for (uint32_t i = 0; i < stage->n_allowed; i++) {
    const fl_allowance *allowed = stage->allowed[i];
    if (allowed->ops && !fl_ops_list(allowed->ops, strlen(allowed->ops), op, strlen(op)))
      return fl_error(FL_EINVAL, "plugins.lock '%s' does not allow it the op '%s'; its ops there are: %.256s",
                      allowed->by, op, *allowed->ops ? allowed->ops : "none");
  }
  return FL_OK;
}

static fl_status check_bit(const fl_stage *stage, uint32_t bit) {
  for (uint32_t i = 0; i < stage->n_allowed; i++)
    if (!(stage->allowed[i]->kinds & 1u << bit))
      return fl_error(FL_EINVAL, "plugins.lock '%s' does not allow it the kind '%s'", stage->allowed[i]->by,
                      fl_row_kind_names[bit]);
  return FL_OK;
}

fl_status fl_check_kind_allowed(const fl_stage *stage, int32_t kind) {
  return check_bit(stage, (uint32_t)(kind - FL_KIND_DEFAULT));
}

fl_status fl_check_component_allowed(const fl_stage *stage, const char *type) {
  uint32_t bit = 0;
  while (bit < FL_N_ROW_KINDS - 1 && strcmp(fl_row_kind_names[bit], type) != 0)
    bit++;
  return check_bit(stage, bit);
}
