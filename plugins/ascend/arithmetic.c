/* Steps that ops are made of: see arithmetic.h. CANN has a form for results in place for each, which is used there:
 * that the other one may overwrite its operand is written nowhere. */
#include "plugins/ascend/arithmetic.h"

#include <flhost/dtype.h>

static bool is_in_place(const ascend_view *a, const ascend_view *out) {
  return a->data == out->data;
}

void ascend_mul(ascend_call *c, ascend_view a, ascend_view b, ascend_view out) {
  if (is_in_place(&a, &out))
    ACLNN(c, InplaceMul, ascend_tensor(c, out), ascend_tensor(c, b));
  else
    ACLNN(c, Mul, ascend_tensor(c, a), ascend_tensor(c, b), ascend_tensor(c, out));
}

void ascend_muls(ascend_call *c, ascend_view a, double factor, ascend_view out) {
  if (is_in_place(&a, &out))
    ACLNN(c, InplaceMuls, ascend_tensor(c, out), ascend_scalar(c, factor));
  else
    ACLNN(c, Muls, ascend_tensor(c, a), ascend_scalar(c, factor), ascend_tensor(c, out));
}

void ascend_add(ascend_call *c, ascend_view a, ascend_view b, ascend_view out) {
  if (is_in_place(&a, &out))
    ACLNN(c, InplaceAdd, ascend_tensor(c, out), ascend_tensor(c, b), ascend_scalar(c, 1));
  else
    ACLNN(c, Add, ascend_tensor(c, a), ascend_tensor(c, b), ascend_scalar(c, 1), ascend_tensor(c, out));
}

void ascend_div(ascend_call *c, ascend_view a, ascend_view b, ascend_view out) {
  if (is_in_place(&a, &out))
    ACLNN(c, InplaceDiv, ascend_tensor(c, out), ascend_tensor(c, b));
  else
    ACLNN(c, Div, ascend_tensor(c, a), ascend_tensor(c, b), ascend_tensor(c, out));
}

void ascend_adds(ascend_call *c, ascend_view a, double term) {
  ACLNN(c, InplaceAdds, ascend_tensor(c, a), ascend_scalar(c, term), ascend_scalar(c, 1));
}

void ascend_sub(ascend_call *c, ascend_view a, ascend_view b) {
  ACLNN(c, InplaceSub, ascend_tensor(c, a), ascend_tensor(c, b), ascend_scalar(c, 1));
}

void ascend_tanh(ascend_call *c, ascend_view a) {
  ACLNN(c, InplaceTanh, ascend_tensor(c, a));
}

void ascend_rsqrt(ascend_call *c, ascend_view a) {
  ACLNN(c, InplaceRsqrt, ascend_tensor(c, a));
}

void ascend_cast(ascend_call *c, ascend_view a, ascend_view out) {
  ACLNN(c, Cast, ascend_tensor(c, a), out.type, ascend_tensor(c, out));
}

ascend_view ascend_in_float(ascend_call *c, ascend_view view) {
  if (view.type == ACL_FLOAT)
    return view;
  ascend_view wide = ascend_scratch_like(c, &view, ACL_FLOAT);
  ascend_cast(c, view, wide);
  return wide;
}

bool ascend_is_exact(aclDataType type, double value) {
  float single = (float)value;
  if (type == ACL_FLOAT16)
    return fl_f16_to_float(fl_float_to_f16(single)) == single;
  if (type == ACL_BF16)
    return fl_bf16_to_float(fl_float_to_bf16(single)) == single;
  return true;
}
