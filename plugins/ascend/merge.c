/*
 * merge_attn_states, in steps: aclnnAttentionUpdate does the same, but nothing is written of infinite log-sum-exps,
 * which parts of a context without tokens have.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

#include <float.h>
#include <math.h>

enum { PREFIX, PREFIX_LSE, SUFFIX, SUFFIX_LSE, OUT, LSE };

static void fill(ascend_call *c, ascend_view view, ascend_view mask, double value) {
  ACLNN(c, InplaceMaskedFillScalar, ascend_tensor(c, view), ascend_tensor(c, mask), ascend_scalar(c, value));
}

/* A copy, in which +inf is -inf. */
static ascend_view finite_or_less(ascend_call *c, ascend_view lse) {
  ascend_view made = ascend_scratch_like(c, &lse, ACL_FLOAT), mask = ascend_scratch_like(c, &lse, ACL_BOOL);
  ACLNN(c, InplaceCopy, ascend_tensor(c, made), ascend_tensor(c, lse));
  ACLNN(c, GtScalar, ascend_tensor(c, made), ascend_scalar(c, (double)FLT_MAX), ascend_tensor(c, mask));
  fill(c, made, mask, -INFINITY);
  return made;
}

/* exp(lse - most), in place */
static void weigh(ascend_call *c, ascend_view lse, ascend_view most) {
  ascend_sub(c, lse, most);
  ACLNN(c, InplaceExp, ascend_tensor(c, lse));
}

/* A matrix [heads, tokens] for tensors [tokens, heads, size]. */
static ascend_view by_token(ascend_view view) {
  ascend_view swapped = ascend_view_swapped(&view, 0, 1);
  swapped.shape[2] = swapped.strides[2] = 1;
  swapped.n_dims = 3;
  return swapped;
}

static ascend_view term(ascend_call *c, uint32_t part, ascend_view weight) {
  ascend_view x = ascend_in_float(c, ascend_argument(c, part)), made = ascend_scratch_like(c, &x, ACL_FLOAT);
  ascend_mul(c, x, by_token(weight), made);
  return made;
}

static void run_merge(ascend_call *c) {
  ascend_view lse = ascend_argument(c, LSE), out = ascend_argument(c, OUT);
  ascend_view prefix = finite_or_less(c, ascend_argument(c, PREFIX_LSE));
  ascend_view suffix = finite_or_less(c, ascend_argument(c, SUFFIX_LSE));
  ascend_view most = ascend_scratch_like(c, &lse, ACL_FLOAT), none = ascend_scratch_like(c, &lse, ACL_BOOL);
  ascend_view sum = ascend_scratch_like(c, &lse, ACL_FLOAT);
  ACLNN(c, Maximum, ascend_tensor(c, prefix), ascend_tensor(c, suffix), ascend_tensor(c, most));
  ACLNN(c, LtScalar, ascend_tensor(c, most), ascend_scalar(c, -(double)FLT_MAX), ascend_tensor(c, none));
  fill(c, most, none, 0);
  weigh(c, prefix, most);
  weigh(c, suffix, most);
  ascend_add(c, prefix, suffix, sum);
  ACLNN(c, Log, ascend_tensor(c, sum), ascend_tensor(c, lse));
  ascend_add(c, lse, most, lse);
  fill(c, prefix, none, 1); /* of two empty parts the first, as it is */
  fill(c, sum, none, 1);
  ascend_div(c, prefix, sum, prefix);
  ascend_div(c, suffix, sum, suffix);
  ascend_view of_prefix = term(c, PREFIX, prefix), of_suffix = term(c, SUFFIX, suffix);
  fill(c, of_suffix, by_token(none), 0);
  if (out.type == ACL_FLOAT) {
    ascend_add(c, of_prefix, of_suffix, out);
    return;
  }
  ascend_add(c, of_prefix, of_suffix, of_prefix);
  ascend_cast(c, of_prefix, out);
}

static ascend_op ops[] = {
    {.name = "merge_attn_states",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_TRAINING,
     .run = run_merge,
     .needs = {ACLNN_InplaceCopy, ACLNN_GtScalar, ACLNN_LtScalar, ACLNN_InplaceMaskedFillScalar, ACLNN_Maximum,
               ACLNN_InplaceSub, ACLNN_InplaceExp, ACLNN_Add, ACLNN_Log, ACLNN_InplaceDiv, ACLNN_Mul}},
};
OP_LIST(ops);
