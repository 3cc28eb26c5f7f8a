/*
 * State-space models: causal convolution, scans, and the mixers that are made of them. Sequences of a batch lie one
 * after the other; each may begin from and leave its state in a slot of a state tensor.
 */
#include "core/ops/checks.h"
#include "core/ops/entries.h"
#include "core/ops/sequences.h"

#include <math.h>

/* Weights that keep sums near 1. */
#define MIXER                                                                                                          \
  "t: 1 7 33 100 0; m: 16 48; n: 4 16; w: 2 4; hidden_states: moderate; in_proj: -0.2..0.2; conv_weight: -0.5..0.5; "  \
  "dt_bias: -4..0; A: -2..-0.1; D: -1..1; out_proj: -0.1..0.1; conv_state: none -1..1; ssm_state: none -1..1; "
#define FLOATS "T = float32|float16|bfloat16"
#define STATES "S = float32|float16|bfloat16"

/* vLLM's tests of its kernels. */
static const fl_tolerance conv_tolerance[] = {
    {FL_FLOAT32, 1e-3, 3e-4}, {FL_FLOAT16, 1e-2, 5e-3}, {FL_BFLOAT16, 5e-2, 1e-2}, {0}};
static const fl_tolerance scan_tolerance[] = {
    {FL_FLOAT32, 2e-3, 6e-4}, {FL_FLOAT16, 5e-3, 3e-3}, {FL_BFLOAT16, 5e-2, 3e-2}, {0}};
static const fl_tolerance chunk_scan_tolerance[] = {
    {FL_FLOAT32, 8e-3, 5e-3}, {FL_FLOAT16, 8e-3, 5e-3}, {FL_BFLOAT16, 5e-2, 5e-2}, {0}};

static fl_status check_divides(fl_call *call, const char *name, int64_t groups, int64_t whole, const char *of) {
  if (groups >= 1 && whole % groups == 0)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument '%s': %lld groups, expected a divisor of %lld (%s)", name,
                 (long long)groups, (long long)whole, of);
}

static fl_status check_chunk_size(fl_call *call, uint32_t index) {
  int64_t size = call->values[index].v.i;
  if (size >= 1 && !(size & (size - 1)))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'chunk_size': %lld, expected a power of 2", (long long)size);
}

/* ---------------------------------------------------------------------------------------------- the stateless units */

static fl_status check_causal_conv1d(fl_call *call) {
  enum { X, WEIGHT, BIAS, CONV_STATE, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE, ACTIVATION };
  static const fl_sequence_arguments at = {"conv_state", CONV_STATE, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE};
  static const char *const words[] = {"none", "silu"};
  fl_status status = fl_check_word(call, ACTIVATION, "activation", words, 2);
  return status ? status : fl_check_sequences(call, &at);
}

const fl_op_def fl_op_causal_conv1d = {
    .size = sizeof(fl_op_def),
    .schema = "causal_conv1d(Tensor x, Tensor weight, Tensor? bias, Tensor(a!)? conv_state, "
              "Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, "
              "str activation=\"silu\") -> Tensor out",
    .rules = "x: T[d, l]; weight: T|float32[d, w]; bias: T|float32[d]; conv_state: S[s, d, w - 1]; " SEQUENCES
             "out: T[d, l]; " FLOATS "; " STATES,
    .category = "state-space models",
    .doc = "Depthwise convolution of each channel with its own past; conv_state is left with the last w - 1 "
           "inputs." SEQUENCES_DOC,
    .formula = "out[d, t] = activation(bias[d] + sum over j of weight[d, j] * x'[d, t + j]), x' = state (0 where a "
               "sequence does not begin from one), then x; in float32, rounded to T once; activation none or silu "
               "(vLLM: causal_conv1d_fn, causal_conv1d_update)",
    .tolerance = conv_tolerance,
    .check = check_causal_conv1d,
    .cases = "d: 1 16 64; l: 1 7 100 512; w: 2 3 4; activation: silu none; weight: -1..1; bias: none -1..1; "
             "conv_state: none moderate; x: moderate; " SEQUENCE_CASES("l", "conv_state"),
    /* With silu, which takes 3. */
    .flops = "(2*w + 3 + given(bias))*numel(out)",
    .bytes = STATE_BYTES("nbytes(conv_state)", "d*(w - 1)*itemsize(conv_state)"),
    .bench = "d: 8192; l: 1 128 4096; w: 4",
};

static fl_status check_selective_scan(fl_call *call) {
  enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, SOFTPLUS, SSM_STATE, STARTS, CACHE_INDICES, HAS_INITIAL_STATE };
  static const fl_sequence_arguments at = {"ssm_state", SSM_STATE, STARTS, CACHE_INDICES, HAS_INITIAL_STATE};
  fl_status status =
      check_divides(call, "B", fl_tensor_at(call, B)->shape[0], fl_tensor_at(call, U)->shape[0], "the channels of 'u'");
  return status ? status : fl_check_sequences(call, &at);
}

const fl_op_def fl_op_selective_scan = {
    .size = sizeof(fl_op_def),
    .schema = "selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
              "Tensor? delta_bias, bool delta_softplus, Tensor(a!)? ssm_state, Tensor? query_start_loc=None, "
              "Tensor? cache_indices=None, Tensor? has_initial_state=None) -> Tensor out",
    .rules =
        "u: T[d, l]; delta: T[d, l]; A: T|float32[d, n]; B: T[g, n, l]; C: T[g, n, l]; D: T|float32[d]; "
        "z: T[d, l]; delta_bias: T|float32[d]; ssm_state: S[s, d, n]; " SEQUENCES "out: T[d, l]; " FLOATS "; " STATES,
    .category = "state-space models",
    .doc = "Mamba's scan: each channel has a state of n numbers, of which the last is left in ssm_state." SEQUENCES_DOC,
    .formula = "delta' = delta + delta_bias, log(1 + exp(delta')) if delta_softplus and delta' <= 20; h = exp(delta' * "
               "A) * h + delta' * B * u; out = (sum over n of C * h + D * u) * z / (1 + exp(-z)); channel d uses group "
               "d / (channels / g) of B and C; in float32, rounded to T once (vLLM: selective_scan_fwd, "
               "selective_state_update)",
    .tolerance = scan_tolerance,
    .check = check_selective_scan,
    .cases =
        "d: 4 16 64; l: 1 7 64 300; n: 4 8 16; g: 1 2 4; delta: 0..1; A: -2..-0.1; B: -1..1; C: -1..1; D: none -1..1; "
        "delta_bias: none 0..1; ssm_state: none -1..1; u: moderate; z: none moderate; " SEQUENCE_CASES("l",
                                                                                                       "ssm_state"),
    /* For each number of the state: delta' * A, exp, * h, * B, their sum, * C and that sum. Sizes of Falcon Mamba 7B.
     */
    .flops = "(7*n + 1 + given(delta_bias) + 3*delta_softplus + 2*given(D) + 4*given(z))*d*l",
    .bytes = STATE_BYTES("nbytes(ssm_state)", "d*n*itemsize(ssm_state)"),
    .bench = "d: 8192; l: 1 128 4096; n: 16; g: 1; D: -1..1; z: moderate; delta_bias: 0..1; delta_softplus: true",
};

static fl_status check_dt_limits(fl_call *call, uint32_t least, uint32_t most) {
  const fl_value *min = &call->values[least], *max = &call->values[most];
  fl_status status = fl_check_not_negative(call, least, "dt_min");
  if (status || max->type == FL_NONE || max->v.f >= min->v.f)
    return status;
  return fl_fail(call, FL_EINVAL, "argument 'dt_max': %g, expected none or at least %g (argument 'dt_min')", max->v.f,
                 min->v.f);
}

static fl_status check_mamba_chunk_scan(fl_call *call) {
  enum { X, DT, A, B, C, D, Z, DT_BIAS, SOFTPLUS, SSM_STATE, CHUNK_SIZE, STARTS, SLOTS, INITIAL, DT_MIN, DT_MAX };
  static const fl_sequence_arguments at = {"ssm_state", SSM_STATE, STARTS, SLOTS, INITIAL};
  fl_status status =
      check_divides(call, "B", fl_tensor_at(call, B)->shape[1], fl_tensor_at(call, X)->shape[1], "the heads of 'x'");
  if (!status)
    status = check_chunk_size(call, CHUNK_SIZE);
  if (!status)
    status = check_dt_limits(call, DT_MIN, DT_MAX);
  return status ? status : fl_check_sequences(call, &at);
}

const fl_op_def fl_op_mamba_chunk_scan = {
    .size = sizeof(fl_op_def),
    .schema = "mamba_chunk_scan(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, "
              "Tensor? dt_bias, bool dt_softplus, Tensor(a!)? ssm_state, int chunk_size=256, "
              "Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, "
              "float dt_min=0.0, float? dt_max=None) -> Tensor out",
    .rules =
        "x: T[t, h, p]; dt: T|float32[t, h]; A: T|float32[h]; B: T[t, g, n]; C: T[t, g, n]; "
        "D: T|float32[h] or T|float32[h, p]; z: T[t, h, p]; dt_bias: T|float32[h]; ssm_state: S[s, h, p, n]; " SEQUENCES
        "out: T[t, h, p]; " FLOATS "; " STATES,
    .category = "state-space models",
    .doc =
        "Mamba-2's scan: each head has a state of p by n numbers, of which the last is left in ssm_state; chunk_size "
        "is how many tokens an implementation may take at a time." SEQUENCES_DOC,
    .formula = "dt' = dt + dt_bias, log(1 + exp(dt')) if dt_softplus and dt' <= 20, then clamped to dt_min and dt_max; "
               "S = exp(dt' * A) * S + dt' * x B^T; out = (S C + D * x) * z / (1 + exp(-z)); head h uses group "
               "h / (heads / g) of B and C; in float32, rounded to T once (vLLM: mamba_chunk_scan_combined_varlen)",
    .tolerance = chunk_scan_tolerance,
    .check = check_mamba_chunk_scan,
    .cases = "t: 1 7 64 300; h: 2 4 8; p: 4 16; g: 1 2; n: 4 16; chunk_size: 16 64 256; dt: 0..1; A: -2..-0.1; B: "
             "-1..1; C: -1..1; "
             "D: none -1..1; dt_bias: none -4..0; ssm_state: none -1..1; x: moderate; z: none moderate; dt_max: none "
             "0.5; " SEQUENCE_CASES("t", "ssm_state"),
    /* The recurrence, for each number of the state: two products, their sum, * C and that sum; the matrix products of
     * chunks (Mamba-2, section 6) are more. Sizes of Codestral Mamba 7B. */
    .flops = "(5*n + 1 + 2*given(D) + 4*given(z))*t*h*p",
    .bytes = STATE_BYTES("nbytes(ssm_state)", "h*p*n*itemsize(ssm_state)"),
    .bench = "t: 1 128 4096; h: 128; p: 64; g: 8; n: 128; chunk_size: 256; D: -1..1; dt_bias: -4..0; dt_softplus: true",
};

/* ------------------------------------------------------------------------------------------------------- the mixers */

#define LAYER "hidden_states: T[t, m]; "

static fl_status check_mamba_mixer(fl_call *call) {
  enum {
    HIDDEN_STATES,
    IN_PROJ,
    CONV_WEIGHT,
    CONV_BIAS,
    X_PROJ,
    DT_PROJ,
    DT_BIAS,
    A,
    D,
    OUT_PROJ,
    DT_NORM,
    B_NORM,
    C_NORM,
    CONV_STATE,
    SSM_STATE,
    STARTS,
    SLOTS,
    INITIAL,
    EPSILON
  };
  static const fl_sequence_arguments conv = {"conv_state", CONV_STATE, STARTS, SLOTS, INITIAL};
  static const fl_sequence_arguments ssm = {"ssm_state", SSM_STATE, STARTS, SLOTS, INITIAL};
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  if (!status)
    status = fl_check_sequences(call, &conv);
  return status ? status : fl_check_sequences(call, &ssm);
}

const fl_op_def fl_op_mamba_mixer = {
    .size = sizeof(fl_op_def),
    .schema = "mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor x_proj, "
              "Tensor dt_proj, Tensor dt_bias, Tensor A, Tensor D, Tensor out_proj, Tensor? dt_norm, Tensor? b_norm, "
              "Tensor? c_norm, Tensor(a!)? conv_state, Tensor(b!)? ssm_state, Tensor? query_start_loc=None, "
              "Tensor? cache_indices=None, Tensor? has_initial_state=None, float epsilon=1e-5) -> Tensor out",
    .layers = "MambaMixer",
    .rules =
        LAYER "in_proj: T[2*i, m]; conv_weight: T|float32[i, w]; conv_bias: T|float32[i]; x_proj: T[r + 2*n, i]; "
              "dt_proj: T[i, r]; dt_bias: T|float32[i]; A: T|float32[i, n]; D: T|float32[i]; out_proj: T[m, i]; "
              "dt_norm: T|float32[r]; b_norm: T|float32[n]; c_norm: T|float32[n]; conv_state: S[s, i, w - 1]; "
              "ssm_state: R[s, i, n]; " SEQUENCES "out: T[t, m]; " FLOATS "; " STATES "; R = float32|float16|bfloat16",
    .category = "state-space models",
    .doc = "The layer of Mamba; A is -exp(A_log)." SEQUENCES_DOC,
    .formula = "[x | gate] = in_proj hidden_states; x = causal_conv1d(x), silu; [dt | B | C] = x_proj x, each "
               "rms_norm'ed where it has a norm; y = selective_scan(x, dt_proj dt, A, B, C, D, z = gate, dt_bias, "
               "softplus); out = out_proj y; each rounded to T (vLLM: MambaMixer)",
    .tolerance = scan_tolerance,
    .check = check_mamba_mixer,
    .cases = MIXER "conv_bias: none -1..1; i: 16 32; r: 1 4; x_proj: -0.3..0.3; dt_proj: -0.3..0.3; dt_norm: none "
                   "0.5..2; b_norm: none "
                   "0.5..2; c_norm: none 0.5..2; " SEQUENCE_CASES("t", "conv_state"),
    /* The products with weights, and selective_scan. Sizes of Falcon Mamba 7B. */
    .flops = "2*t*(numel(in_proj) + numel(conv_weight) + numel(x_proj) + numel(dt_proj) + numel(out_proj)) + 7*t*i*n",
    .bytes = STATE_BYTES("(nbytes(conv_state) + nbytes(ssm_state))",
                         "(i*(w - 1)*itemsize(conv_state) + i*n*itemsize(ssm_state))"),
    .bench = "t: 1 128 4096; m: 4096; i: 8192; n: 16; r: 256; w: 4; conv_bias: -1..1",
};

static fl_status check_mamba_mixer2(fl_call *call) {
  enum {
    HIDDEN_STATES,
    IN_PROJ,
    CONV_WEIGHT,
    CONV_BIAS,
    DT_BIAS,
    A,
    D,
    NORM_WEIGHT,
    OUT_PROJ,
    CONV_STATE,
    SSM_STATE,
    N_GROUPS,
    HEAD_DIM,
    CHUNK_SIZE,
    STARTS,
    SLOTS,
    INITIAL,
    EPSILON
  };
  static const fl_sequence_arguments conv = {"conv_state", CONV_STATE, STARTS, SLOTS, INITIAL};
  static const fl_sequence_arguments ssm = {"ssm_state", SSM_STATE, STARTS, SLOTS, INITIAL};
  int64_t heads = fl_tensor_at(call, A)->shape[0];
  fl_status status = check_divides(call, "n_groups", call->values[N_GROUPS].v.i, heads, "the heads of 'A'");
  if (!status)
    status = check_chunk_size(call, CHUNK_SIZE);
  if (!status)
    status = fl_check_not_negative(call, EPSILON, "epsilon");
  if (!status)
    status = fl_check_sequences(call, &conv);
  return status ? status : fl_check_sequences(call, &ssm);
}

const fl_op_def fl_op_mamba_mixer2 = {
    .size = sizeof(fl_op_def),
    .schema = "mamba_mixer2(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, "
              "Tensor dt_bias, Tensor A, Tensor D, Tensor norm_weight, Tensor out_proj, Tensor(a!)? conv_state, "
              "Tensor(b!)? ssm_state, int n_groups, int head_dim, int chunk_size=256, Tensor? query_start_loc=None, "
              "Tensor? cache_indices=None, Tensor? has_initial_state=None, float epsilon=1e-5) -> Tensor out",
    .layers = "MambaMixer2",
    .rules = LAYER "A: T|float32[h]; in_proj: T[2*h*head_dim + 2*n_groups*n + h, m]; "
                   "conv_weight: T|float32[h*head_dim + 2*n_groups*n, w]; "
                   "conv_bias: T|float32[h*head_dim + 2*n_groups*n]; dt_bias: T|float32[h]; D: T|float32[h]; "
                   "norm_weight: T|float32[h*head_dim]; out_proj: T[m, h*head_dim]; "
                   "conv_state: S[s, h*head_dim + 2*n_groups*n, w - 1]; ssm_state: R[s, h, head_dim, n]; " SEQUENCES
                   "out: T[t, m]; " FLOATS "; " STATES "; R = float32|float16|bfloat16",
    .category = "state-space models",
    .doc = "The layer of Mamba-2; A is -exp(A_log)." SEQUENCES_DOC,
    .formula = "[gate | xBC | dt] = in_proj hidden_states; [x | B | C] = causal_conv1d(xBC), silu; y = "
               "mamba_chunk_scan(x, dt, A, B, C, D, dt_bias, softplus); out = out_proj mixer2_gated_rms_norm(y, gate); "
               "each rounded to T (vLLM: MambaMixer2)",
    .tolerance = chunk_scan_tolerance,
    .check = check_mamba_mixer2,
    .cases = MIXER "conv_bias: none -1..1; h: 2 4; head_dim: 4 16; n_groups: 1 2; chunk_size: 16 256; norm_weight: "
                   "0.5..2; " SEQUENCE_CASES("t", "conv_state"),
    /* The products with weights, and mamba_chunk_scan. Sizes of Codestral Mamba 7B. */
    .flops = "2*t*(numel(in_proj) + numel(conv_weight) + numel(out_proj)) + 5*t*h*head_dim*n",
    .bytes =
        STATE_BYTES("(nbytes(conv_state) + nbytes(ssm_state))",
                    "((h*head_dim + 2*n_groups*n)*(w - 1)*itemsize(conv_state) + h*head_dim*n*itemsize(ssm_state))"),
    .bench =
        "t: 1 128 4096; m: 4096; h: 128; head_dim: 64; n_groups: 8; n: 128; w: 4; chunk_size: 256; conv_bias: -1..1",
};

static fl_status check_plamo2_mamba_mixer(fl_call *call) {
  enum {
    HIDDEN_STATES,
    IN_PROJ,
    CONV_WEIGHT,
    BCDT_PROJ,
    DT_PROJ,
    DT_BIAS,
    A,
    D,
    B_NORM,
    C_NORM,
    DT_NORM,
    OUT_PROJ,
    CONV_STATE,
    SSM_STATE,
    NUM_HEADS,
    STARTS,
    SLOTS,
    INITIAL,
    EPSILON
  };
  static const fl_sequence_arguments conv = {"conv_state", CONV_STATE, STARTS, SLOTS, INITIAL};
  static const fl_sequence_arguments ssm = {"ssm_state", SSM_STATE, STARTS, SLOTS, INITIAL};
  int64_t heads = call->values[NUM_HEADS].v.i, inner = fl_tensor_at(call, OUT_PROJ)->shape[1];
  if (heads < 1 || inner % heads)
    return fl_fail(call, FL_EINVAL, "argument 'num_heads': %lld, expected a divisor of %lld (i of 'out_proj')",
                   (long long)heads, (long long)inner);
  fl_status status = fl_check_not_negative(call, EPSILON, "epsilon");
  if (!status)
    status = fl_check_sequences(call, &conv);
  return status ? status : fl_check_sequences(call, &ssm);
}

const fl_op_def fl_op_plamo2_mamba_mixer = {
    .size = sizeof(fl_op_def),
    .schema = "plamo2_mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor bcdt_proj, "
              "Tensor dt_proj, Tensor dt_bias, Tensor A, Tensor D, Tensor b_norm, Tensor c_norm, Tensor dt_norm, "
              "Tensor out_proj, Tensor(a!)? conv_state, Tensor(b!)? ssm_state, int num_heads, "
              "Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, "
              "float epsilon=1e-6) -> Tensor out",
    .layers = "Plamo2MambaMixer",
    .rules =
        LAYER "in_proj: T[2*i, m]; conv_weight: T|float32[i, w]; bcdt_proj: T[2*n + r, i]; "
              "dt_proj: T[num_heads, r]; dt_bias: T|float32[num_heads]; A: T|float32[num_heads]; "
              "D: T|float32[num_heads]; b_norm: T|float32[n]; c_norm: T|float32[n]; dt_norm: T|float32[r]; "
              "out_proj: T[m, i]; conv_state: S[s, i, w - 1]; ssm_state: R[s, num_heads, i/num_heads, n]; " SEQUENCES
              "out: T[t, m]; " FLOATS "; " STATES "; R = float32|float16|bfloat16",
    .category = "state-space models",
    .doc = "The state-space layer of PLaMo 2; A is -exp(A_log)." SEQUENCES_DOC,
    .formula = "[gate | x] = in_proj hidden_states; x = causal_conv1d(x), silu; [B | C | dt] = bcdt_proj x, each "
               "rms_norm'ed; y = mamba_chunk_scan(x, dt_proj dt, A, B, C, D, z = gate, dt_bias, softplus), B and C of "
               "one group; out = out_proj y; each rounded to T (vLLM: Plamo2MambaMixer)",
    .tolerance = chunk_scan_tolerance,
    .check = check_plamo2_mamba_mixer,
    .cases = MIXER "num_heads: 2 4; i: 16 32; r: 1 4; bcdt_proj: -0.3..0.3; dt_proj: -0.3..0.3; dt_norm: 0.5..2; "
                   "b_norm: 0.5..2; c_norm: 0.5..2; " SEQUENCE_CASES("t", "conv_state"),
    /* The products with weights, and mamba_chunk_scan. Sizes of PLaMo 2 8B. */
    .flops =
        "2*t*(numel(in_proj) + numel(conv_weight) + numel(bcdt_proj) + numel(dt_proj) + numel(out_proj)) + 5*t*i*n",
    .bytes = STATE_BYTES("(nbytes(conv_state) + nbytes(ssm_state))",
                         "(i*(w - 1)*itemsize(conv_state) + i*n*itemsize(ssm_state))"),
    .bench = "t: 1 128 4096; m: 4096; i: 8192; num_heads: 64; n: 64; r: 256; w: 4",
};

static fl_status check_short_conv(fl_call *call) {
  enum { HIDDEN_STATES, IN_PROJ, CONV_WEIGHT, CONV_BIAS, OUT_PROJ, CONV_STATE, STARTS, SLOTS, INITIAL };
  static const fl_sequence_arguments at = {"conv_state", CONV_STATE, STARTS, SLOTS, INITIAL};
  return fl_check_sequences(call, &at);
}

const fl_op_def fl_op_short_conv = {
    .size = sizeof(fl_op_def),
    .schema = "short_conv(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, "
              "Tensor out_proj, Tensor(a!)? conv_state, Tensor? query_start_loc=None, Tensor? cache_indices=None, "
              "Tensor? has_initial_state=None) -> Tensor out",
    .layers = "ShortConv",
    .rules = LAYER "in_proj: T[3*i, m]; conv_weight: T|float32[i, w]; conv_bias: T|float32[i]; out_proj: T[m, i]; "
                   "conv_state: S[s, i, w - 1]; " SEQUENCES "out: T[t, m]; " FLOATS "; " STATES,
    .category = "state-space models",
    .doc = "The gated short convolution of LFM2." SEQUENCES_DOC,
    .formula = "[B | C | x] = in_proj hidden_states; out = out_proj (C * causal_conv1d(B * x)), without activation; "
               "each rounded to T (vLLM: ShortConv)",
    .tolerance = conv_tolerance,
    .check = check_short_conv,
    .cases = "t: 1 7 33 100 0; m: 16 48; w: 2 4; i: 16 32; in_proj: -0.2..0.2; out_proj: -0.2..0.2; conv_weight: "
             "-1..1; conv_bias: none -1..1; conv_state: none -1..1; hidden_states: moderate; " SEQUENCE_CASES(
                 "t", "conv_state"),
    /* The products with weights and those with B and C. Sizes of LFM2 8B. */
    .flops = "2*t*(numel(in_proj) + numel(conv_weight) + numel(out_proj)) + 2*t*i",
    .bytes = STATE_BYTES("nbytes(conv_state)", "i*(w - 1)*itemsize(conv_state)"),
    .bench = "t: 1 128 4096; m: 2048; i: 2048; w: 3",
};
