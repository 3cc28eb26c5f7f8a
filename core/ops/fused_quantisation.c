/* Normalisations and gated activations whose result is quantised at once. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#define FLOATS "T = float32|float16|bfloat16"
#define CODES  "; Q = float8_e4m3fn|int8 by quant_dtype"
#define NORM   "norm(v) = v / sqrt(mean(v^2) + epsilon), rounded to T, times weight, rounded to T; "
#define STATIC "q = e4m3(clamp(norm(s) * (1 / scale), -448, 448)), the reciprocal rounded to float32 "

#define HIDDEN "H: 1 8 33 769 2048; epsilon: 1e-6 1e-5 0; "
/* What is timed: rows and the MLP of Llama 3 8B. */
#define ROWS "...: [1] [128] [4096]; H: 4096; weight: 0.5..2"
#define WIDE "14336"

/* A step of e4m3, which a value next to the middle of two codes may be off by. */
#define ONE_CODE                                                                                                       \
  { FL_FLOAT8_E4M3FN, 0.002, 0.126 }
static const fl_tolerance one_code[] = {ONE_CODE, {0}};
/* Of the largest magnitude in a row, which may have been rounded to bfloat16 just before. */
static const fl_tolerance rounded_scale[] = {ONE_CODE, {FL_FLOAT32, 1e-9, 1.6e-2}, {0}};
static const fl_tolerance exact_scale[] = {ONE_CODE, {FL_FLOAT32, 1e-9, 2e-6}, {0}};

static fl_status check_rms_norm_static(fl_call *call) {
  enum { X, WEIGHT, SCALE, EPSILON };
  return fl_check_not_negative(call, EPSILON, "epsilon");
}

const fl_op_def fl_op_rms_norm_static_fp8_quant = {
    .size = sizeof(fl_op_def),
    .schema = "rms_norm_static_fp8_quant(Tensor x, Tensor weight, Tensor scale, float epsilon=1e-6) -> Tensor q",
    .rules = "x: T[..., H]; weight: T[H]; scale: float32[1] or float32[]; q: float8_e4m3fn[..., H]; " FLOATS,
    .category = "quantisation",
    .doc = "Root-mean-square normalisation, quantised to float8 e4m3fn with a given scale.",
    .parts = "y = rms_norm(x, weight=weight, epsilon=epsilon); q, _ = quant_fp8(y, scale=scale)",
    .formula = NORM "s = x; " STATIC "(vLLM: kernel rms_norm_static_fp8_quant; quant_fp8 of rms_norm)",
    .tolerance = one_code,
    .check = check_rms_norm_static,
    .cases = HIDDEN "scale: 0.01..1",
    /* The norm takes 4, scaling and clamp 3. */
    .flops = "7*numel(x)",
    .bench = ROWS,
};

static fl_status check_fused_add_rms_norm_static(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, SCALE, EPSILON };
  return fl_check_not_negative(call, EPSILON, "epsilon");
}

const fl_op_def fl_op_fused_add_rms_norm_static_fp8_quant = {
    .size = sizeof(fl_op_def),
    .schema = "fused_add_rms_norm_static_fp8_quant(Tensor x, Tensor(a!) residual, Tensor weight, Tensor scale, float "
              "epsilon=1e-6) -> (Tensor q, Tensor(a) residual_out)",
    .rules = "x: T[..., H]; residual: T[..., H]; weight: T[H]; scale: float32[1] or float32[]; "
             "q: float8_e4m3fn[..., H]; " FLOATS,
    .category = "quantisation",
    .doc =
        "Adds the residual to x, and quantises the root-mean-square normalisation of the sum to float8 e4m3fn with a "
        "given scale.",
    .parts = "residual_out = add(residual, x); y = rms_norm(residual_out, weight=weight, epsilon=epsilon); "
             "q, _ = quant_fp8(y, scale=scale)",
    .formula = NORM "s = x + residual in float32, residual_out = s rounded to T; " STATIC
                    "(vLLM: kernel fused_add_rms_norm_static_fp8_quant; quant_fp8 of fused_add_rms_norm)",
    .tolerance = one_code,
    .check = check_fused_add_rms_norm_static,
    .cases = HIDDEN "scale: 0.01..1",
    .flops = "8*numel(x)",
    .bench = ROWS,
};

static bool is_int8(const fl_call *call, uint32_t quant_dtype) {
  return call->values[quant_dtype].v.s[0] == 'i'; /* the rules know two words */
}

static fl_status check_bound(fl_call *call, uint32_t quant_dtype, uint32_t scale_ub) {
  if (call->values[scale_ub].type != FL_TENSOR || !is_int8(call, quant_dtype))
    return FL_OK;
  return fl_fail(call, FL_EINVAL,
                 "argument 'scale_ub': given, expected none (scales have an upper bound where 'quant_dtype' is "
                 "\"float8_e4m3fn\", not \"int8\")");
}

static fl_status check_rms_norm_dynamic(fl_call *call) {
  enum { X, WEIGHT, EPSILON, QUANT_DTYPE, SCALE_UB };
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  return status ? status : check_bound(call, QUANT_DTYPE, SCALE_UB);
}

const fl_op_def fl_op_rms_norm_dynamic_per_token_quant = {
    .size = sizeof(fl_op_def),
    .schema = "rms_norm_dynamic_per_token_quant(Tensor x, Tensor weight, float epsilon=1e-6, str quant_dtype="
              "\"float8_e4m3fn\", Tensor? scale_ub=None, Tensor(a!)? residual=None) -> (Tensor q, Tensor scale_out)",
    .rules = "x: T[..., H]; weight: T[H]; scale_ub: float32[1] or float32[]; residual: T[..., H]; q: Q[..., H]; "
             "scale_out: float32[numel(...), 1]; " FLOATS CODES,
    .category = "quantisation",
    .doc = "Root-mean-square normalisation of x, or of x + residual when there is a residual (which then holds the "
           "sum), quantised to float8 e4m3fn or int8 with a scale for each token.",
    .formula = NORM "s = x + residual in float32, residual = s rounded to T; y = norm(s), a = max|y|; float8: a = "
                    "min(a, scale_ub), scale = max(a / 448, 1 / (448 * 512)), q = e4m3(clamp(y / scale)); int8: "
                    "scale = max(a / 127, 2^-23), q = y * (1 / scale) to the nearest, NaN to 0 (vLLM: kernel "
                    "rms_norm_dynamic_per_token_quant)",
    .tolerance = rounded_scale,
    .check = check_rms_norm_dynamic,
    .cases = HIDDEN "quant_dtype: float8_e4m3fn int8; scale_ub: none none 0.5..2",
    /* The norm takes 4, the largest magnitude 1, scaling and clamp 3. */
    .flops = "8*numel(x) + numel(residual)",
    .bench = ROWS "; residual: none; scale_ub: none",
};

const fl_op_def fl_op_silu_and_mul_quant = {
    .size = sizeof(fl_op_def),
    .schema = "silu_and_mul_quant(Tensor x, Tensor scale) -> Tensor q",
    .rules = "x: T[..., 2*d]; scale: float32[1] or float32[]; q: float8_e4m3fn[..., d]; " FLOATS,
    .category = "quantisation",
    .doc = "SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn with a "
           "given scale.",
    .parts = "y = silu_and_mul(x); q, _ = quant_fp8(y, scale=scale)",
    .formula =
        "y = silu(x[..., :d]) * x[..., d:], rounded to T after silu and after the product; q = e4m3(clamp(y * "
        "(1 / scale), -448, 448)), the reciprocal rounded to float32 (vLLM: kernel silu_and_mul_quant; quant_fp8 "
        "of silu_and_mul)",
    .tolerance = one_code,
    .cases = "d: 1 7 64 513 1365; scale: 0.01..1",
    .flops = "7*numel(q)",
    .bench = "...: [1] [128] [4096]; d: " WIDE,
};

static fl_status check_silu_and_mul_per_block(fl_call *call) {
  enum { X, GROUP_SIZE, QUANT_DTYPE, SCALE_UB };
  int64_t half = call->values[X].v.tensor->shape[1] / 2, group = call->values[GROUP_SIZE].v.i;
  if (group < 1 || half % group)
    return fl_fail(call, FL_EINVAL,
                   "argument 'group_size': %lld, expected a divisor of %lld (half of the last dimension of 'x')",
                   (long long)group, (long long)half);
  return check_bound(call, QUANT_DTYPE, SCALE_UB);
}

const fl_op_def fl_op_silu_and_mul_per_block_quant = {
    .size = sizeof(fl_op_def),
    .schema = "silu_and_mul_per_block_quant(Tensor x, int group_size=128, str quant_dtype=\"float8_e4m3fn\", Tensor? "
              "scale_ub=None) -> (Tensor q, Tensor scale_out)",
    .rules = "x: T[n, 2*d]; scale_ub: float32[1] or float32[]; q: Q[n, d]; scale_out: float32[n, d/group_size]; " FLOATS
        CODES,
    .category = "quantisation",
    .doc =
        "SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn or int8 with "
        "a scale for each group_size elements of a token.",
    .formula =
        "y = silu(x[:, :d]) * x[:, d:] in float32, not rounded; a = max|y| of a group; float8: scale = max(min(a "
        "/ 448, scale_ub), 1 / (448 * 512)), q = e4m3(clamp(y / scale)); int8: scale = max(a / 127, 2^-23), q = "
        "y / scale to the nearest, NaN to 0 (vLLM: kernel silu_and_mul_per_block_quant)",
    .tolerance = exact_scale,
    .check = check_silu_and_mul_per_block,
    .cases = "n: 0 1 7 83; d: 32 96 256 1056; group_size: 32 d 16 48 1; quant_dtype: float8_e4m3fn int8; "
             "scale_ub: none none 0.001..0.01",
    .flops = "8*numel(q)",
    .bench = "n: 1 128 4096; d: " WIDE "; group_size: 128; scale_ub: none",
};
