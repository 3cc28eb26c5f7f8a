/* Element-wise activations, which take any strides, and in place. */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

#include <flhost/dtype.h>

enum { X, MODE };
enum { OUT_OF_ONE = 1, OUT_OF_TWO, OUT_OF_FIVE = 5 }; /* the result, behind so many arguments */
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

static void run_gelu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_TWO);
  ACLNN(c, GeluV2, ascend_tensor(c, x), c->call->values[MODE].v.s[0] == 't', ascend_tensor(c, out));
}

/* ----------------------------------------------------------------------------------------------------- gelu by tanh */

static bool is_float(ascend_view view) {
  return view.type == ACL_FLOAT;
}

/* In 16 bits steps are taken one by one: their roundings are all that is left of the result near -3. */
static bool supports_steps(const fl_call *call, ascend_chips chip, const char **reason) {
  if (chip == ASCEND_310P && !is_float(ascend_view_of(ascend_tensor_at(call, X))))
    return ascend_refuse(reason, "on 310P CANN has no tanh alone, which 16 bits take");
  return true;
}

/* x / 2 (1 + tanh(inner)). `out` may be x. */
static void finish_gelu(ascend_call *c, ascend_view x, ascend_view inner, ascend_view out) {
  ascend_tanh(c, inner);
  ascend_adds(c, inner, 1);
  ascend_muls(c, x, 0.5, out);
  ascend_mul(c, out, inner, out);
}

static void gelu_in_float(ascend_call *c, ascend_view x, ascend_view out) {
  ACLNN(c, GeluV2, ascend_tensor(c, x), 1, ascend_tensor(c, out));
}

/* tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static void run_gelu_new(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  if (is_float(x)) {
    gelu_in_float(c, x, out);
    return;
  }
  ascend_view inner = ascend_scratch_like(c, &x, x.type);
  ascend_mul(c, x, x, inner);
  ascend_mul(c, inner, x, inner);
  ascend_muls(c, inner, 0.044715, inner);
  ascend_add(c, inner, x, inner);
  ascend_muls(c, inner, 0.79788456080286535588, inner);
  finish_gelu(c, x, inner, out);
}

/* tanh(0.7978845608 x (1 + 0.044715 x x)) */
static void run_gelu_fast(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  if (is_float(x)) {
    gelu_in_float(c, x, out);
    return;
  }
  ascend_view inner = ascend_scratch_like(c, &x, x.type), square = ascend_scratch_like(c, &x, x.type);
  ascend_muls(c, x, 0.044715, square);
  ascend_mul(c, square, x, square);
  ascend_adds(c, square, 1);
  ascend_muls(c, x, 0.7978845608, inner);
  ascend_mul(c, inner, square, inner);
  finish_gelu(c, x, inner, out);
}

/* ----------------------------------------------------------------------------------------------------------- others */

static void run_quick_gelu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, FastGelu, ascend_tensor(c, x), ascend_tensor(c, out));
}

static void run_relu2(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, SquaredRelu, ascend_tensor(c, x), ascend_tensor(c, out));
}

enum { ALPHA_P = 1, ALPHA_N, BETA, EPS };

static bool supports_xielu(const fl_call *call, ascend_chips chip, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X);
  (void)chip;
  for (uint32_t i = ALPHA_P; i <= ALPHA_N; i++)
    if (!ascend_same_type(ascend_tensor_at(call, i), x))
      return ascend_refuse(reason, "'alpha_p' and 'alpha_n' are not of the element type of 'x'");
  return true;
}

/* As an element of the type has it. */
static double rounded(aclDataType type, double value) {
  if (type == ACL_FLOAT16)
    return (double)fl_f16_to_float(fl_float_to_f16((float)value));
  if (type == ACL_BF16)
    return (double)fl_bf16_to_float(fl_float_to_bf16((float)value));
  return value;
}

static ascend_view softplus(ascend_call *c, uint32_t index) {
  ascend_view alpha = ascend_argument(c, index), made = ascend_scratch_like(c, &alpha, alpha.type);
  ACLNN(c, Softplus, ascend_tensor(c, alpha), ascend_scalar(c, 1), ascend_scalar(c, 20), ascend_tensor(c, made));
  return made;
}

/* x > 0: ap x x + beta x, else (expm1(min(x, eps)) - x) an + beta x */
static void run_xielu(ascend_call *c) {
  const fl_value *values = c->call->values;
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_FIVE);
  ascend_view linear = ascend_scratch_like(c, &x, x.type), positive = ascend_scratch_like(c, &x, x.type);
  ascend_view least = ascend_scratch_like(c, &x, x.type), bent = ascend_scratch_like(c, &x, x.type);
  ascend_view is_positive = ascend_scratch_like(c, &x, ACL_BOOL);
  double beta = rounded(x.type, values[BETA].v.f), eps = rounded(x.type, values[EPS].v.f);
  ascend_view alpha_p = softplus(c, ALPHA_P), alpha_n = softplus(c, ALPHA_N);
  ascend_adds(c, alpha_n, beta);
  ascend_muls(c, x, beta, linear);
  ascend_mul(c, x, alpha_p, positive);
  ascend_mul(c, positive, x, positive);
  ascend_add(c, positive, linear, positive);
  ACLNN(c, ClampMax, ascend_tensor(c, x), ascend_scalar(c, eps), ascend_tensor(c, least));
  ACLNN(c, Expm1, ascend_tensor(c, least), ascend_tensor(c, bent));
  ascend_sub(c, bent, x);
  ascend_mul(c, bent, alpha_n, bent);
  ascend_add(c, bent, linear, bent);
  ACLNN(c, GtScalar, ascend_tensor(c, x), ascend_scalar(c, 0), ascend_tensor(c, is_positive));
  ACLNN(c, SWhere, ascend_tensor(c, is_positive), ascend_tensor(c, positive), ascend_tensor(c, bent),
        ascend_tensor(c, out));
}

#define STEPS                                                                                                          \
  ACLNN_GeluV2, ACLNN_Muls, ACLNN_Mul, ACLNN_InplaceMul, ACLNN_InplaceMuls, ACLNN_InplaceAdd, ACLNN_InplaceTanh,       \
      ACLNN_InplaceAdds

static ascend_op ops[] = {
    {.name = "gelu", .dtypes = FLOATS, .chips = ASCEND_ALL, .run = run_gelu, .needs = {ACLNN_GeluV2}},
    {.name = "gelu_new",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_gelu_new,
     .supports = supports_steps,
     .needs = {STEPS}},
    {.name = "gelu_fast",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_gelu_fast,
     .supports = supports_steps,
     .needs = {STEPS}},
    {.name = "quick_gelu",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_quick_gelu,
     .needs = {ACLNN_FastGelu}},
    {.name = "relu2", .dtypes = FLOATS, .chips = ASCEND_TRAINING, .run = run_relu2, .needs = {ACLNN_SquaredRelu}},
    {.name = "xielu",
     .dtypes = FLOATS,
     .chips = ASCEND_A2 | ASCEND_A3,
     .run = run_xielu,
     .supports = supports_xielu,
     .needs = {ACLNN_Softplus, ACLNN_InplaceAdds, ACLNN_Muls, ACLNN_Mul, ACLNN_InplaceMul, ACLNN_InplaceAdd,
               ACLNN_ClampMax, ACLNN_Expm1, ACLNN_InplaceSub, ACLNN_GtScalar, ACLNN_SWhere}},
};
OP_LIST(ops);
