/*
 * A normalisation that is quantised to int8 with a scale of each token, in steps: aclnnAddRmsNormDynamicQuant sums in
 * another precision than the formula, and aclnnDynamicQuant has no least scale. aclnnRmsNorm rounds once, so that the
 * weight, before which the formula rounds too, is a step of its own.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, WEIGHT, EPSILON, QUANT_DTYPE, SCALE_UB, RESIDUAL, Q, SCALE_OUT };

#define LARGEST_CODE 127.0
#define MIN_SCALE    0x1p-23

static bool supports_rms_norm_quant(const fl_call *call, ascend_chips chip, const char **reason) {
  static const uint32_t compact[] = {RESIDUAL, Q, SCALE_OUT};
  (void)chip;
  if (call->values[QUANT_DTYPE].v.s[0] != 'i')
    return ascend_refuse(reason, "'quant_dtype' is float8_e4m3fn, its steps are those of int8");
  for (size_t i = 0; i < sizeof compact / sizeof compact[0]; i++)
    if (ascend_tensor_at(call, compact[i]) && !ascend_is_compact(ascend_tensor_at(call, compact[i])))
      return ascend_refuse(reason, "the residual or a result is not compact");
  return true;
}

static ascend_view ones(ascend_call *c, aclDataType type, int64_t n) {
  ascend_view made = ascend_scratch(c, type, 1, &n);
  ACLNN(c, InplaceOne, ascend_tensor(c, made));
  return made;
}

/* x, or its sum with the residual in float32, which the residual becomes rounded. */
static ascend_view summed(ascend_call *c, ascend_view x) {
  if (!ascend_tensor_at(c->call, RESIDUAL))
    return x;
  ascend_view residual = ascend_argument(c, RESIDUAL), sum = ascend_scratch_like(c, &x, ACL_FLOAT);
  ascend_add(c, ascend_in_float(c, x), ascend_in_float(c, residual), sum);
  if (residual.type == ACL_FLOAT)
    ascend_copy(c, residual, sum);
  else
    ascend_cast(c, sum, residual);
  return sum;
}

/* Rounded to x's type before the weight and after it; in float32. */
static ascend_view normalised(ascend_call *c, ascend_view x, ascend_view sum) {
  ascend_view made = ascend_scratch_like(c, &sum, sum.type), rounded = made, root = sum;
  ascend_view weight = ones(c, sum.type, sum.shape[sum.n_dims - 1]);
  root.shape[root.n_dims - 1] = 1;
  root = ascend_scratch(c, ACL_FLOAT, root.n_dims, root.shape);
  ACLNN(c, RmsNorm, ascend_tensor(c, sum), ascend_tensor(c, weight), c->call->values[EPSILON].v.f,
        ascend_tensor(c, made), ascend_tensor(c, root));
  if (made.type != x.type) {
    rounded = ascend_scratch_like(c, &x, x.type);
    ascend_cast(c, made, rounded);
  }
  ascend_view weighted = ascend_scratch_like(c, &x, x.type);
  ascend_mul(c, rounded, ascend_argument(c, WEIGHT), weighted);
  return ascend_in_float(c, weighted);
}

static void run_rms_norm_quant(ascend_call *c) {
  enum { LAST = -1 };
  static const char mode[] = "round";
  ascend_view x = ascend_argument(c, X), y = normalised(c, x, summed(c, x)), scale = ascend_argument(c, SCALE_OUT);
  ascend_view row = x;
  const int64_t last[] = {x.n_dims - 1};
  row.shape[last[0]] = 1;
  scale = ascend_view_reshaped(&scale, row.n_dims, row.shape);
  ascend_view one = ones(c, ACL_FLOAT, 1), scaled = ascend_scratch_like(c, &y, ACL_FLOAT),
              most = ascend_scratch_like(c, &scale, ACL_FLOAT);
  ACLNN(c, Abs, ascend_tensor(c, y), ascend_tensor(c, scaled));
  ACLNN(c, Amax, ascend_tensor(c, scaled), ascend_ints(c, last, 1), true, ascend_tensor(c, most));
  ACLNN(c, InplaceDivs, ascend_tensor(c, most), ascend_scalar(c, LARGEST_CODE));
  ACLNN(c, ClampMin, ascend_tensor(c, most), ascend_scalar(c, MIN_SCALE), ascend_tensor(c, scale));
  ACLNN(c, Reciprocal, ascend_tensor(c, scale), ascend_tensor(c, most));
  ascend_mul(c, y, most, scaled);
  ACLNN(c, AscendQuantV3, ascend_tensor(c, scaled), ascend_tensor(c, one), NULL, false, mode, ACL_INT8, LAST,
        ascend_tensor(c, ascend_argument(c, Q)));
}

static ascend_op ops[] = {
    {.name = "rms_norm_dynamic_per_token_quant",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_TRAINING,
     .run = run_rms_norm_quant,
     .supports = supports_rms_norm_quant,
     .n_results = 2,
     .needs = {ACLNN_RmsNorm, ACLNN_InplaceOne, ACLNN_Cast, ACLNN_Add, ACLNN_Mul, ACLNN_Abs, ACLNN_Amax,
               ACLNN_InplaceDivs, ACLNN_ClampMin, ACLNN_Reciprocal, ACLNN_AscendQuantV3}},
};
OP_LIST(ops);
