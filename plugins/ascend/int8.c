/*
 * Quantisation to int8 with a scale that is given or one of each token. CANN quantises by a factor, so that a given
 * scale is turned round; it rounds once the zero point is added.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

/* ------------------------------------------------------------------------------------------------ scaled_int8_quant */

enum { X, SCALE, AZP, SYMMETRIC, Q, SCALE_OUT, AZP_OUT };

static bool supports_dynamic(const DLTensor *x, ascend_chips chip, const char **reason) {
  ascend_view view = ascend_view_of(x), rows;
  if (view.type == ACL_FLOAT)
    return ascend_refuse(reason, "aclnnDynamicQuant takes float16 and bfloat16 only");
  if (chip == ASCEND_310P && x->shape[x->ndim - 1] % 32)
    return ascend_refuse(reason, "on 310P aclnnDynamicQuant takes rows of a multiple of 32 elements");
  if (!ascend_view_rows(&view, &rows))
    return ascend_refuse(reason, "the rows of 'x' are not evenly spaced");
  return true;
}

static bool supports_int8_quant(const fl_call *call, ascend_chips chip, const char **reason) {
  static const uint32_t compact[] = {Q, SCALE_OUT};
  for (size_t i = 0; i < sizeof compact / sizeof compact[0]; i++)
    if (!ascend_is_compact(ascend_tensor_at(call, compact[i])))
      return ascend_refuse(reason, "a result is not compact");
  if (!ascend_tensor_at(call, SCALE) && !call->values[SYMMETRIC].v.b)
    return ascend_refuse(reason, "CANN rounds a zero point that it computes together with the numbers");
  if (!ascend_tensor_at(call, SCALE))
    return supports_dynamic(ascend_tensor_at(call, X), chip, reason);
  if (chip == ASCEND_310P)
    return ascend_refuse(reason, "on 310P CANN has no reciprocal, which a given scale takes");
  return true;
}

/* A scale of the tensor, [] or [1], as [1]. */
static ascend_view one_number(const ascend_call *c, uint32_t index) {
  static const int64_t shape[] = {1};
  ascend_view view = ascend_argument(c, index);
  return ascend_view_reshaped(&view, 1, shape);
}

static void quantise_by_given(ascend_call *c) {
  enum { LAST = -1 };
  static const char mode[] = "round";
  ascend_view x = ascend_in_float(c, ascend_argument(c, X)), scale = one_number(c, SCALE);
  ascend_view factor = ascend_scratch_like(c, &scale, ACL_FLOAT), offset = factor;
  bool shifted = ascend_tensor_at(c->call, AZP) != NULL;
  ACLNN(c, Reciprocal, ascend_tensor(c, scale), ascend_tensor(c, factor));
  if (shifted) {
    offset = ascend_scratch_like(c, &scale, ACL_FLOAT);
    ascend_cast(c, one_number(c, AZP), offset);
  }
  ACLNN(c, AscendQuantV3, ascend_tensor(c, x), ascend_tensor(c, factor), shifted ? ascend_tensor(c, offset) : NULL,
        false, mode, ACL_INT8, LAST, ascend_tensor(c, ascend_argument(c, Q)));
  ascend_copy(c, ascend_argument(c, SCALE_OUT), ascend_argument(c, SCALE));
  if (shifted)
    ascend_copy(c, ascend_argument(c, AZP_OUT), ascend_argument(c, AZP));
}

static void run_int8_quant(ascend_call *c) {
  if (ascend_tensor_at(c->call, SCALE)) {
    quantise_by_given(c);
    return;
  }
  ascend_view x = ascend_argument(c, X), q = ascend_argument(c, Q), scale = ascend_argument(c, SCALE_OUT), rows;
  if (!ascend_view_rows(&x, &rows)) {
    ascend_fail(c, FL_ENOTSUP, "the rows of 'x' are not evenly spaced");
    return;
  }
  ACLNN(c, DynamicQuant, ascend_tensor(c, rows), NULL, ascend_tensor(c, ascend_view_reshaped(&q, 2, rows.shape)),
        ascend_tensor(c, ascend_view_reshaped(&scale, 1, rows.shape)));
}

static ascend_op ops[] = {
    {.name = "scaled_int8_quant",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_ALL,
     .run = run_int8_quant,
     .supports = supports_int8_quant,
     .n_results = 2,
     .needs = {ACLNN_DynamicQuant, ACLNN_AscendQuantV3, ACLNN_Reciprocal, ACLNN_Cast}},
};
OP_LIST(ops);
