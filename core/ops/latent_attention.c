/* Latent attention over a paged cache, of sequences of any lengths: what an engine for DeepSeek's models calls. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#define FLOATS "T = float32|float16|bfloat16"

/* ------------------------------------------------------------------------------------------------------- the cache */

enum { KV_C, K_PE, KV_CACHE, SLOT_MAPPING };

static fl_status check_concat_and_cache_mla(fl_call *call) {
  int64_t tokens = call->values[KV_C].v.tensor->shape[0], slots = call->values[SLOT_MAPPING].v.tensor->shape[0];
  if (slots <= tokens)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'slot_mapping': %lld slots, expected at most %lld (tokens of 'kv_c')",
                 (long long)slots, (long long)tokens);
}

static const fl_tolerance exact[] = {{FL_FLOAT32, 0, 0}, {FL_FLOAT16, 0, 0}, {FL_BFLOAT16, 0, 0}, {0}};

const fl_op_def fl_op_concat_and_cache_mla = {
    .size = sizeof(fl_op_def),
    .schema = "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor(a!) kv_cache, Tensor slot_mapping) -> ()",
    .rules = "kv_c: T[n, l]; k_pe: T[n, r] or T[n, 1, r]; kv_cache: T[blocks, size, l + r]; slot_mapping: "
             "int32|int64[t]; " FLOATS,
    .category = "attention",
    .doc =
        "Writes rows [kv_c | k_pe] to a paged cache: token i to row slot_mapping[i] % size of block slot_mapping[i] / "
        "size; a negative slot is skipped, tokens behind the last slot are not read, of equal slots the last token "
        "counts.",
    .formula = "kv_cache[slot / size, slot % size] = [kv_c[i] | k_pe[i]] (vLLM: kernel concat_and_cache_mla)",
    .tolerance = exact,
    .check = check_concat_and_cache_mla,
    .cases = "n: 0 1 7 33; t: n n//2; l: 16 64; r: 8 16; blocks: 3 5; size: 8 16; slot_mapping: -1..blocks*size-1",
    .bytes = "2*t*(l + r)*itemsize(kv_cache) + nbytes(slot_mapping)",
    .flops = "0",
    .bench = "n: 1 128 4096; t: n; l: 512; r: 64; blocks: 128; size: 64; slot_mapping: distinct 0..blocks*size-1",
};

/* ------------------------------------------------------------------------------------------------------- attention */

static fl_status check_mla_paged_attention(fl_call *call) {
  enum { QUERY, CACHE, KV_B_PROJ, BLOCK_TABLE, QUERY_START_LOC, SEQ_LENS, KV_LORA_RANK, V_HEAD_DIM, SCALE };
  const fl_value *values = call->values;
  int64_t rank = values[KV_LORA_RANK].v.i, v = values[V_HEAD_DIM].v.i, row = values[CACHE].v.tensor->shape[2];
  if (rank < 1 || rank > row)
    return fl_fail(call, FL_EINVAL, "argument 'kv_lora_rank': %lld, expected 1 to %lld (a row of 'kv_cache')",
                   (long long)rank, (long long)row);
  if (v < 1)
    return fl_fail(call, FL_EINVAL, "argument 'v_head_dim': %lld, expected 1 or more", (long long)v);
  if (values[QUERY].v.tensor->shape[2] < row - rank)
    return fl_fail(call, FL_EINVAL,
                   "argument 'query': heads of %lld, expected %lld or more (what a row of 'kv_cache' has behind the "
                   "latent)",
                   (long long)values[QUERY].v.tensor->shape[2], (long long)(row - rank));
  return fl_check_finite(call, SCALE, "scale");
}

/* Keys, values and queries in the latent space are rounded on the way. */
static const fl_tolerance rounded_on_the_way[] = {{FL_FLOAT16, 1e-2, 1e-2}, {FL_BFLOAT16, 5e-2, 2e-2}, {0}};

const fl_op_def fl_op_mla_paged_attention = {
    .size = sizeof(fl_op_def),
    .schema = "mla_paged_attention(Tensor query, Tensor kv_cache, Tensor kv_b_proj, Tensor block_table, Tensor "
              "query_start_loc, Tensor seq_lens, int kv_lora_rank, int v_head_dim, float scale) -> Tensor out",
    .layers = "CPUMLABackend,AMXMLABackend",
    .rules = "query: T[n, h, q]; kv_cache: T[blocks, size, c]; kv_b_proj: T[h*(q - c + kv_lora_rank + v_head_dim), "
             "kv_lora_rank]; block_table: int32|int64[b, m]; query_start_loc: int32|int64[b + 1]; seq_lens: "
             "int32|int64[b]; out: T[n, h*v_head_dim]; " FLOATS,
    .category = "attention",
    .doc =
        "Causal latent attention of several sequences over a paged cache of rows [kv_c | k_pe]: tokens "
        "query_start_loc[i] to [i + 1] are the last of the seq_lens[i] of sequence i. Tokens behind the last sequence "
        "are padding, their results 0.",
    .formula =
        "[k_nope | v] = kv_c kv_b_proj^T for each head, rounded to T; k = [k_nope | k_pe]; out = softmax(query k^T "
        "* scale) v over the rows up to the token's own, softmax in float32, rounded to T. Of a single token the "
        "same in the latent space, where the query and the result are rounded: q_c = q_nope W_UK, o = softmax([q_c "
        "| q_pe] row^T * scale) kv_c, out = o W_UV (vLLM: MLA, forward_mha and forward_mqa)",
    .tolerance = rounded_on_the_way,
    .check = check_mla_paged_attention,
    .cases =
        "n: 1 5 12 0; b: 1 3 0; h: 1 4; c: 24 40; kv_lora_rank: c-8; q: 24; v_head_dim: 16; blocks: 6; size: 8 16; "
        "m: 2; block_table: 0..blocks-1; query_start_loc: ascending 0..n; seq_lens: n..m*size; scale: 0.125; "
        "query: moderate; kv_cache: moderate; kv_b_proj: -0.2..0.2",
    /* Every row of the blocks in block_table is seen: seq_lens is data. */
    .flops = "2*n*h*m*size*(q + v_head_dim) + 2*b*m*size*numel(kv_b_proj)",
    .bytes = "default - nbytes(kv_cache) + min(b*m, blocks)*size*c*itemsize(kv_cache)",
    .bench =
        "b: 1 16 32; n: 1 16 1024; h: 16; q: 192; c: 576; kv_lora_rank: 512; v_head_dim: 128; size: 64; m: 16; blocks: "
        "b*m; block_table: distinct 0..blocks-1; query_start_loc: ascending 0..n; seq_lens: m*size..m*size",
};
