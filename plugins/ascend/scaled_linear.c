/*
 * scaled_mm of int8: scales of the tensor or each token, of the tensor or each channel. A scale of all tokens is
 * repeated for each, as the operator has a result in float16 with scales of tokens only.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, WEIGHT, X_SCALE, WEIGHT_SCALE, BIAS, AZP, OUT_DTYPE, BLOCK_SIZE, OUT };
enum { MOST_COLUMNS = 65535 };

static int64_t count_of(const DLTensor *tensor) {
  ascend_view view = ascend_view_of(tensor);
  return ascend_view_count(&view);
}

/* One number, or one for each of `n`. */
static bool is_plain(const DLTensor *scale, int64_t n) {
  return (scale->ndim < 2 && count_of(scale) == 1) ||
         (count_of(scale) == n && (scale->ndim < 2 || scale->shape[1] == 1));
}

static bool supports_scaled_mm(const fl_call *call, ascend_chips chip, const char **reason) {
  static const uint32_t compact[] = {X, WEIGHT, X_SCALE, WEIGHT_SCALE, OUT};
  const DLTensor *x = ascend_tensor_at(call, X), *weight = ascend_tensor_at(call, WEIGHT);
  int64_t k = weight->shape[1], n = weight->shape[0];
  (void)chip;
  if (ascend_type_of(ascend_tensor_at(call, OUT)->dtype) == ACL_FLOAT)
    return ascend_refuse(reason, "aclnnQuantMatmulV4 gives float16 and bfloat16");
  if (ascend_tensor_at(call, AZP))
    return ascend_refuse(reason, "aclnnQuantMatmulV4 has no zero points of tokens");
  if (!is_plain(ascend_tensor_at(call, X_SCALE), count_of(x) / k) || !is_plain(ascend_tensor_at(call, WEIGHT_SCALE), n))
    return ascend_refuse(reason, "aclnnQuantMatmulV4 has no scales of blocks");
  if (k > MOST_COLUMNS)
    return ascend_refuse(reason, "aclnnQuantMatmulV4 takes rows of up to 65535 numbers");
  for (size_t i = 0; i < sizeof compact / sizeof compact[0]; i++)
    if (!ascend_is_compact(ascend_tensor_at(call, compact[i])))
      return ascend_refuse(reason, "aclnnQuantMatmulV4 takes compact tensors only");
  return true;
}

/* A compact tensor as [rows, columns]. */
static ascend_view as_matrix(const ascend_call *c, uint32_t index, int64_t columns) {
  ascend_view view = ascend_argument(c, index);
  const int64_t shape[] = {ascend_view_count(&view) / columns, columns};
  return ascend_view_reshaped(&view, 2, shape);
}

static ascend_view as_vector(const ascend_call *c, uint32_t index) {
  ascend_view view = ascend_argument(c, index);
  const int64_t n = ascend_view_count(&view);
  return ascend_view_reshaped(&view, 1, &n);
}

static ascend_view scales_of_tokens(ascend_call *c, int64_t tokens) {
  ascend_view given = as_vector(c, X_SCALE);
  if (given.shape[0] == tokens)
    return given;
  ascend_view repeated = ascend_scratch(c, ACL_FLOAT, 1, &tokens);
  ACLNN(c, InplaceOne, ascend_tensor(c, repeated));
  ascend_mul(c, repeated, given, repeated);
  return repeated;
}

static void run_scaled_mm(ascend_call *c) {
  const int64_t *shape = ascend_tensor_at(c->call, WEIGHT)->shape;
  ascend_view x = as_matrix(c, X, shape[1]), out = as_matrix(c, OUT, shape[0]);
  ascend_view tokens = scales_of_tokens(c, x.shape[0]);
  bool has_bias = ascend_tensor_at(c->call, BIAS) != NULL;
  ACLNN(c, QuantMatmulV4, ascend_tensor(c, x), ascend_tensor(c, ascend_argument(c, WEIGHT)),
        ascend_tensor(c, as_vector(c, WEIGHT_SCALE)), NULL, ascend_tensor(c, tokens),
        has_bias ? ascend_tensor(c, ascend_argument(c, BIAS)) : NULL, false, true, ascend_tensor(c, out));
}

static ascend_op ops[] = {
    {.name = "scaled_mm",
     .dtypes = FL_INT8,
     .chips = ASCEND_TRAINING,
     .run = run_scaled_mm,
     .supports = supports_scaled_mm,
     .needs = {ACLNN_QuantMatmulV4, ACLNN_InplaceOne, ACLNN_InplaceMul}},
};
OP_LIST(ops);
