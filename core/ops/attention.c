/* Attention. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#include <string.h>

#define FLOATS "T = float32|float16|bfloat16"

const fl_op_def fl_op_attention_backend = {
    .size = sizeof(fl_op_def),
    .schema = "attention_backend(bool use_mla=False, bool use_sparse=False) -> str",
    .category = "attention",
    .doc = "The attention backend to use: the path of a class, or for a C engine the name of an attention component.",
    .formula = "(vLLM: Platform.get_attn_backend_cls)",
    .flops = "0",
};

/* An int that counts something. */
static fl_status check_count(fl_call *call, uint32_t index, const char *name, int64_t least, int64_t most,
                             const char *what) {
  int64_t given = call->values[index].v.i;
  if (given >= least && given <= most)
    return FL_OK;
  if (most == INT64_MAX)
    return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected %lld or more", name, (long long)given,
                   (long long)least);
  return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected %lld to %lld (%s)", name, (long long)given,
                 (long long)least, (long long)most, what);
}

/* --------------------------------------------------------------------------------------------- multi-modal encoders */

enum { QUERY, KEY, VALUE, SCALE, CU_SEQLENS, MAX_SEQLEN };

/* The size of a head, told by a tensor that has a dimension of its own for heads; 0: none has. */
static int64_t head_size(const fl_value *values) {
  for (uint32_t i = QUERY; i <= VALUE; i++)
    if (values[i].v.tensor->ndim == 4)
      return values[i].v.tensor->shape[3];
  return 0;
}

static int64_t count_heads(const DLTensor *tensor, int64_t size) {
  if (tensor->ndim == 4)
    return tensor->shape[2];
  return size ? tensor->shape[2] / size : 0;
}

static fl_status check_mm_encoder_attn(fl_call *call) {
  const fl_value *values = call->values;
  const DLTensor *query = values[QUERY].v.tensor, *key = values[KEY].v.tensor;
  int64_t size = head_size(values), heads = count_heads(query, size), of_key = count_heads(key, size);
  if (query->ndim == 3 && key->ndim == 3 && values[VALUE].v.tensor->ndim == 3)
    return fl_fail(call, FL_EINVAL,
                   "argument 'query': 3 dimensions, expected 4 (of it, 'key' or 'value': else nothing says the size of "
                   "a head)");
  if (of_key ? heads % of_key : heads)
    return fl_fail(call, FL_EINVAL, "argument 'key': %lld heads, expected a divisor of the %lld heads of 'query'",
                   (long long)of_key, (long long)heads);
  if (values[CU_SEQLENS].type == FL_TENSOR && key->shape[1] != query->shape[1])
    return fl_fail(call, FL_EINVAL,
                   "argument 'key': %lld tokens, expected the %lld of 'query' while 'cu_seqlens' is given",
                   (long long)key->shape[1], (long long)query->shape[1]);
  if (values[MAX_SEQLEN].type == FL_INT && values[MAX_SEQLEN].v.i < 0)
    return fl_fail(call, FL_EINVAL, "argument 'max_seqlen': %lld, expected 0 or more",
                   (long long)values[MAX_SEQLEN].v.i);
  return fl_check_finite(call, SCALE, "scale");
}

const fl_op_def fl_op_mm_encoder_attn = {
    .size = sizeof(fl_op_def),
    .schema = "mm_encoder_attn(Tensor query, Tensor key, Tensor value, float? scale=None, Tensor? cu_seqlens=None, "
              "int? max_seqlen=None) -> Tensor out",
    .layers = "MMEncoderAttention",
    .rules = "query: T[b, s, h, d] or T[b, s, h*d]; key: T[b, t, k, d] or T[b, t, k*d]; value: T[b, t, k, d] or "
             "T[b, t, k*d]; cu_seqlens: int32|int64[segments + 1]; out: like query; " FLOATS,
    .category = "attention",
    .doc = "Attention without mask, of an encoder of images or sound; cu_seqlens keeps it within segments of tokens.",
    .formula =
        "out = softmax(query key^T * scale) value for each head, scale = 1 / sqrt(d) if none; key and value heads "
        "are shared by h / k query heads; segment i is tokens cu_seqlens[i] to cu_seqlens[i + 1] - 1 of each "
        "batch row; softmax in float32, rounded to T once; max_seqlen is a hint (vLLM: MMEncoderAttention)",
    .check = check_mm_encoder_attn,
    .cases = "b: 1 2; s: 1 7 64 257; t: s s 1 33; h: 1 4; k: 1 2 4; d: 16 64 80; segments: 1 3; cu_seqlens: none "
             "ascending 0..s; scale: none 0.125; max_seqlen: none s; "
             "query: moderate; key: moderate; value: moderate",
    /* Two products for each pair of query and key (FlashAttention-2, section 4.1); segments count as equally long.
     * Sizes of Qwen2-VL's encoder. */
    .flops = "4*b*h*s*t*d/max(segments, 1)",
    .bench = "b: 1; s: 1 128 4096; t: s; h: 16; k: 16; d: 80",
};

/* ------------------------------------------------------------------------------------------------- latent attention */

static fl_status check_mla_prefill(fl_call *call) {
  enum { KV_C = KEY, K_PE, KV_B_PROJ, V_HEAD_DIM, PREFILL_SCALE, QUERY_OFFSET };
  fl_status status = check_count(call, V_HEAD_DIM, "v_head_dim", 1, INT64_MAX, NULL);
  if (!status)
    status = check_count(call, QUERY_OFFSET, "query_offset", 0, INT64_MAX, NULL);
  return status ? status : fl_check_finite(call, PREFILL_SCALE, "scale");
}

const fl_op_def fl_op_mla_prefill = {
    .size = sizeof(fl_op_def),
    .schema = "mla_prefill(Tensor query, Tensor kv_c, Tensor k_pe, Tensor kv_b_proj, int v_head_dim, float scale, "
              "int query_offset=0) -> Tensor out",
    .rules = "query: T[n, h, p+r]; kv_c: T[t, l]; k_pe: T[t, r] or T[t, 1, r]; kv_b_proj: T[h*(p+v_head_dim), l]; "
             "out: T[n, h*v_head_dim]; " FLOATS,
    .category = "attention",
    .doc = "Multi-head latent attention of one sequence, keys and values made from the latent: query i is token "
           "query_offset + i.",
    .formula = "[k_nope | v] = kv_c kv_b_proj^T for each head, rounded to T; k = [k_nope | k_pe]; out = "
               "softmax(query k^T * scale) v over tokens up to query_offset + i, softmax in float32, rounded to T once "
               "(vLLM: MLA prefill, forward_mha)",
    .check = check_mla_prefill,
    .cases = "query_offset: 0 5; n: 1 7 33; t: n+query_offset; h: 1 4; p: 16 32; r: 8 16; l: 32 64; v_head_dim: 16 32; "
             "scale: 0.125; "
             "query: moderate; kv_c: moderate; k_pe: moderate; kv_b_proj: -0.2..0.2",
    /* Keys and values of every row, and the pairs that a causal mask leaves: query i sees query_offset + i + 1 rows.
     * Sizes of DeepSeek-V2-Lite. */
    .flops = "2*h*(p + r + v_head_dim)*min(n*t, n*query_offset + n*(n + 1)/2) + 2*t*l*h*(p + v_head_dim)",
    .bench = "query_offset: 0; n: 1 128 4096; t: n; h: 16; p: 128; r: 64; l: 512; v_head_dim: 128",
};

static fl_status check_mla_decode(fl_call *call) {
  enum { KV_CACHE = KEY, BLOCK_TABLE, SEQ_LENS, DECODE_SCALE, KV_LORA_RANK };
  fl_status status = check_count(call, KV_LORA_RANK, "kv_lora_rank", 1, call->values[QUERY].v.tensor->shape[2],
                                 "the last dimension of 'query'");
  return status ? status : fl_check_finite(call, DECODE_SCALE, "scale");
}

const fl_op_def fl_op_mla_decode = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "mla_decode(Tensor query, Tensor kv_cache, Tensor block_table, Tensor seq_lens, float scale, "
              "int kv_lora_rank) -> (Tensor out, Tensor lse)",
    .rules = "query: T[b, h, c]; kv_cache: T[blocks, size, c]; block_table: int32|int64[b, n]; seq_lens: "
             "int32|int64[b]; out: T[b, h, kv_lora_rank]; lse: float32[b, h]; " FLOATS,
    .category = "attention",
    .doc = "Latent attention of one query a sequence over a paged cache whose rows are kv_c and k_pe, in the latent "
           "space.",
    .formula = "s = query row^T * scale over the sequence's seq_lens rows; out = softmax(s) row[:kv_lora_rank], in "
               "float32, rounded to T once; lse = log sum exp s; of an empty sequence out = 0, lse = -inf (vLLM: MLA "
               "decode, forward_mqa, kernel mla_decode_kvcache)",
    .check = check_mla_decode,
    .cases = "b: 1 3 0; h: 1 16; c: 48 72; kv_lora_rank: c-16; blocks: 8; size: 16; n: 1 4; block_table: 0..blocks-1; "
             "seq_lens: 0..n*size; scale: 0.125; "
             "query: moderate; kv_cache: moderate",
    /* Every row of the blocks in block_table is seen: seq_lens is data. */
    .flops = "2*b*h*n*size*(c + kv_lora_rank)",
    .bytes = "default - nbytes(kv_cache) + min(b*n, blocks)*size*c*itemsize(kv_cache)",
    .bench = "b: 1 16 128; h: 16; c: 576; kv_lora_rank: 512; size: 64; n: 16; blocks: b*n; block_table: distinct "
             "0..blocks-1; "
             "seq_lens: n*size..n*size",
};

const fl_op_def fl_op_merge_attn_states = {
    .size = sizeof(fl_op_def),
    .schema = "merge_attn_states(Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse) -> "
              "(Tensor out, Tensor lse)",
    .rules = "prefix_output: T[n, h, d]; prefix_lse: float32[h, n]; suffix_output: T[n, h, d]; suffix_lse: "
             "float32[h, n]; out: T[n, h, d]; lse: float32[h, n]; " FLOATS,
    .category = "attention",
    .doc = "Joins attention over two parts of a context by their log-sum-exps.",
    .formula =
        "m = max(prefix_lse, suffix_lse), w = exp(lse - m) of each part; out = (w_p prefix_output + w_s "
        "suffix_output) / (w_p + w_s), lse = log(w_p + w_s) + m; +inf counts as -inf; where both are -inf, out = "
        "prefix_output and lse = -inf (vLLM: kernel merge_attn_states)",
    .cases = "n: 1 7 83 0 512; h: 1 4 16; d: 16 64 80; prefix_output: moderate; suffix_output: moderate",
    .flops = "3*numel(out) + 10*numel(lse)",
    .bench = "n: 1 128 4096; h: 32; d: 128",
};

/* The projections to query and latent: fused and through a query latent, or two without. */
static fl_status check_projections(fl_call *call, uint32_t fused, uint32_t norm, uint32_t q_b, uint32_t kv_a,
                                   uint32_t q) {
  const fl_value *values = call->values;
  bool lora = values[fused].type == FL_TENSOR;
  const struct {
    uint32_t index;
    const char *name;
    bool expected;
  } rows[] = {{norm, "q_a_layernorm", lora},
              {q_b, "q_b_proj", lora},
              {kv_a, "kv_a_proj_with_mqa", !lora},
              {q, "q_proj", !lora}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if ((values[rows[i].index].type == FL_TENSOR) != rows[i].expected)
      return fl_fail(call, FL_EINVAL, "argument '%s': %s, expected %s while 'fused_qkv_a_proj' is %s", rows[i].name,
                     rows[i].expected ? "none" : "given", rows[i].expected ? "Tensor" : "none",
                     lora ? "given" : "none");
  return FL_OK;
}

/* The rules let both be of another type than the activations. */
static fl_status check_same_dtype(fl_call *call, uint32_t cos, uint32_t sin) {
  const fl_value *values = call->values;
  if (!memcmp(&values[cos].v.tensor->dtype, &values[sin].v.tensor->dtype, sizeof(DLDataType)))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'sin': expected the dtype of 'cos'");
}

/* A cache is there with its index, and each sequence has as many of the tokens as the others. */
static fl_status check_cache(fl_call *call, uint32_t cache, uint32_t table, uint32_t lens, int64_t tokens) {
  const fl_value *values = call->values;
  bool cached = values[cache].type == FL_TENSOR;
  if ((values[table].type == FL_TENSOR) != cached || (values[lens].type == FL_TENSOR) != cached)
    return fl_fail(call, FL_EINVAL,
                   "argument '%s': %s, expected all of 'kv_cache', 'block_table' and 'seq_lens' or none",
                   (values[table].type == FL_TENSOR) != cached ? "block_table" : "seq_lens",
                   cached ? "none" : "given while 'kv_cache' is none");
  if (!cached)
    return FL_OK;
  int64_t sequences = values[lens].v.tensor->shape[0];
  if (sequences ? tokens % sequences : tokens)
    return fl_fail(call, FL_EINVAL,
                   "argument 'seq_lens': %lld sequences, expected a divisor of %lld (tokens of "
                   "'hidden_states')",
                   (long long)sequences, (long long)tokens);
  return FL_OK;
}

static fl_status check_multi_head_latent_attention(fl_call *call) {
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
    LAYER_SCALE,
    EPSILON
  };
  static const char *const sizes[] = {"num_heads", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                                      "kv_lora_rank"};
  fl_status status = FL_OK;
  for (uint32_t i = NUM_HEADS; i <= KV_LORA_RANK && !status; i++)
    status = check_count(call, i, sizes[i - NUM_HEADS], 1, INT64_MAX, NULL);
  if (!status)
    status = fl_check_finite(call, LAYER_SCALE, "scale");
  if (!status)
    status = fl_check_not_negative(call, EPSILON, "epsilon");
  if (!status)
    status = check_same_dtype(call, COS, SIN);
  if (!status)
    status = check_projections(call, FUSED_QKV_A_PROJ, Q_A_LAYERNORM, Q_B_PROJ, KV_A_PROJ_WITH_MQA, Q_PROJ);
  return status ? status
                : check_cache(call, KV_CACHE, BLOCK_TABLE, SEQ_LENS, call->values[HIDDEN_STATES].v.tensor->shape[0]);
}

/* Steps that round to T follow each other, and a difference of one unit goes through two products: vLLM's tests of MLA
 * backends allow 5e-1 + 1e-2 |e|, which is more than this needs. */
static const fl_tolerance layer_tolerance[] = {{FL_FLOAT16, 1e-2, 1e-2}, {FL_BFLOAT16, 5e-2, 2e-2}, {0}};

const fl_op_def fl_op_multi_head_latent_attention = {
    .size = sizeof(fl_op_def),
    .schema = "multi_head_latent_attention(Tensor position_ids, Tensor hidden_states, Tensor? fused_qkv_a_proj, "
              "Tensor? q_a_layernorm, Tensor? q_b_proj, Tensor? kv_a_proj_with_mqa, Tensor? q_proj, "
              "Tensor kv_a_layernorm, Tensor kv_b_proj, Tensor? g_proj, Tensor o_proj, Tensor cos, Tensor sin, "
              "Tensor(a!)? kv_cache, Tensor? block_table, Tensor? seq_lens, int num_heads, int qk_nope_head_dim, "
              "int qk_rope_head_dim, int v_head_dim, int kv_lora_rank, float scale, float epsilon=1e-6, "
              "bool interleaved=True, Tensor? llama_4_scaling=None) -> Tensor out",
    .layers = "MultiHeadLatentAttentionWrapper",
    .rules = "position_ids: int32|int64[t]; hidden_states: T[t, c]; "
             "fused_qkv_a_proj: T[q + kv_lora_rank + qk_rope_head_dim, c]; q_a_layernorm: T[q]; "
             "q_b_proj: T[num_heads * (qk_nope_head_dim + qk_rope_head_dim), q]; "
             "kv_a_proj_with_mqa: T[kv_lora_rank + qk_rope_head_dim, c]; "
             "q_proj: T[num_heads * (qk_nope_head_dim + qk_rope_head_dim), c]; kv_a_layernorm: T[kv_lora_rank]; "
             "kv_b_proj: T[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]; "
             "g_proj: T[num_heads * v_head_dim, c]; o_proj: T[c, num_heads * v_head_dim]; "
             "cos: T|float32[p, qk_rope_head_dim / 2]; sin: T|float32[p, qk_rope_head_dim / 2]; "
             "kv_cache: T[blocks, size, kv_lora_rank + qk_rope_head_dim]; block_table: int32|int64[n, m]; "
             "seq_lens: int32|int64[n]; llama_4_scaling: T|float32[t, 1, 1] or T|float32[t]; out: T[t, c]; " FLOATS,
    .category = "attention",
    .doc = "The latent attention layer of DeepSeek's models: projections, norms, rotation, attention, output. Without "
           "kv_cache the tokens are one sequence; with one they are the last t / n tokens of each of n sequences of "
           "seq_lens tokens, and their rows are written to it first.",
    .formula =
        "[q_c | kv] = fused_qkv_a_proj(h), q = q_b_proj(norm(q_c)); or kv = kv_a_proj_with_mqa(h), q = q_proj(h); "
        "[kv_c | k_pe] = kv, kv_c = norm(kv_c); rotary embedding of q[..., qk_nope_head_dim:] and k_pe; q *= "
        "llama_4_scaling; a = latent attention (mla_prefill) of q over rows [kv_c | k_pe]; a *= sigmoid(g_proj(h)); "
        "out = o_proj(a); rounded to T after each step (vLLM: MultiHeadLatentAttentionWrapper)",
    .tolerance = layer_tolerance,
    .check = check_multi_head_latent_attention,
    .cases =
        "t: 1 4 12; c: 32 64; q: 16 32; num_heads: 1 4; qk_nope_head_dim: 16 32; qk_rope_head_dim: 8 16; v_head_dim: "
        "16 24; kv_lora_rank: 32; p: 64; "
        "blocks: 16; size: 4; n: 1 2; m: 6; scale: 0.125; hidden_states: moderate; fused_qkv_a_proj: none -0.2..0.2; "
        "q_a_layernorm: with fused_qkv_a_proj 0.5..2; q_b_proj: with fused_qkv_a_proj -0.2..0.2; "
        "kv_a_proj_with_mqa: without fused_qkv_a_proj -0.2..0.2; q_proj: without fused_qkv_a_proj -0.2..0.2; "
        "kv_a_layernorm: 0.5..2; "
        "kv_b_proj: -0.2..0.2; g_proj: none -0.2..0.2; o_proj: -0.2..0.2; cos: -1..1; sin: -1..1; position_ids: "
        "0..p-1; "
        "kv_cache: none -1..1; block_table: with kv_cache distinct 0..blocks-1; seq_lens: with kv_cache t/n..m*size; "
        "llama_4_scaling: none 0.5..2",
    /* Projections; then attention, without a cache as mla_prefill, over one in the latent space (DeepSeek-V2,
     * section 2.1: kv_b_proj goes into query and output), with every row of the blocks in block_table. The rows of the
     * tokens are written. Sizes of DeepSeek-V2-Lite. */
    .flops = "2*t*(numel(fused_qkv_a_proj) + numel(q_b_proj) + numel(kv_a_proj_with_mqa) + numel(q_proj) + "
             "numel(kv_b_proj) + numel(g_proj) + numel(o_proj)) + "
             "num_heads*(1 - given(kv_cache))*(qk_nope_head_dim + qk_rope_head_dim + v_head_dim)*t*(t + 1) + "
             "2*num_heads*given(kv_cache)*(2*kv_lora_rank + qk_rope_head_dim)*t*m*size",
    .bytes = "default - nbytes(cos) - nbytes(sin) + min(t, p)*qk_rope_head_dim*itemsize(cos) - 2*nbytes(kv_cache) + "
             "(min(n*m, blocks)*size + t)*(kv_lora_rank + qk_rope_head_dim)*itemsize(kv_cache)",
    .bench = "t: 1 128 4096; c: 2048; num_heads: 16; qk_nope_head_dim: 128; qk_rope_head_dim: 64; v_head_dim: 128; "
             "kv_lora_rank: 512; p: 8192",
};
