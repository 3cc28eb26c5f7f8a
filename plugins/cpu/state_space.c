/* Reads the arguments of convolutions and scans: see state_space.h. */
#include "plugins/cpu/state_space.h"
#include "plugins/cpu/support/index.h"

#include <math.h>
#include <string.h>

cpu_array cpu_array_of(const DLTensor *tensor) {
  cpu_array array = {0};
  if (!tensor)
    return array;
  array.data = fl_data(tensor);
  array.dtype = cpu_dtype_of(tensor);
  for (int d = 0; d < tensor->ndim; d++) /* the last is contiguous; of one element it may have any stride */
    array.stride[d] = d + 1 < tensor->ndim ? fl_stride(tensor, d) : 1;
  return array;
}

/* -------------------------------------------------------------------------------------------------------- sequences */

static int64_t start_of(const cpu_sequences *sequences, int64_t i) {
  if (sequences->steps)
    return i;
  return sequences->starts ? cpu_index(sequences->starts, i) : i * sequences->tokens;
}

/* From 0 on, none ends before it begins or behind the last token. */
fl_status cpu_sequences_check(fl_call *call, const cpu_sequences *sequences) {
  for (int64_t i = 0; sequences->starts && i <= sequences->n; i++) {
    int64_t start = start_of(sequences, i), least = i ? start_of(sequences, i - 1) : 0;
    int64_t most = i ? sequences->tokens : 0;
    if (start < least || start > most)
      return fl_fail(call, FL_EINVAL, "argument 'query_start_loc'[%lld] is %lld, expected %lld to %lld (%s)",
                     (long long)i, (long long)start, (long long)least, (long long)most,
                     i ? "from the one before to the number of tokens" : "the first sequence begins at 0");
  }
  return FL_OK;
}

static fl_status check_slots(fl_call *call, const DLTensor *indices, int64_t slots) {
  return cpu_check_index_list(call, "cache_indices", indices, -1, slots - 1, "slots of the state; -1: skipped");
}

fl_status cpu_sequences_read(fl_call *call, uint32_t first, int64_t tokens, int64_t slots, cpu_sequences *sequences) {
  *sequences = (cpu_sequences){.n = 1,
                               .tokens = tokens,
                               .starts = cpu_tensor(call, first),
                               .slots = cpu_tensor(call, first + 1),
                               .initial = cpu_tensor(call, first + 2)};
  if (sequences->starts)
    sequences->n = sequences->starts->shape[0] - 1;
  fl_status status = cpu_sequences_check(call, sequences);
  return status || !sequences->slots ? status : check_slots(call, sequences->slots, slots);
}

fl_status cpu_steps_read(fl_call *call, uint32_t cache_indices, int64_t slots, cpu_sequences *sequences) {
  const DLTensor *indices = cpu_tensor(call, cache_indices);
  int64_t n = indices->shape[0];
  *sequences = (cpu_sequences){.n = n, .tokens = n, .slots = indices, .steps = true};
  return check_slots(call, indices, slots);
}

cpu_sequence cpu_sequence_at(const cpu_sequences *sequences, int64_t i) {
  cpu_sequence sequence = {.begin = start_of(sequences, i),
                           .slot = sequences->slots ? cpu_index(sequences->slots, i) : i,
                           .continues = sequences->steps ||
                                        (sequences->initial && ((const uint8_t *)fl_data(sequences->initial))[i])};
  sequence.length = start_of(sequences, i + 1) - sequence.begin;
  return sequence;
}

int64_t cpu_sequences_end(const cpu_sequences *sequences) {
  return start_of(sequences, sequences->n);
}

/* -------------------------------------------------------------------------------------------------------------- ops */

static int64_t slots_of(const DLTensor *state) {
  return state ? state->shape[0] : -1;
}

fl_status cpu_causal_conv1d(void *self, fl_call *call) {
  enum { X, WEIGHT, BIAS, CONV_STATE, QUERY_START_LOC, CACHE_INDICES, HAS_INITIAL_STATE, ACTIVATION, OUT };
  const DLTensor *x = cpu_tensor(call, X), *weight = cpu_tensor(call, WEIGHT), *state = cpu_tensor(call, CONV_STATE);
  cpu_conv conv = {.channels = x->shape[0],
                   .width = weight->shape[1],
                   .silu = !strcmp(call->values[ACTIVATION].v.s, "silu"),
                   .x = cpu_array_of(x),
                   .out = cpu_array_of(cpu_tensor(call, OUT)),
                   .weight = cpu_array_of(weight),
                   .bias = cpu_array_of(cpu_tensor(call, BIAS)),
                   .state = cpu_array_of(state)};
  fl_status status = cpu_sequences_read(call, QUERY_START_LOC, x->shape[1], slots_of(state), &conv.sequences);
  return status ? status : (*(cpu_conv_fn *)self)(call, &conv);
}

fl_status cpu_selective_scan(void *self, fl_call *call) {
  enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, SOFTPLUS, STATE, STARTS, CACHE_INDICES, HAS_INITIAL_STATE, OUT };
  const DLTensor *u = cpu_tensor(call, U), *b = cpu_tensor(call, B), *state = cpu_tensor(call, STATE);
  cpu_scan scan = {.channels = u->shape[0],
                   .groups = b->shape[0],
                   .states = b->shape[1],
                   .softplus = call->values[SOFTPLUS].v.b,
                   .u = cpu_array_of(u),
                   .delta = cpu_array_of(cpu_tensor(call, DELTA)),
                   .z = cpu_array_of(cpu_tensor(call, Z)),
                   .out = cpu_array_of(cpu_tensor(call, OUT)),
                   .a = cpu_array_of(cpu_tensor(call, A)),
                   .d = cpu_array_of(cpu_tensor(call, D)),
                   .delta_bias = cpu_array_of(cpu_tensor(call, DELTA_BIAS)),
                   .b = cpu_array_of(b),
                   .c = cpu_array_of(cpu_tensor(call, C)),
                   .state = cpu_array_of(state)};
  fl_status status = cpu_sequences_read(call, STARTS, u->shape[1], slots_of(state), &scan.sequences);
  return status ? status : (*(cpu_scan_fn *)self)(call, &scan);
}

/* D [heads] is the same for all elements of a head: its stride along them is 0 as it has no such dimension. */
fl_status cpu_mamba_chunk_scan(void *self, fl_call *call) {
  enum { X, DT, A, B, C, D, Z, DT_BIAS, SOFTPLUS, STATE, CHUNK_SIZE, STARTS, SLOTS, INITIAL, DT_MIN, DT_MAX, OUT };
  const DLTensor *x = cpu_tensor(call, X), *b = cpu_tensor(call, B), *state = cpu_tensor(call, STATE);
  const fl_value *most = &call->values[DT_MAX];
  cpu_ssd scan = {.heads = x->shape[1],
                  .size = x->shape[2],
                  .groups = b->shape[1],
                  .states = b->shape[2],
                  .softplus = call->values[SOFTPLUS].v.b,
                  .dt_min = (float)call->values[DT_MIN].v.f,
                  .dt_max = most->type == FL_FLOAT ? (float)most->v.f : INFINITY,
                  .x = cpu_array_of(x),
                  .z = cpu_array_of(cpu_tensor(call, Z)),
                  .out = cpu_array_of(cpu_tensor(call, OUT)),
                  .dt = cpu_array_of(cpu_tensor(call, DT)),
                  .a = cpu_array_of(cpu_tensor(call, A)),
                  .dt_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                  .d = cpu_array_of(cpu_tensor(call, D)),
                  .b = cpu_array_of(b),
                  .c = cpu_array_of(cpu_tensor(call, C)),
                  .state = cpu_array_of(state)};
  fl_status status = cpu_sequences_read(call, STARTS, x->shape[0], slots_of(state), &scan.sequences);
  return status ? status : (*(cpu_ssd_fn *)self)(call, &scan);
}
