/* Conversions of blocks: see block.h. */
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/chunk.h"

CPU_TEMPLATE void load(cpu_dtype dtype, float *to, const void *row, int64_t first, int64_t n) {
  float part[CPU_CHUNK];
  int64_t i = 0;
  for (; i + CPU_CHUNK <= n; i += CPU_CHUNK)
    cpu_load(dtype, to + i, row, first + i, CPU_CHUNK);
  if (i == n)
    return;
  if (n > CPU_CHUNK) { /* a whole chunk, some of it again */
    cpu_load(dtype, to + n - CPU_CHUNK, row, first + n - CPU_CHUNK, CPU_CHUNK);
    return;
  }
  cpu_load(dtype, part, row, first + i, n - i);
  memcpy(to + i, part, (size_t)(n - i) * sizeof *to);
}

CPU_TEMPLATE void store(cpu_dtype dtype, void *row, int64_t first, const float *from, int64_t n) {
  float part[CPU_CHUNK] = {0};
  int64_t i = 0;
  for (; i + CPU_CHUNK <= n; i += CPU_CHUNK)
    cpu_store(dtype, row, first + i, from + i, CPU_CHUNK);
  if (i == n)
    return;
  memcpy(part, from + i, (size_t)(n - i) * sizeof *from);
  cpu_store(dtype, row, first + i, part, n - i);
}

static void load_float32(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  memcpy(to, (const float *)row + first, (size_t)n * sizeof *to);
}

static void store_float32(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
  memcpy((float *)row + first, from, (size_t)n * sizeof *from);
}

static void round_float32(float *values, int64_t n) {
  (void)values;
  (void)n;
}

static void load_float16(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  load(CPU_FLOAT16, to, row, first, n);
}

static void store_float16(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
  store(CPU_FLOAT16, row, first, from, n);
}

static void round_float16(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = cpu_round(CPU_FLOAT16, values[i]);
}

static void load_bfloat16(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  load(CPU_BFLOAT16, to, row, first, n);
}

static void store_bfloat16(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
#ifdef __AVX512BF16__
  store(CPU_BFLOAT16, row, first, from, n);
#else /* a NaN stays one whatever its bits */
  uint16_t *restrict to = (uint16_t *)row + first;
  for (int64_t i = 0; i < n; i++)
    to[i] = fl_float_to_bf16(from[i]);
#endif
}

static void round_bfloat16(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = fl_bf16_to_float(fl_float_to_bf16(values[i]));
}

const cpu_block_type cpu_block_types[CPU_N_DTYPES] = {
    [CPU_FLOAT32] = {load_float32, store_float32, round_float32},
    [CPU_FLOAT16] = {load_float16, store_float16, round_float16},
    [CPU_BFLOAT16] = {load_bfloat16, store_bfloat16, round_bfloat16},
};
