/* This rank's part of what ranks make together: the host makes the rest (fl_op_def.ranks). */
#include "plugins/ascend/ops.h"

enum { X, OUT };

/* tensor_model_parallel_all_reduce(x) -> out: x, which the host adds the other ranks' to. */
static void run_all_reduce(ascend_call *c) {
  ACLNN(c, InplaceCopy, ascend_tensor(c, ascend_argument(c, OUT)), ascend_tensor(c, ascend_argument(c, X)));
}

static ascend_op ops[] = {
    {.name = "tensor_model_parallel_all_reduce",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_ALL,
     .run = run_all_reduce,
     .needs = {ACLNN_InplaceCopy}},
};
OP_LIST(ops);
