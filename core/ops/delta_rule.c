/*
 * The gated delta rule: linear attention whose state, a matrix for each head, forgets by a gate and learns what it does
 * not foretell yet.
 */
#include "core/ops/checks.h"
#include "core/ops/entries.h"
#include "core/ops/sequences.h"

#define FLOATS "T = float32|float16|bfloat16; S = float32|float16|bfloat16"
#define RULE                                                                                                           \
  "q, k = x / sqrt(sum of x^2 + 1e-6) if use_qk_l2norm; q = q * scale (none: c^-0.5); S = S * exp(g); d = (value - S " \
  "k) * beta; S = S + d k^T; out = S q, S of v by c numbers, token after token; value head j uses query and key head " \
  "j / (H / h)"
#define GATES      "g = -exp(A_log) * softplus(a + dt_bias), softplus(x) = x above 20, beta = sigmoid(b)"
#define GATE_CASES "a: -3..3; b: -3..3; A_log: -1..2; dt_bias: -2..2; "
#define SEQUENCE_CASES_SKIPPED(length)                                                                                 \
  "s: 4 6; q: 1 3; query_start_loc: none ascending 0.." length "; cache_indices: with state none distinct -1..s-1; "   \
  "has_initial_state: with state none 0..1"

static const fl_tolerance tolerance[] = {
    {FL_FLOAT32, 2e-5, 1e-4}, {FL_FLOAT16, 5e-3, 1e-2}, {FL_BFLOAT16, 1e-2, 5e-2}, {0}};

static fl_status check_heads(fl_call *call, const char *name, int64_t key_heads, int64_t heads, const char *of) {
  if (key_heads >= 1 && heads % key_heads == 0)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument '%s': %lld heads, expected a divisor of %lld (the heads of '%s')", name,
                 (long long)key_heads, (long long)heads, of);
}

static fl_status check_chunk(fl_call *call) {
  enum { QUERY, KEY, VALUE, G, BETA, STATE, STARTS, SLOTS, INITIAL, SCALE };
  static const fl_sequence_arguments at = {"state", STATE, STARTS, SLOTS, INITIAL};
  fl_status status =
      check_heads(call, "query", fl_tensor_at(call, QUERY)->shape[1], fl_tensor_at(call, VALUE)->shape[1], "value");
  if (!status)
    status = fl_check_finite(call, SCALE, "scale");
  return status ? status : fl_check_sequences(call, &at);
}

const fl_op_def fl_op_chunk_gated_delta_rule = {
    .size = sizeof(fl_op_def),
    .schema = "chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor g, Tensor beta, "
              "Tensor(a!)? state=None, Tensor? query_start_loc=None, Tensor? cache_indices=None, "
              "Tensor? has_initial_state=None, float? scale=None, bool use_qk_l2norm=True) -> Tensor out",
    .rules = "query: T[t, h, c]; key: T[t, h, c]; value: T[t, H, v]; g: float32[t, H] or float32[t, H, c]; "
             "beta: T|float32[t, H]; state: S[s, H, v, c]; " SEQUENCES "out: T[t, H, v]; " FLOATS,
    .category = "state-space models",
    .doc = "The gated delta rule over whole sequences, as Qwen3-Next has it, or with a gate for each key channel as in "
           "Kimi's KDA." SEQUENCES_DOC,
    .formula = RULE "; exp(g) is one number of a head, or one of each column of S; in float32, out rounded to T from S "
                    "before that is rounded to its own type (vLLM: chunk_gated_delta_rule, chunk_kda)",
    .tolerance = tolerance,
    .check = check_chunk,
    .cases = "t: 1 7 33 100 0; h: 1 2; H: h 2*h 3*h; c: 8 20 64; v: 6 16 64; query: -0.3..0.3; key: -0.3..0.3; "
             "value: moderate; g: -2..0; beta: 0..1; state: none -1..1; scale: none 0.5; " SEQUENCE_CASES_SKIPPED("t"),
    /* Each number of the state: its decay, S k, d k^T, S q. Sizes of Qwen3-Next 80B. */
    .flops = "7*t*H*v*c",
    .bytes = STATE_BYTES("nbytes(state)", "H*v*c*itemsize(state)"),
    .bench = "t: 1 128 4096; h: 16; H: 32; c: 128; v: 128; state: -1..1; s: 4; has_initial_state: 1..1",
};

static fl_status check_recurrent(fl_call *call) {
  enum { MIXED_QKV, A, B, A_LOG, DT_BIAS, STATE, CACHE_INDICES, NUM_K_HEADS, SCALE };
  fl_status status =
      check_heads(call, "num_k_heads", call->values[NUM_K_HEADS].v.i, fl_tensor_at(call, STATE)->shape[1], "state");
  return status ? status : fl_check_finite(call, SCALE, "scale");
}

const fl_op_def fl_op_recurrent_gated_delta_rule = {
    .size = sizeof(fl_op_def),
    .schema = "recurrent_gated_delta_rule(Tensor mixed_qkv, Tensor a, Tensor b, Tensor A_log, Tensor dt_bias, "
              "Tensor(a!) state, Tensor cache_indices, int num_k_heads, float? scale=None, bool use_qk_l2norm=True) -> "
              "Tensor out",
    .rules = "state: S[s, H, v, c]; mixed_qkv: T[n, 2*num_k_heads*c + H*v]; a: T[n, H]; b: T[n, H]; "
             "A_log: T|float32[H]; dt_bias: T|float32[H]; cache_indices: int32|int64[n]; out: T[n, H, v]; " FLOATS,
    .category = "state-space models",
    .doc =
        "One step of the gated delta rule for each row of mixed_qkv, which is query, key and value of one token; its "
        "state is slot cache_indices[i] (-1: the row is skipped, its result is 0).",
    .formula = "[q | k | v] = mixed_qkv; " GATES "; " RULE
               "; in float32, out rounded to T from S before that is rounded to its own type (vLLM: "
               "fused_recurrent_gated_delta_rule_packed_decode, fused_sigmoid_gating_delta_rule_update)",
    .tolerance = tolerance,
    .check = check_recurrent,
    .cases = "n: 1 3 17 0; num_k_heads: 1 2; H: num_k_heads 2*num_k_heads 3*num_k_heads; c: 8 20 64; v: 6 16 64; "
             "s: n+1 n+5; mixed_qkv: -1..1; state: -1..1; cache_indices: distinct -1..s-1; scale: none 0.5; "
             "use_qk_l2norm: true; " GATE_CASES,
    .flops = "7*n*H*v*c",
    .bytes = "default - 2*nbytes(state) + 2*n*H*v*c*itemsize(state)",
    .bench = "n: 1 16 128; num_k_heads: 16; H: 32; c: 128; v: 128; s: n; cache_indices: distinct 0..s-1",
};

static fl_status check_core(fl_call *call) {
  enum { MIXED_QKV, A, B, CONV_WEIGHT, CONV_BIAS, A_LOG, DT_BIAS, CONV_STATE, STATE, NUM_K_HEADS, HEAD_K_DIM, STARTS };
  enum { SLOTS = STARTS + 1, INITIAL };
  static const fl_sequence_arguments conv = {"conv_state", CONV_STATE, STARTS, SLOTS, INITIAL};
  static const fl_sequence_arguments delta = {"state", STATE, STARTS, SLOTS, INITIAL};
  int64_t size = call->values[HEAD_K_DIM].v.i;
  fl_status status =
      check_heads(call, "num_k_heads", call->values[NUM_K_HEADS].v.i, fl_tensor_at(call, A)->shape[1], "a");
  if (!status && size < 1)
    status = fl_fail(call, FL_EINVAL, "argument 'head_k_dim': %lld, expected 1 or more", (long long)size);
  if (!status)
    status = fl_check_sequences(call, &conv);
  return status ? status : fl_check_sequences(call, &delta);
}

const fl_op_def fl_op_gdn_attention_core = {
    .size = sizeof(fl_op_def),
    .schema = "gdn_attention_core(Tensor mixed_qkv, Tensor a, Tensor b, Tensor conv_weight, Tensor? conv_bias, "
              "Tensor A_log, Tensor dt_bias, Tensor(a!)? conv_state, Tensor(b!)? state, int num_k_heads, "
              "int head_k_dim, Tensor? query_start_loc=None, Tensor? cache_indices=None, "
              "Tensor? has_initial_state=None) -> Tensor out",
    .layers = "QwenGatedDeltaNetAttention",
    .rules = "a: T[t, H]; mixed_qkv: T[t, 2*num_k_heads*head_k_dim + H*v]; b: T[t, H]; "
             "conv_weight: T[2*num_k_heads*head_k_dim + H*v, w]; conv_bias: T[2*num_k_heads*head_k_dim + H*v]; "
             "A_log: T|float32[H]; dt_bias: T|float32[H]; conv_state: R[s, 2*num_k_heads*head_k_dim + H*v, w - 1]; "
             "state: S[s, H, v, head_k_dim]; " SEQUENCES "out: T[t, H, v]; " FLOATS "; R = float32|float16|bfloat16",
    .category = "state-space models",
    .doc = "What a layer of Qwen3-Next does between its projections: the causal convolution, and the gated delta rule "
           "of what comes out of it." SEQUENCES_DOC,
    .formula =
        "[q | k | v] = causal_conv1d(mixed_qkv), silu, rounded to T; " GATES
        "; out = chunk_gated_delta_rule(q, k, v, g, beta) with use_qk_l2norm; a token of each sequence for decode "
        "(vLLM: gdn_attention_core)",
    .tolerance = tolerance,
    .check = check_core,
    .cases = "t: 1 7 33 100 0; num_k_heads: 1 2; head_k_dim: 8 20 32; H: num_k_heads 2*num_k_heads 3*num_k_heads; "
             "v: 6 16 32; w: 2 4; mixed_qkv: -2..2; conv_weight: -1..1; conv_bias: none -1..1; conv_state: none -1..1; "
             "state: none -1..1; " GATE_CASES SEQUENCE_CASES_SKIPPED("t"),
    /* The convolution with silu, and the rule. Sizes of Qwen3-Next 80B. */
    .flops = "(2*w + 3 + given(conv_bias))*numel(mixed_qkv) + 7*t*H*v*head_k_dim",
    .bytes = STATE_BYTES("(nbytes(conv_state) + nbytes(state))",
                         "(numel(conv_weight)//w*(w - 1)*itemsize(conv_state) + H*v*head_k_dim*itemsize(state))"),
    .bench = "t: 1 128 4096; num_k_heads: 16; head_k_dim: 128; H: 32; v: 128; w: 4; conv_state: -1..1; state: -1..1; "
             "s: 4; has_initial_state: 1..1",
};
