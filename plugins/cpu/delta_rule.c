/* Reads the arguments of the gated delta rule: see delta_rule.h. */
#include "plugins/cpu/delta_rule.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>

/* Part of the columns of x [tokens, columns], from `column` on, as [token, head, element]. */
static cpu_array heads_of(const cpu_array *x, int64_t column, int64_t size) {
  cpu_array heads = {(char *)x->data + column * cpu_dtype_size(x->dtype), x->dtype, {x->stride[0], size, 1}};
  return heads;
}

/* Query, key and value lie side by side in `mixed`. */
static void take_apart(cpu_delta *delta, const cpu_array *mixed) {
  int64_t width = delta->key_heads * delta->keys;
  delta->q = heads_of(mixed, 0, delta->keys);
  delta->k = heads_of(mixed, width, delta->keys);
  delta->v = heads_of(mixed, 2 * width, delta->values);
}

static float scale_of(const fl_value *given, int64_t keys) {
  return given->type == FL_FLOAT ? (float)given->v.f : 1 / sqrtf((float)keys);
}

static int64_t slots_of(const DLTensor *state) {
  return state ? state->shape[0] : -1;
}

/* chunk_gated_delta_rule(query, key, value, g, beta, state, query_start_loc, cache_indices, has_initial_state, scale,
 * use_qk_l2norm) -> out */
fl_status cpu_chunk_gated_delta_rule(void *self, fl_call *call) {
  enum { QUERY, KEY, VALUE, G, BETA, STATE, STARTS, CACHE_INDICES, HAS_INITIAL_STATE, SCALE, USE_QK_L2NORM, OUT };
  const DLTensor *query = cpu_tensor(call, QUERY), *value = cpu_tensor(call, VALUE), *state = cpu_tensor(call, STATE);
  const DLTensor *g = cpu_tensor(call, G);
  const cpu_delta_parts *parts = self;
  cpu_delta delta = {.heads = value->shape[1],
                     .key_heads = query->shape[1],
                     .values = value->shape[2],
                     .keys = query->shape[2],
                     .normalise = call->values[USE_QK_L2NORM].v.b,
                     .scale = scale_of(&call->values[SCALE], query->shape[2]),
                     .q = cpu_array_of(query),
                     .k = cpu_array_of(cpu_tensor(call, KEY)),
                     .v = cpu_array_of(value),
                     .out = cpu_array_of(cpu_tensor(call, OUT)),
                     .g = cpu_array_of(g), /* of two dimensions: no stride along the keys, one for all of them */
                     .beta = cpu_array_of(cpu_tensor(call, BETA)),
                     .state = cpu_array_of(state)};
  fl_status status = cpu_sequences_read(call, STARTS, query->shape[0], slots_of(state), &delta.sequences);
  return status ? status : parts->delta(call, &delta);
}

/* recurrent_gated_delta_rule(mixed_qkv, a, b, A_log, dt_bias, state, cache_indices, num_k_heads, scale, use_qk_l2norm)
 * -> out */
fl_status cpu_recurrent_gated_delta_rule(void *self, fl_call *call) {
  enum { MIXED_QKV, A, B, A_LOG, DT_BIAS, STATE, CACHE_INDICES, NUM_K_HEADS, SCALE, USE_QK_L2NORM, OUT };
  const DLTensor *state = cpu_tensor(call, STATE);
  const cpu_array mixed = cpu_array_of(cpu_tensor(call, MIXED_QKV));
  const cpu_delta_parts *parts = self;
  cpu_delta delta = {.heads = state->shape[1],
                     .key_heads = call->values[NUM_K_HEADS].v.i,
                     .values = state->shape[2],
                     .keys = state->shape[3],
                     .normalise = call->values[USE_QK_L2NORM].v.b,
                     .scale = scale_of(&call->values[SCALE], state->shape[3]),
                     .out = cpu_array_of(cpu_tensor(call, OUT)),
                     .beta = cpu_array_of(cpu_tensor(call, B)),
                     .a = cpu_array_of(cpu_tensor(call, A)),
                     .a_log = cpu_array_of(cpu_tensor(call, A_LOG)),
                     .dt_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                     .state = cpu_array_of(state)};
  fl_status status = cpu_steps_read(call, CACHE_INDICES, slots_of(state), &delta.sequences);
  take_apart(&delta, &mixed);
  return status ? status : parts->delta(call, &delta);
}

/* ---------------------------------------------------------------------------------------------- gdn_attention_core */

/* gdn_attention_core(mixed_qkv, a, b, conv_weight, conv_bias, A_log, dt_bias, conv_state, state, num_k_heads,
 * head_k_dim, query_start_loc, cache_indices, has_initial_state) -> out */
enum { MIXED_QKV, A, B, CONV_WEIGHT, CONV_BIAS, A_LOG, DT_BIAS, CONV_STATE, STATE, NUM_K_HEADS, HEAD_K_DIM, STARTS };
enum { OUT = STARTS + 3 };

/* Of what the convolution leaves. */
size_t cpu_gdn_attention_core_workspace(void *self, const fl_call *call) {
  const DLTensor *mixed = cpu_tensor(call, MIXED_QKV);
  (void)self;
  return (size_t)(mixed->shape[0] * mixed->shape[1]) * (mixed->dtype.bits / 8);
}

static fl_status run_core(fl_call *call, const cpu_delta_parts *parts, void *memory) {
  const DLTensor *mixed = cpu_tensor(call, MIXED_QKV), *weight = cpu_tensor(call, CONV_WEIGHT);
  const DLTensor *out = cpu_tensor(call, OUT), *state = cpu_tensor(call, STATE);
  const DLTensor *conv_state = cpu_tensor(call, CONV_STATE);
  cpu_array x = cpu_array_of(mixed), y = {memory, x.dtype, {mixed->shape[1], 1}};
  int64_t keys = call->values[HEAD_K_DIM].v.i;
  cpu_conv conv = {.channels = mixed->shape[1],
                   .width = weight->shape[1],
                   .silu = true,
                   .x = {x.data, x.dtype, {1, x.stride[0]}},
                   .out = {y.data, y.dtype, {1, y.stride[0]}},
                   .weight = cpu_array_of(weight),
                   .bias = cpu_array_of(cpu_tensor(call, CONV_BIAS)),
                   .state = cpu_array_of(conv_state)};
  cpu_delta delta = {.heads = out->shape[1],
                     .key_heads = call->values[NUM_K_HEADS].v.i,
                     .values = out->shape[2],
                     .keys = keys,
                     .normalise = true,
                     .scale = 1 / sqrtf((float)keys),
                     .out = cpu_array_of(out),
                     .beta = cpu_array_of(cpu_tensor(call, B)),
                     .a = cpu_array_of(cpu_tensor(call, A)),
                     .a_log = cpu_array_of(cpu_tensor(call, A_LOG)),
                     .dt_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                     .state = cpu_array_of(state)};
  fl_status status =
      cpu_sequences_read(call, STARTS, mixed->shape[0], slots_of(state ? state : conv_state), &delta.sequences);
  if (status)
    return status;
  conv.sequences = delta.sequences;
  take_apart(&delta, &y);
  status = parts->conv(call, &conv);
  return status ? status : parts->delta(call, &delta);
}

/* A caller of old, without a host's workspace, has it in scratch. */
fl_status cpu_gdn_attention_core(void *self, fl_call *call) {
  size_t bytes = cpu_gdn_attention_core_workspace(self, call);
  if (call->workspace && call->workspace_size >= bytes)
    return run_core(call, self, call->workspace);
  void *scratch = cpu_scratch_take_bytes(bytes);
  if (!scratch)
    return fl_fail(call, FL_ENOMEM, "no memory for what the convolution leaves: %zu bytes", bytes);
  fl_status status = run_core(call, self, scratch);
  cpu_scratch_give(scratch);
  return status;
}
