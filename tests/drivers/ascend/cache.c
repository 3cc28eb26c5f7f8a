/* The stand-in's rows of paged caches. Prototypes: op_api headers of ops-transformer. */
#include "tests/drivers/ascend/stand_in.h"

#include <string.h>

enum { KEY, KEY_CACHE, SLOTS, VALUE, VALUE_CACHE };

static void write_row(const aclTensor *from, const aclTensor *cache, int64_t token, int64_t slot) {
  size_t row = (size_t)(from->shape[1] * from->shape[2]) * (size_t)element_size(from->type);
  char *rows = cache->data + cache->offset * element_size(cache->type);
  memcpy(rows + (size_t)slot * row, from->data + from->offset * element_size(from->type) + (size_t)token * row, row);
}

/* Which of two tokens of one slot stays is left open: here it is the first one, so that nobody relies on the last. The
 * kernels of A2 and A3 skip negative slots, of 950 not all do. */
static int compute_scatter(aclOpExecutor *e) {
  const aclTensor *t = e->tensors;
  int64_t rows = t[KEY_CACHE].shape[0] * t[KEY_CACHE].shape[1];
  for (int64_t token = elements(&t[SLOTS]) - 1; token >= 0; token--) {
    int64_t slot = (int64_t)get(&t[SLOTS], token);
    if (slot >= rows || (slot < 0 && stand_in_chip() == A5)) {
      stand_in_violation("aclnnScatterPaKvCache writes to row %lld of %lld", (long long)slot, (long long)rows);
      continue;
    }
    if (slot < 0)
      continue;
    write_row(&t[KEY], &t[KEY_CACHE], token, slot);
    write_row(&t[VALUE], &t[VALUE_CACHE], token, slot);
  }
  return 0;
}

static int is_movable(const aclOpExecutor *e, int index) {
  int type = e->tensors[index].type;
  return type == F16 || type == BF16 || type == I8 || (stand_in_chip() == A5 && element_size(type));
}

EXPORT int aclnnScatterPaKvCacheGetWorkspaceSize(const aclTensor *key, aclTensor *key_cache,
                                                 const aclTensor *slot_mapping, const aclTensor *value,
                                                 aclTensor *value_cache, const aclTensor *compress_lens,
                                                 const aclTensor *compress_seq_offset, const aclTensor *seq_lens,
                                                 char *cache_mode, char *scatter_mode, const aclIntArray *strides,
                                                 const aclIntArray *offsets, uint64_t *workspace_size,
                                                 aclOpExecutor **executor);
int aclnnScatterPaKvCacheGetWorkspaceSize(const aclTensor *key, aclTensor *key_cache, const aclTensor *slot_mapping,
                                          const aclTensor *value, aclTensor *value_cache,
                                          const aclTensor *compress_lens, const aclTensor *compress_seq_offset,
                                          const aclTensor *seq_lens, char *cache_mode, char *scatter_mode,
                                          const aclIntArray *strides, const aclIntArray *offsets,
                                          uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnScatterPaKvCache", compute_scatter, BIG_CHIP, &status);
  const aclTensor *const given[] = {key, key_cache, slot_mapping, value, value_cache};
  if (!e)
    return status;
  for (int i = KEY; i <= VALUE_CACHE; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
    REQUIRE(e, is_compact(e, i) && (i == SLOTS || (is_movable(e, i) && same_type(e, KEY, i))));
  }
  take_ints(e, 0, strides);
  take_ints(e, 1, offsets);
  REQUIRE(e, !compress_lens && !compress_seq_offset && !seq_lens);
  REQUIRE(e, (!cache_mode || !strcmp(cache_mode, "Norm")) && (!scatter_mode || !strcmp(scatter_mode, "None")));
  REQUIRE(e, e->n_ints[0] == 2 && e->n_ints[1] == 2);
  REQUIRE(e, slot_mapping->n == 1 && (slot_mapping->type == I32 || slot_mapping->type == I64));
  for (int i = KEY; i <= VALUE; i += VALUE - KEY) {
    const aclTensor *rows = given[i], *cache = given[i + 1];
    REQUIRE(e, rows->n == 3 && cache->n == 4 && rows->shape[0] == slot_mapping->shape[0]);
    REQUIRE(e, rows->shape[1] == cache->shape[2] && rows->shape[2] == cache->shape[3]);
    REQUIRE(e, cache->shape[0] * cache->shape[1] >= rows->shape[0]);
  }
  REQUIRE(e, key->shape[1] == value->shape[1]);
  REQUIRE(e, key_cache->shape[0] * key_cache->shape[1] == value_cache->shape[0] * value_cache->shape[1]);
  return finish(e, workspace_size, executor);
}
PHASE_2(ScatterPaKvCache)
