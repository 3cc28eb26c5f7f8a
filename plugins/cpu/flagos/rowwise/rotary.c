/*
 * Rotary embedding: cos and sin of a token are converted once for all its heads, a block of pairs at a time. Products
 * and sums are rounded one by one, as vLLM's native definition does: a difference of two products may cancel, and one
 * rounding would then lie outside the tolerance (plugin.mk has this file compiled without contraction).
 */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>

/* cos and sin of one token for pairs first to first + n - 1. */
typedef struct rotary_angles {
  _Alignas(64) float cos[CPU_BLOCK], sin[CPU_BLOCK]; /* from n on to the end of a chunk 0 */
  int64_t first, n;
} rotary_angles;

/* What stands in the tables as what is multiplied with. */
static void finish_angles(const cpu_rotary *rotary, rotary_angles *angles) {
  const cpu_block_type *type = &cpu_block_types[rotary->rounding];
  int64_t n = angles->n;
  type->round(angles->cos, n);
  type->round(angles->sin, n);
  for (int64_t i = 0; i < n; i++) { /* a NaN's other bits do not survive being narrowed */
    angles->cos[i] = angles->cos[i] != angles->cos[i] ? NAN : angles->cos[i];
    angles->sin[i] = angles->sin[i] != angles->sin[i] ? NAN : angles->sin[i];
  }
  if (rotary->inverse)
    for (int64_t i = 0; i < n; i++)
      angles->sin[i] = -angles->sin[i];
  for (int64_t i = n; i % CPU_CHUNK; i++)
    angles->cos[i] = angles->sin[i] = 0;
}

/* From rows of the tables, for pairs from `first` on. */
static void load_angles(const cpu_rotary *rotary, const char *cos, const char *sin, int64_t first,
                        rotary_angles *angles) {
  const cpu_block_type *table = &cpu_block_types[rotary->table_dtype];
  angles->first = first;
  angles->n = cpu_block_size(rotary->pairs - first);
  table->load(angles->cos, cos, first, angles->n);
  table->load(angles->sin, sin, first, angles->n);
  finish_angles(rotary, angles);
}

/* What decides on the instructions. */
typedef struct rotary_form {
  cpu_dtype dtype, rounding;
  bool interleaved;
} rotary_form;

/* Heads that lie a stride apart and are rotated by the same angles. */
typedef struct rotary_run {
  const char *in;
  char *out;
  int64_t n, in_head, out_head; /* strides in bytes */
  int64_t passing;              /* elements of a head of which some pass through, or 0 */
  bool around;                  /* the caches */
} rotary_run;

/* Where first and second elements of pairs begin; of the interleaved form, where both do, by turns. */
typedef struct rotary_in {
  const char *first, *second;
} rotary_in;

typedef struct rotary_out {
  char *first, *second;
} rotary_out;

/* A chunk of pairs from pair i on. */
CPU_TEMPLATE void load_pairs(rotary_form form, float *x1, float *x2, rotary_in in, int64_t i) {
  float both[2 * CPU_CHUNK];
  if (!form.interleaved) {
    cpu_load_next(form.dtype, x1, in.first, i, CPU_CHUNK);
    cpu_load_next(form.dtype, x2, in.second, i, CPU_CHUNK);
    return;
  }
  cpu_load_next(form.dtype, both, in.first, 2 * i, CPU_CHUNK);
  cpu_load_next(form.dtype, both + CPU_CHUNK, in.first, 2 * i + CPU_CHUNK, CPU_CHUNK);
  for (int lane = 0; lane < CPU_CHUNK; lane++) {
    x1[lane] = both[2 * lane];
    x2[lane] = both[2 * lane + 1];
  }
}

CPU_TEMPLATE void store_pairs(rotary_form form, const float *x1, const float *x2, rotary_out out, int64_t i,
                              bool around) {
  float both[2 * CPU_CHUNK];
  if (!form.interleaved) {
    cpu_store_around(form.dtype, out.first, i, x1, CPU_CHUNK, around);
    cpu_store_around(form.dtype, out.second, i, x2, CPU_CHUNK, around);
    return;
  }
  for (int lane = 0; lane < CPU_CHUNK; lane++) {
    both[2 * lane] = x1[lane];
    both[2 * lane + 1] = x2[lane];
  }
  cpu_store_around(form.dtype, out.first, 2 * i, both, CPU_CHUNK, around);
  cpu_store_around(form.dtype, out.first, 2 * i + CPU_CHUNK, both + CPU_CHUNK, CPU_CHUNK, around);
}

/* x1, x2 = x1 cos - x2 sin, x2 cos + x1 sin */
CPU_TEMPLATE void rotate_values(cpu_dtype rounding, float *x1, float *x2, const float *cos, const float *sin) {
  float a[CPU_CHUNK], b[CPU_CHUNK], c[CPU_CHUNK], d[CPU_CHUNK];
  for (int lane = 0; lane < CPU_CHUNK; lane++) {
    a[lane] = x1[lane] * cos[lane];
    b[lane] = x2[lane] * sin[lane];
    c[lane] = x2[lane] * cos[lane];
    d[lane] = x1[lane] * sin[lane];
  }
  cpu_round_last(rounding, a);
  cpu_round_last(rounding, b);
  cpu_round_last(rounding, c);
  cpu_round_last(rounding, d);
  for (int lane = 0; lane < CPU_CHUNK; lane++) {
    x1[lane] = a[lane] - b[lane];
    x2[lane] = c[lane] + d[lane];
  }
}

CPU_TEMPLATE void rotate_chunk(rotary_form form, const float *cos, const float *sin, rotary_in in, rotary_out out,
                               int64_t i, bool around) {
  float x1[CPU_CHUNK], x2[CPU_CHUNK];
  load_pairs(form, x1, x2, in, i);
  rotate_values(form.rounding, x1, x2, cos + i, sin + i);
  store_pairs(form, x1, x2, out, i, around);
}

/* One head after the other: chunk after chunk of all heads is faster in the caches and slower in memory. */
CPU_TEMPLATE void rotate_heads(rotary_form form, rotary_run heads, const cpu_rotary *rotary,
                               const rotary_angles *angles) {
  const int64_t bytes = cpu_dtype_size(form.dtype), apart = rotary->pairs * bytes;
  const int64_t pair = form.interleaved ? 2 * bytes : bytes, first = rotary->offset * bytes + angles->first * pair;
  cpu_span span;
  for (cpu_span_begin(&span, angles->n, CPU_CHUNK, heads.around); span.size; cpu_span_next(&span)) {
    const float *cos = angles->cos + span.first, *sin = angles->sin + span.first;
    const char *x = heads.in + first;
    char *results = heads.out + first;
    const int64_t n = span.size;
    const bool around = span.around;
    for (int64_t head = 0; head < heads.n; head++, x += heads.in_head, results += heads.out_head) {
      rotary_in in = {.first = cpu_span_in(&span, 0, x, pair)};
      rotary_out out = {.first = cpu_span_out(&span, 0, results)};
      if (!form.interleaved) {
        in.second = cpu_span_in(&span, 1, x + apart, pair);
        out.second = cpu_span_out(&span, 1, results + apart);
      }
      for (int64_t i = 0; i < n; i += CPU_CHUNK)
        rotate_chunk(form, cos, sin, in, out, i, around);
      cpu_span_end(&span, 0, results, pair);
      if (!form.interleaved)
        cpu_span_end(&span, 1, results + apart, pair);
    }
  }
  for (; heads.n > 0 && heads.passing; heads.n--, heads.in += heads.in_head, heads.out += heads.out_head)
    cpu_rotary_pass_through(rotary, heads.passing, heads.in, heads.out);
}

CPU_TEMPLATE void rotate(cpu_dtype dtype, cpu_dtype rounding, const rotary_run *heads, const cpu_rotary *rotary,
                         const rotary_angles *angles) {
  if (rotary->interleaved)
    rotate_heads((rotary_form){dtype, rounding, true}, *heads, rotary, angles);
  else
    rotate_heads((rotary_form){dtype, rounding, false}, *heads, rotary, angles);
}

static void rotate_pairs(const rotary_run *heads, const cpu_rotary *rotary, const rotary_angles *angles) {
  const bool in_float = rotary->rounding == CPU_FLOAT32;
  if (rotary->dtype == CPU_FLOAT32)
    rotate(CPU_FLOAT32, CPU_FLOAT32, heads, rotary, angles);
  else if (rotary->dtype == CPU_FLOAT16 && in_float)
    rotate(CPU_FLOAT16, CPU_FLOAT32, heads, rotary, angles);
  else if (rotary->dtype == CPU_FLOAT16)
    rotate(CPU_FLOAT16, CPU_FLOAT16, heads, rotary, angles);
  else if (in_float)
    rotate(CPU_BFLOAT16, CPU_FLOAT32, heads, rotary, angles);
  else
    rotate(CPU_BFLOAT16, CPU_BFLOAT16, heads, rotary, angles);
}

static void rotate_token(const cpu_rotary *rotary, const cpu_heads *heads, const rotary_angles *angles, int64_t token) {
  rotary_run run = {.in = heads->in + token * heads->in_token,
                    .out = heads->out + token * heads->out_token,
                    .n = heads->heads,
                    .in_head = heads->in_head,
                    .out_head = heads->out_head,
                    .passing = angles->first || heads->size == 2 * rotary->pairs ? 0 : heads->size,
                    .around = rotary->around};
  rotate_pairs(&run, rotary, angles);
}

/* Do first and second elements begin with lines of the caches in every head, if they do in one? */
static bool whole_lines(const cpu_rotary *rotary, int64_t out_head) {
  int64_t apart = rotary->interleaved ? 0 : rotary->pairs;
  return ((rotary->offset | apart) * cpu_dtype_size(rotary->dtype) | out_head) % 64 == 0;
}

/* May the results be written around the caches? Not in place: there the lines have been read. */
static bool may_go_around(const cpu_rotary *rotary, const cpu_heads *heads) {
  int64_t place = (int64_t)((uintptr_t)heads->out | (uintptr_t)heads->out_token);
  return !heads->in || (heads->in != heads->out && place % 64 == 0 && whole_lines(rotary, heads->out_head));
}

/* What the rotation of all heads of a token costs. */
static int64_t work_of(const cpu_rotary *rotary, const cpu_heads *heads) {
  return heads->in ? 2 * heads->heads * heads->size * cpu_dtype_size(rotary->dtype) : 0;
}

/* Query and key of all tokens; `user` is of `body`, and `rotary` a part of it. */
static fl_status run_tokens(cpu_rotary *rotary, fl_range_fn body, void *user) {
  const cpu_heads *heads = rotary->heads;
  int64_t work = work_of(rotary, &heads[0]) + work_of(rotary, &heads[1]);
  rotary->around = may_go_around(rotary, &heads[0]) && may_go_around(rotary, &heads[1]) &&
                   cpu_rows_outgrow_caches(rotary->tokens * work / 2);
  return cpu_parallel_for(rotary->tokens, cpu_grain(work), body, user);
}

static fl_status embed_tokens(void *user, int64_t begin, int64_t end) {
  const cpu_rotary *rotary = user;
  rotary_angles angles;
  for (int64_t token = begin; token < end; token++) {
    int64_t position = cpu_rotary_position(rotary, token);
    const char *cos = rotary->cos + position * rotary->cos_stride, *sin = rotary->sin + position * rotary->sin_stride;
    for (int64_t first = 0; first < rotary->pairs; first += CPU_BLOCK) {
      load_angles(rotary, cos, sin, first, &angles);
      rotate_token(rotary, &rotary->heads[0], &angles, token);
      if (rotary->heads[1].in)
        rotate_token(rotary, &rotary->heads[1], &angles, token);
    }
  }
  cpu_rows_written(rotary->around);
  return FL_OK;
}

/* rotary_embedding(query, key, cos, sin, position_ids, interleaved, rope_dim_offset, inverse) -> (query_out, key_out)
 */
fl_status cpu_flagos_rotary_embedding(void *self, fl_call *call) {
  cpu_rotary rotary;
  fl_status status = cpu_rotary_read(call, &rotary);
  (void)self;
  if (status)
    return status;
  return run_tokens(&rotary, embed_tokens, &rotary);
}

typedef struct apply_job {
  cpu_rotary rotary;
  rotary_run run; /* of the heads of one place */
} apply_job;

static void apply_to_place(const void *user, const cpu_rows *places) {
  const apply_job *job = user;
  const cpu_rotary *rotary = &job->rotary;
  rotary_run run = job->run;
  rotary_angles angles;
  int64_t place = places->dims[places->n_dims - 1].index;
  const char *cos = rotary->cos + place * rotary->cos_stride, *sin = rotary->sin + place * rotary->sin_stride;
  run.in = places->at[0];
  run.out = places->at[1];
  run.around = run.around && cpu_rows_around(places, 1);
  for (int64_t first = 0; first < rotary->pairs; first += CPU_BLOCK) {
    load_angles(rotary, cos, sin, first, &angles);
    rotate_pairs(&run, rotary, &angles);
  }
}

/* apply_rotary_emb(x, cos, sin, is_neox_style, enable_fp32_compute) -> out */
static fl_status apply_rotary_emb(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 5)};
  apply_job job;
  fl_status status = cpu_rotary_read_apply(call, &job.rotary);
  (void)self;
  if (status)
    return status;
  cpu_rows rows = cpu_rows_begin(2, tensors), places = cpu_rows_without_last(&rows);
  int last = places.n_dims;
  job.run = (rotary_run){.n = rows.dims[last].size,
                         .in_head = rows.dims[last].stride[0],
                         .out_head = rows.dims[last].stride[1],
                         .around = whole_lines(&job.rotary, rows.dims[last].stride[1])};
  int64_t bytes = job.run.n * x->shape[x->ndim - 1] * cpu_dtype_size(job.rotary.dtype);
  cpu_row_cost cost = {.work = 2 * bytes, .written = rows.at[0] == rows.at[1] ? 0 : bytes};
  return cpu_rows_walk(&places, cost, apply_to_place, &job);
}

static fl_status embed_dual_chunk(void *user, int64_t begin, int64_t end) {
  const cpu_dual_chunk *dual = user;
  rotary_angles angles;
  for (int64_t token = begin; token < end; token++)
    for (int part = 0; part < CPU_DUAL_CHUNK_PARTS; part++) {
      const char *cos = cpu_dual_chunk_angles(dual, part, token);
      const char *sin = cos + dual->rotary.pairs * cpu_dtype_size(dual->rotary.dtype);
      for (int64_t first = 0; first < dual->rotary.pairs; first += CPU_BLOCK) {
        load_angles(&dual->rotary, cos, sin, first, &angles);
        rotate_token(&dual->rotary, &dual->parts[part].heads, &angles, token);
      }
    }
  cpu_rows_written(dual->rotary.around);
  return FL_OK;
}

/* dual_chunk_rotary_embedding(position_ids, query, key, q_cache, qc_cache, k_cache, qc_no_clamp_cache, q_inter_cache,
 * head_size, rotary_dim, chunk_size, local_size, is_neox_style) -> (query_out, key_out) */
static fl_status dual_chunk_rotary_embedding(void *self, fl_call *call) {
  cpu_dual_chunk dual;
  fl_status status = cpu_dual_chunk_read(call, &dual);
  int64_t work = 0;
  (void)self;
  if (status)
    return status;
  dual.rotary.around = true;
  for (int part = 0; part < CPU_DUAL_CHUNK_PARTS; part++) {
    work += work_of(&dual.rotary, &dual.parts[part].heads);
    dual.rotary.around &= may_go_around(&dual.rotary, &dual.parts[part].heads);
  }
  dual.rotary.around &= cpu_rows_outgrow_caches(dual.rotary.tokens * work / 2);
  return cpu_parallel_for(dual.rotary.tokens, cpu_grain(work), embed_dual_chunk, &dual);
}

/* -------------------------------------------------------------------------------------------- with a norm before it */

/* Of one head: what it is multiplied with. */
typedef struct head_factors {
  const float *weight; /* that is followed by as many numbers as two chunks have */
  float scale;
} head_factors;

CPU_TEMPLATE void scale_values(float *values, const float *weight, float scale) {
  for (int lane = 0; lane < CPU_CHUNK; lane++)
    values[lane] = values[lane] * scale * weight[lane];
}

/* The pairs of a head that have angles. */
CPU_TEMPLATE void norm_rope_pairs(rotary_form form, int64_t pairs, head_factors by, const rotary_angles *angles,
                                  const char *head_in, char *head_out) {
  const rotary_form of_weights = {CPU_FLOAT32, CPU_FLOAT32, form.interleaved};
  const int64_t bytes = cpu_dtype_size(form.dtype), step = form.interleaved ? 2 : 1, first = angles->first * step;
  const char *weight = (const char *)(by.weight + first);
  const rotary_in weights = {weight, weight + pairs * (int64_t)sizeof(float)};
  const char *x = head_in + first * bytes;
  char *results = head_out + first * bytes;
  cpu_span span;
  for (cpu_span_begin(&span, angles->n, CPU_CHUNK, false); span.size; cpu_span_next(&span)) {
    rotary_in in = {.first = cpu_span_in(&span, 0, x, step * bytes)};
    rotary_out out = {.first = cpu_span_out(&span, 0, results)};
    if (!form.interleaved) {
      in.second = cpu_span_in(&span, 1, x + pairs * bytes, bytes);
      out.second = cpu_span_out(&span, 1, results + pairs * bytes);
    }
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK) {
      const int64_t pair = span.first + i;
      float x1[CPU_CHUNK], x2[CPU_CHUNK], w1[CPU_CHUNK], w2[CPU_CHUNK];
      load_pairs(form, x1, x2, in, i);
      load_pairs(of_weights, w1, w2, weights, pair);
      scale_values(x1, w1, by.scale);
      scale_values(x2, w2, by.scale);
      rotate_values(CPU_FLOAT32, x1, x2, angles->cos + pair, angles->sin + pair);
      store_pairs(form, x1, x2, out, i, false);
    }
    cpu_span_end(&span, 0, results, step * bytes);
    if (!form.interleaved)
      cpu_span_end(&span, 1, results + pairs * bytes, bytes);
  }
}

/* What lies behind the pairs of a head: `n` elements from `first` on. */
CPU_TEMPLATE void norm_rest(cpu_dtype dtype, head_factors by, const char *head_in, char *head_out, int64_t first,
                            int64_t n) {
  float values[CPU_CHUNK];
  for (int64_t i = first, end = first + n; i < end; i += CPU_CHUNK) {
    const int64_t size = end - i < CPU_CHUNK ? end - i : CPU_CHUNK;
    cpu_load(dtype, values, head_in, i, size);
    scale_values(values, by.weight + i, by.scale);
    cpu_store(dtype, head_out, i, values, size);
  }
}

/* The scales of all heads of a token: of one after the other each would wait for its root. */
CPU_TEMPLATE void find_scales(cpu_dtype dtype, const cpu_norm_rope *fused, int64_t token, float *scales) {
  const float size = (float)fused->value.size, epsilon = fused->epsilon;
  int64_t n = 0;
  for (int which = 0; which < 2; which++) {
    const cpu_heads *heads = &fused->rotary.heads[which];
    const char *in = heads->in + token * heads->in_token;
    for (int64_t head = 0; head < heads->heads; head++, in += heads->in_head)
      scales[n++] = cpu_squares_of_row(dtype, false, in, NULL, heads->size);
  }
  for (int64_t i = 0; i < n; i++)
    scales[i] = 1.0f / sqrtf(scales[i] / size + epsilon);
}

/* Query and key of a token, or, but for the first, pairs that have angles. */
CPU_TEMPLATE void norm_rope_as(cpu_dtype dtype, const cpu_norm_rope *fused, int64_t token, float *const weights[2],
                               const rotary_angles *angles, float *scales) {
  const cpu_rotary *rotary = &fused->rotary;
  if (!angles->first)
    find_scales(dtype, fused, token, scales);
  for (int which = 0; which < 2; which++) {
    const cpu_heads *heads = &rotary->heads[which];
    const char *in = heads->in + token * heads->in_token;
    char *out = heads->out + token * heads->out_token;
    for (int64_t head = 0; head < heads->heads; head++, in += heads->in_head, out += heads->out_head) {
      const head_factors by = {weights[which], *scales++};
      const bool fetches = !angles->first && dtype != CPU_FLOAT32; /* which memory is slower with than computing */
      for (int64_t i = 0; i < heads->size && fetches; i += CPU_CHUNK)
        cpu_prefetch_chunk(dtype, in + heads->in_token, false, i); /* the next token's */
      if (rotary->interleaved)
        norm_rope_pairs((rotary_form){dtype, CPU_FLOAT32, true}, rotary->pairs, by, angles, in, out);
      else
        norm_rope_pairs((rotary_form){dtype, CPU_FLOAT32, false}, rotary->pairs, by, angles, in, out);
      if (!angles->first)
        norm_rest(dtype, by, in, out, 2 * rotary->pairs, heads->size - 2 * rotary->pairs);
    }
  }
}

static void norm_rope_token(const cpu_norm_rope *fused, int64_t token, float *const weights[2],
                            const rotary_angles *angles, float *scales) {
  if (fused->rotary.dtype == CPU_FLOAT32)
    norm_rope_as(CPU_FLOAT32, fused, token, weights, angles, scales);
  else if (fused->rotary.dtype == CPU_FLOAT16)
    norm_rope_as(CPU_FLOAT16, fused, token, weights, angles, scales);
  else
    norm_rope_as(CPU_BFLOAT16, fused, token, weights, angles, scales);
}

static fl_status norm_rope_tokens(void *user, int64_t begin, int64_t end) {
  const cpu_norm_rope *fused = user;
  const cpu_rotary *rotary = &fused->rotary;
  const int64_t size = fused->value.size, padded = size + 2 * CPU_CHUNK;
  rotary_angles angles;
  float *memory = cpu_scratch_take((size_t)(2 * padded + rotary->heads[0].heads + rotary->heads[1].heads));
  if (!memory)
    return FL_ENOMEM;
  float *const weights[] = {memory, memory + padded}, *scales = memory + 2 * padded;
  for (int which = 0; which < 2; which++) {
    cpu_block_types[rotary->dtype].load(weights[which], fused->weights[which], 0, size);
    memset(weights[which] + size, 0, 2 * CPU_CHUNK * sizeof(float));
  }
  for (int64_t token = begin; token < end; token++) {
    int64_t position = cpu_rotary_position(rotary, token), first = 0;
    do { /* once, if there are no pairs */
      load_angles(rotary, rotary->cos + position * rotary->cos_stride, rotary->sin + position * rotary->sin_stride,
                  first, &angles);
      norm_rope_token(fused, token, weights, &angles, scales);
      first += CPU_BLOCK;
    } while (first < rotary->pairs);
    cpu_norm_rope_pass_value(fused, token);
  }
  cpu_scratch_give(memory);
  return FL_OK;
}

/* fused_qk_norm_rope(qkv, q_weight, k_weight, cos, sin, position_ids, num_heads_q, num_heads_k, num_heads_v, epsilon,
 * interleaved) -> qkv_out */
static fl_status fused_qk_norm_rope(void *self, fl_call *call) {
  cpu_norm_rope fused;
  fl_status status = cpu_norm_rope_read(call, &fused);
  (void)self;
  if (status)
    return status;
  int64_t work = work_of(&fused.rotary, &fused.rotary.heads[0]) + work_of(&fused.rotary, &fused.rotary.heads[1]);
  status = cpu_parallel_for(fused.rotary.tokens, cpu_grain(2 * work), norm_rope_tokens, &fused);
  return status ? fl_fail(call, status, "no memory for a head of %lld elements", (long long)fused.value.size) : FL_OK;
}

/* ---------------------------------------------------------------------------------------- with three positions each */

/* Pairs of the block that lie in [begin, end), from the rows of a position. */
static void load_section(const cpu_mrope *mrope, int64_t position, int64_t begin, int64_t end, rotary_angles *angles) {
  const cpu_rotary *rotary = &mrope->rotary;
  const cpu_block_type *table = &cpu_block_types[rotary->table_dtype];
  int64_t last = angles->first + angles->n, from = begin > angles->first ? begin : angles->first;
  int64_t n = (end < last ? end : last) - from, at = from - angles->first;
  if (n <= 0)
    return;
  table->load(angles->cos + at, rotary->cos + position * rotary->cos_stride, from, n);
  table->load(angles->sin + at, rotary->sin + position * rotary->sin_stride, from, n);
}

/* Of pairs `axis`, axis + 3, … below `end` the angles of another position. */
static void load_every_third(const cpu_mrope *mrope, int64_t position, int axis, int64_t end, rotary_angles *angles) {
  rotary_angles others = {.first = angles->first, .n = angles->n};
  int64_t i = (axis - angles->first % CPU_MROPE_AXES + CPU_MROPE_AXES) % CPU_MROPE_AXES;
  load_section(mrope, position, angles->first, end, &others);
  for (; i < angles->n && angles->first + i < end; i += CPU_MROPE_AXES) {
    angles->cos[i] = others.cos[i];
    angles->sin[i] = others.sin[i];
  }
}

static void load_mrope_angles(const cpu_mrope *mrope, int64_t token, int64_t first, rotary_angles *angles) {
  int64_t begin = 0, pairs = mrope->rotary.pairs;
  angles->first = first;
  angles->n = cpu_block_size(pairs - first);
  for (int axis = 0; axis < CPU_MROPE_AXES; begin += mrope->sections[axis++]) {
    int64_t position = cpu_mrope_position(mrope, axis, token), size = mrope->sections[axis];
    if (mrope->alternating && axis)
      load_every_third(mrope, position, axis, CPU_MROPE_AXES * size, angles);
    else
      load_section(mrope, position, begin, mrope->alternating ? pairs : begin + size, angles);
  }
  finish_angles(&mrope->rotary, angles);
}

static fl_status mrope_tokens(void *user, int64_t begin, int64_t end) {
  const cpu_mrope *mrope = user;
  rotary_angles angles;
  for (int64_t token = begin; token < end; token++)
    for (int64_t first = 0; first < mrope->rotary.pairs; first += CPU_BLOCK) {
      load_mrope_angles(mrope, token, first, &angles);
      for (int which = 0; which < 2 && mrope->rotary.heads[which].in; which++)
        rotate_token(&mrope->rotary, &mrope->rotary.heads[which], &angles, token);
    }
  cpu_rows_written(mrope->rotary.around);
  return FL_OK;
}

/* mrope(query, key, cos, sin, position_ids, mrope_section, mrope_interleaved, interleaved) -> (query_out, key_out) */
static fl_status mrope(void *self, fl_call *call) {
  cpu_mrope mrope;
  fl_status status = cpu_mrope_read(call, &mrope);
  (void)self;
  if (status)
    return status;
  return run_tokens(&mrope.rotary, mrope_tokens, &mrope);
}

static const fl_impl ops[] = {
    {.op_name = "rotary_embedding", CPU_FLAGOS, .fn = cpu_flagos_rotary_embedding},
    {.op_name = "apply_rotary_emb", CPU_FLAGOS, .fn = apply_rotary_emb},
    {.op_name = "dual_chunk_rotary_embedding", CPU_FLAGOS, .fn = dual_chunk_rotary_embedding},
    {.op_name = "fused_qk_norm_rope", CPU_FLAGOS, .fn = fused_qk_norm_rope},
    {.op_name = "mrope", CPU_FLAGOS, .fn = mrope},
};
OP_LIST(ops);
