/*
 * What the kernels of both implementations need before they compute: the arguments as numbers, [tokens, heads, head
 * size] views of query and key, and the check of the positions. Nothing has been written when cpu_rotary_read fails.
 */
#ifndef FLHOST_CPU_ROTARY_H
#define FLHOST_CPU_ROTARY_H

#include "plugins/cpu/cpu.h"

#include <string.h>

/* query or key and its output, as [tokens, heads, size]; strides in bytes. */
typedef struct cpu_heads {
  char *in, *out;
  int64_t heads, size;
  int64_t in_token, in_head, out_token, out_head;
} cpu_heads;

typedef struct cpu_rotary {
  cpu_dtype dtype, table_dtype; /* of query and key; of cos and sin */
  cpu_dtype rounding;           /* what is rounded to between steps: `dtype`, or float32 for none */
  int64_t tokens, pairs, offset;
  bool interleaved, inverse;
  bool around;        /* the caches: where results are written that none would hold, in whole lines */
  cpu_heads heads[2]; /* query, then key; `in` is NULL where there is none */
  const char *cos, *sin;
  int64_t cos_stride, sin_stride; /* bytes from one position to the next */
  const void *positions;
  bool wide_positions; /* int64, else int32 */
} cpu_rotary;

static inline int64_t cpu_rotary_position(const cpu_rotary *rotary, int64_t token) {
  return rotary->wide_positions ? ((const int64_t *)rotary->positions)[token]
                                : ((const int32_t *)rotary->positions)[token];
}

/* What lies outside the rotated elements of a head of `size` elements passes through, bit for bit. */
static inline void cpu_rotary_pass_through(const cpu_rotary *rotary, int64_t size, const char *in, char *out) {
  int64_t bytes = cpu_dtype_size(rotary->dtype);
  int64_t before = rotary->offset * bytes, end = (rotary->offset + 2 * rotary->pairs) * bytes;
  if (in == out)
    return;
  memcpy(out, in, (size_t)before);
  memcpy(out + end, in + end, (size_t)(size * bytes - end));
}

fl_status cpu_rotary_read(fl_call *call, cpu_rotary *rotary);

/* The op rotary_embedding. */
fl_status cpu_reference_rotary_embedding(void *self, fl_call *call);
fl_status cpu_flagos_rotary_embedding(void *self, fl_call *call);

/* apply_rotary_emb: the shape, without heads. The kernels walk over x [..., places, heads, size] by rows. */
fl_status cpu_rotary_read_apply(fl_call *call, cpu_rotary *rotary);

/* dual_chunk_rotary_embedding: five rotations of the query, then that of the key, each with a table of its own whose
 * rows hold cosines and then sines. */
enum { CPU_DUAL_CHUNK_PARTS = 6 };

typedef struct cpu_dual_chunk {
  cpu_rotary rotary;
  int64_t length; /* of the part of a chunk that is not local: what positions are taken modulo of */
  struct {
    cpu_heads heads;
    const char *cache;
    int64_t stride; /* bytes from one row of the cache to the next */
  } parts[CPU_DUAL_CHUNK_PARTS];
} cpu_dual_chunk;

fl_status cpu_dual_chunk_read(fl_call *call, cpu_dual_chunk *dual);

/* The cosines of a part's rotation of a token; `pairs` elements further its sines. */
const char *cpu_dual_chunk_angles(const cpu_dual_chunk *dual, int part, int64_t token);

/* fused_qk_norm_rope: query and key of one tensor, the rotation in float; the value behind them stays. */
typedef struct cpu_norm_rope {
  cpu_rotary rotary;
  const void *weights[2]; /* of query and key */
  cpu_heads value;
  float epsilon;
} cpu_norm_rope;

fl_status cpu_norm_rope_read(fl_call *call, cpu_norm_rope *fused);

static inline void cpu_norm_rope_pass_value(const cpu_norm_rope *fused, int64_t token) {
  const cpu_heads *value = &fused->value;
  const char *in = value->in + token * value->in_token;
  char *out = value->out + token * value->out_token;
  if (in != out)
    memcpy(out, in, (size_t)(value->heads * value->in_head));
}

/* mrope: three positions a token, of which each pair has one. */
enum { CPU_MROPE_AXES = 3 };

typedef struct cpu_mrope {
  cpu_rotary rotary;
  int64_t sections[CPU_MROPE_AXES];
  bool alternating;    /* the pairs of an axis are every third one, not side by side */
  int64_t axis_stride; /* elements of the positions */
} cpu_mrope;

fl_status cpu_mrope_read(fl_call *call, cpu_mrope *mrope);

static inline int64_t cpu_mrope_position(const cpu_mrope *mrope, int axis, int64_t token) {
  return cpu_rotary_position(&mrope->rotary, axis * mrope->axis_stride + token);
}

#endif
