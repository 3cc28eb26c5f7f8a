/* Activations: element-wise, or gated by one half of the last dimension. */
#include "core/ops/entries.h"
#include "core/text.h"

#include <string.h>

#define FLOATS "T = float32|float16|bfloat16"
#define SIZES  "d: 1 7 64 513 1365; "

const fl_op_def fl_op_silu_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "silu_and_mul(Tensor x) -> Tensor out",
    .rules = "x: T[..., 2*d]; out: T[..., d]; " FLOATS,
    .category = "activation",
    .doc = "SiLU of the first half of x's last dimension, times the second half.",
    .formula =
        "out = silu(x[..., :d]) * x[..., d:], silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the "
        "product (vLLM: SiluAndMul, kernel silu_and_mul)",
    .cases = SIZES,
};

static fl_status check_gelu_and_mul(fl_call *call) {
  static const char *const words[] = {"none", "tanh"};
  enum { X, APPROXIMATE };
  const char *given = call->values[APPROXIMATE].v.s;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (!strcmp(given, words[i]))
      return FL_OK;
  const char *nearest = fl_nearest(given, words, sizeof words / sizeof words[0]);
  return fl_fail(call, FL_EINVAL, "argument 'approximate': \"%s\", expected \"none\" or \"tanh\"%s%s%s", given,
                 nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

const fl_op_def fl_op_gelu_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "gelu_and_mul(Tensor x, str approximate=\"none\") -> Tensor out",
    .rules = "x: T[..., 2*d]; out: T[..., d]; " FLOATS,
    .category = "activation",
    .doc = "GELU of the first half of x's last dimension, times the second half; approximate is \"none\" or \"tanh\".",
    .formula =
        "out = gelu(x[..., :d]) * x[..., d:], gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for \"none\", "
        "v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715 * v^3))) for \"tanh\"; rounded to T after gelu and after the "
        "product (vLLM: GeluAndMul, kernels gelu_and_mul, gelu_tanh_and_mul)",
    .check = check_gelu_and_mul,
    .cases = SIZES "approximate: none tanh; x: moderate", /* 1 + tanh(-4) has few digits, which x2 makes large */
};
