/* Reads the arguments of the rotary embeddings for the kernels of both implementations: see rotary.h. */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/support/index.h"

enum { QUERY, KEY, COS, SIN, POSITION_IDS, INTERLEAVED, ROPE_DIM_OFFSET, INVERSE, QUERY_OUT, KEY_OUT };

/* A tensor [tokens, heads * size] has heads of `flat_size`. */
static cpu_heads view_heads(const DLTensor *in, const DLTensor *out, int64_t flat_size) {
  int64_t bytes = in->dtype.bits / 8;
  bool flat = in->ndim == 2;
  return (cpu_heads){
      .in = fl_data(in),
      .out = fl_data(out),
      .heads = flat ? in->shape[1] / flat_size : in->shape[1],
      .size = flat ? flat_size : in->shape[2],
      .in_token = fl_stride(in, 0) * bytes,
      .in_head = (flat ? flat_size : fl_stride(in, 1)) * bytes,
      .out_token = fl_stride(out, 0) * bytes,
      .out_head = (flat ? flat_size : fl_stride(out, 1)) * bytes,
  };
}

static fl_status check_heads(fl_call *call, const char *name, const DLTensor *tensor, const cpu_rotary *rotary) {
  int64_t rotary_dim = 2 * rotary->pairs;
  int64_t size = tensor->ndim == 2 ? rotary_dim : tensor->shape[tensor->ndim - 1];
  if (tensor->ndim == 2 && tensor->shape[1] % rotary_dim)
    return fl_fail(call, FL_EINVAL,
                   "argument '%s': rows of %lld elements, expected a multiple of %lld (twice a row of "
                   "'cos')",
                   name, (long long)tensor->shape[1], (long long)rotary_dim);
  if (rotary->offset < 0 || rotary->offset > size - rotary_dim)
    return fl_fail(call, FL_EINVAL,
                   "argument 'rope_dim_offset' is %lld, expected 0 to %lld (head size %lld of '%s' "
                   "less %lld rotated)",
                   (long long)rotary->offset, (long long)(size - rotary_dim), (long long)size, name,
                   (long long)rotary_dim);
  return FL_OK;
}

static fl_status check_positions(fl_call *call, const cpu_rotary *rotary, int64_t max_position, const char *table) {
  for (int64_t token = 0; token < rotary->tokens; token++) {
    int64_t position = cpu_rotary_position(rotary, token);
    if (position < 0 || position >= max_position)
      return fl_fail(call, FL_EINVAL, "argument 'position_ids'[%lld] is %lld, expected 0 to %lld (rows of '%s')",
                     (long long)token, (long long)position, (long long)max_position - 1, table);
  }
  return FL_OK;
}

fl_status cpu_rotary_read(fl_call *call, cpu_rotary *rotary) {
  const DLTensor *query = cpu_tensor(call, QUERY), *key = cpu_tensor(call, KEY);
  const DLTensor *cos = cpu_tensor(call, COS), *sin = cpu_tensor(call, SIN), *ids = cpu_tensor(call, POSITION_IDS);
  fl_status status;

  *rotary = (cpu_rotary){
      .dtype = cpu_dtype_of(query),
      .table_dtype = cpu_dtype_of(cos),
      .rounding = cpu_dtype_of(query),
      .tokens = query->shape[0],
      .pairs = cos->shape[1],
      .offset = call->values[ROPE_DIM_OFFSET].v.i,
      .interleaved = call->values[INTERLEAVED].v.b,
      .inverse = call->values[INVERSE].v.b,
      .cos = fl_data(cos),
      .sin = fl_data(sin),
      .cos_stride = fl_stride(cos, 0) * (cos->dtype.bits / 8),
      .sin_stride = fl_stride(sin, 0) * (sin->dtype.bits / 8),
      .positions = fl_data(ids),
      .wide_positions = ids->dtype.bits == 64,
  };
  if (rotary->dtype == CPU_OTHER || rotary->table_dtype == CPU_OTHER || cpu_dtype_of(sin) != rotary->table_dtype ||
      (key && cpu_dtype_of(key) != rotary->dtype) || ids->dtype.code != kDLInt ||
      (ids->dtype.bits != 32 && ids->dtype.bits != 64))
    return fl_fail(call, FL_ENOTSUP,
                   "element types: query and key, cos and sin each alike, float32, float16 or "
                   "bfloat16, and position_ids int32 or int64");
  if (rotary->pairs < 1)
    return fl_fail(call, FL_EINVAL, "argument 'cos' has rows of %lld elements, expected at least 1",
                   (long long)rotary->pairs);
  if ((status = check_heads(call, "query", query, rotary)) ||
      (key && (status = check_heads(call, "key", key, rotary))) ||
      (status = check_positions(call, rotary, cos->shape[0], "cos")))
    return status;
  /* Heads of query [tokens, heads * size] are as long as a rotation: the schema gives no other size. */
  rotary->heads[0] = view_heads(query, cpu_tensor(call, QUERY_OUT), 2 * rotary->pairs);
  if (key)
    rotary->heads[1] = view_heads(key, cpu_tensor(call, KEY_OUT), 2 * rotary->pairs);
  return FL_OK;
}

/* apply_rotary_emb(x, cos, sin, is_neox_style, enable_fp32_compute) -> out */
fl_status cpu_rotary_read_apply(fl_call *call, cpu_rotary *rotary) {
  const DLTensor *x = cpu_tensor(call, 0), *of_cos = cpu_tensor(call, 1), *of_sin = cpu_tensor(call, 2);
  *rotary = (cpu_rotary){
      .dtype = cpu_dtype_of(x),
      .table_dtype = cpu_dtype_of(of_cos),
      .rounding = call->values[4].v.b ? CPU_FLOAT32 : cpu_dtype_of(x),
      .pairs = of_cos->shape[1],
      .interleaved = !call->values[3].v.b,
      .cos = fl_data(of_cos),
      .sin = fl_data(of_sin),
      .cos_stride = fl_stride(of_cos, 0) * (of_cos->dtype.bits / 8),
      .sin_stride = fl_stride(of_sin, 0) * (of_sin->dtype.bits / 8),
  };
  if (rotary->dtype == CPU_OTHER || rotary->table_dtype == CPU_OTHER || cpu_dtype_of(of_sin) != rotary->table_dtype)
    return fl_fail(call, FL_ENOTSUP, "element types: cos and sin alike, and all float32, float16 or bfloat16 expected");
  return FL_OK;
}

/* The q-th of the five results of the query, which lie side by side. */
static cpu_heads view_part(const DLTensor *in, const DLTensor *out, int64_t size, int q) {
  cpu_heads heads = view_heads(in, out, size);
  heads.out += q * heads.heads * heads.out_head;
  return heads;
}

/* dual_chunk_rotary_embedding(position_ids, query, key, q_cache, qc_cache, k_cache, qc_no_clamp_cache, q_inter_cache,
 * head_size, rotary_dim, chunk_size, local_size, is_neox_style) -> (query_out, key_out) */
fl_status cpu_dual_chunk_read(fl_call *call, cpu_dual_chunk *dual) {
  enum { CHUNK_POSITIONS, CHUNK_QUERY, CHUNK_KEY, Q, QC, K, QC_NO_CLAMP, Q_INTER, CHUNK_QUERY_OUT = 13, CHUNK_KEY_OUT };
  static const int caches[CPU_DUAL_CHUNK_PARTS] = {Q, QC, QC, QC_NO_CLAMP, Q_INTER, K};
  const DLTensor *ids = cpu_tensor(call, CHUNK_POSITIONS), *query = cpu_tensor(call, CHUNK_QUERY);
  const fl_value *values = call->values;
  int64_t size = values[8].v.i;
  cpu_dtype dtype = cpu_dtype_of(query);
  dual->length = values[10].v.i - values[11].v.i;
  dual->rotary = (cpu_rotary){.dtype = dtype,
                              .table_dtype = dtype,
                              .rounding = dtype,
                              .tokens = query->shape[0],
                              .pairs = values[9].v.i / 2,
                              .interleaved = !values[12].v.b,
                              .positions = fl_data(ids),
                              .wide_positions = ids->dtype.bits == 64};
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "query");
  for (int part = 0; part < CPU_DUAL_CHUNK_PARTS; part++) {
    const DLTensor *cache = cpu_tensor(call, (uint32_t)caches[part]);
    dual->parts[part].heads = caches[part] == K
                                  ? view_heads(cpu_tensor(call, CHUNK_KEY), cpu_tensor(call, CHUNK_KEY_OUT), size)
                                  : view_part(query, cpu_tensor(call, CHUNK_QUERY_OUT), size, part);
    dual->parts[part].cache = fl_data(cache);
    dual->parts[part].stride = fl_stride(cache, 0) * (cache->dtype.bits / 8);
  }
  return check_positions(call, &dual->rotary, cpu_tensor(call, K)->shape[0], "k_cache");
}

const char *cpu_dual_chunk_angles(const cpu_dual_chunk *dual, int part, int64_t token) {
  enum { INTER = 2, KEYS = 5 };
  int64_t position = cpu_rotary_position(&dual->rotary, token);
  int64_t row = part == INTER ? dual->length - 1 : part == KEYS ? position : position % dual->length;
  return dual->parts[part].cache + row * dual->parts[part].stride;
}

/* A view of the heads of `size` that lie from column `first` on in rows [tokens, columns]. */
static cpu_heads view_columns(const DLTensor *in, const DLTensor *out, int64_t first, int64_t heads, int64_t size) {
  int64_t bytes = in->dtype.bits / 8;
  return (cpu_heads){.in = (char *)fl_data(in) + first * bytes,
                     .out = (char *)fl_data(out) + first * bytes,
                     .heads = heads,
                     .size = size,
                     .in_token = fl_stride(in, 0) * bytes,
                     .in_head = size * bytes,
                     .out_token = fl_stride(out, 0) * bytes,
                     .out_head = size * bytes};
}

/* The tables of a call, and what is rotated by them. */
static cpu_rotary read_tables(cpu_dtype dtype, cpu_dtype rounding, const DLTensor *cos, const DLTensor *sin) {
  return (cpu_rotary){.dtype = dtype,
                      .rounding = rounding,
                      .table_dtype = cpu_dtype_of(cos),
                      .pairs = cos->shape[1],
                      .cos = fl_data(cos),
                      .sin = fl_data(sin),
                      .cos_stride = fl_stride(cos, 0) * (cos->dtype.bits / 8),
                      .sin_stride = fl_stride(sin, 0) * (sin->dtype.bits / 8)};
}

/* fused_qk_norm_rope(qkv, q_weight, k_weight, cos, sin, position_ids, num_heads_q, num_heads_k, num_heads_v, epsilon,
 * interleaved) -> qkv_out */
fl_status cpu_norm_rope_read(fl_call *call, cpu_norm_rope *fused) {
  enum { QKV, Q_WEIGHT, K_WEIGHT, TABLE, SINES, IDS, NUM_HEADS_Q, NUM_HEADS_K, NUM_HEADS_V, EPSILON, INTERLEAVE };
  enum { QKV_OUT = INTERLEAVE + 1 };
  const DLTensor *qkv = cpu_tensor(call, QKV), *out = cpu_tensor(call, QKV_OUT), *ids = cpu_tensor(call, IDS);
  const DLTensor *of_cos = cpu_tensor(call, TABLE), *weight = cpu_tensor(call, Q_WEIGHT);
  const fl_value *values = call->values;
  int64_t size = weight->shape[0], q = values[NUM_HEADS_Q].v.i, k = values[NUM_HEADS_K].v.i;
  *fused = (cpu_norm_rope){.rotary = read_tables(cpu_dtype_of(qkv), CPU_FLOAT32, of_cos, cpu_tensor(call, SINES)),
                           .weights = {fl_data(weight), fl_data(cpu_tensor(call, K_WEIGHT))},
                           .value = view_columns(qkv, out, (q + k) * size, values[NUM_HEADS_V].v.i, size),
                           .epsilon = (float)values[EPSILON].v.f};
  fused->rotary.tokens = qkv->shape[0];
  fused->rotary.interleaved = values[INTERLEAVE].v.b;
  fused->rotary.positions = fl_data(ids);
  fused->rotary.wide_positions = ids->dtype.bits == 64;
  fused->rotary.heads[0] = view_columns(qkv, out, 0, q, size);
  fused->rotary.heads[1] = view_columns(qkv, out, q * size, k, size);
  return check_positions(call, &fused->rotary, of_cos->shape[0], "cos");
}

/* mrope(query, key, cos, sin, position_ids, mrope_section, mrope_interleaved, interleaved) -> (query_out, key_out) */
fl_status cpu_mrope_read(fl_call *call, cpu_mrope *mrope) {
  enum { M_QUERY, M_KEY, TABLE, SINES, IDS, SECTION, ALTERNATING, INTERLEAVE, M_QUERY_OUT, M_KEY_OUT };
  const DLTensor *query = cpu_tensor(call, M_QUERY), *key = cpu_tensor(call, M_KEY), *ids = cpu_tensor(call, IDS);
  const DLTensor *of_cos = cpu_tensor(call, TABLE);
  const int64_t *sections = call->values[SECTION].v.ints;
  *mrope = (cpu_mrope){.rotary = read_tables(cpu_dtype_of(query), cpu_dtype_of(query), of_cos, cpu_tensor(call, SINES)),
                       .sections = {sections[0], sections[1], sections[2]},
                       .alternating = call->values[ALTERNATING].v.b,
                       .axis_stride = fl_stride(ids, 0)};
  mrope->rotary.tokens = query->shape[0];
  mrope->rotary.interleaved = call->values[INTERLEAVE].v.b;
  mrope->rotary.positions = fl_data(ids);
  mrope->rotary.wide_positions = ids->dtype.bits == 64;
  if (mrope->rotary.pairs < 1)
    return fl_fail(call, FL_EINVAL, "argument 'cos' has rows of 0 elements, expected at least 1");
  mrope->rotary.heads[0] = view_heads(query, cpu_tensor(call, M_QUERY_OUT), 2 * mrope->rotary.pairs);
  if (key)
    mrope->rotary.heads[1] = view_heads(key, cpu_tensor(call, M_KEY_OUT), 2 * mrope->rotary.pairs);
  return cpu_check_indices(call, "position_ids", ids, 0, of_cos->shape[0] - 1, "rows of 'cos'");
}
