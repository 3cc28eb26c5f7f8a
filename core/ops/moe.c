/* Mixture of experts: routing of tokens to experts, and the experts themselves. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#include <string.h>

#define FLOATS "T = float32|float16|bfloat16"

/* vLLM's tests of its kernels: ids are integers and exact, weights are float32. */
static const fl_tolerance grouped_tolerance[] = {{FL_FLOAT32, 2e-2, 0}, {0}};
static const fl_tolerance softmax_tolerance[] = {{FL_FLOAT32, 1e-2, 1e-2}, {0}};
/* atol of vLLM's tests of the experts; rtol of its default table. */
static const fl_tolerance experts_tolerance[] = {
    {FL_FLOAT32, 2e-2, 1.3e-6}, {FL_FLOAT16, 2e-2, 1e-3}, {FL_BFLOAT16, 2e-2, 1.6e-2}, {0}};

static const char *const scoring_words[] = {"softmax", "sigmoid"};
static const char *const activation_words[] = {"silu", "gelu", "gelu_tanh", "swigluoai", "swiglustep"};
enum { N_SCORING_WORDS = 2, N_ACTIVATION_WORDS = 5 };

/* `what` says where `most` comes from. */
static fl_status check_int(fl_call *call, uint32_t index, const char *name, int64_t most, const char *what) {
  int64_t given = call->values[index].v.i;
  if (given >= 1 && given <= most)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected 1 to %lld (%s)", name, (long long)given,
                 (long long)most, what);
}

/* ---------------------------------------------------------------------------------------------------------- routing */

/* Where an op that routes by groups of experts has its arguments. */
typedef struct grouping {
  const char *topk_name, *experts; /* what says how many experts there are */
  uint32_t topk, num_expert_group, topk_group, bias;
} grouping;

static fl_status check_groups(fl_call *call, const grouping *at, int64_t experts) {
  const fl_value *values = call->values;
  int64_t groups = values[at->num_expert_group].v.i;
  fl_status status = check_int(call, at->num_expert_group, "num_expert_group", experts, at->experts);
  if (status)
    return status;
  if (experts % groups)
    return fl_fail(call, FL_EINVAL, "argument 'num_expert_group': %lld, expected a divisor of %lld (%s)",
                   (long long)groups, (long long)experts, at->experts);
  if (values[at->bias].type == FL_TENSOR && groups == experts)
    return fl_fail(call, FL_EINVAL,
                   "argument 'num_expert_group': %lld, expected groups of 2 experts or more: with "
                   "'e_score_correction_bias' a group is as good as its two best",
                   (long long)groups);
  status = check_int(call, at->topk_group, "topk_group", groups, "argument 'num_expert_group'");
  return status ? status
                : check_int(call, at->topk, at->topk_name, values[at->topk_group].v.i * (experts / groups),
                            "the number of experts in 'topk_group' groups");
}

static int64_t last_dimension(const DLTensor *tensor) {
  return tensor->shape[tensor->ndim - 1];
}

static fl_status check_grouped_topk(fl_call *call) {
  enum { GATING_OUTPUT, TOPK, RENORMALIZE, NUM_EXPERT_GROUP, TOPK_GROUP, SCORING_FUNC, ROUTED_SCALING_FACTOR, BIAS };
  static const grouping at = {"topk", "the experts of 'gating_output'", TOPK, NUM_EXPERT_GROUP, TOPK_GROUP, BIAS};
  fl_status status = fl_check_word(call, SCORING_FUNC, "scoring_func", scoring_words, N_SCORING_WORDS);
  if (!status)
    status = fl_check_finite(call, ROUTED_SCALING_FACTOR, "routed_scaling_factor");
  return status ? status : check_groups(call, &at, last_dimension(call->values[GATING_OUTPUT].v.tensor));
}

const fl_op_def fl_op_grouped_topk = {
    .size = sizeof(fl_op_def),
    .schema = "grouped_topk(Tensor gating_output, int topk, bool renormalize, int num_expert_group=1, "
              "int topk_group=1, str scoring_func=\"softmax\", float routed_scaling_factor=1.0, "
              "Tensor? e_score_correction_bias=None) -> (Tensor topk_weights, Tensor topk_ids)",
    .layers = "GroupedTopk",
    .rules = "gating_output: T[..., e]; e_score_correction_bias: T|float32[e]; topk_weights: float32[..., topk]; "
             "topk_ids: int32[..., topk]; " FLOATS,
    .category = "mixture of experts",
    .doc = "The topk best experts of each token, from its topk_group best groups of experts.",
    .formula =
        "s = scoring_func(gating_output), rounded to T; s' = s + e_score_correction_bias; a group is as good as its "
        "best s', with a bias as the sum of its two best; ids = the topk best s' in the topk_group best groups, of "
        "equal ones the lowest; weights = s[ids], / their sum if renormalize, * routed_scaling_factor (vLLM: "
        "GroupedTopk, kernel grouped_topk)",
    .tolerance = grouped_tolerance,
    .check = check_grouped_topk,
    .cases = "e: 16 64 128; topk: 1 2 8; num_expert_group: 1 4 8; topk_group: 1 2 4; scoring_func: softmax sigmoid; "
             "routed_scaling_factor: 1 2.5; e_score_correction_bias: none -1..1; gating_output: -4..4",
    /* Softmax takes 5 (sigmoid 3), the choice of groups and that of experts a comparison each. Sizes of DeepSeek-V3. */
    .flops = "(7 + given(e_score_correction_bias))*numel(gating_output) + 2*renormalize*numel(topk_weights)",
    .bench = "...: [1] [128] [4096]; e: 256; topk: 8; num_expert_group: 8; topk_group: 4; scoring_func: sigmoid; "
             "renormalize: true; e_score_correction_bias: -1..1",
};

static fl_status check_topk_softmax(fl_call *call) {
  enum { GATING_OUTPUT, TOPK };
  int64_t experts = last_dimension(call->values[GATING_OUTPUT].v.tensor);
  return check_int(call, TOPK, "topk", experts, "the experts of 'gating_output'");
}

const fl_op_def fl_op_topk_softmax = {
    .size = sizeof(fl_op_def),
    .schema = "topk_softmax(Tensor gating_output, int topk, bool renormalize=False) -> "
              "(Tensor topk_weights, Tensor topk_ids)",
    .rules = "gating_output: T[..., e]; topk_weights: float32[..., topk]; topk_ids: int32[..., topk]; " FLOATS,
    .category = "mixture of experts",
    .doc = "The topk most probable experts of each token.",
    .formula =
        "p = softmax(gating_output) in float32, 0 where it is not finite; ids = the topk largest p, of equal ones "
        "the lowest; weights = p[ids], / their sum if renormalize and that is above 0 (vLLM: fused_topk, kernel "
        "topk_softmax)",
    .tolerance = softmax_tolerance,
    .check = check_topk_softmax,
    .cases = "e: 1 8 33 128; topk: 1 2 8",
    /* Softmax takes 5, the choice a comparison. */
    .flops = "6*numel(gating_output) + 2*renormalize*numel(topk_weights)",
    .bench = "...: [1] [128] [4096]; e: 64; topk: 8",
};

/* -------------------------------------------------------------------------------------------------------- alignment */

enum { ALIGN_TOPK_IDS, ALIGN_NUM_EXPERTS, ALIGN_BLOCK_SIZE };

/* Sizes that int32 can index, as the results are int32, and that 'topk_ids' explains. */
static fl_status check_moe_align_block_size(fl_call *call) {
  const DLTensor *ids = call->values[ALIGN_TOPK_IDS].v.tensor;
  int64_t experts = call->values[ALIGN_NUM_EXPERTS].v.i, block = call->values[ALIGN_BLOCK_SIZE].v.i, numel, size;
  fl_status status = check_int(call, ALIGN_NUM_EXPERTS, "num_experts", INT32_MAX, "what int32 can say");
  if (!status)
    status = check_int(call, ALIGN_BLOCK_SIZE, "block_size", INT32_MAX, "what int32 can say");
  if (status)
    return status;
  if (__builtin_mul_overflow(ids->shape[0], ids->shape[1], &numel) ||
      __builtin_add_overflow(numel, experts * (block - 1), &size) || size > INT32_MAX)
    return fl_fail(call, FL_EINVAL,
                   "arguments 'num_experts' and 'block_size': %lld and %lld, expected fewer than 2^31 entries in "
                   "'sorted_token_ids'",
                   (long long)experts, (long long)block);
  status = fl_check_sized(call, "argument 'num_experts'", "a count for each", experts, numel);
  return status ? status
                : fl_check_sized(call, "arguments 'num_experts' and 'block_size'", "'sorted_token_ids'", size, numel);
}

const fl_op_def fl_op_moe_align_block_size = {
    .size = sizeof(fl_op_def),
    .schema = "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size) -> "
              "(Tensor sorted_token_ids, Tensor expert_ids, Tensor num_tokens_post_pad)",
    .rules = "topk_ids: int32|int64[m, k]; sorted_token_ids: int32[m*k + num_experts*(block_size - 1)]; "
             "expert_ids: int32[(m*k + (num_experts + 1)*(block_size - 1)) // block_size]; "
             "num_tokens_post_pad: int32[1]",
    .category = "mixture of experts",
    .doc =
        "The places of topk_ids sorted by expert, each expert's filled up to whole blocks; expert_ids has the expert "
        "of each block.",
    .formula = "sorted_token_ids: for each expert in order the flat indices of topk_ids that name it, in order, then "
               "numel up to a multiple of block_size; behind num_tokens_post_pad sorted_token_ids = numel and "
               "expert_ids = -1 (vLLM: moe_align_block_size)",
    .check = check_moe_align_block_size,
    .cases = "m: 1 7 83 0 1024; k: 1 2 6; num_experts: 1 8 64; block_size: 1 16 64; topk_ids: 0..num_experts-1",
    .flops = "0",
    .bench = "m: 1 128 4096; k: 8; num_experts: 64; block_size: 64",
};

const fl_op_def fl_op_moe_sum = {
    .size = sizeof(fl_op_def),
    .schema = "moe_sum(Tensor x) -> Tensor out",
    .rules = "x: T[..., k, h]; out: T[..., h]; " FLOATS,
    .category = "mixture of experts",
    .doc = "The sum of what the k experts of a token gave.",
    .formula = "out = x.sum(-2), in float32 and in order, rounded to T once (vLLM: moe_sum)",
    .cases = "k: 1 2 6; h: 1 7 64 513",
    .flops = "max(numel(x) - numel(out), 0)",
    .bench = "...: [1] [128] [4096]; k: 8; h: 2048",
};

/* ---------------------------------------------------------------------------------------------------------- experts */

#define EXPERTS "x: T[m, h]; w13: T[e, 2*i, h]; w2: T[e, h, i]; "
/* Weights that may be codes, and their scales. */
#define CODED_EXPERTS                                                                                                  \
  "x: T[m, h]; w13: T[e, 2*i, h] or int8|float8_e4m3fn[e, 2*i, h] or uint8[e, 2*i, h/2]; "                             \
  "w2: T[e, h, i] or int8|float8_e4m3fn[e, h, i] or uint8[e, h, i/2]; "
#define SCALES                                                                                                         \
  "w13_scale: float32[e] or float32[e, 2*i] or float32[e, 2*i, 1] or float32[e, (2*i + block_size[0] - 1) // "         \
  "block_size[0], (h + block_size[1] - 1) // block_size[1]] or uint8[e, 2*i, h/32]; "                                  \
  "w2_scale: float32[e] or float32[e, h] or float32[e, h, 1] or float32[e, (h + block_size[0] - 1) // "                \
  "block_size[0], (i + block_size[1] - 1) // block_size[1]] or uint8[e, h, i/32]; "
/* All ranks have the same tokens, and some of the experts (expert_map), or a part of each; then a bias of the output is
 * added once. */
#define SHARED_TOKENS "ep, tp: out = all_reduce(out)"
#define SHARED_BIASES "ep, tp: w2_bias = first(w2_bias) if not expert_map; out = all_reduce(out)"
#define ROUTED        "topk_weights: T|float32[m, k]; topk_ids: int32|int64[m, k]; "
#define OPTIONS       "expert_map: int32|int64[g]; w13_bias: T|float32[e, 2*i]; w2_bias: T|float32[e, h]; "
/* What tests are drawn from: weights that keep sums near 1, as vLLM's tests have them. */
#define EXPERTS_CASES                                                                                                  \
  "m: 1 2 33 0 128 640 900; h: 16 32 100; i: 8 16 48; e: 4 8; x: moderate; w13: -0.1..0.1; w2: -0.1..0.1; "            \
  "activation: silu gelu gelu_tanh swigluoai swiglustep; "
/* Sizes that MXFP4 takes are among them; values of codes are those of other weights. */
#define CODES "T -0.1..0.1 T -0.1..0.1 int8 -20..20 float8_e4m3fn -20..20 float8_e4m3fn -20..20 uint8 0..255; "
#define CODED_CASES                                                                                                    \
  "m: 1 2 33 0 128 640 900; h: 16 32 64 100; i: 8 32 48 64; e: 4 8; x: moderate; w13: " CODES "w2: as w13 " CODES      \
  "activation: silu gelu gelu_tanh swigluoai swiglustep; block_size: [16, 32]; "                                       \
  "w13_scale: as w13 none none float32 [e] 0.004..0.006 float32 [e, 2*i] 0.004..0.006 "                                \
  "float32 [e, (2*i+15)//16, (h+31)//32] 0.004..0.006 uint8 120..122; "                                                \
  "w2_scale: as w13 none none float32 [e] 0.004..0.006 float32 [e, h] 0.004..0.006 "                                   \
  "float32 [e, (h+15)//16, (i+31)//32] 0.004..0.006 uint8 120..122; "
#define ROUTED_CASES  "k: 1 2; topk_weights: 0..1; topk_ids: distinct 0..e-1; "
#define OPTIONS_CASES "g: e; expert_map: none -1..e-1; w13_bias: none -0.1..0.1; w2_bias: none -0.1..0.1; "
/* Three products of a token with each of its experts. Of the experts no more are read than tokens can choose. */
#define EXPERTS_FLOPS(k)          "6*m*" k "*h*i"
#define EXPERTS_BYTES(k, tensors) "default - max(e - m*" k ", 0)*(" tensors ")/max(e, 1)"
#define WEIGHTS                   "nbytes(w13) + nbytes(w2)"
#define WEIGHTS_AND_BIASES        WEIGHTS " + nbytes(w13_bias) + nbytes(w2_bias)"
#define CODED_WEIGHTS             WEIGHTS_AND_BIASES " + nbytes(w13_scale) + nbytes(w2_scale)"
/* What is timed: OLMoE 7B. */
#define EXPERTS_BENCH "m: 1 128 4096; h: 2048; i: 1024; e: 64; "
#define EXPERTS_FORMULA                                                                                                \
  "with e = topk_ids[m, j], or expert_map[that] (-1: the term is 0): t1 = x[m] w13[e]^T + w13_bias[e]; t2 = "          \
  "activation of t1's first half times its second half (swigluoai: neighbours); t3 = t2 w2[e]^T + w2_bias[e]; "        \
  "out[m] = sum over j of topk_weights[m, j] * t3, in float32; t1, t2, t3, out rounded to T. With "                    \
  "apply_router_weight_on_input (topk 1) x is multiplied by the weight instead. activation: silu, gelu, gelu_tanh, "   \
  "swigluoai or swiglustep "
/* Weights as weight_only_linear and mxfp4_linear have them. */
#define CODED_FORMULA                                                                                                  \
  "; weights of int8 or float8 are codes, each times the scale of its expert, its row, or its block of block_size; "   \
  "those of uint8 are MXFP4, 2 in a byte, with a power of two 2^(byte - 127) for each 32 columns, as mxfp4_linear "    \
  "has them; x is not quantised "

static fl_status check_activation(fl_call *call, uint32_t index) {
  return fl_check_word(call, index, "activation", activation_words, N_ACTIVATION_WORDS);
}

static fl_status check_weight_on_input(fl_call *call, uint32_t index, int64_t topk) {
  if (!call->values[index].v.b || topk == 1)
    return FL_OK;
  return fl_fail(call, FL_EINVAL,
                 "argument 'apply_router_weight_on_input': true, expected false for %lld experts a "
                 "token (only for 1)",
                 (long long)topk);
}

/* Codes have scales, and nothing else has; those of MXFP4 are bytes. */
static fl_status check_scale(fl_call *call, uint32_t weight, const char *weight_name, uint32_t scale,
                             const char *name) {
  DLDataType type = call->values[weight].v.tensor->dtype;
  const fl_value *given = &call->values[scale];
  bool is_mxfp4 = type.code == kDLUInt, has_scale = given->type == FL_TENSOR, wants_scale = type.bits == 8;
  if (has_scale != wants_scale)
    return fl_fail(call, FL_EINVAL, "argument '%s': %s, expected %s '%s' is int8, float8_e4m3fn or uint8 (MXFP4)", name,
                   has_scale ? "given" : "none", has_scale ? "none unless" : "Tensor while", weight_name);
  if (has_scale && is_mxfp4 != (given->v.tensor->dtype.code == kDLUInt))
    return fl_fail(call, FL_EINVAL, "argument '%s': expected %s while '%s' is %s", name, is_mxfp4 ? "uint8" : "float32",
                   weight_name, is_mxfp4 ? "uint8 (MXFP4)" : "int8 or float8_e4m3fn");
  return FL_OK;
}

/* Where an op has w13_scale, w2_scale and block_size, one behind the other; w13 and w2 have a place of their own. */
static fl_status check_scales(fl_call *call, uint32_t first) {
  enum { X, W13, W2 };
  fl_status status = fl_check_block_size(call, first + 2, "an expert's weights");
  if (!status)
    status = check_scale(call, W13, "w13", first, "w13_scale");
  return status ? status : check_scale(call, W2, "w2", first + 1, "w2_scale");
}

static fl_status check_routed_experts(fl_call *call) {
  enum { X, W13, W2, TOPK_WEIGHTS, TOPK_IDS, ACTIVATION, APPLY_ROUTER_WEIGHT_ON_INPUT };
  fl_status status = check_activation(call, ACTIVATION);
  int64_t topk = last_dimension(call->values[TOPK_IDS].v.tensor);
  return status ? status : check_weight_on_input(call, APPLY_ROUTER_WEIGHT_ON_INPUT, topk);
}

const fl_op_def fl_op_unquantized_fused_moe = {
    .size = sizeof(fl_op_def),
    .schema = "unquantized_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids, "
              "str activation=\"silu\", bool apply_router_weight_on_input=False, Tensor? expert_map=None, "
              "Tensor? w13_bias=None, Tensor? w2_bias=None) -> Tensor out",
    .layers = "UnquantizedFusedMoEMethod:unquantized_fused_moe_method",
    .rules = EXPERTS ROUTED OPTIONS "out: T[m, h]; " FLOATS,
    .ranks = SHARED_BIASES,
    .category = "mixture of experts",
    .doc = "Each token through its experts, their results weighted and added.",
    .formula = EXPERTS_FORMULA "(vLLM: UnquantizedFusedMoEMethod, fused_experts)",
    .tolerance = experts_tolerance,
    .check = check_routed_experts,
    .cases = EXPERTS_CASES ROUTED_CASES OPTIONS_CASES,
    .flops = EXPERTS_FLOPS("k"),
    .bytes = EXPERTS_BYTES("k", WEIGHTS_AND_BIASES),
    .bench = EXPERTS_BENCH "k: 8",
};

static fl_status check_modular_experts(fl_call *call) {
  enum { W13_SCALE = 10 };
  fl_status status = check_routed_experts(call);
  return status ? status : check_scales(call, W13_SCALE);
}

const fl_op_def fl_op_modular_fused_moe = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "modular_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids, "
              "str activation=\"silu\", bool apply_router_weight_on_input=False, Tensor? expert_map=None, "
              "Tensor? w13_bias=None, Tensor? w2_bias=None, Tensor? w13_scale=None, Tensor? w2_scale=None, int[] "
              "block_size=[128,128]) -> Tensor out",
    .layers = "FusedMoEModularMethod",
    .rules = CODED_EXPERTS ROUTED OPTIONS SCALES "out: T[m, h]; " FLOATS,
    /* Each rank has tokens of its own; they meet where the experts are. */
    .ranks = "ep: x = all_gather(x, 0); topk_weights = all_gather(topk_weights, 0); topk_ids = all_gather(topk_ids, "
             "0); out = reduce_scatter(out, 0)",
    .category = "mixture of experts",
    .doc = "Each token through its experts in three steps: dispatch to the experts' ranks, experts, combine.",
    .formula = EXPERTS_FORMULA CODED_FORMULA "(vLLM: FusedMoEModularMethod)",
    .tolerance = experts_tolerance,
    .check = check_modular_experts,
    .cases = CODED_CASES ROUTED_CASES OPTIONS_CASES,
    .flops = EXPERTS_FLOPS("k"),
    .bytes = EXPERTS_BYTES("k", CODED_WEIGHTS),
    .bench = EXPERTS_BENCH "k: 8",
};

static fl_status check_transformers_fused_moe(fl_call *call) {
  enum { X, W13, W2, TOPK_IDS, TOPK_WEIGHTS, ACTIVATION };
  return check_activation(call, ACTIVATION);
}

const fl_op_def fl_op_transformers_fused_moe = {
    .size = sizeof(fl_op_def),
    .schema = "transformers_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_ids, Tensor topk_weights, "
              "str activation=\"silu\") -> Tensor out",
    .layers = "TransformersFusedMoE,TransformersMoERunner",
    .rules = EXPERTS ROUTED "out: T[m, h]; " FLOATS,
    .ranks = SHARED_TOKENS,
    .category = "mixture of experts",
    .doc = "Each token through the experts that the model itself chose, their results weighted and added.",
    .formula = EXPERTS_FORMULA "(vLLM: TransformersMoERunner)",
    .tolerance = experts_tolerance,
    .check = check_transformers_fused_moe,
    .cases = EXPERTS_CASES ROUTED_CASES,
    .flops = EXPERTS_FLOPS("k"),
    .bytes = EXPERTS_BYTES("k", WEIGHTS),
    .bench = EXPERTS_BENCH "k: 8",
};

enum {
  FUSED_X,
  FUSED_W13,
  FUSED_W2,
  FUSED_ROUTER_LOGITS,
  FUSED_TOP_K,
  FUSED_RENORMALIZE,
  FUSED_USE_GROUPED_TOPK,
  FUSED_NUM_EXPERT_GROUP,
  FUSED_TOPK_GROUP,
  FUSED_SCORING_FUNC,
  FUSED_ROUTED_SCALING_FACTOR,
  FUSED_BIAS,
  FUSED_ACTIVATION,
  FUSED_APPLY_ROUTER_WEIGHT_ON_INPUT,
  FUSED_EXPERT_MAP,
  FUSED_W13_SCALE = FUSED_EXPERT_MAP + 3
};

/* The router knows all experts: those of w13, or those that expert_map maps. */
static fl_status check_router(fl_call *call, int64_t routed) {
  const fl_value *map = &call->values[FUSED_EXPERT_MAP];
  int64_t experts = map->type == FL_TENSOR ? map->v.tensor->shape[0] : call->values[FUSED_W13].v.tensor->shape[0];
  if (routed == experts)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'router_logits': %lld experts, expected %lld (of '%s')", (long long)routed,
                 (long long)experts, map->type == FL_TENSOR ? "expert_map" : "w13");
}

static fl_status check_fused_moe(fl_call *call) {
  static const grouping at = {
      "top_k", "the experts of 'router_logits'", FUSED_TOP_K, FUSED_NUM_EXPERT_GROUP, FUSED_TOPK_GROUP, FUSED_BIAS};
  int64_t experts = last_dimension(call->values[FUSED_ROUTER_LOGITS].v.tensor);
  fl_status status = check_router(call, experts);
  if (!status)
    status = fl_check_word(call, FUSED_SCORING_FUNC, "scoring_func", scoring_words, N_SCORING_WORDS);
  if (!status)
    status = fl_check_finite(call, FUSED_ROUTED_SCALING_FACTOR, "routed_scaling_factor");
  if (!status)
    status = call->values[FUSED_USE_GROUPED_TOPK].v.b ? check_groups(call, &at, experts)
                                                      : check_int(call, FUSED_TOP_K, "top_k", experts, at.experts);
  if (!status)
    status = check_activation(call, FUSED_ACTIVATION);
  if (!status)
    status = check_weight_on_input(call, FUSED_APPLY_ROUTER_WEIGHT_ON_INPUT, call->values[FUSED_TOP_K].v.i);
  return status ? status : check_scales(call, FUSED_W13_SCALE);
}

const fl_op_def fl_op_fused_moe = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor router_logits, int top_k, bool renormalize=True, "
              "bool use_grouped_topk=False, int num_expert_group=1, int topk_group=1, str scoring_func=\"softmax\", "
              "float routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None, str activation=\"silu\", "
              "bool apply_router_weight_on_input=False, Tensor? expert_map=None, Tensor? w13_bias=None, "
              "Tensor? w2_bias=None, Tensor? w13_scale=None, Tensor? w2_scale=None, int[] block_size=[128,128]) -> "
              "Tensor out",
    .layers = "FusedMoE",
    .rules = CODED_EXPERTS "router_logits: R[m, n]; e_score_correction_bias: R|float32[n]; " OPTIONS SCALES
                           "out: T[m, h]; " FLOATS "; R = float32|float16|bfloat16",
    .ranks = SHARED_BIASES,
    .category = "mixture of experts",
    .doc = "Routes each token by its router_logits and sends it through its experts.",
    .formula = "topk_weights, topk_ids = grouped_topk(router_logits, …) if use_grouped_topk, else topk_softmax "
               "(or the same of sigmoid, with e_score_correction_bias in the choice, times routed_scaling_factor), in "
               "float32; " EXPERTS_FORMULA CODED_FORMULA "(vLLM: FusedMoE)",
    .tolerance = experts_tolerance,
    .check = check_fused_moe,
    .cases = CODED_CASES OPTIONS_CASES
    "n: e; top_k: 1 2 4; num_expert_group: 1 2; topk_group: 1 2; scoring_func: softmax sigmoid; "
    "routed_scaling_factor: 1 2.5; router_logits: -4..4; e_score_correction_bias: none -1..1",
    .flops = EXPERTS_FLOPS("top_k") " + 6*numel(router_logits)",
    .bytes = EXPERTS_BYTES("top_k", CODED_WEIGHTS),
    .bench = EXPERTS_BENCH "n: e; top_k: 8",
};
