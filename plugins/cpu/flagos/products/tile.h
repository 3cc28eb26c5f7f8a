/* A tile of a product, kept in registers: where kernels for products spend their time. */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_TILE_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_TILE_H

#include "plugins/cpu/flagos/vectors/lanes.h"

enum { TILE_MOST_HEIGHT = 12, TILE_MOST_VECTORS = 4 };

/* A matrix [height, k]: so many floats lie between its rows, and between its columns. */
typedef struct tile_factors {
  const float *data;
  int64_t row, column;
} tile_factors;

/* What is multiplied: floats, or pairs of bfloat16 that stand in their places. */
typedef enum tile_form { TILE_FLOATS, TILE_PAIRS } tile_form;

SPECIALISED vector add_factor(tile_form form, vector sum, const float *factor, const float *columns) {
#ifdef __AVX512BF16__
  if (form == TILE_PAIRS) {
    int32_t pair;
    memcpy(&pair, factor, sizeof pair);
    return add_pairs(sum, _mm512_set1_epi32(pair), _mm512_loadu_si512(columns));
  }
#endif
  (void)form;
  return sum + *factor * *(const vector *)columns;
}

/* Memory that is needed next, of which so many bytes, two lines at most, are fetched for each column of factors. */
typedef struct tile_next {
  const char *data;
  int64_t step;
} tile_next;

/* Counting takes one instruction in eight, of the narrower vectors; of the widest gcc keeps sums in memory, where it
 * has several steps at once. */
#ifdef __AVX512F__
#define TILE_UNROLL _Pragma("GCC unroll 1")
#else
#define TILE_UNROLL _Pragma("GCC unroll 4")
#endif

/* sums [height, vectors * LANES] = factors times columns [k, vectors * LANES], or with `accumulate` +=. `next`
 * may be NULL. */
SPECIALISED void multiply_tile_of(tile_form form, int height, int vectors, int64_t k, tile_factors factors,
                                  const float *columns, int64_t column_stride, const tile_next *next, bool accumulate,
                                  float *sums, int64_t stride) {
  vector sum[TILE_MOST_HEIGHT][TILE_MOST_VECTORS] = {0};
  TILE_UNROLL for (int64_t i = 0; i < k; i++, factors.data += factors.column, columns += column_stride) {
    if (next)
      __builtin_prefetch(next->data + i * next->step, 0, 2);
    if (next && next->step > 64)
      __builtin_prefetch(next->data + i * next->step + 64, 0, 2);
    UNROLL for (int r = 0; r < height; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] =
        add_factor(form, sum[r][v], factors.data + r * factors.row, columns + v * LANES);
  }
  UNROLL for (int r = 0; r < height; r++) UNROLL for (int v = 0; v < vectors; v++) {
    vector *to = (vector *)(sums + r * stride + v * LANES);
    if (accumulate)
      sum[r][v] += *to;
    *to = sum[r][v];
  }
}

SPECIALISED void multiply_tile(int height, int vectors, int64_t k, tile_factors factors, const float *columns,
                               int64_t column_stride, bool accumulate, float *sums, int64_t stride) {
  multiply_tile_of(TILE_FLOATS, height, vectors, k, factors, columns, column_stride, NULL, accumulate, sums, stride);
}

#endif
