/*
 * What a panel of queries (panel.h) does with keys and values by tiles of bfloat16 (tiles.h), a lane of a tile for each
 * query. Keys are factors as they lie, rows of numbers; values are factors once they are transposed, [size, keys].
 * Queries and weights are columns: pairs of neighbouring numbers, and of neighbouring keys. Where numbers or keys end
 * within a tile there are zeros.
 */
#ifndef FLHOST_CPU_FLAGOS_PANEL_TILES_H
#define FLHOST_CPU_FLAGOS_PANEL_TILES_H

#include "plugins/cpu/flagos/tiles.h"

#ifdef __AMX_BF16__
#include "plugins/cpu/flagos/lanes.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/integers.h"

#include <math.h>

enum { HAS_TILES = 1 };
_Static_assert((int)TILE_EDGE == (int)LANES && (int)TILE_DEPTH == (int)PAIR, "a tile's row is a vector");

/* -------------------------------------------------------------------------------------------------------- products */

/* Columns [depth / 2, width] of pairs. With `parts` of 2, numbers are sums of two, and under each row is that of their
 * second parts. */
typedef struct tile_columns {
  const float *data;
  int parts;
} tile_columns;

/* sums [height * TILE_EDGE, width * TILE_EDGE] = factors [.., depth] times columns, or with `accumulate` +=. Strides in
 * bytes, that of sums being that of rows of columns, too. */
SPECIALISED void multiply_few_tiles(int height, int width, int parts, int64_t depth, const char *factors,
                                    int64_t factor_stride, const char *columns, bool accumulate, char *sums,
                                    int64_t stride) {
  const int64_t edge = TILE_EDGE * (int64_t)sizeof(float), column_stride = parts * stride;
  const bool tall = height > 1, wide = width > 1;
  char *lower = sums + TILE_EDGE * stride;
  if (accumulate) {
    _tile_loadd(0, sums, stride);
    if (wide)
      _tile_loadd(1, sums + edge, stride);
    if (tall)
      _tile_loadd(2, lower, stride);
    if (tall && wide)
      _tile_loadd(3, lower + edge, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < depth; i += TILE_DEPTH, factors += edge, columns += TILE_DEPTH / 2 * column_stride) {
    _tile_loadd(4, factors, factor_stride);
    _tile_loadd(6, columns, column_stride);
    if (wide)
      _tile_loadd(7, columns + edge, column_stride);
    if (tall)
      _tile_loadd(5, factors + TILE_EDGE * factor_stride, factor_stride);
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
      _tile_dpbf16ps(1, 4, 7);
    if (tall)
      _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
      _tile_dpbf16ps(3, 5, 7);
    if (parts == 1)
      continue;
    _tile_loadd(6, columns + stride, column_stride);
    if (wide)
      _tile_loadd(7, columns + stride + edge, column_stride);
    _tile_dpbf16ps(0, 4, 6);
    if (wide)
      _tile_dpbf16ps(1, 4, 7);
    if (tall)
      _tile_dpbf16ps(2, 5, 6);
    if (tall && wide)
      _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, stride);
  if (wide)
    _tile_stored(1, sums + edge, stride);
  if (tall)
    _tile_stored(2, lower, stride);
  if (tall && wide)
    _tile_stored(3, lower + edge, stride);
}

SPECIALISED void multiply_rows(int width, int parts, int64_t height, int64_t depth, const char *factors, int64_t stride,
                               const float *columns, bool accumulate, float *sums) {
  const int64_t bytes = width * TILE_EDGE * (int64_t)sizeof *sums;
  char *to = (char *)sums;
  SYNC_TILES;
  for (; height > TILE_EDGE; height -= 2 * TILE_EDGE, factors += 2 * TILE_EDGE * stride, to += 2 * TILE_EDGE * bytes)
    multiply_few_tiles(2, width, parts, depth, factors, stride, (const char *)columns, accumulate, to, bytes);
  if (height > 0)
    multiply_few_tiles(1, width, parts, depth, factors, stride, (const char *)columns, accumulate, to, bytes);
  SYNC_TILES;
}

/* sums [height, width] = factors [height, depth], rows of bfloat16 that are `stride` bytes apart, times columns, or
 * with `accumulate` +=: whole tiles, and no more than two of them wide. */
static void multiply_tiles(int64_t height, int64_t width, int64_t depth, const void *factors, int64_t stride,
                           tile_columns columns, bool accumulate, float *sums) {
  if (width > TILE_EDGE && columns.parts == 2)
    multiply_rows(2, 2, height, depth, factors, stride, columns.data, accumulate, sums);
  else if (width > TILE_EDGE)
    multiply_rows(2, 1, height, depth, factors, stride, columns.data, accumulate, sums);
  else if (columns.parts == 2)
    multiply_rows(1, 2, height, depth, factors, stride, columns.data, accumulate, sums);
  else
    multiply_rows(1, 1, height, depth, factors, stride, columns.data, accumulate, sums);
}

/* ------------------------------------------------------------------------------------------------ numbers of a head */

/* Is no exponent of bfloat16 the largest, which one more makes the sign? */
SPECIALISED __m512i next_exponents(__m512i numbers) {
  return _mm512_add_epi16(_mm512_and_si512(numbers, _mm512_set1_epi16(0x7f80)), _mm512_set1_epi16(0x80));
}

/* Numbers `first` to first + PAIR - 1 of a row; zeros behind its `size`. */
SPECIALISED __m512i load_numbers(const void *row, int64_t first, int64_t size) {
  const __mmask32 there = size - first >= PAIR ? ~0u : size > first ? (1u << (size - first)) - 1 : 0;
  return _mm512_maskz_loadu_epi16(there, (const uint16_t *)row + first);
}

/* `size` numbers and then zeros, up to `room`. Are all finite? */
static bool copy_numbers(const void *row, int64_t size, int64_t room, uint16_t *to) {
  __m512i exponents = _mm512_setzero_si512();
  for (int64_t first = 0; first < room; first += PAIR) {
    const __m512i numbers = load_numbers(row, first, size);
    exponents = _mm512_or_si512(exponents, next_exponents(numbers));
    _mm512_storeu_si512(to + first, numbers);
  }
  return !_mm512_movepi16_mask(exponents);
}

/* Those of LANES rows; zeros for rows from `n` on. */
SPECIALISED void load_square(const void *const *rows, int64_t n, int64_t first, int64_t size, vector square[LANES]) {
  UNROLL for (int r = 0; r < LANES; r++) square[r] = r < n ? (vector)load_numbers(rows[r], first, size) : (vector){0};
}

/* Of LANES queries, of which there are n: columns [size / 2, width]. `factor` is a power of two, and changes no digit.
 */
static void load_query_columns(const void *const *rows, int64_t n, int64_t size, float factor, float *columns,
                               int64_t width) {
  for (int64_t first = 0; first < size; first += PAIR) {
    vector square[LANES];
    load_square(rows, n, first, size, square);
    UNROLL for (int r = 0; r < LANES; r++) {
      const vector_words words = (vector_words)square[r];
      const vector even = (vector)(words << 16) * factor, odd = (vector)(words & 0xffff0000u) * factor;
      square[r] = (vector)((vector_words)even >> 16 | ((vector_words)odd & 0xffff0000u));
    }
    transpose(square);
    UNROLL for (int r = 0; r < LANES; r++) * (vector *)(columns + (first / 2 + r) * width) = square[r];
  }
}

/* Numbers of bfloat16 between transposed values of a block of so many keys: a panel's keys may begin anywhere in it and
 * are whole tiles. No power of two: rows would displace each other from the cache. */
static int64_t value_stride_of(int64_t keys) {
  return keys + TILE_DEPTH;
}

/* Rows of `size` numbers become values [size, keys]. Are all finite? */
static bool load_value_columns(const void *const *rows, int64_t keys, int64_t size, uint16_t *to, int64_t stride) {
  /* words 0, 2 .. of one vector and then those of another; one more are the odd ones */
  const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24,
                                        22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi16(even, _mm512_set1_epi16(1));
  __m512i exponents = _mm512_setzero_si512();
  for (int64_t key = 0; key < round_up(keys, TILE_DEPTH) + TILE_DEPTH && key < stride; key += TILE_DEPTH)
    for (int64_t first = 0; first < size; first += PAIR) {
      vector low[LANES], high[LANES];
      load_square(rows + key, keys - key, first, size, low);
      load_square(rows + key + LANES, keys - key - LANES, first, size, high);
      UNROLL for (int r = 0; r < LANES; r++) exponents = _mm512_or_si512(
          exponents, _mm512_or_si512(next_exponents((__m512i)low[r]), next_exponents((__m512i)high[r])));
      transpose(low);
      transpose(high);
      UNROLL for (int r = 0; r < LANES; r++) {
        uint16_t *at = to + (first + 2 * r) * stride + key;
        _mm512_storeu_si512(at, _mm512_permutex2var_epi16((__m512i)low[r], even, (__m512i)high[r]));
        _mm512_storeu_si512(at + stride, _mm512_permutex2var_epi16((__m512i)low[r], odd, (__m512i)high[r]));
      }
    }
  return !_mm512_movepi16_mask(exponents);
}

/* sums [size, width] of LANES queries become rows [LANES, stride]: whole vectors. */
static void read_square_sums(const float *sums, int64_t size, int64_t width, float *rows, int64_t stride) {
  for (int64_t first = 0; first < size; first += LANES) {
    vector square[LANES];
    UNROLL for (int r = 0; r < LANES; r++) square[r] = *(const vector *)(sums + (first + r) * width);
    transpose(square);
    UNROLL for (int r = 0; r < LANES; r++) * (vector *)(rows + r * stride + first) = square[r];
  }
}

/* --------------------------------------------------------------------------------------------------------- weights */

/* Of what is 0 or less, or NaN. */
SPECIALISED vector exp_of(vector x) {
  float lanes[LANES];
  x = (vector)_mm512_max_ps(_mm512_set1_ps(vector_exp_least), (__m512)x);
  memcpy(lanes, &x, sizeof lanes);
  for (int lane = 0; lane < LANES; lane++)
    lanes[lane] = vector_exp_within(lanes[lane]);
  memcpy(&x, lanes, sizeof lanes);
  return x;
}

/* Each lane's two as pairs, that of `a` first, and below what they lack: together the numbers but for a 2^-16th. By
 * fewer instructions than one rounded part, which would be off by 2^-9: more than results may be. */
SPECIALISED void store_pairs(float *to, int64_t stride, vector a, vector b) {
  const vector_words high = 0xffff0000u - (vector_words){0}, words[] = {(vector_words)a, (vector_words)b};
  const vector_words rest[] = {(vector_words)(a - (vector)(words[0] & high)),
                               (vector_words)(b - (vector)(words[1] & high))};
  *(vector *)to = (vector)(words[0] >> 16 | (words[1] & high));
  *(vector *)(to + stride) = (vector)(rest[0] >> 16 | (rest[1] & high));
}

/* Of LANES queries: scores [keys, ..] become columns of weights of two parts in their place, exponentials less the
 * largest score that there is now. Their unrounded sum is added to what was added up before, of which *factor is what
 * it is scaled by. */
static void weigh_lanes(float *scores, int64_t keys, int64_t width, float *most, float *total, vector *factor) {
  const __m512 none = _mm512_set1_ps(-INFINITY);
  const __m512 before = _mm512_loadu_ps(most);
  __m512 largest[2] = {before, before};
  int64_t key = 0;
  for (; key + 2 <= keys; key += 2) /* NaN is passed over */
    UNROLL for (int i = 0; i < 2; i++) largest[i] =
        _mm512_max_ps(_mm512_loadu_ps(scores + (key + i) * width), largest[i]);
  if (key < keys)
    largest[0] = _mm512_max_ps(_mm512_loadu_ps(scores + key * width), largest[0]);
  largest[0] = _mm512_max_ps(largest[0], largest[1]);
  _mm512_storeu_ps(most, largest[0]);
  const vector base = (vector)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(largest[0], none, _CMP_NEQ_OQ), largest[0]);
  vector sum[2] = {0};
  for (key = 0; key + 2 <= keys; key += 2, scores += 2 * width) {
    const vector a = exp_of(*(const vector *)scores - base), b = exp_of(*(const vector *)(scores + width) - base);
    sum[0] += a;
    sum[1] += b;
    store_pairs(scores, width, a, b);
  }
  if (key < keys) {
    const vector last = exp_of(*(const vector *)scores - base);
    sum[0] += last;
    store_pairs(scores, width, last, (vector){0});
    key += 2, scores += 2 * width;
  }
  for (; key < round_up(keys, TILE_DEPTH); key++, scores += width)
    *(vector *)scores = (vector){0};
  *factor = exp_of((vector)before - base);
  *(vector *)total = *(vector *)total * *factor + (sum[0] + sum[1]);
}

/* Of sums [size, ..]; most blocks have no larger score. */
static void scale_lanes(float *sums, int64_t size, int64_t width, vector factor) {
  if (_mm512_cmp_ps_mask((__m512)factor, _mm512_set1_ps(1), _CMP_NEQ_UQ))
    for (int64_t i = 0; i < size; i++)
      *(vector *)(sums + i * width) *= factor;
}

#else
enum { HAS_TILES = 0 };

static inline void begin_tiles(void) {
}
static inline void end_tiles(void) {
}
#endif

#endif
