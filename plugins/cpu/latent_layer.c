/*
 * multi_head_latent_attention: the layer, composed of the parts of either kind of implementation. A part that is an op
 * of its own is called as one, on tensors that are views of this layer's memory. What is stored between steps has the
 * type of the hidden states, as in vLLM.
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

enum {
  POSITION_IDS,
  HIDDEN_STATES,
  FUSED_QKV_A_PROJ,
  Q_A_LAYERNORM,
  Q_B_PROJ,
  KV_A_PROJ_WITH_MQA,
  Q_PROJ,
  KV_A_LAYERNORM,
  KV_B_PROJ,
  G_PROJ,
  O_PROJ,
  COS,
  SIN,
  KV_CACHE,
  BLOCK_TABLE,
  SEQ_LENS,
  NUM_HEADS,
  QK_NOPE_HEAD_DIM,
  QK_ROPE_HEAD_DIM,
  V_HEAD_DIM,
  KV_LORA_RANK,
  SCALE,
  EPSILON,
  INTERLEAVED,
  LLAMA_4_SCALING,
  OUT
};

typedef struct layer {
  fl_call *call;
  const cpu_attention_parts *parts;
  cpu_dtype dtype;
  DLDataType type;
  int64_t tokens, hidden, heads, nope, rope, v, rank;
  int64_t q_rank;              /* columns of q_c, 0 without a query latent */
  int64_t row, query;          /* columns of [kv_c | k_pe], of all heads of q */
  cpu_matrix hidden_states;    /* [tokens, hidden] */
  cpu_matrix latents;          /* [tokens, q_c | kv_c | k_pe] */
  cpu_matrix q;                /* [tokens, heads * (nope + rope)] */
  cpu_matrix attended, gate;   /* [tokens, heads * v] */
  cpu_pages pages;             /* cache is NULL: none */
  int64_t sequences, new_rows; /* with a cache: new_rows tokens of each sequence */
} layer;

static fl_status out_of_memory(const layer *l) {
  return fl_fail(l->call, FL_ENOMEM, "out of memory");
}

/* A tensor over a matrix: [rows, heads, columns], or [rows, columns] where `heads` is 0. */
typedef struct matrix_view {
  DLTensor tensor;
  int64_t shape[3], strides[3];
} matrix_view;

static DLTensor *view(const layer *l, matrix_view *made, cpu_matrix matrix, int64_t rows, int64_t heads,
                      int64_t columns, int64_t head_stride) {
  int64_t row_stride = matrix.stride / cpu_dtype_size(matrix.dtype);
  *made = (matrix_view){.shape = {rows, columns}, .strides = {row_stride, 1}};
  if (heads)
    *made = (matrix_view){.shape = {rows, heads, columns}, .strides = {row_stride, head_stride, 1}};
  made->tensor = (DLTensor){.data = matrix.data,
                            .device = {kDLCPU, 0},
                            .ndim = heads ? 3 : 2,
                            .dtype = l->type,
                            .shape = made->shape,
                            .strides = made->strides};
  return &made->tensor;
}

/* out [tokens, n] = x [tokens, k] weight^T, for a weight of the call. */
static fl_status project(const layer *l, uint32_t weight, cpu_matrix x, cpu_matrix out) {
  const DLTensor *tensor = cpu_tensor(l->call, weight);
  fl_status status = l->parts->linear(l->tokens, tensor->shape[0], tensor->shape[1], x, cpu_matrix_of(tensor), out);
  return status ? out_of_memory(l) : FL_OK;
}

/* ----------------------------------------------------------------------------------------------------- projections */

static fl_status normalise(const layer *l, uint32_t weight, cpu_matrix x, int64_t columns) {
  matrix_view made;
  fl_value values[] = {fl_tensor(view(l, &made, x, l->tokens, 0, columns, 0)),
                       fl_none(),
                       l->call->values[weight],
                       l->call->values[EPSILON],
                       fl_none(),
                       fl_tensor(&made.tensor),
                       fl_none()};
  return cpu_call_part(l->call, cpu_rms_norm, (void *)&l->parts->norm, values, sizeof values / sizeof values[0]);
}

/* The rotated parts of q and k_pe, in place. */
static fl_status rotate(const layer *l) {
  matrix_view query, key;
  int64_t head = l->nope + l->rope;
  view(l, &query, cpu_matrix_at(l->q, 0, l->nope), l->tokens, l->heads, l->rope, head);
  view(l, &key, cpu_matrix_at(l->latents, 0, l->q_rank + l->rank), l->tokens, 1, l->rope, l->rope);
  fl_value values[] = {fl_tensor(&query.tensor),
                       fl_tensor(&key.tensor),
                       l->call->values[COS],
                       l->call->values[SIN],
                       l->call->values[POSITION_IDS],
                       l->call->values[INTERLEAVED],
                       fl_int(0),
                       fl_bool(false),
                       fl_tensor(&query.tensor),
                       fl_tensor(&key.tensor)};
  return cpu_call_part(l->call, l->parts->rotary_embedding, NULL, values, sizeof values / sizeof values[0]);
}

static void scale_queries(const layer *l) {
  const DLTensor *scaling = cpu_tensor(l->call, LLAMA_4_SCALING);
  for (int64_t token = 0; scaling && token < l->tokens; token++) {
    float factor = load(cpu_dtype_of(scaling), fl_data(scaling), token * fl_stride(scaling, 0));
    void *row = cpu_matrix_row(l->q, token);
    for (int64_t i = 0; i < l->query; i++)
      store(l->dtype, row, i, load(l->dtype, row, i) * factor);
  }
}

static fl_status make_queries_and_latents(const layer *l) {
  cpu_matrix rows = cpu_matrix_at(l->latents, 0, l->q_rank);
  fl_status status = project(l, cpu_tensor(l->call, FUSED_QKV_A_PROJ) ? FUSED_QKV_A_PROJ : KV_A_PROJ_WITH_MQA,
                             l->hidden_states, l->latents);
  if (!status && cpu_tensor(l->call, FUSED_QKV_A_PROJ)) {
    status = normalise(l, Q_A_LAYERNORM, l->latents, l->q_rank);
    if (!status)
      status = project(l, Q_B_PROJ, l->latents, l->q);
  } else if (!status) {
    status = project(l, Q_PROJ, l->hidden_states, l->q);
  }
  if (!status)
    status = normalise(l, KV_A_LAYERNORM, rows, l->rank);
  if (!status)
    status = rotate(l);
  if (!status)
    scale_queries(l);
  return status;
}

/* ------------------------------------------------------------------------------------------------------- attention */

static void write_cache(const layer *l) {
  size_t bytes = (size_t)(l->row * cpu_dtype_size(l->dtype));
  int64_t run;
  for (int64_t token = 0; token < l->tokens; token++) {
    int64_t sequence = token / l->new_rows;
    int64_t row = cpu_pages_length(&l->pages, sequence) - l->new_rows + token % l->new_rows;
    memcpy(cpu_pages_row(&l->pages, sequence, row, &run),
           cpu_matrix_row(cpu_matrix_at(l->latents, 0, l->q_rank), token), bytes);
  }
}

static fl_status attend(const layer *l) {
  const cpu_latent latent = {.tokens = l->tokens,
                             .keys = l->tokens,
                             .heads = l->heads,
                             .nope = l->nope,
                             .rope = l->rope,
                             .v = l->v,
                             .rank = l->rank,
                             .query = l->q,
                             .kv_c = cpu_matrix_at(l->latents, 0, l->q_rank),
                             .k_pe = cpu_matrix_at(l->latents, 0, l->q_rank + l->rank),
                             .kv_b_proj = cpu_matrix_of(cpu_tensor(l->call, KV_B_PROJ)),
                             .out = l->attended,
                             .query_head = (l->nope + l->rope) * cpu_dtype_size(l->dtype),
                             .scale = l->call->values[SCALE].v.f};
  fl_status status = FL_OK;
  if (!l->pages.cache)
    return cpu_latent_attend(l->parts, &latent) ? out_of_memory(l) : FL_OK;
  write_cache(l);
  if (l->new_rows == 1)
    return cpu_latent_decode(l->call, l->parts, &latent, &l->pages, 0, 0, l->tokens);
  for (int64_t i = 0; i < l->sequences && !status; i++)
    status = cpu_latent_attend_pages(l->call, l->parts, &latent, &l->pages, i, i * l->new_rows, l->new_rows);
  return status;
}

/* attended *= sigmoid(g_proj(hidden_states)) */
static fl_status apply_gate(const layer *l) {
  fl_status status = FL_OK;
  if (!cpu_tensor(l->call, G_PROJ))
    return FL_OK;
  status = project(l, G_PROJ, l->hidden_states, l->gate);
  for (int64_t token = 0; token < l->tokens && !status; token++) {
    void *row = cpu_matrix_row(l->attended, token);
    const void *gate = cpu_matrix_row(l->gate, token);
    for (int64_t i = 0; i < l->heads * l->v; i++) {
      float sigmoid = round_to(l->dtype, 1.0f / (1.0f + expf(-load(l->dtype, gate, i))));
      store(l->dtype, row, i, load(l->dtype, row, i) * sigmoid);
    }
  }
  return status;
}

/* ------------------------------------------------------------------------------------------------------- the layer */

static fl_status read_layer(fl_call *call, const cpu_attention_parts *parts, layer *l) {
  const DLTensor *hidden = cpu_tensor(call, HIDDEN_STATES), *latent_weight = cpu_tensor(call, FUSED_QKV_A_PROJ);
  const fl_value *values = call->values;
  *l = (layer){
      .call = call,
      .parts = parts,
      .dtype = cpu_dtype_of(hidden),
      .type = hidden->dtype,
      .tokens = hidden->shape[0],
      .hidden = hidden->shape[1],
      .heads = values[NUM_HEADS].v.i,
      .nope = values[QK_NOPE_HEAD_DIM].v.i,
      .rope = values[QK_ROPE_HEAD_DIM].v.i,
      .v = values[V_HEAD_DIM].v.i,
      .rank = values[KV_LORA_RANK].v.i,
      .hidden_states = cpu_matrix_of(hidden),
  };
  if (l->dtype == CPU_OTHER)
    return cpu_wrong_type(call, "hidden_states");
  l->row = l->rank + l->rope;
  l->query = l->heads * (l->nope + l->rope);
  l->q_rank = latent_weight ? latent_weight->shape[0] - l->row : 0;
  if (!cpu_tensor(call, KV_CACHE))
    return FL_OK;
  l->pages = (cpu_pages){cpu_tensor(call, KV_CACHE), cpu_tensor(call, BLOCK_TABLE), cpu_tensor(call, SEQ_LENS),
                         cpu_tensor(call, KV_CACHE)->shape[1]};
  l->sequences = l->pages.lens->shape[0];
  l->new_rows = l->sequences ? l->tokens / l->sequences : 0;
  return cpu_pages_check(call, &l->pages, l->new_rows);
}

fl_status cpu_multi_head_latent_attention(void *self, fl_call *call) {
  layer l;
  fl_status status = read_layer(call, self, &l);
  if (status || !l.tokens)
    return status;
  size_t item = (size_t)cpu_dtype_size(l.dtype), tokens = (size_t)l.tokens;
  int64_t latents = l.q_rank + l.row, values = l.heads * l.v;
  size_t columns = (size_t)(latents + l.query + 2 * values);
  void *memory = cpu_scratch_take_bytes(tokens * columns * item);
  if (!memory)
    return out_of_memory(&l);
  l.latents = cpu_matrix_in(memory, l.dtype, latents);
  l.q = cpu_matrix_in((char *)l.latents.data + tokens * (size_t)latents * item, l.dtype, l.query);
  l.attended = cpu_matrix_in((char *)l.q.data + tokens * (size_t)l.query * item, l.dtype, values);
  l.gate = cpu_matrix_in((char *)l.attended.data + tokens * (size_t)values * item, l.dtype, values);
  status = make_queries_and_latents(&l);
  if (!status)
    status = attend(&l);
  if (!status)
    status = apply_gate(&l);
  if (!status)
    status = project(&l, O_PROJ, l.attended, cpu_matrix_of(cpu_tensor(call, OUT)));
  cpu_scratch_give(memory);
  return status;
}
