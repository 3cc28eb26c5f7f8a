/*
 * The mixers: see mixers.h. What goes between the parts of one call lies in one piece of scratch, token by token; the
 * scans write over their input, of which they read an element for the last time before they write it.
 */
#include "plugins/cpu/mixers.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/view.h"

#include <math.h>

/* A call of a mixer. */
typedef struct mixer {
  fl_call *call;
  const cpu_parts *parts;
  int64_t tokens;
  cpu_dtype dtype; /* between the parts */
  DLDataType type; /* the same */
  cpu_sequences sequences;
  DLTensor *hidden, *out;
  char *scratch, *next;
} mixer;

static int64_t slots_of(const DLTensor *state) {
  return state ? state->shape[0] : -1;
}

/* Reads the sequences, and gets scratch for `width` elements a token. */
static fl_status begin(mixer *m, fl_call *call, const cpu_parts *parts, uint32_t sequences, const DLTensor *state,
                       uint32_t out, int64_t width) {
  DLTensor *hidden = cpu_tensor(call, 0);
  *m = (mixer){.call = call,
               .parts = parts,
               .tokens = hidden->shape[0],
               .dtype = parts->in_float ? CPU_FLOAT32 : cpu_dtype_of(hidden),
               .type = parts->in_float ? (DLDataType){kDLFloat, 32, 1} : hidden->dtype,
               .hidden = hidden,
               .out = cpu_tensor(call, out)};
  fl_status status = cpu_sequences_read(call, sequences, m->tokens, slots_of(state), &m->sequences);
  if (status)
    return status;
  m->scratch = m->next = cpu_scratch_take_bytes((size_t)(m->tokens * width * cpu_dtype_size(m->dtype)));
  return m->scratch ? FL_OK : fl_fail(call, FL_ENOMEM, "no memory for %lld tokens", (long long)m->tokens);
}

/* [tokens, width] */
static cpu_array take(mixer *m, int64_t width) {
  cpu_array taken = {.data = m->next, .dtype = m->dtype, .stride = {width, 1}};
  m->next += m->tokens * width * cpu_dtype_size(m->dtype);
  return taken;
}

/* The columns of an array from `column` on. */
static cpu_array columns(cpu_array array, int64_t column) {
  array.data = (char *)array.data + column * cpu_dtype_size(array.dtype);
  return array;
}

/* The same with the channel first. */
static cpu_array by_channel(cpu_array array) {
  array.stride[1] = array.stride[0];
  array.stride[0] = 1;
  return array;
}

/* [token, column] as [token, head, size]. */
static cpu_array by_head(cpu_array array, int64_t size) {
  array.stride[1] = size;
  array.stride[2] = 1;
  return array;
}

/* out = a * b, rounded to the type of out. */
static void multiply(int64_t rows, int64_t n, const cpu_array *a, const cpu_array *b, const cpu_array *out) {
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < n; i++)
      store(out->dtype, out->data, cpu_at(out, row, i, 0, 0),
            load(a->dtype, a->data, cpu_at(a, row, i, 0, 0)) * load(b->dtype, b->data, cpu_at(b, row, i, 0, 0)));
}

/* Projects from the input, from what lies between, and to the output. */
static fl_status project(const mixer *m, const cpu_array *x, const DLTensor *weight, const cpu_array *out) {
  fl_status status = m->parts->project(m->tokens, x, weight, out);
  return status ? fl_fail(m->call, status, "no memory to project %lld tokens", (long long)m->tokens) : FL_OK;
}

static fl_status project_in(const mixer *m, const DLTensor *weight, const cpu_array *to) {
  cpu_array hidden = cpu_array_of(m->hidden);
  return project(m, &hidden, weight, to);
}

static fl_status project_out(const mixer *m, const cpu_array *y, const DLTensor *weight) {
  cpu_array out = cpu_array_of(m->out);
  return project(m, y, weight, &out);
}

static DLTensor *view(const mixer *m, tensor_view *to, const cpu_array *array, int64_t n) {
  return view_matrix(to, array->data, m->type, m->tokens, n, array->stride[0]);
}

/* rms_norm in place, where there is a weight. */
static fl_status normalise(const mixer *m, const cpu_array *x, int64_t n, DLTensor *weight, double epsilon) {
  tensor_view x_view;
  if (!weight)
    return FL_OK;
  DLTensor *tensor = view(m, &x_view, x, n);
  fl_value values[] = {fl_tensor(tensor), fl_none(),         fl_tensor(weight), fl_float(epsilon),
                       fl_none(),         fl_tensor(tensor), fl_none()};
  return cpu_call_part(m->call, cpu_rms_norm, (void *)&m->parts->norm, values, 7);
}

/* Convolves the first columns of x; `bias` and `state` may be NULL. */
static fl_status convolve(const mixer *m, const cpu_array *x, const DLTensor *weight, const DLTensor *bias,
                          const DLTensor *state, bool silu, const cpu_array *out) {
  const cpu_conv conv = {.channels = weight->shape[0],
                         .width = weight->shape[1],
                         .silu = silu,
                         .x = by_channel(*x),
                         .out = by_channel(*out),
                         .weight = cpu_array_of(weight),
                         .bias = cpu_array_of(bias),
                         .state = cpu_array_of(state),
                         .sequences = m->sequences};
  return m->parts->conv(m->call, &conv);
}

/* mamba_mixer(hidden_states, in_proj, conv_weight, conv_bias, x_proj, dt_proj, dt_bias, A, D, out_proj, dt_norm,
 * b_norm, c_norm, conv_state, ssm_state, query_start_loc, cache_indices, has_initial_state, epsilon) -> out */
fl_status cpu_mamba_mixer(void *self, fl_call *call) {
  const cpu_parts *parts = self;
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
    EPSILON,
    OUT
  };
  const DLTensor *a = cpu_tensor(call, A), *dt_proj = cpu_tensor(call, DT_PROJ);
  int64_t inner = a->shape[0], states = a->shape[1], rank = dt_proj->shape[1], parameters = rank + 2 * states;
  double epsilon = call->values[EPSILON].v.f;
  mixer m;
  fl_status status = begin(&m, call, parts, STARTS, cpu_tensor(call, CONV_STATE), OUT, 4 * inner + parameters);
  if (status)
    return status;
  cpu_array x_gate = take(&m, 2 * inner), x = take(&m, inner), delta = take(&m, inner), dt = take(&m, parameters);
  cpu_array b = columns(dt, rank), c = columns(dt, rank + states);
  status = project_in(&m, cpu_tensor(call, IN_PROJ), &x_gate);
  if (!status)
    status = convolve(&m, &x_gate, cpu_tensor(call, CONV_WEIGHT), cpu_tensor(call, CONV_BIAS),
                      cpu_tensor(call, CONV_STATE), true, &x);
  if (status)
    goto out;
  if ((status = project(&m, &x, cpu_tensor(call, X_PROJ), &dt)) ||
      (status = normalise(&m, &dt, rank, cpu_tensor(call, DT_NORM), epsilon)) ||
      (status = normalise(&m, &b, states, cpu_tensor(call, B_NORM), epsilon)) ||
      (status = normalise(&m, &c, states, cpu_tensor(call, C_NORM), epsilon)) ||
      (status = project(&m, &dt, dt_proj, &delta)))
    goto out;
  const cpu_scan scan = {.channels = inner,
                         .groups = 1,
                         .states = states,
                         .softplus = true,
                         .u = by_channel(x),
                         .delta = by_channel(delta),
                         .z = by_channel(columns(x_gate, inner)),
                         .out = by_channel(x),
                         .a = cpu_array_of(a),
                         .d = cpu_array_of(cpu_tensor(call, D)),
                         .delta_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                         .b = {b.data, b.dtype, {0, 1, parameters}},
                         .c = {c.data, c.dtype, {0, 1, parameters}},
                         .state = cpu_array_of(cpu_tensor(call, SSM_STATE)),
                         .sequences = m.sequences};
  status = parts->scan(call, &scan);
  if (!status)
    status = project_out(&m, &x, cpu_tensor(call, OUT_PROJ));
out:
  cpu_scratch_give(m.scratch);
  return status;
}

/* mamba_mixer2(hidden_states, in_proj, conv_weight, conv_bias, dt_bias, A, D, norm_weight, out_proj, conv_state,
 * ssm_state, n_groups, head_dim, chunk_size, query_start_loc, cache_indices, has_initial_state, epsilon) -> out */
fl_status cpu_mamba_mixer2(void *self, fl_call *call) {
  const cpu_parts *parts = self;
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
    EPSILON,
    OUT
  };
  const DLTensor *a = cpu_tensor(call, A), *conv_weight = cpu_tensor(call, CONV_WEIGHT);
  int64_t heads = a->shape[0], size = call->values[HEAD_DIM].v.i, groups = call->values[N_GROUPS].v.i;
  int64_t inner = heads * size, channels = conv_weight->shape[0], states = (channels - inner) / (2 * groups);
  mixer m;
  fl_status status =
      begin(&m, call, parts, STARTS, cpu_tensor(call, CONV_STATE), OUT, 2 * inner + 2 * channels + heads);
  if (status)
    return status;
  cpu_array gate = take(&m, inner + channels + heads), xbc = take(&m, channels), y = take(&m, inner);
  cpu_array b = columns(xbc, inner), c = columns(xbc, inner + groups * states), into = columns(gate, inner);
  status = project_in(&m, cpu_tensor(call, IN_PROJ), &gate);
  if (!status)
    status = convolve(&m, &into, conv_weight, cpu_tensor(call, CONV_BIAS), cpu_tensor(call, CONV_STATE), true, &xbc);
  if (status)
    goto out;
  const cpu_ssd scan = {.heads = heads,
                        .size = size,
                        .groups = groups,
                        .states = states,
                        .softplus = true,
                        .dt_max = INFINITY,
                        .x = by_head(xbc, size),
                        .out = by_head(xbc, size),
                        .dt = columns(gate, inner + channels),
                        .a = cpu_array_of(a),
                        .dt_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                        .d = {.data = fl_data(cpu_tensor(call, D)), cpu_dtype_of(cpu_tensor(call, D)), {1}},
                        .b = by_head(b, states),
                        .c = by_head(c, states),
                        .state = cpu_array_of(cpu_tensor(call, SSM_STATE)),
                        .sequences = m.sequences};
  status = parts->ssd(call, &scan);
  if (status)
    goto out;
  tensor_view x_view, gate_view, y_view;
  fl_value norm[] = {fl_tensor(view(&m, &x_view, &xbc, inner)),
                     fl_tensor(view(&m, &gate_view, &gate, inner)),
                     fl_tensor(cpu_tensor(call, NORM_WEIGHT)),
                     call->values[EPSILON],
                     fl_int(groups),
                     fl_bool(true),
                     fl_tensor(view(&m, &y_view, &y, inner))};
  status = cpu_call_part(call, cpu_mixer2_gated_rms_norm, (void *)&parts->gated_norm, norm, 7);
  if (!status)
    status = project_out(&m, &y, cpu_tensor(call, OUT_PROJ));
out:
  cpu_scratch_give(m.scratch);
  return status;
}

/* plamo2_mamba_mixer(hidden_states, in_proj, conv_weight, bcdt_proj, dt_proj, dt_bias, A, D, b_norm, c_norm, dt_norm,
 * out_proj, conv_state, ssm_state, num_heads, query_start_loc, cache_indices, has_initial_state, epsilon) -> out */
fl_status cpu_plamo2_mamba_mixer(void *self, fl_call *call) {
  const cpu_parts *parts = self;
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
    EPSILON,
    OUT
  };
  const DLTensor *conv_weight = cpu_tensor(call, CONV_WEIGHT), *d = cpu_tensor(call, D);
  int64_t heads = call->values[NUM_HEADS].v.i, inner = conv_weight->shape[0], size = inner / heads;
  int64_t states = cpu_tensor(call, B_NORM)->shape[0], rank = cpu_tensor(call, DT_NORM)->shape[0];
  double epsilon = call->values[EPSILON].v.f;
  mixer m;
  fl_status status =
      begin(&m, call, parts, STARTS, cpu_tensor(call, CONV_STATE), OUT, 3 * inner + 2 * states + rank + heads);
  if (status)
    return status;
  cpu_array gate = take(&m, 2 * inner), x = take(&m, inner), b = take(&m, 2 * states + rank), dt = take(&m, heads);
  cpu_array c = columns(b, states), low_rank = columns(b, 2 * states), into = columns(gate, inner);
  status = project_in(&m, cpu_tensor(call, IN_PROJ), &gate);
  if (!status)
    status = convolve(&m, &into, conv_weight, NULL, cpu_tensor(call, CONV_STATE), true, &x);
  if (status)
    goto out;
  if ((status = project(&m, &x, cpu_tensor(call, BCDT_PROJ), &b)) ||
      (status = normalise(&m, &b, states, cpu_tensor(call, B_NORM), epsilon)) ||
      (status = normalise(&m, &c, states, cpu_tensor(call, C_NORM), epsilon)) ||
      (status = normalise(&m, &low_rank, rank, cpu_tensor(call, DT_NORM), epsilon)) ||
      (status = project(&m, &low_rank, cpu_tensor(call, DT_PROJ), &dt)))
    goto out;
  const cpu_ssd scan = {.heads = heads,
                        .size = size,
                        .groups = 1,
                        .states = states,
                        .softplus = true,
                        .dt_max = INFINITY,
                        .x = by_head(x, size),
                        .z = by_head(gate, size),
                        .out = by_head(x, size),
                        .dt = dt,
                        .a = cpu_array_of(cpu_tensor(call, A)),
                        .dt_bias = cpu_array_of(cpu_tensor(call, DT_BIAS)),
                        .d = {.data = fl_data(d), cpu_dtype_of(d), {1}},
                        .b = by_head(b, states),
                        .c = by_head(c, states),
                        .state = cpu_array_of(cpu_tensor(call, SSM_STATE)),
                        .sequences = m.sequences};
  status = parts->ssd(call, &scan);
  if (!status)
    status = project_out(&m, &x, cpu_tensor(call, OUT_PROJ));
out:
  cpu_scratch_give(m.scratch);
  return status;
}

/* short_conv(hidden_states, in_proj, conv_weight, conv_bias, out_proj, conv_state, query_start_loc, cache_indices,
 * has_initial_state) -> out */
fl_status cpu_short_conv(void *self, fl_call *call) {
  enum { HIDDEN_STATES, IN_PROJ, CONV_WEIGHT, CONV_BIAS, OUT_PROJ, CONV_STATE, STARTS, SLOTS, INITIAL, OUT };
  const DLTensor *conv_weight = cpu_tensor(call, CONV_WEIGHT), *state = cpu_tensor(call, CONV_STATE);
  int64_t inner = conv_weight->shape[0];
  mixer m;
  fl_status status = begin(&m, call, self, STARTS, state, OUT, 5 * inner);
  if (status)
    return status;
  cpu_array b = take(&m, 3 * inner), c = columns(b, inner), x = columns(b, 2 * inner);
  cpu_array bx = take(&m, inner), y = take(&m, inner);
  status = project_in(&m, cpu_tensor(call, IN_PROJ), &b);
  if (status)
    goto out;
  multiply(m.tokens, inner, &b, &x, &bx);
  status = convolve(&m, &bx, conv_weight, cpu_tensor(call, CONV_BIAS), state, false, &y);
  if (status)
    goto out;
  multiply(m.tokens, inner, &c, &y, &y);
  status = project_out(&m, &y, cpu_tensor(call, OUT_PROJ));
out:
  cpu_scratch_give(m.scratch);
  return status;
}
