/* Elementwise ops of two tensors. */
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

const fl_op_def fl_op_sigmoid_mul = {
    .size = sizeof(fl_op_def),
    .schema = "sigmoid_mul(Tensor(a!) x, Tensor gate) -> Tensor(a) out",
    .rules = "x: T[..., d]; gate: T[..., d] or T[..., 1]; T = float32|float16|bfloat16",
    .category = "elementwise",
    .doc =
        "A tensor times the logistic function of a gate, which has an element for each of the tensor's or one a row.",
    .formula =
        "out = x * s, s = 1 / (1 + exp(-gate)) rounded to T; rounded once more (vLLM: the gated attention and the "
        "shared expert of Qwen3-Next, x * sigmoid(gate))",
    .cases = "d: 1 8 33 769 2048",
    .flops = "numel(x) + 4*numel(gate)",
    .bench = "...: [1] [128] [4096]; d: 4096",
};
