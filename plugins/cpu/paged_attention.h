/*
 * The paged cache of keys and values: what both kinds of implementation compute from. Reading a call checks all that
 * is data (starts, lengths, block tables, slots); nothing has been written when it fails.
 */
#ifndef FLHOST_CPU_PAGED_ATTENTION_H
#define FLHOST_CPU_PAGED_ATTENTION_H

#include "plugins/cpu/cpu.h"

/* Keys or values, [blocks, size, heads, d]. */
typedef struct cpu_cache {
  const DLTensor *tensor, *scale; /* scale: NULL unless it is float8 */
  cpu_dtype dtype;                /* CPU_OTHER: float8_e4m3fn */
} cpu_cache;

static inline float cpu_cache_scale(const cpu_cache *cache, int64_t head) {
  const DLTensor *scale = cache->scale;
  return ((const float *)fl_data(scale))[scale->ndim && scale->shape[0] > 1 ? head : 0];
}

/* Of a row of one head. */
static inline void *cpu_cache_at(const cpu_cache *cache, int64_t block, int64_t row, int64_t head) {
  const DLTensor *tensor = cache->tensor;
  return (char *)fl_data(tensor) +
         (block * fl_stride(tensor, 0) + row * fl_stride(tensor, 1) + head * fl_stride(tensor, 2)) *
             (tensor->dtype.bits / 8);
}

/* paged_attention */
typedef struct cpu_paged {
  const DLTensor *query, *out, *lse, *table, *starts, *lens;
  const DLTensor *slopes, *sinks; /* may be NULL */
  cpu_cache keys, values;
  cpu_dtype dtype;
  int64_t sequences, tokens, heads, kv_heads, size; /* size: of a head */
  int64_t block_size;
  float scale, soft_cap;
  bool causal;
  int64_t left, right; /* -1: no limit */
} cpu_paged;

/* One sequence: its queries are tokens first to first + queries - 1 of the call, and the last of its `length`. */
typedef struct cpu_paged_sequence {
  int64_t index, first, queries, length;
} cpu_paged_sequence;

/* Tokens [begin, end) of a sequence. */
typedef struct cpu_token_range {
  int64_t begin, end;
} cpu_token_range;

fl_status cpu_paged_read(fl_call *call, cpu_paged *paged);
cpu_paged_sequence cpu_paged_sequence_at(const cpu_paged *paged, int64_t i);
/* What the sequence's query j sees: its own token at least. */
cpu_token_range cpu_paged_visible(const cpu_paged *paged, const cpu_paged_sequence *sequence, int64_t query);
/* The row of a token, and at *run how many rows follow it in the same block, itself included. */
void *cpu_paged_row(const cpu_paged *paged, const cpu_cache *cache, const cpu_paged_sequence *sequence, int64_t token,
                    int64_t head, int64_t *run);
/* Of tokens behind the last sequence, which are padding, out is 0 and lse -inf. */
void cpu_paged_clear_padding(const cpu_paged *paged);

/* reshape_and_cache */
typedef struct cpu_cache_write {
  const DLTensor *key, *value, *slots;
  cpu_cache keys, values;
  cpu_dtype dtype;
  int64_t tokens, heads, size, block_size; /* tokens: those that have a slot */
} cpu_cache_write;

fl_status cpu_cache_write_read(fl_call *call, cpu_cache_write *write);

#endif
