/* Linear layers. Without a group each computes its local part, as if the world had one rank. */
#include "core/ops/entries.h"

#define FLOATS "; T = float32|float16|bfloat16"
#define RULES  "x: T[..., k]; weight: T[n, k]; bias: T[n]; out: T[..., n]" FLOATS
#define CASES  "k: 1 33 128; n: 1 17 256; x: moderate; weight: -0.2..0.2; bias: none -1..1"
#define FLOPS  "(2*k + given(bias)*(1 - skip_bias_add))*numel(out)"
/* The largest of Llama 3 8B. */
#define BENCH "...: [1] [128] [4096]; k: 4096; n: 14336"
#define FORMULA                                                                                                        \
  "out = x W^T + bias, weight stored as [n, k]; products and bias are added in float32 or better and rounded to T "    \
  "once; skip_bias_add leaves the bias to the caller "

const fl_op_def fl_op_replicated_linear = {
    .size = sizeof(fl_op_def),
    .schema = "replicated_linear(Tensor x, Tensor weight, Tensor? bias=None, bool skip_bias_add=False) -> Tensor out",
    .layers = "ReplicatedLinear,GateLinear",
    .rules = RULES,
    .category = "linear",
    .doc = "A linear layer whose whole weight every rank has.",
    .formula = FORMULA "(vLLM: ReplicatedLinear)",
    .cases = CASES,
    .flops = FLOPS,
    .bench = BENCH,
};

const fl_op_def fl_op_column_parallel_linear = {
    .size = sizeof(fl_op_def),
    .schema = "column_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool gather_output=False, "
              "bool skip_bias_add=False) -> Tensor out",
    .layers = "ColumnParallelLinear,MergedColumnParallelLinear,QKVParallelLinear,DeepSeekV2FusedQkvAProjLinear",
    .rules = "x: T[..., k]; weight: T[n, k]; bias: T[n]; out: T[..., n*ranks] when gather_output or T[..., n]" FLOATS,
    .ranks = "tp: out = all_gather(out, -1) if gather_output",
    .category = "linear",
    .doc = "A linear layer of which this rank has some outputs; gather_output joins those of all ranks.",
    .formula = FORMULA "(vLLM: ColumnParallelLinear)",
    .cases = CASES,
    .flops = FLOPS,
    .bench = BENCH,
};

/* The sum over ranks would add a bias once a rank. */
static fl_status check_row_parallel_linear(fl_call *call) {
  enum { X, WEIGHT, BIAS, INPUT_IS_PARALLEL, REDUCE_RESULTS, SKIP_BIAS_ADD };
  const fl_value *values = call->values;
  if (values[REDUCE_RESULTS].v.b || values[BIAS].type == FL_NONE || values[SKIP_BIAS_ADD].v.b)
    return FL_OK;
  return fl_fail(call, FL_EINVAL,
                 "argument 'bias': given, expected none or 'skip_bias_add': when not reduce the results, adding bias "
                 "to the results can lead to incorrect results");
}

const fl_op_def fl_op_row_parallel_linear = {
    .size = sizeof(fl_op_def),
    .schema = "row_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool input_is_parallel=True, "
              "bool reduce_results=True, bool skip_bias_add=False) -> Tensor out",
    .layers = "RowParallelLinear",
    .rules = "x: T[..., k*max(ranks*(1 - input_is_parallel), 1)]; weight: T[n, k]; bias: T[n]; out: T[..., n]" FLOATS,
    .ranks = "tp: x = part(x) if not input_is_parallel; bias = first(bias) if reduce_results; "
             "out = all_reduce(out) if reduce_results",
    .category = "linear",
    .doc = "A linear layer of which this rank has some inputs; reduce_results adds up the results of all ranks.",
    .formula = FORMULA "(vLLM: RowParallelLinear)",
    .check = check_row_parallel_linear,
    .cases = CASES,
    .flops = FLOPS,
    .bench = BENCH,
};
