/* Rotary position embeddings. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#include <string.h>

enum { QUERY, KEY, COS, SIN, POSITION_IDS, INTERLEAVED, ROPE_DIM_OFFSET };

/* A tensor's number of heads and their size. Without an own dimension for heads, a head is as long as a rotation: the
 * rules have seen to it that the last dimension holds a whole number of them. */
typedef struct heads {
  int64_t count, size;
} heads;

static heads heads_of(const DLTensor *tensor, int64_t rotary_dim) {
  if (tensor->ndim == 3)
    return (heads){tensor->shape[1], tensor->shape[2]};
  return (heads){rotary_dim ? tensor->shape[1] / rotary_dim : 0, rotary_dim};
}

static fl_status check_key(fl_call *call, const DLTensor *query, const DLTensor *key, int64_t rotary_dim) {
  heads of_query = heads_of(query, rotary_dim), of_key = heads_of(key, rotary_dim);
  if (key->ndim != query->ndim)
    return fl_fail(call, FL_EINVAL, "argument 'key': %d dimensions, expected %d (as 'query')", key->ndim, query->ndim);
  if (of_key.count ? of_query.count % of_key.count : of_query.count)
    return fl_fail(call, FL_EINVAL, "argument 'key': %lld heads, expected a divisor of the %lld heads of 'query'",
                   (long long)of_key.count, (long long)of_query.count);
  return FL_OK;
}

static fl_status check_rotary_embedding(fl_call *call) {
  const fl_value *values = call->values;
  const DLTensor *query = values[QUERY].v.tensor, *cos = values[COS].v.tensor, *sin = values[SIN].v.tensor;
  int64_t rotary_dim = 2 * cos->shape[1], offset = values[ROPE_DIM_OFFSET].v.i;
  int64_t room = heads_of(query, rotary_dim).size - rotary_dim;
  if (memcmp(&cos->dtype, &sin->dtype, sizeof cos->dtype))
    return fl_fail(call, FL_EINVAL, "argument 'sin': expected the dtype of 'cos'");
  if (room < 0)
    return fl_fail(call, FL_EINVAL, "argument 'cos': rotates %lld dimensions of a head, but heads of 'query' have %lld",
                   (long long)rotary_dim, (long long)(room + rotary_dim));
  if (offset < 0 || offset > room)
    return fl_fail(call, FL_EINVAL,
                   "argument 'rope_dim_offset': %lld, expected 0 to %lld (size of a head less rotated dimensions)",
                   (long long)offset, (long long)room);
  return values[KEY].type == FL_TENSOR ? check_key(call, query, values[KEY].v.tensor, rotary_dim) : FL_OK;
}

const fl_op_def fl_op_rotary_embedding = {
    .size = sizeof(fl_op_def),
    .schema = "rotary_embedding(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids, "
              "bool interleaved=False, int rope_dim_offset=0, bool inverse=False) -> "
              "(Tensor(a) query_out, Tensor(b)? key_out)",
    .layers = "RotaryEmbedding,Llama3RotaryEmbedding,YaRNScalingRotaryEmbedding,LinearScalingRotaryEmbedding,"
              "NTKScalingRotaryEmbedding,DynamicNTKScalingRotaryEmbedding,DynamicNTKAlphaRotaryEmbedding,"
              "Gemma4RotaryEmbedding,DeepseekScalingRotaryEmbedding",
    .rules = "query: T[n, h, d] or T[n, h*2*r]; key: T[n, k, d] or T[n, k*2*r]; cos: T|float32[p, r]; "
             "sin: T|float32[p, r]; position_ids: int32|int64[n]; T = float32|float16|bfloat16",
    .category = "rotary embedding",
    .doc = "Rotates pairs of dimensions of each head of query and key by the angle of the token's position.",
    .formula =
        "(x1, x2) -> (x1*c - x2*s, x2*c + x1*s), c = cos[position, i], s = sin[position, i] (-s if inverse); the "
        "pair is (i, i + r), or (2*i, 2*i + 1) if interleaved, from rope_dim_offset on; other dimensions stay. "
        "Query and key of two dimensions have heads of 2*r. Rounded to T after each product and the sum (vLLM: "
        "RotaryEmbedding, kernel rotary_embedding)",
    .check = check_rotary_embedding,
    .cases = "n: 1 7 83 0 1024; h: 1 4 8; k: 1 2 4; d: 64 80; r: 4 16 32; p: 1 128; cos: -1..1; sin: -1..1; "
             "position_ids: 0..p-1; rope_dim_offset: 0 8",
    /* 4 products and 2 sums for each pair; of the tables only the rows of the tokens' positions are read. */
    .flops = "6*n*r*(h + k)",
    .bytes = "default - nbytes(cos) - nbytes(sin) + 2*min(n, p)*r*itemsize(cos)",
    .bench = "n: 1 128 4096; h: 32; k: 8; d: 128; r: 64; p: 8192; key: normal",
};

static fl_status check_apply_rotary_emb(fl_call *call) {
  enum { X, COS_TABLE, SIN_TABLE };
  const DLTensor *cos = call->values[COS_TABLE].v.tensor, *sin = call->values[SIN_TABLE].v.tensor;
  if (memcmp(&cos->dtype, &sin->dtype, sizeof cos->dtype))
    return fl_fail(call, FL_EINVAL, "argument 'sin': expected the dtype of 'cos'");
  return FL_OK;
}

const fl_op_def fl_op_apply_rotary_emb = {
    .size = sizeof(fl_op_def),
    .schema = "apply_rotary_emb(Tensor x, Tensor cos, Tensor sin, bool is_neox_style=True, "
              "bool enable_fp32_compute=False) -> Tensor out",
    .layers = "ApplyRotaryEmb",
    .rules = "x: T[..., S, H, 2*r]; cos: T|float32[S, r]; sin: T|float32[S, r]; out: T[..., S, H, 2*r]; "
             "T = float32|float16|bfloat16",
    .category = "rotary embedding",
    .doc = "Rotates pairs of dimensions of each head by the angle of the token's place in the sequence.",
    .formula = "(x1, x2) -> (x1*c - x2*s, x2*c + x1*s), c = cos[place, i], s = sin[place, i] as T; the pair is "
               "(i, i + r), or (2*i, 2*i + 1) if not is_neox_style; rounded to T after each product and the sum, or in "
               "float32 and rounded once if enable_fp32_compute (vLLM: ApplyRotaryEmb)",
    .check = check_apply_rotary_emb,
    .cases = "...: [] [2] [1, 1]; S: 1 7 83 0 512; H: 1 4; r: 1 16 32; cos: -1..1; sin: -1..1",
    .flops = "3*numel(x)",
    .bench = "...: []; S: 1 128 4096; H: 32; r: 64",
};

enum {
  CHUNK_POSITIONS,
  CHUNK_QUERY,
  CHUNK_KEY,
  Q_CACHE,
  QC_CACHE,
  K_CACHE,
  QC_NO_CLAMP_CACHE,
  Q_INTER_CACHE,
  HEAD_SIZE,
  ROTARY_DIM,
  CHUNK_SIZE,
  LOCAL_SIZE
};

static fl_status check_dual_chunk(fl_call *call) {
  static const struct {
    uint32_t index;
    const char *name;
  } caches[] = {{Q_CACHE, "q_cache"},
                {QC_CACHE, "qc_cache"},
                {QC_NO_CLAMP_CACHE, "qc_no_clamp_cache"},
                {Q_INTER_CACHE, "q_inter_cache"}};
  const fl_value *values = call->values;
  int64_t head = values[HEAD_SIZE].v.i, rotary = values[ROTARY_DIM].v.i;
  int64_t chunk = values[CHUNK_SIZE].v.i, local = values[LOCAL_SIZE].v.i;
  if (head < 1)
    return fl_fail(call, FL_EINVAL, "argument 'head_size': %lld, expected 1 or more", (long long)head);
  if (rotary < 2 || rotary > head || rotary % 2)
    return fl_fail(call, FL_EINVAL, "argument 'rotary_dim': %lld, expected an even number from 2 to %lld ('head_size')",
                   (long long)rotary, (long long)head);
  if (chunk < 1)
    return fl_fail(call, FL_EINVAL, "argument 'chunk_size': %lld, expected 1 or more", (long long)chunk);
  if (local < 0 || local >= chunk)
    return fl_fail(call, FL_EINVAL, "argument 'local_size': %lld, expected 0 or more and less than %lld ('chunk_size')",
                   (long long)local, (long long)chunk);
  for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
    int64_t rows = values[caches[i].index].v.tensor->shape[0];
    if (rows < chunk - local)
      return fl_fail(call, FL_EINVAL, "argument '%s': %lld rows, expected at least %lld ('chunk_size' - 'local_size')",
                     caches[i].name, (long long)rows, (long long)(chunk - local));
  }
  return FL_OK;
}

const fl_op_def fl_op_dual_chunk_rotary_embedding = {
    .size = sizeof(fl_op_def),
    .schema = "dual_chunk_rotary_embedding(Tensor position_ids, Tensor query, Tensor key, Tensor q_cache, "
              "Tensor qc_cache, Tensor k_cache, Tensor qc_no_clamp_cache, Tensor q_inter_cache, int head_size, "
              "int rotary_dim, int chunk_size, int local_size, bool is_neox_style=True) -> "
              "(Tensor query_out, Tensor key_out)",
    .layers = "DualChunkRotaryEmbedding",
    .rules = "position_ids: int32|int64[n]; query: T[n, h*head_size]; key: T[n, k*head_size]; "
             "q_cache: T[q, rotary_dim]; qc_cache: T[c, rotary_dim]; k_cache: T[p, rotary_dim]; "
             "qc_no_clamp_cache: T[d, rotary_dim]; q_inter_cache: T[i, rotary_dim]; "
             "query_out: T[n, 5*(h*head_size)]; key_out: T[n, k*head_size]; T = float32|float16|bfloat16",
    .category = "rotary embedding",
    .doc = "Rotary embedding of dual chunk attention: the key by its position, the query five times, one after the "
           "other: within the chunk, to the chunk before, to those before that, and the last two again without the "
           "clamp. A cache row holds cosines, then sines.",
    .formula = "key_out = R(key, k_cache[p]); query_out = R(query, q_cache[p % c]), R(query, qc_cache[p % c]), "
               "R(query, qc_cache[c - 1]), R(query, qc_no_clamp_cache[p % c]), R(query, q_inter_cache[p % c]), c = "
               "chunk_size - local_size; R rotates the first rotary_dim dimensions as rotary_embedding does (vLLM: "
               "DualChunkRotaryEmbedding)",
    .check = check_dual_chunk,
    .cases = "n: 1 7 83 0 512; h: 1 4; k: 1 2; head_size: 8 64; rotary_dim: 8 32 head_size; chunk_size: 16 64; "
             "local_size: 0 4; "
             "q: chunk_size-local_size; c: chunk_size-local_size; d: chunk_size-local_size; i: chunk_size-local_size; "
             "p: 64 128; "
             "q_cache: -1..1; qc_cache: -1..1; k_cache: -1..1; qc_no_clamp_cache: -1..1; q_inter_cache: -1..1; "
             "position_ids: 0..p-1",
    /* Of each cache the rows that the tokens need: one a token while there are so many, of qc_cache one more. Sizes of
     * Qwen2.5 7B. */
    .flops = "3*n*rotary_dim*(5*h + k)",
    .bytes = "nbytes(position_ids) + nbytes(query) + nbytes(key) + nbytes(query_out) + nbytes(key_out) + "
             "rotary_dim*itemsize(k_cache)*(min(n, p) + 3*min(n, chunk_size - local_size) + "
             "min(n + 1, chunk_size - local_size))",
    .bench =
        "n: 1 128 4096; h: 28; k: 4; head_size: 128; rotary_dim: 128; chunk_size: 8192; local_size: 1024; p: 32768",
};

static fl_status check_fused_qk_norm_rope(fl_call *call) {
  enum { QKV, Q_WEIGHT, K_WEIGHT, COS_TABLE, SIN_TABLE, IDS, NUM_HEADS_Q, NUM_HEADS_K, NUM_HEADS_V, EPSILON };
  static const char *const names[] = {"num_heads_q", "num_heads_k", "num_heads_v"};
  const DLTensor *cos = call->values[COS_TABLE].v.tensor, *sin = call->values[SIN_TABLE].v.tensor;
  int64_t size = call->values[Q_WEIGHT].v.tensor->shape[0];
  for (uint32_t i = 0; i < 3; i++) {
    int64_t count = call->values[NUM_HEADS_Q + i].v.i;
    if (count < 0)
      return fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected 0 or more", names[i], (long long)count);
  }
  if (memcmp(&cos->dtype, &sin->dtype, sizeof cos->dtype))
    return fl_fail(call, FL_EINVAL, "argument 'sin': expected the dtype of 'cos'");
  if (2 * cos->shape[1] > size)
    return fl_fail(call, FL_EINVAL, "argument 'cos': rotates %lld dimensions of a head, but heads have %lld",
                   (long long)(2 * cos->shape[1]), (long long)size);
  return fl_check_not_negative(call, EPSILON, "epsilon");
}

/* One rounding here, where a chain of norm and rotation has several. */
static const fl_tolerance fused_tolerance[] = {{FL_FLOAT16, 2e-3, 2e-3}, {FL_BFLOAT16, 1e-2, 1.6e-2}, {0}};

const fl_op_def fl_op_fused_qk_norm_rope = {
    .size = sizeof(fl_op_def),
    .schema = "fused_qk_norm_rope(Tensor(a!) qkv, Tensor q_weight, Tensor k_weight, Tensor cos, Tensor sin, "
              "Tensor position_ids, int num_heads_q, int num_heads_k, int num_heads_v, float epsilon=1e-6, "
              "bool interleaved=False) -> Tensor(a) qkv_out",
    .rules = "q_weight: T[d]; k_weight: T[d]; qkv: T[n, (num_heads_q + num_heads_k + num_heads_v)*d]; "
             "cos: T|float32[p, r]; sin: T|float32[p, r]; position_ids: int32|int64[n]; T = float32|float16|bfloat16",
    .category = "rotary embedding",
    .doc = "Normalises each head of query and key by its root mean square, and rotates it; value stays.",
    .formula =
        "y = x / sqrt(mean of x^2 + epsilon) * weight for each head of query and key; then as rotary_embedding, of "
        "the first 2*r dimensions; in float32, rounded to T once (vLLM: kernel fused_qk_norm_rope)",
    .tolerance = fused_tolerance,
    .check = check_fused_qk_norm_rope,
    .cases = "n: 1 7 83 0 512; num_heads_q: 1 4 8; num_heads_k: 1 2 4; num_heads_v: num_heads_k 0; d: 20 64 80; "
             "r: 4 10 32; p: 1 128; q_weight: 0.5..2; k_weight: 0.5..2; cos: -1..1; sin: -1..1; "
             "position_ids: 0..p-1",
    /* The squares and their sum, two products; 4 products and 2 sums for each pair. Sizes of Qwen3 8B. */
    .flops = "(4*d + 6*r)*n*(num_heads_q + num_heads_k)",
    .bytes = "default - 2*n*num_heads_v*d*itemsize(qkv) - nbytes(cos) - nbytes(sin) + 2*min(n, p)*r*itemsize(cos)",
    .bench = "n: 1 128 4096; num_heads_q: 32; num_heads_k: 8; num_heads_v: 8; d: 128; r: 64; p: 8192",
};

static fl_status check_mrope(fl_call *call) {
  enum { M_QUERY, M_KEY, M_COS, M_SIN, IDS, SECTION };
  static const char *const names[] = {"time", "height", "width"};
  const fl_value *values = call->values, *section = &values[SECTION];
  const DLTensor *query = values[M_QUERY].v.tensor, *cos = values[M_COS].v.tensor, *sin = values[M_SIN].v.tensor;
  int64_t pairs = cos->shape[1], left = pairs, size = heads_of(query, 2 * pairs).size;
  if (memcmp(&cos->dtype, &sin->dtype, sizeof cos->dtype))
    return fl_fail(call, FL_EINVAL, "argument 'sin': expected the dtype of 'cos'");
  if (2 * pairs > size)
    return fl_fail(call, FL_EINVAL, "argument 'cos': rotates %lld dimensions of a head, but heads of 'query' have %lld",
                   (long long)(2 * pairs), (long long)size);
  if (section->length != 3)
    return fl_fail(call, FL_EINVAL, "argument 'mrope_section': %d sections, expected 3 (time, height, width)",
                   (int)section->length);
  for (int i = 0; i < 3; i++) {
    if (section->v.ints[i] < 0 || section->v.ints[i] > left)
      return fl_fail(call, FL_EINVAL, "argument 'mrope_section': %lld (%s), expected 0 to %lld (sections make %lld)",
                     (long long)section->v.ints[i], names[i], (long long)left, (long long)pairs);
    left -= section->v.ints[i];
  }
  if (left)
    return fl_fail(call, FL_EINVAL, "argument 'mrope_section': sections make %lld, expected %lld (a row of 'cos')",
                   (long long)(pairs - left), (long long)pairs);
  return values[M_KEY].type == FL_TENSOR ? check_key(call, query, values[M_KEY].v.tensor, 2 * pairs) : FL_OK;
}

const fl_op_def fl_op_mrope = {
    .size = sizeof(fl_op_def),
    .schema = "mrope(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids, "
              "int[] mrope_section, bool mrope_interleaved=False, bool interleaved=False) -> "
              "(Tensor(a) query_out, Tensor(b)? key_out)",
    .layers = "MRotaryEmbedding",
    .rules = "query: T[n, h, d] or T[n, h*2*r]; key: T[n, k, d] or T[n, k*2*r]; cos: T|float32[p, r]; "
             "sin: T|float32[p, r]; position_ids: int32|int64[3, n]; T = float32|float16|bfloat16",
    .category = "rotary embedding",
    .doc = "Rotary embedding of tokens that have three positions, by time, height and width: each frequency turns by "
           "one of them.",
    .formula =
        "as rotary_embedding, frequency i by position_ids[a(i)]; mrope_section [t, h, w]: a = 0 for i < t, 1 for "
        "i < t + h, else 2; mrope_interleaved: a = 1 if i % 3 = 1 and i < 3*h, 2 if i % 3 = 2 and i < 3*w, else 0 "
        "(vLLM: MRotaryEmbedding, mrope)",
    .check = check_mrope,
    .cases = "n: 1 7 83 0 512; h: 1 4 8; k: 1 2 4; d: 64 80; r: 4 16 32; p: 1 128; cos: -1..1; sin: -1..1; "
             "position_ids: 0..p-1; mrope_section: [1,2,1] [2,0,2] [6,5,5] [0,16,0] [8,12,12] [32,0,0]",
    /* Sizes of Qwen2.5-VL 7B. */
    .flops = "6*n*r*(h + k)",
    .bytes = "default - nbytes(cos) - nbytes(sin) + 2*min(3*n, p)*r*itemsize(cos)",
    .bench = "n: 1 128 4096; h: 28; k: 4; d: 128; r: 64; p: 8192; key: normal; mrope_section: [16,24,24]",
};
