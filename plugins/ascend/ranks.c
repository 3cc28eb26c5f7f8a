/* This rank's part of what ranks make together: the host makes the rest (fl_op_def.ranks). */
#include "plugins/ascend/ops.h"

enum { X, OUT };

static bool supports(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  for (uint32_t i = X; i <= OUT; i++)
    if (!ascend_is_compact(call->values[i].v.tensor))
      return ascend_refuse(reason, "tensors with strides");
  return true;
}

/* tensor_model_parallel_all_reduce(x) -> out: x, which the host adds the other ranks' to. */
static void run_all_reduce(ascend_call *c) {
  ascend_copy(c, ascend_argument(c, OUT), ascend_argument(c, X));
}

static ascend_op ops[] = {
    {.name = "tensor_model_parallel_all_reduce",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_ALL,
     .run = run_all_reduce,
     .supports = supports},
};
OP_LIST(ops);
