/*
 * Gated activations: two halves of the last dimension, or pairs in it. The operators that do all at once want compact
 * tensors or short rows; what they do not take is made of two or three steps, which take any strides.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, MODE };
enum { OUT_OF_ONE = 1, OUT_OF_TWO, OUT_OF_THREE, OUT_OF_FOUR }; /* the result, behind so many arguments */
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

ascend_view ascend_last_half(ascend_view x, int which) {
  int64_t half = x.shape[x.n_dims - 1] / 2;
  return ascend_view_part(&x, x.n_dims - 1, which * half, half);
}

/* ----------------------------------------------------------------------------------------------------------- halves */

static void silu_and_mul(ascend_call *c, ascend_view gate, ascend_view up, ascend_view out) {
  ACLNN(c, Silu, ascend_tensor(c, gate), ascend_tensor(c, out));
  ascend_mul(c, out, up, out);
}

/* 310P wants rows of whole 64 bytes. */
static bool takes_swiglu(const fl_call *call, ascend_view out) {
  return ascend_is_compact(ascend_tensor_at(call, X)) && ascend_view_is_compact(&out) &&
         (ascend_chip(NULL) != ASCEND_310P || out.shape[out.n_dims - 1] * out.size % 64 == 0);
}

static void run_silu_and_mul(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  if (takes_swiglu(c->call, out))
    ACLNN(c, SwiGlu, ascend_tensor(c, x), -1, ascend_tensor(c, out));
  else
    silu_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), out);
}

static void run_mul_and_silu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  silu_and_mul(c, ascend_last_half(x, 1), ascend_last_half(x, 0), out);
}

void ascend_gelu_and_mul(ascend_call *c, ascend_view gate, ascend_view up, bool by_tanh, ascend_view out) {
  ACLNN(c, GeluV2, ascend_tensor(c, gate), by_tanh, ascend_tensor(c, out));
  ascend_mul(c, out, up, out);
}

/* The single operator is for short rows: up to 1024 elements, up to 200000 of them, two dimensions or more. */
static bool takes_gelu_mul(const ascend_view *x) {
  enum { LONGEST = 1024, MOST_ROWS = 200000 };
  int64_t last = x->shape[x->n_dims - 1];
  return ascend_chip(NULL) != ASCEND_310P && x->n_dims > 1 && last <= LONGEST &&
         ascend_view_count(x) / last <= MOST_ROWS;
}

static void run_gelu_and_mul(ascend_call *c) {
  static char none[] = "none", tanh_[] = "tanh";
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_TWO);
  bool by_tanh = c->call->values[MODE].v.s[0] == 't';
  if (takes_gelu_mul(&x))
    ACLNN(c, GeluMul, ascend_tensor(c, x), by_tanh ? tanh_ : none, ascend_tensor(c, out));
  else
    ascend_gelu_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), by_tanh, out);
}

/* aclnnFatreluMul lets pass what equals the threshold, and aclnnThreshold makes NaN 0: vLLM's does neither. */
static bool supports_fatrelu_and_mul(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  if (!ascend_is_exact(ascend_view_of(ascend_tensor_at(call, X)).type, call->values[MODE].v.f))
    return ascend_refuse(reason, "'threshold' is no number of the element type, which it would be rounded to");
  return true;
}

static void run_fatrelu_and_mul(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_TWO);
  ascend_view gate = ascend_last_half(x, 0), cut = ascend_scratch_like(c, &gate, ACL_BOOL);
  ACLNN(c, LeScalar, ascend_tensor(c, gate), ascend_scalar(c, c->call->values[MODE].v.f), ascend_tensor(c, cut));
  ACLNN(c, InplaceCopy, ascend_tensor(c, out), ascend_tensor(c, gate));
  ACLNN(c, InplaceMaskedFillScalar, ascend_tensor(c, out), ascend_tensor(c, cut), ascend_scalar(c, 0));
  ascend_mul(c, out, ascend_last_half(x, 1), out);
}

/* A limit that is rounded to the element type limits the same elements to the same number. */
void ascend_swiglustep_and_mul(ascend_call *c, ascend_view gate, ascend_view up, double limit, ascend_view out) {
  ascend_view clamped = ascend_scratch_like(c, &up, up.type);
  ACLNN(c, Silu, ascend_tensor(c, gate), ascend_tensor(c, out));
  ACLNN(c, InplaceClampMax, ascend_tensor(c, out), ascend_scalar(c, limit));
  ACLNN(c, Clamp, ascend_tensor(c, up), ascend_scalar(c, -limit), ascend_scalar(c, limit), ascend_tensor(c, clamped));
  ascend_mul(c, out, clamped, out);
}

static void run_swiglustep_and_mul(ascend_call *c) {
  ascend_view x = ascend_argument(c, X);
  ascend_swiglustep_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), c->call->values[MODE].v.f,
                            ascend_argument(c, OUT_OF_TWO));
}

static bool supports_situ_and_mul(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return ascend_is_compact(ascend_tensor_at(call, OUT_OF_THREE)) ||
         ascend_refuse(reason, "aclnnSituGlu writes compact tensors only");
}

static void run_situ_and_mul(ascend_call *c) {
  enum { BETA = 1, LINEAR_BETA };
  const fl_value *values = c->call->values;
  double linear_beta = values[LINEAR_BETA].type == FL_NONE ? 0 : values[LINEAR_BETA].v.f; /* 0: none */
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_THREE);
  ACLNN(c, SituGlu, ascend_tensor(c, x), -1, values[BETA].v.f, linear_beta, true, ascend_tensor(c, out));
}

/* ---------------------------------------------------------------------------------------------------------- clamped */

static bool supports_clipped(const fl_call *call, uint32_t out, const char **reason) {
  if (ascend_is_compact(ascend_tensor_at(call, X)) && ascend_is_compact(ascend_tensor_at(call, out)))
    return true;
  return ascend_refuse(reason, "aclnnClippedSwiglu takes compact tensors only");
}

static bool supports_swigluoai_and_mul(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_clipped(call, OUT_OF_THREE, reason);
}

static void run_swigluoai_and_mul(ascend_call *c) {
  enum { ALPHA = 1, LIMIT };
  const fl_value *values = c->call->values;
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_THREE);
  ACLNN(c, ClippedSwiglu, ascend_tensor(c, x), NULL, -1, values[ALPHA].v.f, values[LIMIT].v.f, 1.0, true,
        ascend_tensor(c, out));
}

static bool supports_silu_and_mul_with_clamp(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_clipped(call, OUT_OF_FOUR, reason);
}

static void run_silu_and_mul_with_clamp(ascend_call *c) {
  enum { LIMIT = 1, ALPHA, BETA };
  const fl_value *values = c->call->values;
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_FOUR);
  ACLNN(c, ClippedSwiglu, ascend_tensor(c, x), NULL, -1, values[ALPHA].v.f, values[LIMIT].v.f, values[BETA].v.f, false,
        ascend_tensor(c, out));
}

static ascend_op ops[] = {
    {.name = "silu_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_silu_and_mul,
     .needs = {ACLNN_SwiGlu, ACLNN_Silu, ACLNN_InplaceMul}},
    {.name = "mul_and_silu",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_mul_and_silu,
     .needs = {ACLNN_Silu, ACLNN_InplaceMul}},
    {.name = "gelu_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_gelu_and_mul,
     .needs = {ACLNN_GeluMul, ACLNN_GeluV2, ACLNN_InplaceMul}},
    {.name = "fatrelu_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_fatrelu_and_mul,
     .supports = supports_fatrelu_and_mul,
     .needs = {ACLNN_LeScalar, ACLNN_InplaceCopy, ACLNN_InplaceMaskedFillScalar, ACLNN_InplaceMul}},
    {.name = "swiglustep_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_swiglustep_and_mul,
     .needs = {ACLNN_Silu, ACLNN_InplaceClampMax, ACLNN_Clamp, ACLNN_InplaceMul}},
    {.name = "situ_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_situ_and_mul,
     .supports = supports_situ_and_mul,
     .needs = {ACLNN_SituGlu}},
    {.name = "swigluoai_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_swigluoai_and_mul,
     .supports = supports_swigluoai_and_mul,
     .needs = {ACLNN_ClippedSwiglu}},
    {.name = "silu_and_mul_with_clamp",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_silu_and_mul_with_clamp,
     .supports = supports_silu_and_mul_with_clamp,
     .needs = {ACLNN_ClippedSwiglu}},
};
OP_LIST(ops);
