/* A tile of a product, kept in registers: where kernels for products spend their time. */
#ifndef FLHOST_CPU_FLAGOS_TILE_H
#define FLHOST_CPU_FLAGOS_TILE_H

#include "plugins/cpu/flagos/lanes.h"

enum { TILE_MOST_HEIGHT = 12, TILE_MOST_VECTORS = 4 };

/* A matrix [height, k]: so many floats lie between its rows, and between its columns. */
typedef struct tile_factors {
  const float *data;
  int64_t row, column;
} tile_factors;

/* sums [height, vectors * LANES] = factors times columns [k, vectors * LANES], or with `accumulate` +=. */
SPECIALISED void multiply_tile(int height, int vectors, int64_t k, tile_factors factors, const float *columns,
                               int64_t column_stride, bool accumulate, float *sums, int64_t stride) {
  vector sum[TILE_MOST_HEIGHT][TILE_MOST_VECTORS] = {0};
  for (int64_t i = 0; i < k; i++, factors.data += factors.column, columns += column_stride)
    UNROLL for (int r = 0; r < height; r++) UNROLL for (int v = 0; v < vectors; v++) sum[r][v] +=
        factors.data[r * factors.row] * *(const vector *)(columns + v * LANES);
  UNROLL for (int r = 0; r < height; r++) UNROLL for (int v = 0; v < vectors; v++) {
    vector *to = (vector *)(sums + r * stride + v * LANES);
    if (accumulate)
      sum[r][v] += *to;
    *to = sum[r][v];
  }
}

#endif
