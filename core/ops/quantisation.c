/* Quantisation of activations. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#include <string.h>

enum { X, SCALE, SCALE_UB, GROUP_SHAPE, USE_UE8M0, NUM_TOKEN_PADDING, Q };

/* The kinds of scales, and by what group_shape each is known; 0 stands for any size from 1 on. */
typedef struct grouping {
  const char *name;
  int64_t shape[2];
  bool dynamic; /* the op computes such scales */
} grouping;

static const grouping groupings[] = {
    {"tensor", {-1, -1}, true}, {"token", {1, -1}, true}, {"channel", {-1, 1}, false},
    {"group", {1, 0}, true},    {"block", {0, 0}, false},
};
enum { TENSOR, TOKEN, CHANNEL, GROUP, BLOCK, N_GROUPINGS };

static bool is_grouping(const grouping *known, const fl_value *given) {
  if (given->length != 2)
    return false;
  for (int i = 0; i < 2; i++)
    if (known->shape[i] ? given->v.ints[i] != known->shape[i] : given->v.ints[i] < 1)
      return false;
  return true;
}

static int find_grouping(const fl_call *call) {
  int i = 0;
  while (i < N_GROUPINGS && !is_grouping(&groupings[i], &call->values[GROUP_SHAPE]))
    i++;
  return i;
}

static fl_status bad_group_shape(fl_call *call, const char *expected) {
  const fl_value *given = &call->values[GROUP_SHAPE];
  char text[64] = "";
  for (uint32_t i = 0, length = 0; i < given->length && length < sizeof text; i++)
    length +=
        (uint32_t)snprintf(text + length, sizeof text - length, "%s%lld", i ? ", " : "", (long long)given->v.ints[i]);
  return fl_fail(call, FL_EINVAL, "argument 'group_shape': [%s], expected %s", text, expected);
}

/* Rows that are there for padding alone, of x with two dimensions. */
static fl_status check_padding(fl_call *call, const DLTensor *x, int64_t padding) {
  int64_t row = x->shape[1] ? x->shape[1] : 1, size, given;
  if (__builtin_mul_overflow(padding, row, &size) || __builtin_mul_overflow(x->shape[0], row, &given))
    return fl_fail(call, FL_EINVAL, "argument 'num_token_padding': more elements of 'q' than 64 bits can count");
  return fl_check_sized(call, "argument 'num_token_padding'", "'q'", size, given);
}

/* The attributes that only some kinds of scales have. */
static fl_status check_attributes(fl_call *call, int kind) {
  const fl_value *values = call->values;
  const DLTensor *x = values[X].v.tensor;
  bool is_static = values[SCALE].type == FL_TENSOR;
  int64_t padding = values[NUM_TOKEN_PADDING].v.i;
  if (kind == N_GROUPINGS)
    return bad_group_shape(call, "[-1, -1] (tensor), [1, -1] (token), [-1, 1] (channel), [1, G] (group) or [R, C] "
                                 "(block)");
  if (!is_static && !groupings[kind].dynamic)
    return bad_group_shape(call, "[-1, -1] (tensor), [1, -1] (token) or [1, G] (group) where 'scale' is none");
  if (values[SCALE_UB].type == FL_TENSOR && (is_static || kind != TOKEN))
    return fl_fail(call, FL_EINVAL,
                   "argument 'scale_ub': given, expected none (only scales that are computed for each "
                   "token have an upper bound)");
  if (values[USE_UE8M0].v.b && (is_static || kind != GROUP))
    return fl_fail(call, FL_EINVAL,
                   "argument 'use_ue8m0': true, expected false (only scales that are computed for "
                   "groups [1, G] can be powers of two)");
  if (padding < 0)
    return fl_fail(call, FL_EINVAL, "argument 'num_token_padding': %lld, expected 0 or more", (long long)padding);
  if (padding && !is_static && kind == GROUP)
    return fl_fail(call, FL_EINVAL, "argument 'num_token_padding': %lld, expected 0 (groups are not padded)",
                   (long long)padding);
  if (x->ndim != 2 && (padding || (is_static && kind != TENSOR)))
    return fl_fail(call, FL_EINVAL, "argument 'x': %d dimensions, expected 2 (%s)", x->ndim,
                   padding ? "'num_token_padding' is given" : "so that 'group_shape' can say what shares a scale");
  return padding ? check_padding(call, x, padding) : FL_OK;
}

static bool has_shape(const DLTensor *tensor, int ndim, const int64_t *shape) {
  return tensor->ndim == ndim && !memcmp(tensor->shape, shape, (size_t)ndim * sizeof *shape);
}

/* Does every element of x have its element of a given scale? */
static fl_status check_scale(fl_call *call, int kind) {
  const DLTensor *x = call->values[X].v.tensor, *scale = call->values[SCALE].v.tensor;
  const int64_t ones[] = {1, 1}, *group = call->values[GROUP_SHAPE].v.ints;
  if (kind == TENSOR)
    return scale->ndim <= 2 && has_shape(scale, scale->ndim, ones)
               ? FL_OK
               : fl_fail(call, FL_EINVAL,
                         "argument 'scale': expected one element, shape [1], [] or [1, 1] "
                         "(group_shape is [-1, -1], one scale for the tensor)");
  int64_t expected[2];
  for (int i = 0; i < 2; i++) {
    int64_t size = group[i] < 0 ? x->shape[i] : group[i];
    if (size && x->shape[i] % size)
      return fl_fail(call, FL_EINVAL, "argument 'group_shape': %lld, expected a divisor of %lld (dimension %d of 'x')",
                     (long long)size, (long long)x->shape[i], i);
    expected[i] = group[i] < 0 ? 1 : x->shape[i] / size;
  }
  bool vector =
      (kind == TOKEN && has_shape(scale, 1, &expected[0])) || (kind == CHANNEL && has_shape(scale, 1, &expected[1]));
  if (vector || has_shape(scale, 2, expected))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'scale': expected shape [%lld, %lld] (one for each %s of 'x')",
                 (long long)expected[0], (long long)expected[1], groupings[kind].name);
}

/* That of the tensor for q, where there is one of MI300's type. */
static DLDataType float8_of(const fl_call *call) {
  DLDataType dtype = {FL_DTYPE_FLOAT8_E4M3FN, 8, 1};
  const DLTensor *q = call->count > Q && call->values[Q].type == FL_TENSOR ? call->values[Q].v.tensor : NULL;
  if (q && q->dtype.code == FL_DTYPE_FLOAT8_E4M3FNUZ)
    dtype.code = FL_DTYPE_FLOAT8_E4M3FNUZ;
  return dtype;
}

static fl_status check_quant_fp8(fl_call *call) {
  int kind = find_grouping(call);
  fl_status status = check_attributes(call, kind);
  return status || call->values[SCALE].type != FL_TENSOR ? status : check_scale(call, kind);
}

/* That is no element type of the rules: they say e4m3fn. */
static fl_status infer_quant_fp8(fl_call *call, fl_tensor_spec *results) {
  results[0].dtype = float8_of(call);
  return FL_OK;
}

/* Scales as vLLM's tests of groups want them; codes by vLLM IR's default. */
static const fl_tolerance tolerance[] = {{FL_FLOAT32, 2e-8, 2e-7}, {0}};

const fl_op_def fl_op_quant_fp8 = {
    .size = sizeof(fl_op_def),
    .schema = "quant_fp8(Tensor x, Tensor? scale=None, Tensor? scale_ub=None, int[] group_shape=[-1,-1], "
              "bool use_ue8m0=False, int num_token_padding=0) -> (Tensor q, Tensor scale_out)",
    .layers = "QuantFP8",
    .rules = "x: T[..., N]; scale: float32; scale_ub: float32[1] or float32[]; "
             "q: float8_e4m3fn[max(numel(...), num_token_padding), N] when num_token_padding or float8_e4m3fn[..., N]; "
             "scale_out: like scale or float32[1] when group_shape[0] < 0 or float32[..., 1] when group_shape[1] < 0 "
             "or float32[..., (N + group_shape[1] - 1) // group_shape[1]]; T = float32|float16|bfloat16",
    .category = "quantisation",
    .doc = "Quantises to float8 e4m3fn, or to e4m3fnuz where q is such a tensor (MI300), with one scale for the tensor "
           "[-1, -1], each token [1, -1], channel [-1, 1], "
           "group [1, G] or block [R, C]; x is q * scale_out. Without a scale it is computed (tensor, token, group).",
    .formula = "M = 448, of e4m3fnuz 224; s = max(absmax(x) / M, 1 / (M * 512)), absmax limited by scale_ub, or with "
               "use_ue8m0 the power of two from absmax / M on; q = clamp(x * (1 / s), -M, M), of groups clamp(x / s); "
               "rows from x's tokens to num_token_padding are 0 (vLLM: QuantFP8, kernels *_scaled_fp8_quant)",
    .tolerance = tolerance,
    .infer = infer_quant_fp8,
    .check = check_quant_fp8,
    .cases = "...: [7] [1] [83] [0] [64] [2, 3] []; N: 1 16 128 513; group_shape: [-1, -1] [1, -1] [-1, 1] [1, 64] [1, "
             "16] [7, 16]; num_token_padding: 0 17; x: moderate; "
             "scale: none none [1] 0.01..1 [1, N] 0.01..1 [7, 1] 0.01..1 [1, N/16] 0.01..1; scale_ub: none 0.5..2",
    /* Largest magnitude 1, product 1, clamp 2. */
    .flops = "(4 - given(scale))*numel(x)",
    .bench = "...: [1] [128] [4096]; N: 4096; group_shape: [1, -1]",
};

/* An azp is given with its scale; a scale without one is symmetric. */
static fl_status check_scaled_int8_quant(fl_call *call) {
  enum { INT8_X, INT8_SCALE, INT8_AZP, SYMMETRIC };
  const fl_value *values = call->values;
  bool scale = values[INT8_SCALE].type == FL_TENSOR, azp = values[INT8_AZP].type == FL_TENSOR;
  bool symmetric = values[SYMMETRIC].v.b;
  if (azp && !scale)
    return fl_fail(call, FL_EINVAL, "argument 'azp': given, expected none (it belongs to a given 'scale')");
  if (scale && symmetric == azp)
    return fl_fail(call, FL_EINVAL, "argument 'symmetric': %s, expected %s ('scale' is given %s 'azp')",
                   symmetric ? "true" : "false", azp ? "false" : "true", azp ? "with" : "without");
  return FL_OK;
}

const fl_op_def fl_op_scaled_int8_quant = {
    .size = sizeof(fl_op_def),
    .schema = "scaled_int8_quant(Tensor x, Tensor? scale=None, Tensor? azp=None, bool symmetric=True) -> (Tensor q, "
              "Tensor scale_out, Tensor? azp_out)",
    .rules = "x: T[..., N]; scale: float32[1] or float32[]; azp: int32[1] or int32[]; q: int8[..., N]; "
             "scale_out: like scale or float32[numel(...), 1]; "
             "azp_out: like azp or int32[numel(...), 1] when symmetric == 0; "
             "T = float32|float16|bfloat16",
    .category = "quantisation",
    .doc = "Quantises to int8, with a given scale or one for each token; not symmetric: with a zero point, too (azp, "
           "given or computed). x is (q - azp_out) * scale_out.",
    .formula = "given: q = x / scale to the nearest, plus azp, saturated; computed: a = max|x|, scale = a / 127, q = x "
               "* (127 / a); not symmetric: scale = (max - min) / 255, azp = -128 - min / scale to the nearest, q as "
               "given; where a scale is 0 so are azp and q, and NaN is as 0 (vLLM: kernels static_scaled_int8_quant, "
               "dynamic_scaled_int8_quant)",
    .tolerance = tolerance,
    .check = check_scaled_int8_quant,
    .cases = "...: [7] [1] [83] [0] [2, 3] []; N: 1 16 128 513; scale: none none 0.01..1; azp: with scale -100..100 "
             "none; symmetric: true false; x: moderate",
    /* Largest magnitude (or both ends) 1 (2), product 1, clamp 2. */
    .flops = "(4 - given(scale))*numel(x)",
    .bench = "...: [1] [128] [4096]; N: 4096; symmetric: true; scale: none",
};
