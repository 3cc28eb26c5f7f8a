/* What ranks make together and nothing else: collectives as ops, alone and with what follows them in a layer. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

const fl_op_def fl_op_tensor_model_parallel_all_reduce = {
    .size = sizeof(fl_op_def),
    .schema = "tensor_model_parallel_all_reduce(Tensor x) -> Tensor out",
    .rules = "x: T[..., h]; out: T[..., h]; T = float32|float16|bfloat16",
    .ranks = "tp: out = all_reduce(out)",
    .category = "ranks",
    .doc = "The sum of all ranks' x; x itself without a group.",
    .formula = "out = sum over the ranks of x (vLLM: tensor_model_parallel_all_reduce)",
    .cases = "h: 1 7 64 513",
    .flops = "0",
    .bench = "...: [1] [128] [4096]; h: 4096",
};

static fl_status check_all_reduce_fused_add_rms_norm(fl_call *call) {
  enum { X, X_RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  return status ? status : fl_check_variance_size(call, VARIANCE_SIZE, call->values[X].v.tensor);
}

/* That of fused_add_rms_norm. */
static const fl_tolerance tolerance[] = {{FL_FLOAT16, 1e-2, 2e-3}, {0}};

const fl_op_def fl_op_all_reduce_fused_add_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "all_reduce_fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, "
              "int? variance_size=None) -> (Tensor(a) out, Tensor(b) residual_out)",
    .rules = "x: T[..., H]; x_residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .ranks = "tp:",
    .category = "ranks",
    .doc = "The sum of all ranks' x and x_residual, normalised by its root mean square: the end of a layer that ranks "
           "share, and the beginning of the next.",
    .parts = "y = tensor_model_parallel_all_reduce(x); out, residual_out = fused_add_rms_norm(y, x_residual, weight, "
             "epsilon, variance_size)",
    .formula = "out, residual_out = fused_add_rms_norm(tensor_model_parallel_all_reduce(x), x_residual, weight, "
               "epsilon, variance_size) "
               "(vLLM: pattern "
               "AllReduceFusedAddRMSNorm)",
    .tolerance = tolerance,
    .check = check_all_reduce_fused_add_rms_norm,
    .cases = "H: 1 8 33 769; epsilon: 1e-6 1e-5; variance_size: none 7",
    .flops = "(4 + given(weight))*numel(x)",
    .bench = "...: [1] [128] [4096]; H: 4096; weight: 0.5..2",
};
