/*
 * Functions of one number of 16 bits by a table of what they make of all 65536: by AVX-512 the result of silu is there
 * one and a half times as soon as it is computed, that of gelu_new, which rounds nine times, six times. Processors with
 * AMX gather from their caches; others load one by one, since some of those gather in microcode (AMD's, and Intel's
 * since what they gathered ahead of permission leaked). Beyond x86-64 there is no table: all is computed.
 *
 * A table is filled when the first large call wants it, by the op's own row function, so that a result has the same
 * bits from there as computed. It is for the attributes of that call: with others an op computes, as it does in small
 * calls, for which a table that has left the caches costs more, and where the caller's floating-point mode is not
 * the default.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_LOOKUP_H
#define FLHOST_CPU_FLAGOS_VECTORS_LOOKUP_H

#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/support/rows.h"

/* How an op computes. */
typedef struct lookup_function {
  cpu_dtype dtype; /* of numbers and results */
  cpu_row_fn row;  /* numbers to results */
  const void *job; /* of rows of CPU_CHUNK elements */
  const void *attributes;
  size_t attribute_bytes; /* at most as many as a table holds */
} lookup_function;

enum { LOOKUP_TABLES = 2 }; /* of a function: for float16 and bfloat16 */

enum { LOOKUP_BYTES = CPU_CHUNK * sizeof(uint16_t) };

#ifdef __SSE2__
#include <stdatomic.h>

typedef struct lookup_table {
  _Atomic int state;
  uint32_t attributes[6];
  uint16_t results[(1 << 16) + 1]; /* of which two are gathered at once */
} lookup_table;

enum { LOOKUP_EMPTY, LOOKUP_BEING_FILLED, LOOKUP_FULL };

/* Elements of a call that is large: by narrow vectors computing takes longer, and numbers of float16 lie in more lines
 * of the table than as many of bfloat16. */
#ifdef __AMX_TILE__
enum { LARGE_OF_FLOAT16 = 16 << 10, LARGE_OF_BFLOAT16 = 16 << 10 };
#elif defined __AVX512F__
enum { LARGE_OF_FLOAT16 = 8 << 10, LARGE_OF_BFLOAT16 = 8 << 10 };
#else
enum { LARGE_OF_FLOAT16 = 8 << 10, LARGE_OF_BFLOAT16 = 4 << 10 };
#endif

static inline void lookup_fill(lookup_table *table, const lookup_function *function) {
  uint16_t numbers[CPU_CHUNK];
  for (int first = 0; first < 1 << 16; first += CPU_CHUNK) {
    const cpu_rows rows = {.n_tensors = 2, .left = 1, .at = {numbers, table->results + first}};
    for (int i = 0; i < CPU_CHUNK; i++)
      numbers[i] = (uint16_t)(first + i);
    function->row(function->job, &rows);
  }
}

/* Rounding to nearest, denormal numbers as they are, and no exception traps: among all numbers some raise one. */
static inline bool lookup_default_mode(void) {
  const unsigned modes = 0xffc0, by_default = 0x1f80;
  return (_mm_getcsr() & modes) == by_default;
}

/* What the function makes of a number of these bits, or NULL: then it is computed. `elements`: of the call. */
static inline const uint16_t *lookup_results(lookup_table *tables, const lookup_function *function, int64_t elements) {
  const int64_t large = function->dtype == CPU_FLOAT16 ? LARGE_OF_FLOAT16 : LARGE_OF_BFLOAT16;
  int empty = LOOKUP_EMPTY;
  if (!tables || function->dtype == CPU_FLOAT32 || elements < large || !lookup_default_mode())
    return NULL;
  lookup_table *table = &tables[function->dtype == CPU_BFLOAT16];
  if (atomic_load_explicit(&table->state, memory_order_acquire) == LOOKUP_FULL)
    return memcmp(table->attributes, function->attributes, function->attribute_bytes) ? NULL : table->results;
  if (!atomic_compare_exchange_strong(&table->state, &empty, LOOKUP_BEING_FILLED))
    return NULL; /* another thread is about to */
  unsigned as_found = _mm_getcsr();
  lookup_fill(table, function);
  _mm_setcsr(as_found); /* without what numbers that the caller has not have raised */
  memcpy(table->attributes, function->attributes, function->attribute_bytes);
  atomic_store_explicit(&table->state, LOOKUP_FULL, memory_order_release);
  return table->results;
}

/* lookup_chunk: what `results` has of a chunk of numbers: `step` 1: one behind the other; 2: the first of each pair. */
#ifdef __AMX_TILE__
/* Each number at an even place, and each at an odd one behind it, comes into a lane of its own: which takes fewer
 * instructions than lanes in their order. */
CPU_TEMPLATE void lookup_chunk(const uint16_t *results, char *found, const char *numbers, int step) {
  const __m512i first = _mm512_set1_epi32(0xffff), pairs = _mm512_loadu_si512(numbers);
  __m512i even = _mm512_i32gather_epi32(_mm512_and_si512(pairs, first), results, sizeof *results);
  if (step == 1) {
    __m512i odd = _mm512_i32gather_epi32(_mm512_srli_epi32(pairs, 16), results, sizeof *results);
    _mm512_storeu_si512(found, _mm512_mask_blend_epi16(0xaaaaaaaa, even, _mm512_slli_epi32(odd, 16)));
    return;
  }
  const __m512i behind = _mm512_loadu_si512(numbers + LOOKUP_BYTES);
  _mm256_storeu_si256((void *)found, _mm512_cvtepi32_epi16(even));
  even = _mm512_i32gather_epi32(_mm512_and_si512(behind, first), results, sizeof *results);
  _mm256_storeu_si256((void *)(found + LOOKUP_BYTES / 2), _mm512_cvtepi32_epi16(even));
}
#else
/* Number `i` of words of four. */
CPU_TEMPLATE uint16_t lookup_number(const uint64_t *words, int i) {
  return (uint16_t)(words[i / 4] >> 16 * (i % 4));
}

/* Four numbers are loaded at once: loads are what it has most of. */
CPU_TEMPLATE __m128i lookup_eight(const uint16_t *results, const char *numbers, int step) {
  uint64_t words[4];
  for (int i = 0; i < 2 * step; i++)
    memcpy(&words[i], numbers + 8 * i, sizeof words[i]);
  __m128i found = _mm_cvtsi32_si128(results[lookup_number(words, 0)]);
  found = _mm_insert_epi16(found, results[lookup_number(words, step)], 1);
  found = _mm_insert_epi16(found, results[lookup_number(words, 2 * step)], 2);
  found = _mm_insert_epi16(found, results[lookup_number(words, 3 * step)], 3);
  found = _mm_insert_epi16(found, results[lookup_number(words, 4 * step)], 4);
  found = _mm_insert_epi16(found, results[lookup_number(words, 5 * step)], 5);
  found = _mm_insert_epi16(found, results[lookup_number(words, 6 * step)], 6);
  return _mm_insert_epi16(found, results[lookup_number(words, 7 * step)], 7);
}

/* Stored by whole vectors, as they are loaded soon after: parts would have to reach the cache first. */
CPU_TEMPLATE void lookup_chunk(const uint16_t *results, char *found, const char *numbers, int step) {
#ifdef __AVX__
  __m256i halves[2];
  for (int i = 0; i < 2; i++, numbers += 32 * step)
    halves[i] =
        _mm256_set_m128i(lookup_eight(results, numbers + 16 * step, step), lookup_eight(results, numbers, step));
#ifdef __AVX512F__
  _mm512_storeu_si512(found, _mm512_inserti64x4(_mm512_castsi256_si512(halves[0]), halves[1], 1));
#else
  _mm256_storeu_si256((void *)found, halves[0]);
  _mm256_storeu_si256((void *)(found + 32), halves[1]);
#endif
#else
  for (int i = 0; i < LOOKUP_BYTES; i += 16)
    _mm_storeu_si128((void *)(found + i), lookup_eight(results, numbers + i * step, step));
#endif
}
#endif
#else
typedef char lookup_table;

static inline const uint16_t *lookup_results(lookup_table *tables, const lookup_function *function, int64_t elements) {
  (void)tables;
  (void)function;
  (void)elements;
  return NULL;
}

CPU_TEMPLATE void lookup_chunk(const uint16_t *results, char *found, const char *numbers, int step) {
  const cpu_element16 *at = (const void *)numbers;
  for (int i = 0; i < CPU_CHUNK; i++)
    ((cpu_element16 *)found)[i] = results[at[i * step]];
}
#endif

/* What silu makes of numbers of this type, as lookup_results has it. */
const uint16_t *cpu_silu_results(cpu_dtype dtype, int64_t elements);

#endif
