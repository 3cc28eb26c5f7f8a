/* Rows of keys and values into a paged cache. A slot's rows are one thread's, in the order of tokens: so the last of
 * several that have the same slot stays, whatever the split. */
#include "plugins/cpu/flagos/vectors/codes.h"
#include "plugins/cpu/paged_attention.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/matrix.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"

#include <string.h>

enum { SHARES = 64 };

CPU_TEMPLATE void narrow_as(cpu_dtype dtype, int64_t size, const void *row, float scale, uint8_t *to) {
  float values[CPU_CHUNK];
  for (int64_t first = 0; first < size; first += CPU_CHUNK) {
    const int64_t n = size - first < CPU_CHUNK ? size - first : CPU_CHUNK;
    cpu_load(dtype, values, row, first, n);
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] /= scale;
    cpu_store_codes8(cpu_e4m3fn, false, to, first, values, n, false, false);
  }
}

static void narrow_row(cpu_dtype dtype, int64_t size, const void *row, float scale, uint8_t *to) {
  if (dtype == CPU_FLOAT32)
    narrow_as(CPU_FLOAT32, size, row, scale, to);
  else if (dtype == CPU_FLOAT16)
    narrow_as(CPU_FLOAT16, size, row, scale, to);
  else
    narrow_as(CPU_BFLOAT16, size, row, scale, to);
}

static void write_row(const cpu_cache_write *write, const DLTensor *from, const cpu_cache *cache, int64_t token,
                      int64_t slot) {
  int64_t block = slot / write->block_size, row = slot % write->block_size, size = write->size;
  bool whole = fl_stride(from, 1) == size && fl_stride(cache->tensor, 2) == size;
  size_t bytes = (size_t)(size * cpu_dtype_size(write->dtype));
  for (int64_t head = 0; head < write->heads; head++) {
    const void *at = cpu_tensor_at(from, token, head);
    void *to = cpu_cache_at(cache, block, row, head);
    if (cache->scale) {
      narrow_row(write->dtype, size, at, cpu_cache_scale(cache, head), to);
    } else if (whole) {
      memcpy(to, at, bytes * (size_t)write->heads);
      return;
    } else {
      memcpy(to, at, bytes);
    }
  }
}

/* Slots of shares i to end - 1. */
static fl_status write_shares(void *user, int64_t i, int64_t end) {
  const cpu_cache_write *write = user;
  for (int64_t token = 0; token < write->tokens; token++) {
    int64_t slot = cpu_index(write->slots, token);
    if (slot < 0 || slot % SHARES < i || slot % SHARES >= end)
      continue;
    write_row(write, write->key, &write->keys, token, slot);
    write_row(write, write->value, &write->values, token, slot);
  }
  return FL_OK;
}

/* reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale) -> () */
static fl_status reshape_and_cache(void *self, fl_call *call) {
  cpu_cache_write write;
  fl_status status = cpu_cache_write_read(call, &write);
  (void)self;
  if (status)
    return status;
  int64_t bytes = write.heads * write.size * cpu_dtype_size(write.dtype);
  return cpu_parallel_for(SHARES, cpu_grain(4 * bytes * write.tokens / SHARES), write_shares, &write);
}

static const fl_impl ops[] = {{.op_name = "reshape_and_cache", CPU_FLAGOS, .fn = reshape_and_cache}};
OP_LIST(ops);
