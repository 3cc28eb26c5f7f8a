/*
 * What a panel of queries (panel.h) does with keys and values by tiles of bfloat16 (tiles.h), a lane of a tile for each
 * query. Keys are factors as they lie, rows of numbers; values are factors once they are transposed, [size, keys].
 * Queries and weights are columns: pairs of neighbouring numbers, and of neighbouring keys. Where numbers or keys end
 * within a tile there are zeros.
 */
#ifndef FLHOST_CPU_FLAGOS_ATTENTION_PANEL_TILES_H
#define FLHOST_CPU_FLAGOS_ATTENTION_PANEL_TILES_H

#include "plugins/cpu/flagos/products/tiles.h"

#ifdef __AMX_BF16__
#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/integers.h"

#include <math.h>

enum { HAS_TILES = 1 };
_Static_assert((int)TILE_EDGE == (int)LANES && (int)TILE_DEPTH == (int)PAIR, "a tile's row is a vector");

/* -------------------------------------------------------------------------------------------------------- products */

/*
 * sums [height, width] = factors [height, depth], rows of bfloat16, times columns, or with `accumulate` +=: whole
 * tiles, no more than two of them wide. Columns are rows [depth / 2, width] of pairs; with `parts` of 2 numbers are
 * sums of two, and under each row is that of their second parts. It is multiplied a step after the other, between which
 * the sums of up to two rows of tiles stay in registers: one product at a time.
 */
typedef struct tile_product {
  const char *factors, *columns;
  char *sums;
  int64_t height, width, depth; /* height: what is left */
  int64_t factor_stride;        /* bytes; rows of columns and of sums have `width` floats */
  int parts;
  bool accumulate;
  int64_t done; /* of the depth, for the rows in registers */
} tile_product;

/* The sums in registers, [2, 2]: those that there are. */
#define FOR_SUMS(apply)                                                                                                \
  apply(0, p->sums);                                                                                                   \
  if (wide)                                                                                                            \
    apply(1, p->sums + edge);                                                                                          \
  if (tall)                                                                                                            \
    apply(2, lower);                                                                                                   \
  if (tall && wide)                                                                                                    \
  apply(3, lower + edge)
#define LOAD_SUMS(tile, at)  _tile_loadd(tile, at, stride)
#define CLEAR_SUMS(tile, at) _tile_zero(tile)
#define STORE_SUMS(tile, at) _tile_stored(tile, at, stride)

/* One step in depth for one or two rows of tiles. */
static void multiply_step(tile_product *p) {
  const int64_t edge = TILE_EDGE * (int64_t)sizeof(float), stride = p->width * (int64_t)sizeof(float);
  const int64_t column_stride = p->parts * stride;
  const bool tall = p->height > TILE_EDGE, wide = p->width > TILE_EDGE;
  char *lower = p->sums + TILE_EDGE * stride;
  const char *factors = p->factors + p->done * 2, *columns = p->columns + p->done / 2 * column_stride;
  SYNC_TILES;
  if (!p->done && p->accumulate) {
    FOR_SUMS(LOAD_SUMS);
  } else if (!p->done) {
    FOR_SUMS(CLEAR_SUMS);
  }
  _tile_loadd(4, factors, p->factor_stride);
  if (tall)
    _tile_loadd(5, factors + TILE_EDGE * p->factor_stride, p->factor_stride);
  for (int part = 0; part < p->parts; part++, columns += stride) {
    _tile_loadd(6, columns, column_stride);
    _tile_dpbf16ps(0, 4, 6);
    if (tall)
      _tile_dpbf16ps(2, 5, 6);
    if (!wide)
      continue;
    _tile_loadd(7, columns + edge, column_stride);
    _tile_dpbf16ps(1, 4, 7);
    if (tall)
      _tile_dpbf16ps(3, 5, 7);
  }
  p->done += TILE_DEPTH;
  if (p->done >= p->depth) {
    FOR_SUMS(STORE_SUMS);
    p->done = 0;
    p->height -= 2 * TILE_EDGE;
    p->factors += 2 * TILE_EDGE * p->factor_stride;
    p->sums += 2 * TILE_EDGE * stride;
  }
  SYNC_TILES;
}

/* Products that are multiplied while something else is computed, which does not wait for them. */
typedef struct tile_queue {
  tile_product products[4];
  int n, next;
} tile_queue;

static inline void multiply_next(tile_queue *queue) {
  if (queue->next == queue->n)
    return;
  multiply_step(&queue->products[queue->next]);
  queue->next += queue->products[queue->next].height <= 0;
}

static inline void multiply_rest(tile_queue *queue) {
  while (queue->next < queue->n)
    multiply_next(queue);
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

/* 2^x of what is 0 or less, or NaN: 2^floor(x) times a polynomial of the rest, which is 1 at 0. Off by 3e-6, 2^-18 (a
 * minimax fit), since of a weight's digits two parts of bfloat16 hold so many. Where it would be no normal number it is
 * 0, and the processor, which takes its time for what is smaller, does not compute it. */
SPECIALISED vector power_of_two(vector x) {
  const __m512 t = (__m512)x, rest = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF);
  const __mmask16 computed = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  __m512 power = _mm512_set1_ps(0.013426685f);
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0.052242473f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0.2412802f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(0.69304484f));
  power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(1));
  return (vector)_mm512_maskz_scalef_ps(computed, power, t);
}

/* The exponential of a score less the largest one. Of that itself it is 1 however large it is: the product is rounded
 * as that was, not added to the other in one step. */
SPECIALISED vector weight_of(vector score, vector scale, vector base) {
  vector scaled = score * scale;
  __asm__("" : "+v"(scaled));
  return power_of_two((scaled - base) * 1.44269504f);
}

/* Each lane's two as pairs, that of `a` first, and below what they lack: together the numbers but for a 2^-16th. By
 * fewer instructions than one rounded part, which would be off by 2^-9: more than results may be. */
SPECIALISED void store_pairs(float *to, int64_t stride, vector a, vector b) {
  const vector_words high = 0xffff0000u - (vector_words){0}, words[] = {(vector_words)a, (vector_words)b};
  const vector_words rest[] = {(vector_words)(a - (vector)(words[0] & high)),
                               (vector_words)(b - (vector)(words[1] & high))};
  const __mmask32 odd = 0xaaaaaaaau;
  *(vector *)to = (vector)_mm512_mask_mov_epi16((__m512i)(words[0] >> 16), odd, (__m512i)words[1]);
  *(vector *)(to + stride) = (vector)_mm512_mask_mov_epi16((__m512i)(rest[0] >> 16), odd, (__m512i)rest[1]);
}

/* The largest of scores [keys, ..] of LANES queries; NaN is passed over. */
SPECIALISED __m512 largest_of(const float *scores, int64_t keys, int64_t width) {
  enum { AT_ONCE = 4 };
  __m512 largest[AT_ONCE];
  int64_t key = 0;
  UNROLL for (int i = 0; i < AT_ONCE; i++) largest[i] = _mm512_set1_ps(-INFINITY);
  for (; key + AT_ONCE <= keys; key += AT_ONCE)
    UNROLL for (int i = 0; i < AT_ONCE; i++) largest[i] =
        _mm512_max_ps(_mm512_loadu_ps(scores + (key + i) * width), largest[i]);
  for (; key < keys; key++)
    largest[0] = _mm512_max_ps(_mm512_loadu_ps(scores + key * width), largest[0]);
  return _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
}

/* Of LANES queries: scores [keys, ..], times `scale`, which is above 0, become columns of weights of two parts in their
 * place, exponentials less the largest that there is now. Their unrounded sum is added to what was added up before, of
 * which *factor is what it is scaled by. Meanwhile products are multiplied. */
static void weigh_lanes(float *scores, int64_t keys, int64_t width, float scale, float *most, float *total,
                        vector *factor, tile_queue *meanwhile) {
  enum { KEYS = 8 }; /* for each step of the products: these and those take about as long */
  const vector before = *(const vector *)most, scales = (vector){0} + scale;
  const __m512 none = _mm512_set1_ps(-INFINITY);
  const __m512 now = _mm512_max_ps((__m512)((vector)largest_of(scores, keys, width) * scales), (__m512)before);
  const vector base = (vector)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(now, none, _CMP_NEQ_OQ), now);
  vector sum[2] = {0};
  int64_t key = 0;
  *(vector *)most = (vector)now;
  for (; key + KEYS <= keys; key += KEYS) {
    UNROLL for (int i = 0; i < KEYS; i += 2, scores += 2 * width) {
      const vector a = weight_of(*(const vector *)scores, scales, base);
      const vector b = weight_of(*(const vector *)(scores + width), scales, base);
      sum[0] += a;
      sum[1] += b;
      store_pairs(scores, width, a, b);
    }
    multiply_next(meanwhile);
  }
  for (; key < keys; key += 2, scores += 2 * width) {
    const vector a = weight_of(*(const vector *)scores, scales, base);
    vector b = {0};
    if (key + 1 < keys)
      b = weight_of(*(const vector *)(scores + width), scales, base);
    sum[0] += a;
    sum[1] += b;
    store_pairs(scores, width, a, b);
  }
  for (; key < round_up(keys, TILE_DEPTH); key++, scores += width)
    *(vector *)scores = (vector){0};
  *factor = power_of_two((before - base) * 1.44269504f);
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
