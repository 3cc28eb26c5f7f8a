/* Activations. Gated ones want compact tensors where CANN says so; element-wise ones take any strides, and in place. */
#include "plugins/ascend/ops.h"

enum { X, MODE };
enum { OUT_OF_ONE = 1, OUT_OF_TWO, OUT_OF_THREE, OUT_OF_FOUR }; /* the result, behind so many arguments */
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

static ascend_view last_half(ascend_view x, int which) {
  int64_t half = x.shape[x.n_dims - 1] / 2;
  return ascend_view_part(&x, x.n_dims - 1, which * half, half);
}

static int64_t mode_of(const fl_call *call) {
  return call->values[MODE].v.s[0] == 't'; /* "none" or "tanh" */
}

/* ------------------------------------------------------------------------------------------------------------- gated
 */

/* 310P wants rows of whole 64 bytes. */
static bool supports_silu_and_mul(const fl_call *call, ascend_chips chip, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *out = ascend_tensor_at(call, OUT_OF_ONE);
  ascend_view row = ascend_view_of(out);
  if (!ascend_is_compact(x) || !ascend_is_compact(out))
    return ascend_refuse(reason, "aclnnSwiGlu takes compact tensors only");
  if (chip == ASCEND_310P && row.shape[row.n_dims - 1] * row.size % 64)
    return ascend_refuse(reason, "on 310P aclnnSwiGlu takes rows of multiples of 64 bytes only");
  return true;
}

static void run_silu_and_mul(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, SwiGlu, ascend_tensor(c, x), -1, ascend_tensor(c, out));
}

/* The operator takes the first half for the gate. */
static void run_mul_and_silu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, Silu, ascend_tensor(c, last_half(x, 1)), ascend_tensor(c, out));
  ACLNN(c, InplaceMul, ascend_tensor(c, out), ascend_tensor(c, last_half(x, 0)));
}

static bool supports_gelu_and_mul(const fl_call *call, ascend_chips chip, const char **reason) {
  enum { LONGEST = 1024, MOST_ROWS = 200000 };
  ascend_view x = ascend_view_of(ascend_tensor_at(call, X));
  int64_t last = x.shape[x.n_dims - 1];
  (void)chip;
  if (last > LONGEST)
    return ascend_refuse(reason, "aclnnGeluMul takes a last dimension of up to 1024");
  if (ascend_view_count(&x) / last > MOST_ROWS)
    return ascend_refuse(reason, "aclnnGeluMul takes up to 200000 rows");
  return true;
}

/* It wants two dimensions or more. */
static ascend_view of_two_dims(ascend_view view) {
  ascend_view rows = view;
  return view.n_dims == 1 && ascend_view_rows(&view, &rows) ? rows : view;
}

static void run_gelu_and_mul(ascend_call *c) {
  static char none[] = "none", tanh_[] = "tanh";
  ascend_view x = of_two_dims(ascend_argument(c, X)), out = of_two_dims(ascend_argument(c, OUT_OF_TWO));
  ACLNN(c, GeluMul, ascend_tensor(c, x), mode_of(c->call) ? tanh_ : none, ascend_tensor(c, out));
}

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

/* ------------------------------------------------------------------------------------------------------ element-wise
 */

static void run_gelu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_TWO);
  ACLNN(c, GeluV2, ascend_tensor(c, x), mode_of(c->call), ascend_tensor(c, out));
}

/* The steps of gelu_new and gelu_fast are one formula; 16-bit results are rounded at each of them, which the operator
 * does not do, and near -3 that is all that is left of them. */
static void run_gelu_tanh(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, GeluV2, ascend_tensor(c, x), 1, ascend_tensor(c, out));
}

static void run_quick_gelu(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, FastGelu, ascend_tensor(c, x), ascend_tensor(c, out));
}

static void run_relu2(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT_OF_ONE);
  ACLNN(c, SquaredRelu, ascend_tensor(c, x), ascend_tensor(c, out));
}

ascend_op ascend_activations[] = {
    {.name = "silu_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_silu_and_mul,
     .supports = supports_silu_and_mul,
     .needs = {ACLNN_SwiGlu}},
    {.name = "mul_and_silu",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_mul_and_silu,
     .needs = {ACLNN_Silu, ACLNN_InplaceMul}},
    {.name = "gelu_and_mul",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_gelu_and_mul,
     .supports = supports_gelu_and_mul,
     .needs = {ACLNN_GeluMul}},
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
    {.name = "gelu", .dtypes = FLOATS, .chips = ASCEND_ALL, .run = run_gelu, .needs = {ACLNN_GeluV2}},
    {.name = "gelu_new", .dtypes = FL_FLOAT32, .chips = ASCEND_ALL, .run = run_gelu_tanh, .needs = {ACLNN_GeluV2}},
    {.name = "gelu_fast", .dtypes = FL_FLOAT32, .chips = ASCEND_ALL, .run = run_gelu_tanh, .needs = {ACLNN_GeluV2}},
    {.name = "quick_gelu",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_quick_gelu,
     .needs = {ACLNN_FastGelu}},
    {.name = "relu2", .dtypes = FLOATS, .chips = ASCEND_TRAINING, .run = run_relu2, .needs = {ACLNN_SquaredRelu}},
    {.name = NULL},
};
