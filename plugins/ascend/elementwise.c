/* Elementwise ops of two tensors. */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, OTHER, OUT };
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

static void run_add(ascend_call *c) {
  ascend_add(c, ascend_argument(c, X), ascend_argument(c, OTHER), ascend_argument(c, OUT));
}

static void run_sigmoid_mul(ascend_call *c) {
  ascend_view gate = ascend_argument(c, OTHER), factor = ascend_scratch_like(c, &gate, gate.type);
  ACLNN(c, Sigmoid, ascend_tensor(c, gate), ascend_tensor(c, factor));
  ascend_mul(c, ascend_argument(c, X), factor, ascend_argument(c, OUT));
}

static ascend_op ops[] = {
    {.name = "add", .dtypes = FLOATS, .chips = ASCEND_TRAINING, .run = run_add, .needs = {ACLNN_Add, ACLNN_InplaceAdd}},
    {.name = "sigmoid_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_sigmoid_mul,
     .needs = {ACLNN_Sigmoid, ACLNN_Mul, ACLNN_InplaceMul}},
};
OP_LIST(ops);
