/*
 * Tiles of products of int8 with sums in int32. Operands are packed as words of 32 bits, as many terms each as one step
 * of the processor takes: 4 bytes where it multiplies those (VNNI: x is unsigned there, 128 more than it is), else 2
 * halves.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_INTEGER_TILE_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_INTEGER_TILE_H

#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/integers.h"

typedef int32_t integers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#if defined(__AVX512VNNI__)
enum { CPU_INTEGER_PER_WORD = 4, CPU_INTEGER_OFFSET = 128 };
#else
enum { CPU_INTEGER_PER_WORD = 2, CPU_INTEGER_OFFSET = 0 };
#endif

/* Of a tile; and as many terms as surely fit into a sum. */
#if defined(__AVX512F__)
enum { CPU_INTEGER_ROWS = 12 };
#elif defined(__AVX2__)
enum { CPU_INTEGER_ROWS = 6 };
#else
enum { CPU_INTEGER_ROWS = 4 };
#endif
enum { CPU_INTEGER_VECTORS = 2, CPU_INTEGER_COLUMNS = 2 * LANES, CPU_INTEGER_TERMS = 1 << 16 };

/* sums + products of the terms in the words of x and weight. */
SPECIALISED integers add_products(integers sums, integers x, integers weight) {
#if defined(__AVX512VNNI__)
  return (integers)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)x, (__m512i)weight);
#elif defined(__AVX512BW__)
  return sums + (integers)_mm512_madd_epi16((__m512i)x, (__m512i)weight);
#elif defined(__AVX2__)
  return sums + (integers)_mm256_madd_epi16((__m256i)x, (__m256i)weight);
#else
  return sums + (x << 16 >> 16) * (weight << 16 >> 16) + (x >> 16) * (weight >> 16);
#endif
}

static inline int64_t cpu_integer_words(int64_t k) {
  return divide_up(k, CPU_INTEGER_PER_WORD);
}

static inline int64_t cpu_integer_row_bytes(int64_t k) {
  return cpu_integer_words(k) * 4 + 4;
}

static inline int64_t cpu_integer_panel_bytes(int64_t k) {
  return (cpu_integer_words(k) * 4 + 4) * CPU_INTEGER_COLUMNS;
}

/* Terms i to i + CPU_INTEGER_PER_WORD - 1 of a row of k, each with `offset` more; what is behind them is 0. */
static inline int32_t cpu_integer_word(const int8_t *row, int64_t i, int64_t k, int offset) {
  uint32_t word = 0;
  if (CPU_INTEGER_PER_WORD == 4 && i + 4 <= k) {
    memcpy(&word, row + i, sizeof word);
    return (int32_t)(word ^ (offset ? 0x80808080u : 0)); /* to be 128 more turns the sign */
  }
  for (int t = 0; t < CPU_INTEGER_PER_WORD && i + t < k; t++)
    word |= ((uint32_t)(row[i + t] + offset) & (CPU_INTEGER_PER_WORD == 4 ? 0xffu : 0xffffu))
            << t * (32 / CPU_INTEGER_PER_WORD);
  return (int32_t)word;
}

static inline void cpu_integer_pack_row(void *to, const int8_t *row, int64_t k) {
  int32_t *words = to;
  for (int64_t i = 0; i < k; i += CPU_INTEGER_PER_WORD)
    *words++ = cpu_integer_word(row, i, k, CPU_INTEGER_OFFSET);
}

/* Rows of the weight, columns of the tile, side by side, and the sum of each; the last one stands for those behind it.
 */
static inline void cpu_integer_pack_panel(void *to, const int8_t *rows, int64_t stride, int64_t n, int64_t k,
                                          int32_t *sums) {
  int32_t *words = to;
  for (int64_t column = 0; column < CPU_INTEGER_COLUMNS; column++) {
    int32_t sum = 0;
    const int8_t *row = rows + least(column, n - 1) * stride;
    for (int64_t i = 0; i < k; i++)
      sum += row[i];
    for (int64_t i = 0; i < k; i += CPU_INTEGER_PER_WORD)
      words[i / CPU_INTEGER_PER_WORD * CPU_INTEGER_COLUMNS + column] = cpu_integer_word(row, i, k, 0);
    sums[column] = sum;
  }
}

/* sums of `rows` rows, [rows, CPU_INTEGER_COLUMNS]. */
SPECIALISED void integer_tile(int rows, int64_t words, const char *x, int64_t x_bytes, const integers *panel,
                              int32_t *sums) {
  integers sum[CPU_INTEGER_ROWS][CPU_INTEGER_VECTORS] = {0};
  for (int64_t i = 0; i < words; i++, x += 4, panel += CPU_INTEGER_VECTORS)
    UNROLL for (int r = 0; r < rows; r++) {
      int32_t word;
      memcpy(&word, x + r * x_bytes, sizeof word);
      UNROLL for (int v = 0; v < CPU_INTEGER_VECTORS; v++) sum[r][v] =
          add_products(sum[r][v], word - (integers){0}, panel[v]);
    }
  UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < CPU_INTEGER_VECTORS; v++) *
      ((integers *)(sums + r * CPU_INTEGER_COLUMNS) + v) = sum[r][v];
}

/* sums [CPU_INTEGER_ROWS, CPU_INTEGER_COLUMNS] of `rows` rows. */
static inline void cpu_integer_tile(int64_t k, int64_t rows, const char *x, int64_t x_bytes, const void *panel,
                                    const int32_t *weight_sums, int32_t *sums) {
  enum { FEWER = CPU_INTEGER_ROWS / 3 };
  int64_t words = cpu_integer_words(k), r = 0;
  if (rows == CPU_INTEGER_ROWS) {
    integer_tile(CPU_INTEGER_ROWS, words, x, x_bytes, panel, sums);
    r = rows;
  }
  for (; r + FEWER <= rows; r += FEWER)
    integer_tile(FEWER, words, x + r * x_bytes, x_bytes, panel, sums + r * CPU_INTEGER_COLUMNS);
  for (; r < rows; r++)
    integer_tile(1, words, x + r * x_bytes, x_bytes, panel, sums + r * CPU_INTEGER_COLUMNS);
  for (r = 0; r < rows && CPU_INTEGER_OFFSET != 0; r++)
    for (int64_t i = 0; i < CPU_INTEGER_COLUMNS; i++)
      sums[r * CPU_INTEGER_COLUMNS + i] -= CPU_INTEGER_OFFSET * weight_sums[i];
}

#endif
