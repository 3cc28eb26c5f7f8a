/* Linear layers whose weight is quantised: to 8 bits as their inputs are, or to 8 or 4 bits alone. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

/* ------------------------------------------------------------------------------------------------------- scaled_mm */

enum { MM_X, MM_WEIGHT, MM_X_SCALE, MM_WEIGHT_SCALE, MM_BIAS, MM_AZP, MM_OUT_DTYPE, MM_BLOCK_SIZE };

static bool has_matrix_shape(const DLTensor *tensor, int64_t rows, int64_t columns) {
  return tensor->ndim == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
}

static bool is_one(const DLTensor *tensor) {
  return tensor->ndim == 0 || (tensor->ndim == 1 && tensor->shape[0] == 1);
}

static int64_t blocks(int64_t size, int64_t block) {
  return size / block + (size % block != 0);
}

/* Scales that are no blocks: what has both meanings means the same. */
static bool is_plain(const DLTensor *scale, int64_t rows) {
  return is_one(scale) || has_matrix_shape(scale, rows, 1) || (scale->ndim == 1 && scale->shape[0] == rows);
}

static fl_status check_scaled_mm(fl_call *call) {
  const fl_value *values = call->values;
  const DLTensor *x = values[MM_X].v.tensor, *weight = values[MM_WEIGHT].v.tensor;
  const DLTensor *x_scale = values[MM_X_SCALE].v.tensor, *weight_scale = values[MM_WEIGHT_SCALE].v.tensor;
  fl_status status = fl_check_block_size(call, MM_BLOCK_SIZE, "'weight'");
  if (status)
    return status;
  const int64_t *block = values[MM_BLOCK_SIZE].v.ints;
  int64_t k = weight->shape[1], n = weight->shape[0], across = blocks(k, block[1]), m = 1;
  for (int d = 0; d + 1 < x->ndim; d++)
    m *= x->shape[d];
  bool plain = is_plain(x_scale, m) && is_plain(weight_scale, n);
  if (!plain && !has_matrix_shape(weight_scale, blocks(n, block[0]), across))
    return fl_fail(call, FL_EINVAL,
                   "argument 'weight_scale': expected one element, [%lld] or [%lld, 1] (channel), or with 'x_scale' "
                   "of groups [%lld, %lld] (blocks of [%lld, %lld])",
                   (long long)n, (long long)n, (long long)blocks(n, block[0]), (long long)across, (long long)block[0],
                   (long long)block[1]);
  if (!plain && !has_matrix_shape(x_scale, m, across))
    return fl_fail(call, FL_EINVAL,
                   "argument 'x_scale': expected shape [%lld, %lld] (one for each group of %lld, as 'weight_scale' has "
                   "blocks)",
                   (long long)m, (long long)across, (long long)block[1]);
  if (values[MM_AZP].type == FL_NONE)
    return FL_OK;
  if (x->dtype.code != kDLInt)
    return fl_fail(call, FL_EINVAL, "argument 'azp': given, expected none (only int8 has a zero point)");
  return plain ? FL_OK : fl_fail(call, FL_EINVAL, "argument 'azp': given, expected none (scales are of blocks)");
}

/* Of float8, whose sums have any order. */
static const fl_tolerance scaled_mm_tolerance[] = {
    {FL_FLOAT32, 1e-4, 1e-4}, {FL_FLOAT16, 1e-2, 2e-3}, {FL_BFLOAT16, 1e-2, 1.6e-2}, {0}};

const fl_op_def fl_op_scaled_mm = {
    .size = sizeof(fl_op_def),
    .schema = "scaled_mm(Tensor x, Tensor weight, Tensor x_scale, Tensor weight_scale, Tensor? bias=None, Tensor? "
              "azp=None, str out_dtype=\"bfloat16\", int[] block_size=[128,128]) -> Tensor out",
    .layers = "Int8ScaledMMLinearKernel,FP8ScaledMMLinearKernel,Fp8BlockScaledMMLinearKernel",
    .rules = "x: I[..., k]; weight: I[n, k]; x_scale: float32[1] or float32[] or float32[numel(...), 1] or "
             "float32[numel(...), (k + block_size[1] - 1) // block_size[1]]; weight_scale: float32[1] or float32[] or "
             "float32[n] or float32[n, 1] or float32[(n + block_size[0] - 1) // block_size[0], (k + block_size[1] - "
             "1) // block_size[1]]; bias: O[n]; azp: int32[1] or int32[numel(...), 1]; out: O[..., n]; "
             "I = int8|float8_e4m3fn; O = float32|float16|bfloat16 by out_dtype",
    .category = "linear",
    .doc =
        "A linear layer of 8 bits: inputs and weight are int8 or float8 with scales for the tensor, each token [m, 1] "
        "and channel [n, 1], or both for blocks of block_size; azp is the zero point of int8 inputs.",
    .formula =
        "out = (sum (x - azp) W^T) * x_scale * weight_scale + bias, sums of int8 exact, else in float32, rounded to "
        "out_dtype once; of blocks the sum of each times its scales (vLLM: cutlass_scaled_mm, "
        "cutlass_scaled_mm_azp, w8a8_triton_block_scaled_mm)",
    .tolerance = scaled_mm_tolerance,
    .check = check_scaled_mm,
    .cases = "...: [7] [1] [2, 3] [7] [0] [16] [7]; k: 1 33 128 200 0; n: 1 17 130; block_size: [16, 32] [128, 128]; "
             "x: -100..100; weight: -100..100; "
             "x_scale: [1] 0.01..0.02 [] 0.01..0.02 [7, 1] 0.01..0.02 [7, (k+31)//32] 0.01..0.02; "
             "weight_scale: [1] 0.01..0.02 [n] 0.01..0.02 [n, 1] 0.01..0.02 [(n+15)//16, (k+31)//32] 0.01..0.02; "
             "bias: none -1..1; azp: none none none [1] -128..127 [7, 1] -128..127; "
             "out_dtype: bfloat16 float16 float32",
    .flops = "2*numel(out)*k",
    .bench = "...: [1] [8] [512]; k: 4096; n: 14336; x_scale: [1] 0.01..0.02; weight_scale: [n, 1] 0.01..0.02; bias: "
             "none; azp: none; block_size: [128, 128]",
};

/* ---------------------------------------------------------------------------------------------- the weight alone */

static const fl_tolerance weight_only_tolerance[] = {
    {FL_FLOAT32, 1e-4, 1e-5}, {FL_FLOAT16, 1e-2, 2e-3}, {FL_BFLOAT16, 2e-2, 1.6e-2}, {0}};

static fl_status check_weight_only_linear(fl_call *call) {
  enum { X, WEIGHT, WEIGHT_SCALE, BIAS, BLOCK_SIZE };
  return fl_check_block_size(call, BLOCK_SIZE, "'weight'");
}

/* The largest layer of Llama 3 8B. */
#define LAYER_BENCH "...: [1] [8] [512]; k: 4096; n: 14336; bias: none; "

const fl_op_def fl_op_weight_only_linear = {
    .size = sizeof(fl_op_def),
    .schema = "weight_only_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None, int[] "
              "block_size=[128,128]) -> Tensor out",
    .rules = "x: T[..., k]; weight: int8|float8_e4m3fn[n, k]; weight_scale: float32[1] or float32[] or float32[n] or "
             "float32[n, 1] or float32[(n + block_size[0] - 1) // block_size[0], (k + block_size[1] - 1) // "
             "block_size[1]]; bias: T[n]; out: T[..., n]; T = float32|float16|bfloat16",
    .category = "linear",
    .doc = "A linear layer whose weight has 8 bits, int8 or float8, with a scale for the tensor, for each channel [n] "
           "or [n, 1], or for each block of block_size; inputs are not quantised.",
    .formula = "w = weight * weight_scale in float32; out = x w^T + bias, added in float32 and rounded once (vLLM: "
               "8-bit weights with 16-bit activations, as its Marlin kernel of float8)",
    .tolerance = weight_only_tolerance,
    .check = check_weight_only_linear,
    .cases = "k: 1 33 128 200 0; n: 1 17 130; block_size: [16, 32] [128, 128]; x: moderate; weight: -100..100; "
             "weight_scale: [1] 0.01..0.02 [] 0.01..0.02 [n] 0.01..0.02 [n, 1] 0.01..0.02 [(n+15)//16, (k+31)//32] "
             "0.01..0.02; bias: none -1..1",
    .flops = "2*numel(out)*k",
    .bench = LAYER_BENCH "weight_scale: [n, 1] 0.01..0.02; block_size: [128, 128]",
};

/* ---------------------------------------------------------------------------------------------------------- 4 bits */

/* Rows of the weight, `k`, have a group each: of equal sizes, in order. */
static fl_status check_groups(fl_call *call, int64_t k, uint32_t scales) {
  int64_t groups = call->values[scales].v.tensor->shape[0];
  if (groups > 0 && k % groups == 0)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'scales': %lld groups, expected a divisor of %lld (rows of the weight)",
                 (long long)groups, (long long)k);
}

static int64_t last_size(const fl_call *call, uint32_t index) {
  const DLTensor *tensor = call->values[index].v.tensor;
  return tensor->shape[tensor->ndim - 1];
}

static fl_status check_awq_linear(fl_call *call) {
  enum { X, QWEIGHT, SCALES };
  return check_groups(call, last_size(call, X), SCALES);
}

static fl_status check_gptq_linear(fl_call *call) {
  enum { X, QWEIGHT, SCALES, QZEROS, G_IDX };
  int64_t n = last_size(call, QWEIGHT);
  if (n % 8)
    return fl_fail(call, FL_EINVAL, "argument 'qweight': %lld columns, expected a multiple of 8", (long long)n);
  return call->values[G_IDX].type == FL_NONE ? check_groups(call, last_size(call, X), SCALES) : FL_OK;
}

#define WORDS "-2147483648..2147483647"

const fl_op_def fl_op_awq_linear = {
    .size = sizeof(fl_op_def),
    .schema = "awq_linear(Tensor x, Tensor qweight, Tensor scales, Tensor qzeros, Tensor? bias=None) -> Tensor out",
    .rules =
        "x: T[..., k]; qweight: int32[k, n/8]; scales: T[g, n]; qzeros: int32[g, n/8]; bias: T[n]; out: T[..., n]; "
        "T = float32|float16|bfloat16",
    .category = "linear",
    .doc = "A linear layer whose weight has 4 bits in AWQ's order: words of 8 columns, column i in nibble "
           "0 4 1 5 2 6 3 7; each group of k / g rows has scales and zero points.",
    .formula =
        "w = (q - z) * scales rounded to T; out = x w + bias, added in float32 and rounded once (vLLM: awq_gemm)",
    .tolerance = weight_only_tolerance,
    .check = check_awq_linear,
    .cases = "k: 8 96 256 0; n: 8 24 320; g: 1 2 8; x: moderate; qweight: " WORDS "; qzeros: " WORDS
             "; scales: 0.005..0.02; bias: none -1..1",
    .flops = "2*numel(out)*k",
    .bench = LAYER_BENCH "g: 32",
};

const fl_op_def fl_op_gptq_linear = {
    .size = sizeof(fl_op_def),
    .schema = "gptq_linear(Tensor x, Tensor qweight, Tensor scales, Tensor? qzeros=None, Tensor? g_idx=None, Tensor? "
              "bias=None, bool use_v2_format=False) -> Tensor out",
    .layers = "MPLinearKernel",
    .rules =
        "x: T[..., k]; qweight: int32[k/8, n]; scales: T[g, n]; qzeros: int32[g, n/8]; g_idx: int32[k] or int64[k]; "
        "bias: T[n]; out: T[..., n]; T = float32|float16|bfloat16",
    .category = "linear",
    .doc = "A linear layer whose weight has 4 bits in GPTQ's order: words of 8 rows. Row r has group g_idx[r], or "
           "r / (k / g); zero points are one more than stored unless use_v2_format, 8 where there are none.",
    .formula =
        "w = (q - z) * scales rounded to T; out = x w + bias, added in float32 and rounded once (vLLM: gptq_gemm)",
    .tolerance = weight_only_tolerance,
    .check = check_gptq_linear,
    .cases = "k: 8 96 256 0; n: 8 24 320; g: 1 2 8; x: moderate; qweight: " WORDS "; qzeros: none " WORDS
             "; scales: 0.005..0.02; g_idx: none none 0..g-1; bias: none -1..1",
    .flops = "2*numel(out)*k",
    .bench = LAYER_BENCH "g: 32; g_idx: none; qzeros: " WORDS,
};

const fl_op_def fl_op_mxfp4_linear = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "mxfp4_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None) -> Tensor out",
    .rules = "x: T[..., k]; weight: uint8[n, k/2]; weight_scale: uint8[n, k/32]; bias: T[n]; out: T[..., n]; "
             "T = float32|float16|bfloat16",
    .category = "linear",
    .doc = "A linear layer whose weight is MXFP4: e2m1, the even column in a byte's low half, with a power of two "
           "2^(byte - 127) for each 32 columns; a scale of 255 is NaN.",
    .formula = "w = (0, .5, 1, 1.5, 2, 3, 4 or 6, bit 3 the sign) * scale in float32; out = x w^T + bias, rounded once "
               "(OCP Microscaling Formats 1.0; vLLM: MXFP4 linear methods, weight only)",
    .tolerance = weight_only_tolerance,
    .cases = "k: 32 96 288 0; n: 1 17 130; x: moderate; weight: 0..255; weight_scale: 116..124; bias: none -1..1",
    .flops = "2*numel(out)*k",
    .bench = LAYER_BENCH "weight_scale: 116..124",
};
