/*
 * Panels of queries, a lane for each, as both kinds of attention by tiles have them (attention.c, paged_attention.c):
 * what they do with the keys and values of a block.
 * Scores and weights are kept transposed, [keys, width]. Scores of bfloat16 are sums of products of pairs where the
 * processor has these: a pair stands in a float's place. Where it multiplies tiles of them (panel_tiles.h), sums of
 * values are such, too, of weights in two parts.
 */
#ifndef FLHOST_CPU_FLAGOS_ATTENTION_PANEL_H
#define FLHOST_CPU_FLAGOS_ATTENTION_PANEL_H

#include "plugins/cpu/flagos/attention/panel_tiles.h"
#include "plugins/cpu/flagos/products/tile.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/integers.h"

#include <math.h>
#include <string.h>

/* HEIGHT keys, or numbers of a value, times VECTORS lanes of queries have registers. */
enum { HEIGHT = LANES == 16 ? 8 : 4, VECTORS = LANES == 4 && REGISTERS == 16 ? 2 : 3, PANEL = VECTORS * LANES };
/* Of tiles two times two have registers. */
enum { TILED_PANEL = 2 * LANES, LEAST_PANEL = HAS_TILES ? TILED_PANEL : PANEL };
/* Rows of keys, of scores and of sums come in such numbers. */
enum { ROW_STEP = HAS_TILES ? LANES : HEIGHT };
/* Weights of so many keys stay in the first-level cache, and values of two tiles beside them. */
enum { FLOAT_KEYS = 128, KEY_BLOCK = HAS_TILES ? 256 : FLOAT_KEYS };
/* Floats of scores: by tiles three panels are at work at once, whose memory is no power of two apart. */
enum { TILED_SCORES = (KEY_BLOCK + ROW_STEP) * TILED_PANEL, SCORES = HAS_TILES ? 3 * TILED_SCORES : KEY_BLOCK * PANEL };

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
  float scale, of_pairs, of_scores; /* scale = of_pairs * of_scores, which is above 0 */
} scoring;

static scoring scoring_of(bool has_pairs, float scale) {
  int exponent;
  float rest = frexpf(fabsf(scale), &exponent); /* 0.5 <= rest < 1 */
  return (scoring){has_pairs, scale, copysignf(ldexpf(1, exponent - 1), scale), 2 * rest};
}

static int64_t block_keys(const scoring *how) {
  return how->has_pairs ? KEY_BLOCK : FLOAT_KEYS;
}

/* May scores of such numbers be sums of products of pairs, as long as all are finite? These take what is smaller than
 * normal numbers for 0, and 0 times infinity is none. */
static bool may_be_pairs(cpu_dtype query, cpu_dtype key, float scale) {
#ifdef __AVX512BF16__
  return query == CPU_BFLOAT16 && key == CPU_BFLOAT16 && isfinite(scale) && scale != 0;
#else
  return (void)query, (void)key, (void)scale, false;
#endif
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
  float *floats, *pairs; /* [size, width], [pairs_of(size), width] */
} query_lanes;

/* Of a row's numbers: zeros fill up the last tile. */
static int64_t pairs_of(int64_t size) {
  return HAS_TILES ? round_up(size, 2 * LANES) / 2 : divide_up(size, 2);
}

static int64_t queries_floats(int64_t size) {
  return size + pairs_of(size);
}

static query_lanes queries_at(float *memory, int64_t size, int64_t width) {
  return (query_lanes){memory, memory + size * width};
}

/* `size` numbers of a key's row from number `first` on, which is even. Are all finite? */
static bool load_key_pairs(const void *row, int64_t size, float *key, int64_t first) {
  uint16_t *to = (uint16_t *)(void *)(key + first / 2);
#ifdef __AMX_BF16__
  return copy_numbers(row, size, 2 * pairs_of(first + size) - first, to);
#else
  memcpy(to, row, (size_t)size * sizeof *to);
  to[size] = 0;
  return is_finite_row(to, size);
#endif
}

/* Up to PANEL queries of those that are numbered from 0 on: rows `first` to first + rows - 1. */
typedef struct panel {
  int64_t first, rows, width; /* width: lanes, a multiple of LANES */
  const void *query_rows[PANEL];
  query_lanes query;
  float *sums;         /* [value_size, width] */
  float *most, *total; /* [width]: the largest score, and the sum of weights, exponentials less that */
} panel;

/* Those of rows first to first + rows - 1, how many there are; their memory is one after the other's. */
static int64_t make_panels(const scoring *how, int64_t first, int64_t rows, int64_t size, int64_t value_size,
                           panel memory, panel *panels) {
  const int64_t most = how->has_pairs ? LEAST_PANEL : PANEL, n = divide_up(rows, most);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i * most, left = least(most, rows - at), width = round_up(left, LANES);
    panels[i] = (panel){.first = first + at,
                        .rows = left,
                        .width = width,
                        .query = queries_at(memory.query.floats + at * queries_floats(size), size, width),
                        .sums = memory.sums + at * round_up(value_size, ROW_STEP),
                        .most = memory.most + at,
                        .total = memory.total + at};
  }
  return n;
}

/* Of lanes without a query, too. */
static void clear_panel(const panel *p, int64_t value_size) {
  memset(p->sums, 0, (size_t)(round_up(value_size, ROW_STEP) * p->width) * sizeof *p->sums);
  for (int64_t lane = 0; lane < p->width; lane++) {
    p->most[lane] = -INFINITY;
    p->total[lane] = 0;
  }
}

/* A block of each of LANES rows. */
typedef float lane_rows[LANES][CPU_BLOCK];

/* Their first `size` numbers become columns of a lane each, which are `width` apart. */
static void turn_rows(lane_rows rows, int64_t size, float *columns, int64_t width) {
  int64_t first = 0;
  for (; first + LANES <= size; first += LANES) {
    vector square[LANES];
    UNROLL for (int i = 0; i < LANES; i++) square[i] = *(const vector *)(rows[i] + first);
    transpose(square);
    UNROLL for (int i = 0; i < LANES; i++) * (vector *)(columns + (first + i) * width) = square[i];
  }
  for (; first < size; first++)
    LANEWISE for (int lane = 0; lane < LANES; lane++) columns[first * width + lane] = rows[lane][first];
}

/* Up to LANES rows; there are zeros in lanes without one. */
static void load_query_rows(const scoring *how, cpu_dtype dtype, const void *const *rows, int64_t n, int64_t size,
                            query_lanes lanes, int64_t width) {
  const bool has_pairs = how->has_pairs && !HAS_TILES;
  lane_rows floats, pairs;
  float block[CPU_BLOCK];
  memset(floats + n, 0, (size_t)(LANES - n) * sizeof *floats);
  memset(pairs + n, 0, (size_t)(LANES - n) * sizeof *pairs);
  for (int64_t first = 0; first < size; first += CPU_BLOCK) {
    const int64_t count = cpu_block_size(size - first);
    for (int64_t row = 0; row < n; row++) {
      cpu_block_types[dtype].load(block, rows[row], first, count);
      for (int64_t i = 0; i < count; i++)
        floats[row][i] = block[i] * how->scale;
      if (!has_pairs)
        continue;
      for (int64_t i = 0; i < count; i++)
        block[i] *= how->of_pairs;
      pairs[row][count / 2] = 0; /* of a last pair there may be one alone */
      cpu_block_types[dtype].store(pairs[row], 0, block, count);
    }
    turn_rows(floats, count, lanes.floats + first * width, width);
    if (has_pairs)
      turn_rows(pairs, divide_up(count, 2), lanes.pairs + first / 2 * width, width);
  }
}

static void load_query_lanes(const scoring *how, cpu_dtype dtype, int64_t size, const panel *p) {
  for (int64_t lane = 0; lane < p->width; lane += LANES)
    load_query_rows(how, dtype, p->query_rows + lane, least(LANES, p->rows - lane), size,
                    (query_lanes){p->query.floats + lane, p->query.pairs + lane}, p->width);
}

/* From p->query_rows. */
static void load_queries(const scoring *how, cpu_dtype dtype, int64_t size, const panel *p) {
#ifdef __AMX_BF16__
  if (how->has_pairs) { /* floats are made where keys are not finite */
    for (int64_t lane = 0; lane < p->width; lane += LANES)
      load_query_columns(p->query_rows + lane, p->rows - lane, size, how->of_pairs, p->query.pairs + lane, p->width);
    return;
  }
#endif
  load_query_lanes(how, dtype, size, p);
}

/* scores [keys, width] of keys, that are `stride` floats apart, and the panel's queries, of `size` numbers. */
static void find_scores(const scoring *how, tile_form form, int64_t size, const float *key, int64_t stride,
                        int64_t keys, const panel *p, float *scores) {
  if (HAS_TILES && how->has_pairs) /* there are no floats yet */
    load_query_lanes(how, CPU_BFLOAT16, size, p);
  for (int64_t i = 0; i < keys; i += HEIGHT, key += HEIGHT * stride, scores += HEIGHT * p->width) {
    const tile_factors factors = {key, stride, 1};
#ifdef __AVX512BF16__
    if (form == TILE_PAIRS) {
      multiply_of(TILE_PAIRS, divide_up(size, 2), factors, p->query.pairs, p->width, false, scores);
      for (int64_t j = 0; j < HEIGHT * p->width; j++)
        scores[j] *= how->of_scores;
      continue;
    }
#endif
    (void)how, (void)form;
    multiply_of(TILE_FLOATS, size, factors, p->query.floats, p->width, false, scores);
  }
}

/* A score that is the largest so far; where all are -inf, weight 0 is beside scores that are yet to come. */
static float base_of(float most) {
  return most == -INFINITY ? 0 : most;
}

/* What was added up of LANES queries is scaled to a largest score that is larger now. */
static void scale_float_lanes(const panel *p, int64_t lane, int64_t value_size, const float *most) {
  float factors[LANES], *sums = p->sums + lane;
  LANEWISE for (int query = 0; query < LANES; query++) {
    factors[query] = vector_exp_weight(p->most[lane + query] - base_of(most[query]));
    p->most[lane + query] = most[query];
    p->total[lane + query] *= factors[query];
  }
  for (int64_t i = 0; i < value_size * p->width; i += p->width)
    LANEWISE for (int query = 0; query < LANES; query++) sums[i + query] *= factors[query];
}

/* Of LANES queries from `lane` on; what each of them keeps stays in a register. Most blocks have no larger score. */
static void weigh_float_lanes(const panel *p, int64_t lane, int64_t value_size, int64_t keys, float *restrict scores) {
  float most[LANES], base[LANES], total[LANES] = {0};
  memcpy(most, p->most + lane, sizeof most);
  for (int64_t i = lane; i < keys * p->width; i += p->width)
    LANEWISE for (int query = 0; query < LANES; query++) most[query] =
        scores[i + query] > most[query] ? scores[i + query] : most[query];
  if (memcmp(most, p->most + lane, sizeof most))
    scale_float_lanes(p, lane, value_size, most);
  LANEWISE for (int query = 0; query < LANES; query++) base[query] = base_of(most[query]);
  for (int64_t i = lane; i < keys * p->width; i += p->width)
    LANEWISE for (int query = 0; query < LANES; query++) {
      const float weight = vector_exp_weight(scores[i + query] - base[query]);
      scores[i + query] = weight;
      total[query] += weight;
    }
  LANEWISE for (int query = 0; query < LANES; query++) p->total[lane + query] += total[query];
}

/* Scores become weights. */
static void weigh_scores(const panel *p, int64_t value_size, int64_t keys, float *scores) {
  for (int64_t lane = 0; lane < p->width; lane += LANES)
    weigh_float_lanes(p, lane, value_size, keys, scores);
}

/* Of a block: rows of floats, or pairs of keys, [value_size, keys] of bfloat16, all finite; `stride` numbers apart. */
typedef struct block_values {
  tile_form form;
  float *data;
  int64_t stride;
} block_values;

/* Those from a key on. */
static inline block_values values_from(block_values values, int64_t key) {
  values.data = values.form == TILE_PAIRS ? (float *)(void *)((uint16_t *)(void *)values.data + key)
                                          : values.data + key * values.stride;
  return values;
}

/* Rows of bfloat16 become values of `keys` keys by pairs, where these are multiplied. false: some are not finite. */
static bool load_value_pairs(const void *const *rows, int64_t keys, int64_t value_size, block_values *to) {
#ifdef __AMX_BF16__
  to->stride = value_stride_of(KEY_BLOCK);
  to->form = TILE_PAIRS;
  return load_value_columns(rows, keys, value_size, (uint16_t *)(void *)to->data, to->stride);
#else
  return (void)rows, (void)keys, (void)value_size, (void)to, true;
#endif
}

/* Floats between what is read of neighbouring lanes. */
static int64_t sums_stride(int64_t value_size) {
  return round_up(value_size, LANES);
}

/* The sums of LANES queries from `lane` on, or of as many as there are, become rows. */
static void read_sums(const panel *p, int64_t lane, int64_t value_size, float *rows) {
#ifdef __AMX_BF16__
  read_square_sums(p->sums + lane, value_size, p->width, rows, sums_stride(value_size));
#else
  const int64_t queries = least(LANES, p->rows - lane), stride = sums_stride(value_size);
  const float *sums = p->sums + lane;
  int64_t first = 0;
  for (; queries > 1 && first + LANES <= value_size; first += LANES) {
    vector square[LANES];
    UNROLL for (int i = 0; i < LANES; i++) square[i] = *(const vector *)(sums + (first + i) * p->width);
    transpose(square);
    UNROLL for (int i = 0; i < LANES; i++) * (vector *)(rows + i * stride + first) = square[i];
  }
  for (int64_t query = 0; query < queries; query++)
    for (int64_t i = first; i < value_size; i++)
      rows[query * stride + i] = sums[i * p->width + query];
#endif
}

/* --------------------------------------------------------------------------------------------------------- blocks */

/* Keys and values: floats, or both pairs where there are tiles, or the keys alone. Rows of keys are `stride` floats
 * apart: they have room for a whole tile behind them, and no power of two between them, as they would displace each
 * other from the cache. */
typedef struct key_block {
  scoring scoring;
  tile_form form; /* of keys */
  int64_t first, keys, stride;
  float *key, *value;
  block_values values; /* in `value`, or those keys */
} key_block;

typedef struct key_range {
  int64_t begin, end;
} key_range;

/* Whose panels they are. */
typedef struct panel_owner {
  const void *task;
  int64_t size, value_size;
  /* The keys that a query sees; of a later one neither end is before. */
  key_range (*visible)(const void *task, int64_t query);
  /* Makes scores of products that have their scale, of keys from `first` on. NULL: they are. */
  void (*change)(const void *task, const panel *p, int64_t first, int64_t keys, float *scores);
} panel_owner;

/* The keys of a block that a panel's queries see, and its scores. */
typedef struct panel_step {
  const panel *p, *next; /* next: whose turn is then; NULL: no one's */
  int64_t first, keys;
  bool all_seen; /* by all queries */
  float *scores;
} panel_step;

static panel_step step_of(const panel_owner *owner, const key_block *block, const panel *p, float *scores) {
  const key_range lowest = owner->visible(owner->task, p->first);
  const key_range highest = owner->visible(owner->task, p->first + p->rows - 1);
  const int64_t begin = lowest.begin > block->first ? lowest.begin : block->first;
  const int64_t end = least(highest.end, block->first + block->keys);
  return (panel_step){.p = p,
                      .first = begin,
                      .keys = end > begin ? end - begin : 0,
                      .all_seen = highest.begin <= begin && lowest.end >= end,
                      .scores = scores};
}

/* Of a query of the panel, counted from the step's first one on. */
static key_range seen_of(const panel_owner *owner, const panel_step *step, int64_t query) {
  const key_range range = owner->visible(owner->task, step->p->first + query);
  const int64_t begin = range.begin - step->first, end = range.end - step->first;
  return (key_range){begin > 0 ? least(begin, step->keys) : 0, end > 0 ? least(end, step->keys) : 0};
}

static void hide_unseen(const panel_owner *owner, const panel_step *step) {
  const int64_t width = step->p->width;
  for (int64_t query = 0; query < step->p->rows && !step->all_seen; query++) {
    const key_range seen = seen_of(owner, step, query);
    for (int64_t key = 0; key < seen.begin; key++)
      step->scores[key * width + query] = -INFINITY;
    for (int64_t key = seen.end; key < step->keys; key++)
      step->scores[key * width + query] = -INFINITY;
  }
}

/* sums += values times weights, for queries that do not see all keys: weight 0 is not enough for values that are not
 * finite. */
static void add_seen(const panel_owner *owner, const panel_step *step, block_values values) {
  const panel *p = step->p;
  for (int64_t query = 0; query < p->rows; query++) {
    const key_range seen = seen_of(owner, step, query);
    for (int64_t key = seen.begin; key < seen.end; key++)
      for (int64_t i = 0; i < owner->value_size; i++)
        p->sums[i * p->width + query] += step->scores[key * p->width + query] * values.data[key * values.stride + i];
  }
}

/* sums += values times weights. Meanwhile what the next panel begins with is fetched, as many rows of its queries as of
 * its sums. */
static void add_values(const panel_owner *owner, const panel_step *step, block_values values) {
  const panel *p = step->p, *next = step->next;
  for (int64_t i = 0; i < owner->value_size; i += HEIGHT) {
    if (next) {
      const int64_t at = i * next->width, bytes = HEIGHT * next->width * (int64_t)sizeof(float);
      fetch((const char *)(next->query.floats + at), bytes);
      fetch((const char *)(next->sums + at), bytes);
    }
    multiply_of(TILE_FLOATS, step->keys, (tile_factors){values.data + i, 1, values.stride}, step->scores, p->width,
                true, p->sums + i * p->width);
  }
}

static const float *first_key(const key_block *block, const panel_step *step) {
  return block->key + (step->first - block->first) * block->stride;
}

static void attend_step(const panel_owner *owner, const key_block *block, const panel_step *step) {
  const block_values values = values_from(block->values, step->first - block->first);
  if (!step->keys)
    return;
  find_scores(&block->scoring, block->form, owner->size, first_key(block, step), block->stride, step->keys, step->p,
              step->scores);
  if (owner->change)
    owner->change(owner->task, step->p, step->first, step->keys, step->scores);
  hide_unseen(owner, step);
  weigh_scores(step->p, owner->value_size, step->keys, step->scores);
  if (!step->all_seen && !are_finite_rows(values.data, step->keys, values.stride, owner->value_size))
    add_seen(owner, step, values);
  else
    add_values(owner, step, values);
}

#ifdef __AMX_BF16__
static void queue_scores(const panel_owner *owner, const key_block *block, const panel_step *step, tile_queue *queue) {
  if (step->keys)
    queue->products[queue->n++] = (tile_product){.factors = (const char *)first_key(block, step),
                                                 .columns = (const char *)step->p->query.pairs,
                                                 .sums = (char *)step->scores,
                                                 .height = step->keys,
                                                 .width = step->p->width,
                                                 .depth = owner->size,
                                                 .factor_stride = block->stride * (int64_t)sizeof(float),
                                                 .parts = 1};
}

static void queue_values(const panel_owner *owner, const key_block *block, const panel_step *step, tile_queue *queue) {
  const block_values values = values_from(block->values, step->first - block->first);
  for (int64_t key = 0; key < step->keys; key += FLOAT_KEYS)
    queue->products[queue->n++] =
        (tile_product){.factors = (const char *)((const uint16_t *)(const void *)values.data + key),
                       .columns = (const char *)(step->scores + key * step->p->width),
                       .sums = (char *)step->p->sums,
                       .height = owner->value_size,
                       .width = step->p->width,
                       .depth = least(FLOAT_KEYS, step->keys - key),
                       .factor_stride = values.stride * 2,
                       .parts = 2,
                       .accumulate = true};
}

/* Scores that are there become weights, while the queue's products are multiplied. */
static void weigh_step(const panel_owner *owner, const key_block *block, const panel_step *step, tile_queue *queue) {
  const panel *p = step->p;
  float scale = block->scoring.of_scores;
  if (owner->change && step->keys) {
    for (int64_t i = 0; i < step->keys * p->width; i++)
      step->scores[i] *= scale;
    owner->change(owner->task, p, step->first, step->keys, step->scores);
    scale = 1;
  }
  hide_unseen(owner, step);
  for (int64_t lane = 0; lane < p->width && step->keys; lane += LANES) {
    vector factor;
    weigh_lanes(step->scores + lane, step->keys, p->width, scale, p->most + lane, p->total + lane, &factor, queue);
    scale_lanes(p->sums + lane, owner->value_size, p->width, factor);
  }
}

/* While the scores of one panel become weights, those of the next are found, and the values of the last added up: the
 * processor multiplies tiles and computes with vectors at the same time. */
static void attend_by_tiles(const panel_owner *owner, const key_block *block, const panel *panels, int64_t n,
                            float *scores) {
  panel_step steps[3];
  for (int64_t i = 0; i < n + 2; i++) {
    tile_queue queue = {.n = 0};
    if (i >= 2)
      queue_values(owner, block, &steps[(i - 2) % 3], &queue);
    if (i < n) {
      steps[i % 3] = step_of(owner, block, &panels[i], scores + i % 3 * TILED_SCORES);
      queue_scores(owner, block, &steps[i % 3], &queue);
    }
    if (i >= 1 && i <= n)
      weigh_step(owner, block, &steps[(i - 1) % 3], &queue);
    multiply_rest(&queue);
  }
}
#endif

/* What the panels' queries, one after the other, see of a block. `scores` has room for SCORES floats. */
static void attend_block(const panel_owner *owner, const key_block *block, const panel *panels, int64_t n,
                         float *scores) {
#ifdef __AMX_BF16__
  if (block->form == TILE_PAIRS) {
    attend_by_tiles(owner, block, panels, n, scores);
    return;
  }
#endif
  for (int64_t i = 0; i < n; i++) {
    panel_step step = step_of(owner, block, &panels[i], scores);
    step.next = i + 1 < n ? &panels[i + 1] : NULL;
    attend_step(owner, block, &step);
  }
}

#endif
