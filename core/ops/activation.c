/* Activations: element-wise, or gated by one half of the last dimension. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#define FLOATS "T = float32|float16|bfloat16"
#define GATED  .rules = "x: T[..., 2*d]; out: T[..., d]; " FLOATS, .category = "activation"
/* What tests draw x's last dimension from. */
#define SIZES "d: 1 7 64 513 1365"
#define PLAIN .rules = "x: T[..., d]; " FLOATS, .category = "activation"

/* What is timed: the MLP of Llama 3 8B. */
#define WIDE "...: [1] [128] [4096]; d: 14336"

/* g and u in formulas. */
#define HALVES "g = x[..., :d], u = x[..., d:]"

#define GELU_NONE "gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for \"none\", "
#define GELU_TANH "v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715 * v^3))) for \"tanh\""

/* Of vLLM's tests of the clamped activations. */
static const fl_tolerance clamped[] = {{FL_FLOAT16, 1e-3, 2e-3}, {FL_BFLOAT16, 1e-3, 2e-2}, {0}};

static fl_status check_approximate(fl_call *call, uint32_t index) {
  static const char *const words[] = {"none", "tanh"};
  return fl_check_word(call, index, "approximate", words, 2);
}

const fl_op_def fl_op_silu_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "silu_and_mul(Tensor x) -> Tensor out",
    .layers = "SiluAndMul",
    GATED,
    .doc = "SiLU of the first half of x's last dimension, times the second half.",
    .formula =
        "out = silu(x[..., :d]) * x[..., d:], silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the "
        "product (vLLM: SiluAndMul, kernel silu_and_mul)",
    .cases = SIZES,
    .flops = "4*numel(out)",
    .bench = WIDE,
};

const fl_op_def fl_op_mul_and_silu = {
    .size = sizeof(fl_op_def),
    .schema = "mul_and_silu(Tensor x) -> Tensor out",
    .layers = "MulAndSilu",
    GATED,
    .doc = "The first half of x's last dimension, times SiLU of the second half.",
    .formula =
        "out = x[..., :d] * silu(x[..., d:]), silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the "
        "product (vLLM: MulAndSilu, kernel mul_and_silu)",
    .cases = SIZES,
    .flops = "4*numel(out)",
    .bench = WIDE,
};

static fl_status check_gelu_and_mul(fl_call *call) {
  enum { X, APPROXIMATE };
  return check_approximate(call, APPROXIMATE);
}

const fl_op_def fl_op_gelu_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "gelu_and_mul(Tensor x, str approximate=\"none\") -> Tensor out",
    .layers = "GeluAndMul",
    GATED,
    .doc = "GELU of the first half of x's last dimension, times the second half; approximate is \"none\" or \"tanh\".",
    .formula = "out = gelu(x[..., :d]) * x[..., d:], " GELU_NONE GELU_TANH "; rounded to T after gelu and after the "
               "product (vLLM: GeluAndMul, kernels gelu_and_mul, gelu_tanh_and_mul)",
    .check = check_gelu_and_mul,
    .cases = SIZES "; approximate: none tanh; x: moderate",
    /* Of erf; tanh takes 4 more. */
    .flops = "6*numel(out)",
    .bench = WIDE,
};

/* Compared as float: what the formula takes the quantile of. */
static fl_status check_gelu_and_mul_sparse(fl_call *call) {
  enum { X, ACTIVATION_SPARSITY, APPROXIMATE };
  double sparsity = call->values[ACTIVATION_SPARSITY].v.f;
  if (!((float)sparsity > 0 && (float)sparsity < 1))
    return fl_fail(call, FL_EINVAL, "argument 'activation_sparsity': %g, expected a number above 0 and below 1%s",
                   sparsity, sparsity ? "" : " (gelu_and_mul is the op without sparsity)");
  return check_approximate(call, APPROXIMATE);
}

const fl_op_def fl_op_gelu_and_mul_sparse = {
    .size = sizeof(fl_op_def),
    .schema = "gelu_and_mul_sparse(Tensor x, float activation_sparsity, str approximate=\"none\") -> Tensor out",
    .layers = "GeluAndMulSparse",
    GATED,
    .doc = "GELU of what the first half of x's last dimension has above a cut, times the second half; the cut leaves a "
           "part of 1 - activation_sparsity of normally distributed values.",
    .formula = "out = gelu(relu(g - cut)) * u, " HALVES ", cut = mean(g) + std(g) * m over the last dimension, std of "
               "the population, m the quantile of the standard normal distribution at activation_sparsity in "
               "float32, " GELU_NONE GELU_TANH "; rounded to T after every step (vLLM: GeluAndMulSparse)",
    .check = check_gelu_and_mul_sparse,
    .cases = SIZES "; activation_sparsity: 0.95 0.5 0.1; approximate: none tanh; x: moderate",
    /* The mean takes 1, the variance 3, the cut and relu 2, the rest is gelu_and_mul. */
    .flops = "12*numel(out)",
    .bench = WIDE,
};

static fl_status check_swigluoai_and_mul(fl_call *call) {
  enum { X, ALPHA, LIMIT };
  fl_status status = fl_check_finite(call, ALPHA, "alpha");
  return status ? status : fl_check_positive(call, LIMIT, "limit");
}

const fl_op_def fl_op_swigluoai_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "swigluoai_and_mul(Tensor x, float alpha=1.702, float limit=7.0) -> Tensor out",
    .layers = "SwigluOAIAndMul",
    GATED,
    .doc = "The gated activation of gpt-oss: gate and factor alternate in x's last dimension, both are clamped.",
    .formula = "out = (u + 1) * (g * sigmoid(alpha * g)), g = min(x[..., 0::2], limit), u = clamp(x[..., 1::2], "
               "-limit, limit); rounded to T after every step (vLLM: SwigluOAIAndMul, kernel swigluoai_and_mul)",
    .tolerance = clamped,
    .check = check_swigluoai_and_mul,
    .cases = SIZES "; alpha: 1.702 1; limit: 7 1",
    .flops = "10*numel(out)",
    .bench = WIDE,
};

static fl_status check_fatrelu_and_mul(fl_call *call) {
  enum { X, THRESHOLD };
  return fl_check_finite(call, THRESHOLD, "threshold");
}

const fl_op_def fl_op_fatrelu_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "fatrelu_and_mul(Tensor x, float threshold=0.0) -> Tensor out",
    .layers = "FatreluAndMul",
    GATED,
    .doc = "What of the first half of x's last dimension is above a threshold, else 0, times the second half.",
    .formula = "out = (g > threshold ? g : 0) * u, " HALVES "; compared in float32, NaN stays (vLLM: FatreluAndMul, "
               "kernel fatrelu_and_mul)",
    .check = check_fatrelu_and_mul,
    .cases = SIZES "; threshold: 0 0.5 -1",
    .flops = "2*numel(out)",
    .bench = WIDE,
};

static fl_status check_silu_and_mul_with_clamp(fl_call *call) {
  enum { X, LIMIT, ALPHA, BETA };
  fl_status status;
  if ((status = fl_check_positive(call, LIMIT, "limit")) || (status = fl_check_finite(call, ALPHA, "alpha")))
    return status;
  return fl_check_finite(call, BETA, "beta");
}

const fl_op_def fl_op_silu_and_mul_with_clamp = {
    .size = sizeof(fl_op_def),
    .schema = "silu_and_mul_with_clamp(Tensor x, float limit, float alpha=1.0, float beta=0.0) -> Tensor out",
    .layers = "SiluAndMulWithClamp",
    GATED,
    .doc = "SiLU of the clamped first half of x's last dimension, times the clamped second half plus beta.",
    .formula = "out = g * sigmoid(alpha * g) * (u + beta), g = min(x[..., :d], limit), u = clamp(x[..., d:], -limit, "
               "limit); rounded to T after every step (vLLM: SiluAndMulWithClamp, kernel silu_and_mul_with_clamp)",
    .tolerance = clamped,
    .check = check_silu_and_mul_with_clamp,
    .cases = SIZES "; limit: 7 1; alpha: 1 1.5; beta: 0 1",
    .flops = "10*numel(out)",
    .bench = WIDE,
};

static fl_status check_swiglustep_and_mul(fl_call *call) {
  enum { X, LIMIT };
  return fl_check_positive(call, LIMIT, "limit");
}

const fl_op_def fl_op_swiglustep_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "swiglustep_and_mul(Tensor x, float limit=7.0) -> Tensor out",
    .layers = "SwigluStepAndMul",
    GATED,
    .doc = "SiLU of the first half of x's last dimension, clamped from above, times the clamped second half.",
    .formula = "out = min(silu(x[..., :d]), limit) * clamp(x[..., d:], -limit, limit); rounded to T after silu and "
               "after the product (vLLM: SwigluStepAndMul)",
    .tolerance = clamped,
    .check = check_swiglustep_and_mul,
    .cases = SIZES "; limit: 7 1",
    .flops = "7*numel(out)",
    .bench = WIDE,
};

static fl_status check_situ_and_mul(fl_call *call) {
  enum { X, BETA, LINEAR_BETA };
  fl_status status = fl_check_positive(call, BETA, "beta");
  return status ? status : fl_check_positive(call, LINEAR_BETA, "linear_beta");
}

const fl_op_def fl_op_situ_and_mul = {
    .size = sizeof(fl_op_def),
    .schema = "situ_and_mul(Tensor x, float beta=1.0, float? linear_beta=None) -> Tensor out",
    .layers = "SituAndMul",
    GATED,
    .doc = "SiLU with a soft limit of the first half of x's last dimension, times the second half, which is softly "
           "limited too when linear_beta is given.",
    .formula = "out = beta * tanh(g / beta) * sigmoid(g) * u, " HALVES ", u -> linear_beta * tanh(u / linear_beta) if "
               "there is one; in float32, rounded once (vLLM: SituAndMul, kernel situ_and_mul)",
    .check = check_situ_and_mul,
    .cases = SIZES "; beta: 1 4; linear_beta: none 2",
    .flops = "(8 + 3*given(linear_beta))*numel(out)",
    .bench = WIDE,
};

static fl_status check_gelu(fl_call *call) {
  enum { X, APPROXIMATE };
  return check_approximate(call, APPROXIMATE);
}

const fl_op_def fl_op_gelu = {
    .size = sizeof(fl_op_def),
    .schema = "gelu(Tensor(a!) x, str approximate=\"none\") -> Tensor(a) out",
    .layers = "GELU,GELUTanh",
    PLAIN,
    .doc = "GELU of each element; approximate is \"none\" or \"tanh\".",
    .formula = "out = gelu(x), " GELU_NONE GELU_TANH " (vLLM: get_act_fn gelu, gelu_pytorch_tanh)",
    .check = check_gelu,
    .cases = SIZES "; approximate: none tanh",
    /* Of erf; tanh takes 4 more. */
    .flops = "5*numel(out)",
    .bench = WIDE,
};

const fl_op_def fl_op_gelu_new = {
    .size = sizeof(fl_op_def),
    .schema = "gelu_new(Tensor(a!) x) -> Tensor(a) out",
    .layers = "NewGELU",
    PLAIN,
    .doc = "GELU by tanh, in the steps of the first GPT-2.",
    .formula = "out = 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))); rounded to T after every step (vLLM: "
               "NewGELU, kernel gelu_new)",
    .cases = SIZES,
    .flops = "9*numel(out)",
    .bench = WIDE,
};

const fl_op_def fl_op_gelu_fast = {
    .size = sizeof(fl_op_def),
    .schema = "gelu_fast(Tensor(a!) x) -> Tensor(a) out",
    .layers = "FastGELU",
    PLAIN,
    .doc = "GELU by tanh, with the cubic factored.",
    .formula = "out = 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))); rounded to T after every step "
               "(vLLM: FastGELU, kernel gelu_fast)",
    .cases = SIZES,
    .flops = "9*numel(out)",
    .bench = WIDE,
};

const fl_op_def fl_op_quick_gelu = {
    .size = sizeof(fl_op_def),
    .schema = "quick_gelu(Tensor(a!) x) -> Tensor(a) out",
    .layers = "QuickGELU",
    PLAIN,
    .doc = "GELU by the logistic function.",
    .formula = "out = x * sigmoid(1.702 * x); rounded to T after every step (vLLM: QuickGELU, kernel gelu_quick)",
    .cases = SIZES,
    .flops = "5*numel(out)",
    .bench = WIDE,
};

const fl_op_def fl_op_relu2 = {
    .size = sizeof(fl_op_def),
    .schema = "relu2(Tensor(a!) x) -> Tensor(a) out",
    .layers = "ReLUSquaredActivation",
    PLAIN,
    .doc = "The square of what is above 0.",
    .formula = "out = max(x, 0)^2; NaN stays (vLLM: ReLUSquaredActivation, kernel relu_squared)",
    .cases = SIZES,
    .flops = "2*numel(out)",
    .bench = WIDE,
};

static fl_status check_xielu(fl_call *call) {
  enum { X, ALPHA_P, ALPHA_N, BETA, EPS };
  fl_status status = fl_check_finite(call, BETA, "beta");
  return status ? status : fl_check_finite(call, EPS, "eps");
}

const fl_op_def fl_op_xielu = {
    .size = sizeof(fl_op_def),
    .schema = "xielu(Tensor(a!) x, Tensor alpha_p, Tensor alpha_n, float beta=0.5, float eps=-1e-6) -> Tensor(a) out",
    .layers = "XIELU",
    .rules = "x: T[..., d]; alpha_p: float32|float16|bfloat16[1]; alpha_n: float32|float16|bfloat16[1]; " FLOATS,
    .category = "activation",
    .doc = "Expanded integral of the exponential linear unit, with trained parameters alpha_p and alpha_n.",
    .formula = "out = ap * x * x + beta * x for x > 0, else (expm1(min(x, eps)) - x) * an + beta * x, ap = "
               "softplus(alpha_p), an = beta + softplus(alpha_n); beta and eps are rounded to T, then every step to T, "
               "or to float32 where a parameter of another type comes in (vLLM: XIELU)",
    .check = check_xielu,
    .cases = SIZES "; alpha_p: -2..2; alpha_n: -2..2; beta: 0.5 1; eps: -1e-6",
    /* Of a negative element; a positive one takes 5. */
    .flops = "7*numel(out)",
    .bench = WIDE,
};
