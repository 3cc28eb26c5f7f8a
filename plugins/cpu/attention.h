/*
 * Attention: what an op must have at hand to be built from the parts of either kind of implementation. The ops' own
 * files read and check arguments and walk over batches, heads and sequences; the arithmetic is in the parts.
 */
#ifndef FLHOST_CPU_ATTENTION_H
#define FLHOST_CPU_ATTENTION_H

#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/support/matrix.h"

/* One head over one sequence: out = softmax(query key^T * scale) value. Of no visible key, out is 0. */
typedef struct cpu_head {
  int64_t queries, keys, size, value_size;
  cpu_matrix query, key, value, out;
  int64_t shared_size; /* so many numbers at the end of each key are not in `key` but in a row of `shared_key` */
  cpu_matrix shared_key;
  double scale;
  int64_t offset; /* query i sees keys 0 to offset + i; from `keys` on: all */
} cpu_head;

static inline int64_t cpu_head_visible(const cpu_head *head, int64_t query) {
  if (head->offset >= head->keys - query)
    return head->keys;
  return head->offset + query + 1;
}

/* The heads of a call. Any thread may ask for any of them, several at once. */
typedef struct cpu_head_list {
  int64_t n;
  cpu_head largest; /* none has more of anything; its matrices are unset */
  cpu_head (*at)(const void *user, int64_t i);
  const void *user;
} cpu_head_list;

typedef struct cpu_attention_parts {
  /* out [m, n] = x [m, k] weight [n, k]^T; out = a [m, k] b [k, n]. FL_ENOMEM or FL_OK. */
  fl_status (*linear)(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_matrix out);
  fl_status (*product)(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out);
  fl_status (*attend)(const cpu_head_list *heads); /* FL_ENOMEM or FL_OK */
  cpu_norm_fn norm;
  fl_kernel_fn rotary_embedding, mla_decode; /* the ops of these names, which make nothing of `self` */
} cpu_attention_parts;

/* ------------------------------------------------------------------------------------------------------ whole ops */

/* The ops of these names; `self` of their rows is a cpu_attention_parts. */
fl_status cpu_mm_encoder_attn(void *self, fl_call *call);
fl_status cpu_mla_prefill(void *self, fl_call *call);
fl_status cpu_multi_head_latent_attention(void *self, fl_call *call);
fl_status cpu_mla_paged_attention(void *self, fl_call *call);
/* And this one, of which both kinds of implementations are the same: it only copies. */
fl_status cpu_concat_and_cache_mla(void *self, fl_call *call);

/* ------------------------------------------------------------------------------------------------- latent attention */

/* Latent attention of one sequence. Rows of kv_c and k_pe belong to tokens, those of kv_b_proj to [head, p + v]. */
typedef struct cpu_latent {
  int64_t tokens, keys, heads, nope, rope, v, rank;
  cpu_matrix query, kv_c, k_pe, kv_b_proj, out; /* query [tokens, heads * (nope + rope)], out [tokens, heads * v] */
  int64_t query_head;                           /* bytes from a head of query to the next */
  double scale;
  int64_t offset;
} cpu_latent;

/* FL_ENOMEM without memory for keys and values. */
fl_status cpu_latent_attend(const cpu_attention_parts *parts, const cpu_latent *latent);

/* A paged cache: block_table[sequence, i] is the block of rows i * size to (i + 1) * size - 1 of a sequence. */
typedef struct cpu_pages {
  const DLTensor *cache, *table, *lens;
  int64_t size;
} cpu_pages;

/* FL_EINVAL unless all blocks that the sequences use are blocks of the cache; a sequence has `least` rows or more. */
fl_status cpu_pages_check(fl_call *call, const cpu_pages *pages, int64_t least);
int64_t cpu_pages_length(const cpu_pages *pages, int64_t sequence);
/* The row's address, and at *run how many rows follow it in the same block, itself included. */
void *cpu_pages_row(const cpu_pages *pages, int64_t sequence, int64_t row, int64_t *run);

/* Latent attention of tokens `first` to `first` + `n` of `all`, the last of a sequence whose rows [kv_c | k_pe] lie in
 * pages: they are gathered, and keys and values made of them. Of `all`, kv_c, k_pe, keys and offset do not count. */
fl_status cpu_latent_attend_pages(fl_call *call, const cpu_attention_parts *parts, const cpu_latent *all,
                                  const cpu_pages *pages, int64_t sequence, int64_t first, int64_t n);
/* That of `n` sequences from `sequence` on, which have one token each, from `first` on: in the latent space, where keys
 * and values need not be made of the whole cache. */
fl_status cpu_latent_decode(fl_call *call, const cpu_attention_parts *parts, const cpu_latent *all,
                            const cpu_pages *pages, int64_t sequence, int64_t first, int64_t n);

/* mla_decode(query, kv_cache, block_table, seq_lens, scale, kv_lora_rank) -> (out, lse) */
typedef struct cpu_decode {
  const DLTensor *query, *out, *lse;
  cpu_pages pages;
  cpu_dtype dtype;
  int64_t heads, size, rank;
  double scale;
} cpu_decode;

fl_status cpu_decode_read(fl_call *call, cpu_decode *decode);

#endif
