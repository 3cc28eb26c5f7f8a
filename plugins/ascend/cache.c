/*
 * Rows of a paged cache. CANN moves them without looking at their numbers, in types of 8 and 16 bits: those of 32 are
 * told of as twice as many of 16.
 *
 * Its operator skips negative slots on A2 and A3 only, and nothing there looks whether a slot is inside the cache:
 * those behind it are made negative first.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

static int64_t rows_of_cache(const DLTensor *cache) {
  return cache->shape[0] * cache->shape[1];
}

/* Slots of a cache of `rows`, with none behind its end, in int32. */
static ascend_view slots_inside(ascend_call *c, ascend_view given, int64_t rows) {
  ascend_view clamped = ascend_scratch_like(c, &given, given.type), slots = clamped;
  ascend_view behind = ascend_scratch_like(c, &given, ACL_BOOL);
  ACLNN(c, Clamp, ascend_tensor(c, given), ascend_integer(c, -1), ascend_integer(c, rows), ascend_tensor(c, clamped));
  if (given.type != ACL_INT32) {
    slots = ascend_scratch_like(c, &given, ACL_INT32);
    ascend_cast(c, clamped, slots);
  }
  ACLNN(c, GeScalar, ascend_tensor(c, slots), ascend_integer(c, rows), ascend_tensor(c, behind));
  ACLNN(c, InplaceMaskedFillScalar, ascend_tensor(c, slots), ascend_tensor(c, behind), ascend_integer(c, -1));
  return slots;
}

static ascend_view in_16_bits(ascend_view view) {
  if (view.type != ACL_FLOAT)
    return view;
  for (int d = 0; d + 1 < view.n_dims; d++)
    view.strides[d] *= 2;
  view.shape[view.n_dims - 1] *= 2;
  view.type = ACL_FLOAT16;
  view.size = 2;
  return view;
}

/* Rows [tokens, heads, size] of caches [blocks, rows, heads, size]. */
static void scatter(ascend_call *c, ascend_view key, ascend_view value, ascend_view key_cache, ascend_view value_cache,
                    ascend_view slots) {
  static char mode[] = "Norm", scatter_mode[] = "None";
  static const int64_t strides[] = {1, 1}, offsets[] = {0, 0}; /* as torch_npu gives them: of a mode that is not this */
  ACLNN(c, ScatterPaKvCache, ascend_tensor(c, in_16_bits(key)), ascend_tensor(c, in_16_bits(key_cache)),
        ascend_tensor(c, slots), ascend_tensor(c, in_16_bits(value)), ascend_tensor(c, in_16_bits(value_cache)), NULL,
        NULL, NULL, mode, scatter_mode, ascend_ints(c, strides, 2), ascend_ints(c, offsets, 2));
}

static bool supports_cache(const DLTensor *cache, const DLTensor *slots, const char **reason) {
  if (!ascend_is_compact(cache))
    return ascend_refuse(reason, "aclnnScatterPaKvCache takes compact caches only");
  if (slots->shape[0] > rows_of_cache(cache))
    return ascend_refuse(reason, "aclnnScatterPaKvCache takes no more tokens than the cache has rows");
  if (rows_of_cache(cache) >= INT32_MAX)
    return ascend_refuse(reason, "a cache has fewer than 2147483647 rows where slots are of 32 bits");
  return true;
}

/* ----------------------------------------------------------------------------------------------- keys and values */

enum { KEY, VALUE, KEY_CACHE, VALUE_CACHE, SLOTS };

static bool supports_reshape_and_cache(const fl_call *call, ascend_chips chip, const char **reason) {
  const DLTensor *keys = ascend_tensor_at(call, KEY_CACHE), *values = ascend_tensor_at(call, VALUE_CACHE);
  const DLTensor *slots = ascend_tensor_at(call, SLOTS);
  (void)chip;
  if (!ascend_same_type(ascend_tensor_at(call, KEY), keys))
    return ascend_refuse(reason, "the chips that skip negative slots have no float8");
  return supports_cache(keys, slots, reason) && supports_cache(values, slots, reason);
}

/* The tokens that have a slot, compact. */
static ascend_view tokens_of(ascend_call *c, uint32_t index, int64_t n) {
  ascend_view given = ascend_argument(c, index), tokens = ascend_view_part(&given, 0, 0, n);
  if (ascend_view_is_compact(&tokens))
    return tokens;
  ascend_view compact = ascend_scratch_like(c, &tokens, tokens.type);
  ACLNN(c, InplaceCopy, ascend_tensor(c, compact), ascend_tensor(c, tokens));
  return compact;
}

static void run_reshape_and_cache(ascend_call *c) {
  ascend_view key_cache = ascend_argument(c, KEY_CACHE), given = ascend_argument(c, SLOTS);
  ascend_view key = tokens_of(c, KEY, given.shape[0]), value = tokens_of(c, VALUE, given.shape[0]);
  ascend_view slots = slots_inside(c, given, rows_of_cache(ascend_tensor_at(c->call, KEY_CACHE)));
  scatter(c, key, value, key_cache, ascend_argument(c, VALUE_CACHE), slots);
}

/* ----------------------------------------------------------------------------------------------------------- latent */

enum { KV_C, K_PE, KV_CACHE, LATENT_SLOTS };

static bool supports_concat_and_cache_mla(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_cache(ascend_tensor_at(call, KV_CACHE), ascend_tensor_at(call, LATENT_SLOTS), reason);
}

/* As [tokens, columns]; k_pe may have a dimension of 1 between. */
static ascend_view columns_of(const ascend_call *c, uint32_t index, int64_t tokens) {
  ascend_view given = ascend_argument(c, index), part = ascend_view_part(&given, 0, 0, tokens);
  part.shape[1] = part.shape[part.n_dims - 1];
  part.strides[1] = part.strides[part.n_dims - 1];
  part.n_dims = 2;
  return part;
}

/* Of two caches that the operator wants both are this one: the same bytes are written twice. That it may have none as
 * value is new. */
static void run_concat_and_cache_mla(ascend_call *c) {
  ascend_view cache = ascend_argument(c, KV_CACHE), given = ascend_argument(c, LATENT_SLOTS);
  int64_t tokens = given.shape[0], rows = rows_of_cache(ascend_tensor_at(c->call, KV_CACHE)), width = cache.shape[2];
  const int64_t row_shape[] = {tokens, width}, heads_shape[] = {tokens, 1, width};
  const int64_t cache_shape[] = {cache.shape[0], cache.shape[1], 1, width};
  ascend_view parts[] = {columns_of(c, KV_C, tokens), columns_of(c, K_PE, tokens)};
  ascend_view joined = ascend_scratch(c, cache.type, 2, row_shape), slots = slots_inside(c, given, rows);
  ACLNN(c, Cat, ascend_list(c, 2, parts), 1, ascend_tensor(c, joined));
  joined = ascend_view_reshaped(&joined, 3, heads_shape);
  cache = ascend_view_reshaped(&cache, 4, cache_shape);
  scatter(c, joined, joined, cache, cache, slots);
}

#define SLOTS_INSIDE ACLNN_Clamp, ACLNN_Cast, ACLNN_GeScalar, ACLNN_InplaceMaskedFillScalar

static ascend_op ops[] = {
    {.name = "reshape_and_cache",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_A2 | ASCEND_A3,
     .run = run_reshape_and_cache,
     .supports = supports_reshape_and_cache,
     .needs = {ACLNN_ScatterPaKvCache, SLOTS_INSIDE, ACLNN_InplaceCopy}},
    {.name = "concat_and_cache_mla",
     .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_A2 | ASCEND_A3,
     .run = run_concat_and_cache_mla,
     .supports = supports_concat_and_cache_mla,
     .needs = {ACLNN_ScatterPaKvCache, SLOTS_INSIDE, ACLNN_Cat}},
};
OP_LIST(ops);
