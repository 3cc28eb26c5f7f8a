/* Attention over a paged cache of keys and values, and how they get there. */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

#include <string.h>

#define FLOATS "T = float32|float16|bfloat16"
/* A scale for the tensor, or one for each head. */
#define SCALES "k_scale: float32[1] or float32[] or float32[k]; v_scale: float32[1] or float32[] or float32[k]; "
#define CACHES "key_cache: T|float8_e4m3fn[blocks, size, k, d]; value_cache: T|float8_e4m3fn[blocks, size, k, d]; "

/* Where an op has its caches and their scales. */
typedef struct cache_arguments {
  uint32_t key_cache, value_cache, k_scale, v_scale;
} cache_arguments;

static const DLTensor *tensor_at(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

/* Both caches have one dtype, and scales are there exactly if it is float8. */
static fl_status check_caches(fl_call *call, const cache_arguments *at) {
  const DLTensor *keys = tensor_at(call, at->key_cache), *values = tensor_at(call, at->value_cache);
  const struct {
    uint32_t index;
    const char *name;
  } scales[] = {{at->k_scale, "k_scale"}, {at->v_scale, "v_scale"}};
  bool is_float8 = keys->dtype.code == FL_DTYPE_FLOAT8_E4M3FN;
  if (memcmp(&keys->dtype, &values->dtype, sizeof keys->dtype))
    return fl_fail(call, FL_EINVAL, "argument 'value_cache': expected the dtype of 'key_cache'");
  for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
    if ((tensor_at(call, scales[i].index) != NULL) != is_float8)
      return fl_fail(call, FL_EINVAL, "argument '%s': %s, expected %s 'key_cache' is float8_e4m3fn", scales[i].name,
                     is_float8 ? "none" : "given", is_float8 ? "Tensor while" : "none unless");
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------- attention */

/* -1 says that there is none. */
static fl_status check_window(fl_call *call, uint32_t index, const char *name) {
  int64_t given = call->values[index].v.i;
  return given >= -1 ? FL_OK
                     : fl_fail(call, FL_EINVAL, "argument '%s': %lld, expected -1 (no limit), 0 or more", name,
                               (long long)given);
}

static fl_status check_paged_attention(fl_call *call) {
  enum { QUERY, KEY_CACHE, VALUE_CACHE, TABLE, STARTS, LENS, SCALE, CAUSAL, LEFT, RIGHT, SOFT_CAP };
  enum { SLOPES = SOFT_CAP + 1, SINKS, K_SCALE, V_SCALE };
  static const cache_arguments at = {KEY_CACHE, VALUE_CACHE, K_SCALE, V_SCALE};
  int64_t heads = tensor_at(call, QUERY)->shape[1], shared = tensor_at(call, KEY_CACHE)->shape[2];
  if (shared ? heads % shared : heads)
    return fl_fail(call, FL_EINVAL, "argument 'key_cache': %lld heads, expected a divisor of the %lld heads of 'query'",
                   (long long)shared, (long long)heads);
  fl_status status = check_caches(call, &at);
  if (!status)
    status = fl_check_finite(call, SCALE, "scale");
  if (!status)
    status = check_window(call, LEFT, "window_left");
  if (!status)
    status = check_window(call, RIGHT, "window_right");
  return status ? status : fl_check_not_negative(call, SOFT_CAP, "soft_cap");
}

const fl_op_def fl_op_paged_attention = {
    .size = sizeof(fl_op_def),
    .flags = FL_OP_NOT_FINITE,
    .schema = "paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, "
              "Tensor query_start_loc, Tensor seq_lens, float scale, bool causal=True, int window_left=-1, "
              "int window_right=-1, float soft_cap=0.0, Tensor? alibi_slopes=None, Tensor? sinks=None, "
              "Tensor? k_scale=None, Tensor? v_scale=None) -> (Tensor out, Tensor lse)",
    .rules = "query: T[n, h, d]; " CACHES "block_table: int32|int64[b, m]; query_start_loc: int32|int64[b + 1]; "
             "seq_lens: int32|int64[b]; alibi_slopes: float32[h]; sinks: T|float32[h]; " SCALES
             "out: T[n, h, d]; lse: float32[h, n]; " FLOATS,
    .category = "attention",
    .layers = "CPUAttentionBackend",
    .doc =
        "Attention of prefill, chunked prefill and decode over a paged cache. Queries of sequence i are tokens "
        "query_start_loc[i] to [i + 1] - 1, the last of its seq_lens[i] tokens; token t is row t % size of block "
        "block_table[i, t / size]. Of tokens behind the last sequence out is 0 and lse -inf. A float8 cache has "
        "scales, of the tensor or of each head. GPU kernels do not refuse starts, lengths and blocks that are out of "
        "range: they stay within the tensors, a length ends with block_table, a block that is not in the cache counts "
        "as not seen; that starts ascend from 0 is the caller's duty.",
    .formula =
        "s_t = (q . k_t) * scale; s_t = soft_cap * tanh(s_t / soft_cap) if soft_cap > 0; s_t += alibi_slopes[head] * "
        "(t - p) for the query at position p; visible: t <= p if causal, p - window_left <= t <= p + window_right of "
        "those that are not -1; Z = sum of exp(s_t) over visible t, plus exp(sinks[head]); out = sum of exp(s_t) / Z * "
        "v_t, lse = log Z, in float32, rounded to T once; k and v of float8 are multiplied by k_scale and v_scale "
        "(vLLM: unified_attention, flash_attn_varlen_func, cpu_attention_with_kv_cache)",
    .check = check_paged_attention,
    .cases = "b: 1 3 0; n: 1 7 33 0; h: 4 8; k: 1 2 4; d: 16 64 80; size: 4 16; m: n//size+1 n//size+5; blocks: 8 1; "
             "query_start_loc: ascending 0..n ascending 0..n ascending 0..n//2; seq_lens: n..m*size; "
             "block_table: 0..blocks-1; scale: 0.125; causal: true true false; window_left: -1 -1 0 5; "
             "window_right: -1 -1 2; soft_cap: 0 0 2.5; query: moderate; key_cache: -2..2; value_cache: -2..2; "
             "alibi_slopes: none 0..0.5; sinks: none -1..1; k_scale: none 0.25..2; v_scale: with k_scale 0.25..2",
    /* Two products for each query and each row of the blocks in block_table that it sees: seq_lens is data. Sequences
     * count as equally long. */
    .flops = "4*h*d*(n*m*size - causal*n*(n - b)/(2*max(b, 1)))",
    .bytes = "default - nbytes(key_cache) - nbytes(value_cache) + "
             "min(b*m, blocks)*size*k*d*(itemsize(key_cache) + itemsize(value_cache))",
    .bench = "b: 1; n: 1 128 1024; h: 32; k: 8; d: 128; size: 16; m: 64; blocks: b*m; block_table: distinct "
             "0..blocks-1; query_start_loc: ascending 0..n; seq_lens: m*size..m*size; causal: true; window_left: -1; "
             "window_right: -1; soft_cap: 0",
};

/* ----------------------------------------------------------------------------------------------------------- cache */

static fl_status check_reshape_and_cache(fl_call *call) {
  enum { KEY, VALUE, KEY_CACHE, VALUE_CACHE, SLOT_MAPPING, K_SCALE, V_SCALE };
  static const cache_arguments at = {KEY_CACHE, VALUE_CACHE, K_SCALE, V_SCALE};
  int64_t tokens = tensor_at(call, KEY)->shape[0], slots = tensor_at(call, SLOT_MAPPING)->shape[0];
  if (slots > tokens)
    return fl_fail(call, FL_EINVAL, "argument 'slot_mapping': %lld slots, expected at most %lld (tokens of 'key')",
                   (long long)slots, (long long)tokens);
  return check_caches(call, &at);
}

const fl_op_def fl_op_reshape_and_cache = {
    .size = sizeof(fl_op_def),
    .schema = "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, "
              "Tensor slot_mapping, Tensor? k_scale=None, Tensor? v_scale=None) -> ()",
    .rules = "key: T[n, k, d]; value: T[n, k, d]; " CACHES "slot_mapping: int32|int64[t]; " SCALES FLOATS,
    .category = "attention",
    .doc = "Writes keys and values of tokens into a paged cache: token i goes to row slot % size of block slot / size, "
           "slot = slot_mapping[i], and nowhere if that is negative. Tokens behind the last slot are padding. Where a "
           "slot occurs twice the last token stays.",
    .formula = "cache row = key or value, bit for bit; of a float8 cache e4m3(clamp(x / scale, -448, 448)), nearest "
               "even, NaN stays NaN (vLLM: reshape_and_cache_flash)",
    .check = check_reshape_and_cache,
    .cases = "n: 1 7 83 0; t: n n n//2; k: 1 2; d: 16 80; blocks: 8; size: 16; slot_mapping: distinct "
             "-8..blocks*size-1 -1..20; "
             "k_scale: none 0.25..2; v_scale: with k_scale 0.25..2; key_cache: -1..1; value_cache: -1..1",
    /* A division of each number where there are scales. */
    .flops = "2*given(k_scale)*t*k*d",
    .bytes = "nbytes(slot_mapping) + nbytes(k_scale) + nbytes(v_scale) + "
             "t*k*d*(itemsize(key) + itemsize(value) + itemsize(key_cache) + itemsize(value_cache))",
    .bench = "n: 1 128 4096; t: n; k: 8; d: 128; size: 16; blocks: n//16+1; slot_mapping: distinct 0..blocks*size-1",
};
