/*
 * Panels of queries, a lane for each, as both kinds of attention by tiles have them (attention.c, paged_attention.c):
 * what they do with the keys and values of a block.
 * Scores and weights are kept transposed, [keys, width]. Scores of bfloat16 are sums of products of pairs where the
 * processor has these (pairs.h): a pair stands in a float's place.
 */
#ifndef FLHOST_CPU_FLAGOS_PANEL_H
#define FLHOST_CPU_FLAGOS_PANEL_H

#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/pairs.h"
#include "plugins/cpu/flagos/tile.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/integers.h"

#include <math.h>
#include <string.h>

/* HEIGHT keys, or numbers of a value, times VECTORS lanes of queries have registers. */
enum { HEIGHT = LANES == 16 ? 8 : 4, VECTORS = LANES == 4 && REGISTERS == 16 ? 2 : 3, PANEL = VECTORS * LANES };

SPECIALISED void multiply_of(tile_form form, int64_t k, tile_factors factors, const float *columns, int64_t width,
                             bool accumulate, float *sums) {
  if (width == LANES)
    multiply_tile_of(form, HEIGHT, 1, k, factors, columns, LANES, NULL, accumulate, sums, LANES);
  else if (width == 2 * LANES)
    multiply_tile_of(form, HEIGHT, 2, k, factors, columns, 2 * LANES, NULL, accumulate, sums, 2 * LANES);
  else
    multiply_tile_of(form, HEIGHT, VECTORS, k, factors, columns, PANEL, NULL, accumulate, sums, PANEL);
}

/* What queries and scores are multiplied by. Pairs of a query are multiplied by a power of two, which changes no digit,
 * so that no score is larger before it is multiplied. */
typedef struct scoring {
  bool has_pairs;                   /* there are pairs of queries, beside the floats */
  float scale, of_pairs, of_scores; /* scale = of_pairs * of_scores */
} scoring;

static scoring scoring_of(bool has_pairs, float scale) {
  int exponent;
  float rest = frexpf(scale, &exponent); /* 0.5 <= |rest| < 1 */
  return (scoring){has_pairs, scale, ldexpf(1, exponent - 1), 2 * rest};
}

/* May scores of such numbers be sums of products of pairs, as long as all are finite? These take what is smaller than
 * normal numbers for 0, and 0 times infinity is none. */
static bool may_be_pairs(cpu_dtype query, cpu_dtype key, float scale) {
  return query == CPU_BFLOAT16 && key == CPU_BFLOAT16 && isfinite(scale) && cpu_has_pairs();
}

/* Of bfloat16: is no exponent the largest, which one more makes the sign? */
static bool is_finite_row(const void *row, int64_t size) {
  const uint16_t *numbers = row;
  uint16_t exponents = 0;
  for (int64_t i = 0; i < size; i++)
    exponents |= (uint16_t)((numbers[i] & 0x7f80u) + 0x80u);
  return !(exponents & 0x8000u);
}

/* Of floats, `stride` apart. */
static bool are_finite_rows(const float *rows, int64_t n, int64_t stride, int64_t size) {
  uint32_t exponents = 0;
  for (int64_t row = 0; row < n; row++)
    for (int64_t i = 0; i < size; i++)
      exponents |= (fl_float_bits(rows[row * stride + i]) & 0x7f800000u) + 0x00800000u;
  return !(exponents & 0x80000000u);
}

/* A panel's queries, or one lane of them. */
typedef struct query_lanes {
  float *floats, *pairs; /* [size, width], [size / 2, width] */
} query_lanes;

static int64_t queries_floats(int64_t size) {
  return size + divide_up(size, 2);
}

static query_lanes queries_at(float *memory, int64_t size, int64_t width) {
  return (query_lanes){memory, memory + size * width};
}

static void load_query(const scoring *how, cpu_dtype dtype, const void *row, int64_t size, query_lanes lane,
                       int64_t width) {
  float block[CPU_BLOCK], pairs[CPU_BLOCK];
  for (int64_t first = 0; first < size; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(size - first);
    cpu_block_types[dtype].load(block, row, first, n);
    for (int64_t i = 0; i < n; i++)
      lane.floats[(first + i) * width] = block[i] * how->scale;
    if (!how->has_pairs)
      continue;
    for (int64_t i = 0; i < n; i++)
      block[i] *= how->of_pairs;
    pairs[n / 2] = 0; /* of a last pair there may be one alone */
    cpu_block_types[dtype].store(pairs, 0, block, n);
    for (int64_t i = 0; i < divide_up(n, 2); i++)
      lane.pairs[(first / 2 + i) * width] = pairs[i];
  }
}

/* `size` numbers of a key's row from number `first` on, which is even. Are all finite? */
static bool load_key_pairs(const void *row, int64_t size, float *key, int64_t first) {
  uint16_t *to = (uint16_t *)(void *)(key + first / 2);
  memcpy(to, row, (size_t)size * sizeof *to);
  to[size] = 0;
  return is_finite_row(to, size);
}

/* scores [HEIGHT, width] of HEIGHT keys, that are `stride` floats apart, and the panel's queries, of `size` numbers. */
static void find_scores(const scoring *how, tile_form form, int64_t size, const float *keys, int64_t stride,
                        query_lanes of, int64_t width, float *scores) {
  const tile_factors factors = {keys, stride, 1};
#ifdef __AVX512BF16__
  if (form == TILE_PAIRS) {
    multiply_of(TILE_PAIRS, divide_up(size, 2), factors, of.pairs, width, false, scores);
    for (int64_t i = 0; i < HEIGHT * width; i++)
      scores[i] *= how->of_scores;
    return;
  }
#endif
  (void)how, (void)form;
  multiply_of(TILE_FLOATS, size, factors, of.floats, width, false, scores);
}

/* Up to PANEL queries of those that are numbered from 0 on: rows `first` to first + rows - 1. */
typedef struct panel {
  int64_t first, rows, width; /* width: lanes, a multiple of LANES */
  query_lanes query;
  float *sums;         /* [value_size, width] */
  float *most, *total; /* [width]: the largest score, and the sum of weights, exponentials less that */
} panel;

/* Those of rows first to first + rows - 1, how many there are; their memory is one after the other's. */
static int64_t make_panels(int64_t first, int64_t rows, int64_t size, int64_t value_size, panel memory, panel *panels) {
  int64_t n = divide_up(rows, PANEL);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i * PANEL, left = least(PANEL, rows - at), width = round_up(left, LANES);
    panels[i] = (panel){.first = first + at,
                        .rows = left,
                        .width = width,
                        .query = queries_at(memory.query.floats + at * queries_floats(size), size, width),
                        .sums = memory.sums + at * round_up(value_size, HEIGHT),
                        .most = memory.most + at,
                        .total = memory.total + at};
  }
  return n;
}

/* Of lanes without a query, too. */
static void clear_panel(const panel *p, int64_t size, int64_t value_size) {
  memset(p->query.floats, 0, (size_t)(queries_floats(size) * p->width) * sizeof *p->query.floats);
  memset(p->sums, 0, (size_t)(round_up(value_size, HEIGHT) * p->width) * sizeof *p->sums);
  for (int64_t lane = 0; lane < p->width; lane++) {
    p->most[lane] = -INFINITY;
    p->total[lane] = 0;
  }
}

static void find_most(const float *restrict scores, int64_t n, int64_t width, float *restrict most) {
  for (int64_t row = 0; row < n; row++, scores += width)
    for (int64_t lane = 0; lane < width; lane++)
      most[lane] = scores[lane] > most[lane] ? scores[lane] : most[lane];
}

static void find_weights(float *restrict scores, int64_t n, int64_t width, const float *restrict base,
                         float *restrict total) {
  memset(total, 0, (size_t)width * sizeof *total);
  for (int64_t row = 0; row < n; row++, scores += width)
    for (int64_t lane = 0; lane < width; lane++) {
      scores[lane] = vector_exp(scores[lane] - base[lane]);
      total[lane] += scores[lane];
    }
}

static void scale_rows(float *restrict rows, int64_t n, int64_t width, const float *restrict factors) {
  for (int64_t row = 0; row < n; row++, rows += width)
    for (int64_t lane = 0; lane < width; lane++)
      rows[lane] *= factors[lane];
}

/* A score that is the largest so far; where all are -inf, weight 0 is beside scores that are yet to come. */
static float base_of(float most) {
  return most == -INFINITY ? 0 : most;
}

/* Scores become weights. What was added up before is scaled to the largest score that there is now. */
static void weigh_scores(const panel *p, int64_t value_size, int64_t keys, float *scores) {
  float base[PANEL], factors[PANEL], total[PANEL];
  memcpy(factors, p->most, (size_t)p->width * sizeof *factors);
  find_most(scores, keys, p->width, p->most);
  for (int64_t lane = 0; lane < p->width; lane++) {
    base[lane] = base_of(p->most[lane]);
    factors[lane] = vector_exp(factors[lane] - base[lane]);
  }
  find_weights(scores, keys, p->width, base, total);
  scale_rows(p->total, 1, p->width, factors);
  scale_rows(p->sums, value_size, p->width, factors);
  for (int64_t lane = 0; lane < p->width; lane++)
    p->total[lane] += total[lane];
}

/* sums += values [keys, value_size] times weights; rows of values are `stride` apart. */
static void add_values(const panel *p, const float *values, int64_t stride, int64_t value_size, int64_t keys,
                       const float *weights) {
  for (int64_t i = 0; i < value_size; i += HEIGHT)
    multiply_of(TILE_FLOATS, keys, (tile_factors){values + i, 1, stride}, weights, p->width, true,
                p->sums + i * p->width);
}

#endif
