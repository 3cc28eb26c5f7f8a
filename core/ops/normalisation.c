/* Normalisations over the last dimension. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"
#include "core/support.h"

#include <string.h>

#define FORMULA                                                                                                        \
  "s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) * weight; " \
  "the normalised value is rounded to weight's dtype before the product, the product to T "

#define CASES "H: 1 8 33 769 2048; epsilon: 1e-6 1e-5 0; variance_size: none 7 none H"

/* Elements of a row whose squares are added. */
#define NORMALISED "(variance_size + (1 - given(variance_size))*H)"
/* What is timed: rows of Llama 3 8B. */
#define ROWS "...: [1] [128] [4096]; H: 4096; "

/* vLLM IR overrides float16 for both ops. */
static const fl_tolerance tolerance[] = {{FL_FLOAT16, 1e-2, 2e-3}, {0}};

static fl_status check_rms_norm(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  return status ? status : fl_check_variance_size(call, VARIANCE_SIZE, call->values[X].v.tensor);
}

const fl_op_def fl_op_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "rms_norm(Tensor(a!) x, Tensor(b!)? residual=None, Tensor? weight=None, float epsilon=1e-6, "
              "int? variance_size=None) -> (Tensor(a) out, Tensor(b)? residual_out)",
    .layers = "RMSNorm,TPAwareRMSNorm",
    .rules = "x: T[..., H]; residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Root-mean-square normalisation of x, or of x + residual when there is a residual.",
    .formula = FORMULA "(vLLM: RMSNorm, kernels rms_norm, fused_add_rms_norm)",
    .tolerance = tolerance,
    .check = check_rms_norm,
    .cases = CASES,
    .flops = "numel(residual) + (1 + given(weight))*numel(x) + 2*numel(...)*" NORMALISED,
    .bench = ROWS "weight: 0.5..2",
};

static fl_status check_fused_add_rms_norm(fl_call *call) {
  enum { X, X_RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  return status ? status : fl_check_variance_size(call, VARIANCE_SIZE, call->values[X].v.tensor);
}

const fl_op_def fl_op_fused_add_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, "
              "int? variance_size=None) -> (Tensor(a) out, Tensor(b) residual_out)",
    .rules = "x: T[..., H]; x_residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Adds x_residual to x and normalises the sum by its root mean square.",
    .parts = "residual_out = add(x_residual, x); "
             "out = rms_norm(residual_out, weight=weight, epsilon=epsilon, variance_size=variance_size)",
    .formula = FORMULA "(residual is x_residual; vLLM: IR op and kernel fused_add_rms_norm)",
    .tolerance = tolerance,
    .check = check_fused_add_rms_norm,
    .cases = CASES,
    .flops = "(2 + given(weight))*numel(x) + 2*numel(...)*" NORMALISED,
    .bench = ROWS "weight: 0.5..2",
};

static fl_status check_gemma_rms_norm(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, EPSILON };
  return fl_check_not_negative(call, EPSILON, "epsilon");
}

const fl_op_def fl_op_gemma_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "gemma_rms_norm(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, float epsilon=1e-6) -> "
              "(Tensor(a) out, Tensor(b)? residual_out)",
    .layers = "GemmaRMSNorm,TPAwareGemmaRMSNorm",
    .rules = "x: T[..., H]; residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Root-mean-square normalisation whose weight is counted from 1, of x, or of x + residual when there is a "
           "residual.",
    .formula = "s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s^2) + epsilon) * (1 + weight) in "
               "float32, rounded once (vLLM: GemmaRMSNorm)",
    .tolerance = tolerance,
    .check = check_gemma_rms_norm,
    .cases = "H: 1 8 33 769 2048; epsilon: 1e-6 1e-5",
    .flops = "numel(residual) + 4*numel(x)",
    .bench = ROWS "weight: 0.5..2",
};

/* vLLM's tests of both gated norms. */
static const fl_tolerance gated_tolerance[] = {{FL_FLOAT16, 1e-2, 1e-2}, {FL_BFLOAT16, 1e-2, 1e-2}, {0}};
static const fl_tolerance mixer2_tolerance[] = {{FL_FLOAT16, 5e-3, 1e-3}, {0}};

static fl_status check_rms_norm_gated(fl_call *call) {
  enum { X, Z, WEIGHT, EPSILON, GROUP_SIZE, NORM_BEFORE_GATE, ACTIVATION };
  static const char *const words[] = {"silu", "swish", "sigmoid"};
  const DLTensor *x = call->values[X].v.tensor;
  const fl_value *group = &call->values[GROUP_SIZE];
  int64_t hidden = x->shape[x->ndim - 1];
  fl_status status;
  if ((status = fl_check_not_negative(call, EPSILON, "epsilon")) ||
      (status = fl_check_word(call, ACTIVATION, "activation", words, 3)))
    return status;
  if (group->type == FL_NONE || (group->v.i >= 1 && hidden % group->v.i == 0))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'group_size': %lld, expected a divisor of %lld (the last dimension of 'x')",
                 (long long)group->v.i, (long long)hidden);
}

const fl_op_def fl_op_rms_norm_gated = {
    .size = sizeof(fl_op_def),
    .schema = "rms_norm_gated(Tensor x, Tensor? z, Tensor weight, float epsilon=1e-5, int? group_size=None, "
              "bool norm_before_gate=False, str activation=\"swish\") -> Tensor out",
    .layers = "RMSNormGated,FusedRMSNormGated",
    .rules = "x: T[..., H]; z: T[..., H]; weight: T|float32[H]; out: T[..., H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Root-mean-square normalisation in groups of group_size (none: of the whole dimension), gated by z before "
           "or after; activation is \"swish\", \"silu\" (the same) or \"sigmoid\".",
    .formula = "x -> x * act(z) unless norm_before_gate; out = x / sqrt(mean(x^2) + epsilon) * weight, times act(z) if "
               "norm_before_gate; in float32, rounded once (vLLM: RMSNormGated, FusedRMSNormGated)",
    .tolerance = gated_tolerance,
    .check = check_rms_norm_gated,
    .cases = "H: 1 8 96 256 1040; group_size: none 8 H; activation: swish silu sigmoid; epsilon: 1e-5 1e-6",
    /* The norm takes 4, the gate and its product 4. */
    .flops = "4*numel(x) + 4*numel(z)",
    .bench = ROWS "z: normal; weight: 0.5..2",
};

static fl_status check_mixer2(fl_call *call) {
  enum { X, GATE, WEIGHT, EPSILON, N_GROUPS, USE_RMS_NORM };
  const fl_value *values = call->values;
  const DLTensor *x = values[X].v.tensor;
  int64_t hidden = x->shape[x->ndim - 1], groups = values[N_GROUPS].v.i;
  if (values[USE_RMS_NORM].v.b && values[WEIGHT].type == FL_NONE)
    return fl_fail(call, FL_EINVAL, "argument 'weight': none, expected Tensor (use_rms_norm is true)");
  if (groups < 1 || hidden % groups)
    return fl_fail(call, FL_EINVAL, "argument 'n_groups': %lld, expected a divisor of %lld (the last dimension of 'x')",
                   (long long)groups, (long long)hidden);
  return fl_check_not_negative(call, EPSILON, "epsilon");
}

const fl_op_def fl_op_mixer2_gated_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "mixer2_gated_rms_norm(Tensor x, Tensor gate, Tensor? weight, float epsilon=1e-6, int n_groups=1, "
              "bool use_rms_norm=True) -> Tensor out",
    .layers = "Mixer2RMSNormGated",
    .rules = "x: T[..., H]; gate: T[..., H]; weight: T[H] or F[H]; out: F[..., H] when use_rms_norm or T[..., H]; "
             "T = float32|float16|bfloat16; F = float32",
    .category = "normalisation",
    .doc = "Mamba-2's norm: x times SiLU of the gate, normalised by the root mean square of each of n_groups groups. "
           "Without use_rms_norm the product alone (a weight is not used). A float32 weight makes a float32 result.",
    .formula = "v = x * silu(gate) in float32; out = weight * v / sqrt(mean(v^2) + epsilon); the normalised value is "
               "rounded to T before the product (vLLM: Mixer2RMSNormGated)",
    .tolerance = mixer2_tolerance,
    .check = check_mixer2,
    .cases = "H: 1 8 64 768; n_groups: 1 2 4; epsilon: 1e-6 1e-5",
    /* Sizes of Codestral Mamba 7B. */
    .flops = "(4 + 4*use_rms_norm)*numel(x)",
    .bench = "...: [1] [128] [4096]; H: 8192; n_groups: 8; weight: 0.5..2",
};

/* `first`: the weight, before bias and epsilon. */
static fl_status check_scaled_and_shifted(fl_call *call, uint32_t first) {
  const fl_value *weight = &call->values[first], *bias = &call->values[first + 1];
  if (weight->type == FL_TENSOR && bias->type == FL_TENSOR &&
      memcmp(&weight->v.tensor->dtype, &bias->v.tensor->dtype, sizeof(DLDataType)) != 0)
    return fl_fail(call, FL_EINVAL, "argument 'bias': dtype %s, expected %s (that of 'weight')",
                   fl_dtype_name(bias->v.tensor->dtype), fl_dtype_name(weight->v.tensor->dtype));
  return fl_check_not_negative(call, first + 2, "epsilon");
}

static fl_status check_layer_norm(fl_call *call) {
  enum { X, WEIGHT };
  return check_scaled_and_shifted(call, WEIGHT);
}

static fl_status check_nemotron_layer_norm(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT };
  return check_scaled_and_shifted(call, WEIGHT);
}

const fl_op_def fl_op_layer_norm = {
    .size = sizeof(fl_op_def),
    .schema = "layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float epsilon=1e-5) -> Tensor out",
    .layers = "LayerNorm",
    .rules = "x: T[..., H]; weight: T|float32[H]; bias: T|float32[H]; out: T[..., H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Normalisation of rows to mean 0 and variance 1, then times weight, plus bias.",
    .formula = "m = mean(x); out = (x - m) / sqrt(mean((x - m)^2) + epsilon) * weight + bias in float32, rounded once "
               "(vLLM: LayerNorm; torch.nn.functional.layer_norm)",
    .check = check_layer_norm,
    .cases = "H: 1 8 33 769 2048; epsilon: 1e-5 1e-6",
    .flops = "(5 + given(weight) + given(bias))*numel(x)",
    .bench = ROWS "weight: 0.5..2; bias: -1..1",
};

const fl_op_def fl_op_nemotron_layer_norm = {
    .size = sizeof(fl_op_def),
    .schema = "nemotron_layer_norm(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, Tensor bias, "
              "float epsilon=1e-5) -> (Tensor(a) out, Tensor(b)? residual_out)",
    .layers = "NemotronLayerNorm1P",
    .rules = "x: T[..., H]; residual: T[..., H]; weight: T|float32[H]; bias: T|float32[H]; "
             "T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Layer norm whose weight is counted from 1, of x, or of x + residual when there is a residual.",
    .formula = "s = x + residual, rounded to T; residual_out = s; w = weight + 1, rounded to weight's dtype; "
               "out = (s - mean(s)) / sqrt(mean((s - mean(s))^2) + epsilon) * w + bias in float32, rounded once "
               "(vLLM: NemotronLayerNorm1P)",
    .check = check_nemotron_layer_norm,
    .cases = "H: 1 8 33 769 2048; epsilon: 1e-5 1e-6",
    .flops = "numel(residual) + 7*numel(x)",
    .bench = ROWS "weight: -0.5..1; bias: -1..1",
};
