/* Elementwise ops of several tensors. */
#include "core/ops/entries.h"

const fl_op_def fl_op_add = {
    .size = sizeof(fl_op_def),
    .schema = "add(Tensor(a!) x, Tensor y) -> Tensor(a) out",
    .rules = "x: T[..., d]; y: T[..., d]; T = float32|float16|bfloat16",
    .category = "elementwise",
    .doc = "The sum of two tensors of one shape.",
    .formula = "out = x + y, rounded once (residual connections of vLLM's models)",
    .cases = "d: 1 8 33 769 2048",
    .flops = "numel(x)",
    .bench = "...: [1] [128] [4096]; d: 4096",
};
