/*
 * Attention over a paged cache, for one block of keys after the other with the softmax of what was seen so far. The
 * query heads that share a head of the cache are rows of one task, so that each key and value is read once for them.
 * Many rows go by tiles, transposed as in attention.c; one query's few rows are multiplied with the rows of the cache
 * where these lie. Where sequences are long and few, each is cut into parts that are joined at the end; the cut depends
 * on the call alone, not on the threads.
 */
#include "plugins/cpu/paged_attention.h"
#include "plugins/cpu/flagos/attention/few_queries.h"
#include "plugins/cpu/flagos/attention/key_parts.h"
#include "plugins/cpu/flagos/attention/panel.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/matrix.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

enum { ROW_TILE = 384 };
/* One query's rows are multiplied where the cache lies up to so many; those of several queries, up to FEW_QUERIES. */
enum { FEW_HEADS = 8 };
/* So many tasks keep threads busy; a part has so many keys or more. */
enum { ENOUGH_TASKS = 32, PART_KEYS = 256 };

/* What all tasks of a call have in common. */
typedef struct attention {
  const cpu_paged *paged;
  int64_t group;   /* query heads that share a head of the cache */
  int64_t tiles;   /* at most, of a sequence and head */
  key_parts parts; /* of a sequence; rows are heads of the call's tokens */
} attention;

/* Rows of a sequence, row r being query r / group and head r % group of those that share `head`, over some keys. */
typedef struct task {
  const attention *all;
  cpu_paged_sequence sequence;
  int64_t head, part, first, rows;
} task;

static float sink_of(const cpu_paged *paged, int64_t head) {
  float sink;
  cpu_block_types[cpu_dtype_of(paged->sinks)].load(&sink, fl_data(paged->sinks), head, 1);
  return sink;
}

static int64_t head_of(const task *t, int64_t row) {
  return t->head * t->all->group + row % t->all->group;
}

static const void *query_of(const task *t, int64_t row) {
  return cpu_tensor_at(t->all->paged->query, t->sequence.first + row / t->all->group, head_of(t, row));
}

/* Of the row's query in its sequence. */
static int64_t position_of(const task *t, int64_t row) {
  return t->sequence.length - t->sequence.queries + row / t->all->group;
}

/* The keys that a row sees, of the task's part. */
static cpu_token_range visible_to(const task *t, int64_t row) {
  cpu_token_range range = cpu_paged_visible(t->all->paged, &t->sequence, row / t->all->group);
  int64_t begin = t->part * t->all->parts.length, end = begin + t->all->parts.length;
  range.begin = range.begin > begin ? range.begin : begin;
  range.end = least(range.end, end);
  range.end = range.end < range.begin ? range.begin : range.end;
  return range;
}

/* Of the sink, which is in the first part. */
static void begin_row(const task *t, int64_t row, float *most, float *total) {
  bool sink = t->all->paged->sinks && t->part == 0;
  *most = sink ? sink_of(t->all->paged, head_of(t, row)) : -INFINITY;
  *total = sink ? 1 : 0;
}

/* `sums` is changed. */
static void finish_row(const cpu_paged *paged, int64_t token, int64_t head, float *sums, float most, float total) {
  float factor = 1 / total;
  for (int64_t i = 0; i < paged->size; i++)
    sums[i] *= factor;
  cpu_block_types[paged->dtype].store(cpu_tensor_at(paged->out, token, head), 0, sums, paged->size);
  /* keys whose scores are all -inf have no weights, not even 0 */
  *(float *)cpu_tensor_at(paged->lse, head, token) = total == 0 ? NAN : most + logf(total);
}

static void end_row(const task *t, int64_t row, float *sums, float most, float total) {
  int64_t token = t->sequence.first + row / t->all->group;
  if (t->all->parts.floats)
    keep_part(&t->all->parts, token * t->all->paged->heads + head_of(t, row), t->part, sums, most, total);
  else
    finish_row(t->all->paged, token, head_of(t, row), sums, most, total);
}

/* ------------------------------------------------------------------------------------------------ rows of the cache */

static void load_row(const cpu_cache *cache, float scale, const void *row, float *to, int64_t size) {
  if (!cache->scale) {
    cpu_block_types[cache->dtype].load(to, row, 0, size);
    return;
  }
  const uint8_t *codes = row;
  for (int64_t i = 0; i < size; i++)
    to[i] = fl_e4m3fn_to_float(codes[i]) * scale;
}

/* Where rows lie, and behind the last, what may be read ahead. */
typedef struct row_list {
  const void *rows[KEY_BLOCK + FEW_KEYS + FEW_AHEAD];
} row_list;

/* The rows of tokens first to first + n - 1, n >= 1. */
static void list_rows(const task *t, const cpu_cache *cache, int64_t first, int64_t n, row_list *list) {
  int64_t step = fl_stride(cache->tensor, 1) * (cache->tensor->dtype.bits / 8);
  for (int64_t token = 0, run; token < n; token += run) {
    const char *row = cpu_paged_row(t->all->paged, cache, &t->sequence, first + token, t->head, &run);
    run = least(run, n - token);
    for (int64_t i = 0; i < run; i++)
      list->rows[token + i] = row + i * step;
  }
  for (int64_t i = n; i < n + FEW_KEYS + FEW_AHEAD; i++)
    list->rows[i] = list->rows[n - 1];
}

static void fetch_row(const row_list *list, int64_t i, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch((const char *)list->rows[i + FEW_AHEAD] + line, 0, 3);
}

/* The listed rows as floats, `stride` apart. */
static void load_rows(const task *t, const cpu_cache *cache, const row_list *list, int64_t n, float *to,
                      int64_t stride) {
  int64_t size = t->all->paged->size, bytes = size * (cache->tensor->dtype.bits / 8);
  float scale = cache->scale ? cpu_cache_scale(cache, t->head) : 1;
  for (int64_t i = 0; i < n; i++) {
    fetch_row(list, i, bytes);
    load_row(cache, scale, list->rows[i], to + i * stride, size);
  }
}

/* Floats between rows: room for a whole tile, and no power of two, as such rows would displace each other. */
static int64_t row_stride(int64_t size) {
  return round_up(size, 16) + 16;
}

/* ------------------------------------------------------------------------------------------------------ memory of
 * tasks */

/* A panel's keys may begin anywhere in a block. */
enum { BLOCK_ROWS = KEY_BLOCK + ROW_STEP };

/* Floats. */
typedef struct areas {
  float *scores, *key, *value, *query, *sums;
} areas;

static int64_t count_floats(int64_t size) {
  return SCORES + BLOCK_ROWS * 2 * row_stride(size) + ROW_TILE * (queries_floats(size) + round_up(size, ROW_STEP)) +
         PAIR;
}

static areas areas_in(float *scratch, int64_t size) {
  areas a = {.scores = scratch};
  a.key = a.scores + SCORES;
  a.value = a.key + BLOCK_ROWS * row_stride(size);
  a.query = a.value + BLOCK_ROWS * row_stride(size);
  a.sums = a.query + ROW_TILE * queries_floats(size);
  return a;
}

/* --------------------------------------------------------------------------------------------------------- few rows */

enum { FEW_STRIDE = FLOAT_KEYS + 16 }; /* between rows of scores */

/* Lists the rows of n tokens where they lie, or, of types and sizes that need it, converted in `area`. */
static void list_few(const task *t, const few_queries *few, const cpu_cache *cache, int64_t first, int64_t n,
                     float *area, row_list *list) {
  int64_t size = t->all->paged->size, stride = row_stride(size);
  list_rows(t, cache, first, n, list);
  if (!cache->scale && few->size == size)
    return;
  load_rows(t, cache, list, n, area, stride);
  for (int64_t i = 0; i < n + FEW_KEYS + FEW_AHEAD; i++)
    list->rows[i] = area + least(i, n - 1) * stride;
  for (int64_t i = 0; i < n; i++)
    memset(area + i * stride + size, 0, (size_t)(few->size - size) * sizeof *area);
}

/* s, of n keys from token `first` on, but for the product. */
static void change_scores(const task *t, int64_t row, int64_t first, float *scores, int64_t n) {
  const cpu_paged *paged = t->all->paged;
  float cap = paged->soft_cap;
  if (cap > 0)
    for (int64_t i = 0; i < n; i++)
      scores[i] = cap * vector_tanh(scores[i] / cap);
  if (!paged->slopes)
    return;
  float slope = ((const float *)fl_data(paged->slopes))[head_of(t, row)];
  int32_t behind = (int32_t)(first - position_of(t, row));
  for (int32_t i = 0; i < n; i++)
    scores[i] += slope * (float)(behind + i);
}

/* Scores become weights; behind n there is room for whole vectors. What was added up before has to be multiplied by
 * the result. */
static float weigh_row(float *restrict scores, int64_t n, float *most, float *total) {
  float lanes[LANES], sum = 0, largest = *most;
  for (int64_t i = n; i < round_up(n, LANES); i++)
    scores[i] = -INFINITY;
  for (int lane = 0; lane < LANES; lane++)
    lanes[lane] = -INFINITY;
  for (int64_t i = 0; i < n; i += LANES)
    for (int lane = 0; lane < LANES; lane++)
      lanes[lane] = scores[i + lane] > lanes[lane] ? scores[i + lane] : lanes[lane];
  for (int lane = 0; lane < LANES; lane++)
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  float base = base_of(largest), factor = vector_exp_weight(*most - base);
  memset(lanes, 0, sizeof lanes);
  for (int64_t i = 0; i < n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      scores[i + lane] = vector_exp_weight(scores[i + lane] - base);
      lanes[lane] += scores[i + lane];
    }
  for (int lane = 0; lane < LANES; lane++)
    sum += lanes[lane];
  *most = largest;
  *total = *total * factor + sum;
  return factor;
}

/* Up to FEW_QUERIES rows of one query. */
typedef struct few_rows {
  few_queries few;
  int64_t first, n;
  float *query, *sums, most[FEW_QUERIES], total[FEW_QUERIES];
} few_rows;

static void begin_few(const task *t, few_rows *rows) {
  const cpu_paged *paged = t->all->paged;
  float block[CPU_BLOCK];
  size_t bytes = (size_t)(rows->few.size * rows->few.queries) * sizeof *rows->query;
  memset(rows->query, 0, bytes);
  memset(rows->sums, 0, bytes);
  for (int64_t row = 0; row < rows->n; row++) {
    const void *query = query_of(t, rows->first + row);
    cpu_element16 *pairs = (cpu_element16 *)rows->query + row * PAIR;
    for (int64_t i = 0; rows->few.in_pairs && i < paged->size; i += PAIR)
      memcpy(pairs + i * rows->few.queries, (const cpu_element16 *)query + i, PAIR * sizeof *pairs);
    for (int64_t first = 0; !rows->few.in_pairs && first < paged->size; first += CPU_BLOCK) {
      int64_t n = cpu_block_size(paged->size - first);
      cpu_block_types[paged->dtype].load(block, query, first, n);
      for (int64_t i = 0; i < n; i++)
        rows->query[few_place(&rows->few, row, first + i)] = block[i] * paged->scale;
    }
    begin_row(t, rows->first + row, &rows->most[row], &rows->total[row]);
  }
}

static void attend_few(const task *t, few_rows *rows, int64_t first, int64_t n, const row_list *keys,
                       const row_list *values, float *scores) {
  const few_queries *few = &rows->few;
  if (few->in_pairs)
    few_multiply_pairs_of[few->queries / 2](few->size, (const cpu_element16 *)rows->query, keys->rows, n,
                                            t->all->paged->scale, scores, FEW_STRIDE);
  else
    few_multiply_of[few->dtype][few->queries / 2](few->size, rows->query, keys->rows, n, scores, FEW_STRIDE);
  for (int64_t row = 0; row < rows->n; row++) {
    float *of_row = scores + row * FEW_STRIDE;
    change_scores(t, rows->first + row, first, of_row, n);
    float factor = weigh_row(of_row, n, &rows->most[row], &rows->total[row]);
    for (int64_t i = 0; i < few->size; i += PAIR)
      for (int64_t j = 0; j < PAIR; j++)
        rows->sums[i * few->queries + row * PAIR + j] *= factor;
  }
  few_add_of[few->dtype][few->queries / 2](few->size, values->rows, n, scores, FEW_STRIDE, rows->sums);
}

/* Products of pairs take what is smaller than a normal number for 0. Where the queries' numbers are moderate, that
 * shows nowhere, whatever the keys are: so these need not be looked at. */
static bool are_moderate(const cpu_element16 *numbers, int64_t n) {
  const uint16_t least = 1 << 7, most = (127 + 20) << 7; /* 2^-126, 2^20 */
  uint16_t wrong = 0;
  for (int64_t i = 0; i < n; i++) {
    uint16_t magnitude = numbers[i] & 0x7fff;
    wrong |= magnitude && (magnitude < least || magnitude > most);
  }
  return !wrong;
}

static bool few_in_pairs(const task *t) {
  const cpu_paged *paged = t->all->paged;
  bool may =
      !paged->keys.scale && paged->size % PAIR == 0 && may_be_pairs(paged->dtype, paged->keys.dtype, paged->scale);
  for (int64_t row = t->first; may && row < t->first + t->rows; row++)
    may = are_moderate(query_of(t, row), paged->size);
  return may;
}

/* The rows of one query. */
static void few_task(const task *t, areas a) {
  const cpu_paged *paged = t->all->paged;
  bool direct = !paged->keys.scale && paged->size % PAIR == 0;
  int64_t size = round_up(paged->size, PAIR), room = FEW_QUERIES * size, n = divide_up(t->rows, FEW_QUERIES);
  const bool in_pairs = few_in_pairs(t);
  cpu_token_range range = visible_to(t, t->first);
  few_rows all[FEW_HEADS / FEW_QUERIES];
  row_list keys, values;
  for (int64_t i = 0; i < n; i++) {
    int64_t left = least(t->rows - i * FEW_QUERIES, FEW_QUERIES);
    all[i] = (few_rows){.few = {direct ? paged->dtype : CPU_FLOAT32, left == 3 ? 4 : (int)left, size, in_pairs},
                        .first = t->first + i * FEW_QUERIES,
                        .n = left,
                        .query = a.query + i * room,
                        .sums = a.sums + i * room};
    begin_few(t, &all[i]);
  }
  for (int64_t i = range.begin, keys_now; i < range.end; i += keys_now) {
    keys_now = least(FLOAT_KEYS, range.end - i);
    list_few(t, &all[0].few, &paged->keys, i, keys_now, a.key, &keys);
    list_few(t, &all[0].few, &paged->values, i, keys_now, a.value, &values);
    for (int64_t j = 0; j < n; j++)
      attend_few(t, &all[j], i, keys_now, &keys, &values, a.scores);
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t row = 0; row < all[i].n; row++) {
      for (int64_t j = 0; j < paged->size; j++)
        a.key[j] = all[i].sums[few_place(&all[i].few, row, j)];
      end_row(t, all[i].first + row, a.key, all[i].most[row], all[i].total[row]);
    }
}

/* ------------------------------------------------------------------------------------------------------------ tiles */

static bool has_pairs(const task *t) {
  const cpu_paged *paged = t->all->paged;
  bool has = !paged->keys.scale && may_be_pairs(paged->dtype, paged->keys.dtype, paged->scale);
  for (int64_t row = t->first; row < t->first + t->rows && has; row++)
    has = is_finite_row(query_of(t, row), paged->size);
  return has;
}

/* Keys, and values where there are tiles, as pairs. false: they are of other types, or some are not finite. */
static bool load_pairs(const task *t, key_block *block) {
  const cpu_paged *paged = t->all->paged;
  row_list list;
  if (!block->scoring.has_pairs || (HAS_TILES && (paged->values.scale || paged->values.dtype != CPU_BFLOAT16)))
    return false;
  list_rows(t, &paged->keys, block->first, block->keys, &list);
  for (int64_t i = 0; i < block->keys; i++) {
    fetch_row(&list, i, paged->size * 2);
    if (!load_key_pairs(list.rows[i], paged->size, block->key + i * block->stride, 0))
      return false;
  }
  list_rows(t, &paged->values, block->first, block->keys, &list);
  block->values.data = block->value;
  return load_value_pairs(list.rows, block->keys, paged->size, &block->values);
}

static void load_block(const task *t, key_block *block) {
  const cpu_paged *paged = t->all->paged;
  row_list list;
  block->form = load_pairs(t, block) ? TILE_PAIRS : TILE_FLOATS;
  if (block->form == TILE_FLOATS) {
    list_rows(t, &paged->keys, block->first, block->keys, &list);
    load_rows(t, &paged->keys, &list, block->keys, block->key, block->stride);
  } else if (HAS_TILES) {
    return;
  }
  list_rows(t, &paged->values, block->first, block->keys, &list);
  block->values = (block_values){TILE_FLOATS, block->value, block->stride};
  load_rows(t, &paged->values, &list, block->keys, block->value, block->stride);
}

static key_range keys_of(const void *user, int64_t row) {
  const cpu_token_range range = visible_to(user, row);
  return (key_range){range.begin, range.end};
}

static void change_lanes(const void *user, const panel *p, int64_t first, int64_t keys, float *scores) {
  const task *t = user;
  const cpu_paged *paged = t->all->paged;
  float cap = paged->soft_cap, slopes[PANEL] = {0}, behind[PANEL] = {0};
  if (cap > 0)
    for (int64_t i = 0; i < keys * p->width; i++)
      scores[i] = cap * vector_tanh(scores[i] / cap);
  if (!paged->slopes)
    return;
  for (int64_t lane = 0; lane < p->rows; lane++) {
    int64_t row = p->first + lane;
    slopes[lane] = ((const float *)fl_data(paged->slopes))[head_of(t, row)];
    behind[lane] = (float)(first - position_of(t, row));
  }
  for (int64_t key = 0; key < keys; key++)
    for (int64_t lane = 0; lane < p->width; lane++)
      scores[key * p->width + lane] += slopes[lane] * (behind[lane] + (float)key);
}

static void begin_panel(const task *t, panel *p, const scoring *how) {
  const cpu_paged *paged = t->all->paged;
  clear_panel(p, paged->size);
  for (int64_t lane = 0; lane < p->rows; lane++) {
    int64_t row = p->first + lane;
    begin_row(t, row, &p->most[lane], &p->total[lane]);
    p->query_rows[lane] = query_of(t, row);
  }
  load_queries(how, paged->dtype, paged->size, p);
}

/* `rows` has room for LANES of them. */
static void end_panel(const task *t, const panel *p, float *rows) {
  const int64_t size = t->all->paged->size;
  for (int64_t lane = 0; lane < p->rows; lane++) {
    if (lane % LANES == 0)
      read_sums(p, lane, size, rows);
    end_row(t, p->first + lane, rows + lane % LANES * sums_stride(size), p->most[lane], p->total[lane]);
  }
}

static void tile_task(const task *t, areas a) {
  const cpu_paged *paged = t->all->paged;
  float most[ROW_TILE], total[ROW_TILE];
  panel panels[ROW_TILE / LEAST_PANEL];
  const panel_owner owner = {t, paged->size, paged->size, keys_of,
                             paged->soft_cap > 0 || paged->slopes ? change_lanes : NULL};
  int64_t begin = visible_to(t, t->first).begin, end = visible_to(t, t->first + t->rows - 1).end;
  key_block block = {.scoring = scoring_of(has_pairs(t), paged->scale),
                     .first = begin,
                     .stride = row_stride(paged->size),
                     .key = a.key,
                     .value = a.value};
  const panel memory = {.query = {.floats = a.query}, .sums = a.sums, .most = most, .total = total};
  const int64_t n = make_panels(&block.scoring, t->first, t->rows, paged->size, paged->size, memory, panels);
  for (int64_t i = 0; i < n; i++)
    begin_panel(t, &panels[i], &block.scoring);
  begin_tiles();
  for (; block.first < end; block.first += block_keys(&block.scoring)) {
    block.keys = least(block_keys(&block.scoring), end - block.first);
    load_block(t, &block);
    attend_block(&owner, &block, panels, n, a.scores);
  }
  end_tiles();
  for (int64_t i = 0; i < n; i++)
    end_panel(t, &panels[i], a.key);
}

/* ------------------------------------------------------------------------------------------------------------ tasks */

/* Is each query of the sequence a task of its own? */
static bool has_few_rows(const attention *all, int64_t queries) {
  return (queries == 1 && all->group <= FEW_HEADS) || queries * all->group <= FEW_QUERIES;
}

static int64_t count_tiles(const attention *all, int64_t queries) {
  return has_few_rows(all, queries) ? queries : divide_up(queries * all->group, ROW_TILE);
}

/* Those of a sequence, tile after tile, one head after the other, one part after the other. */
static fl_status tasks_range(void *user, int64_t i, int64_t end) {
  const attention *all = user;
  const cpu_paged *paged = all->paged;
  float *scratch = cpu_scratch_take((size_t)count_floats(paged->size));
  if (!scratch)
    return FL_ENOMEM;
  areas a = areas_in(scratch, paged->size);
  for (; i < end; i++) {
    int64_t tile = i % all->tiles, at = i / all->tiles;
    task t = {all,
              cpu_paged_sequence_at(paged, at / paged->kv_heads / all->parts.n),
              at / all->parts.n % paged->kv_heads,
              at % all->parts.n,
              0,
              0};
    bool few = has_few_rows(all, t.sequence.queries);
    if (tile >= count_tiles(all, t.sequence.queries))
      continue;
    t.first = tile * (few ? all->group : ROW_TILE);
    t.rows = few ? all->group : least(ROW_TILE, t.sequence.queries * all->group - t.first);
    if (few)
      few_task(&t, a);
    else
      tile_task(&t, a);
  }
  cpu_scratch_give(scratch);
  return FL_OK;
}

/* Rows of the call's output: token by token, head by head. */
static fl_status join_range(void *user, int64_t i, int64_t end) {
  const attention *all = user;
  for (; i < end; i++) {
    float most, total, *sums = join_parts(&all->parts, i, &most, &total);
    finish_row(all->paged, i / all->paged->heads, i % all->paged->heads, sums, most, total);
  }
  return FL_OK;
}

static fl_status attend(attention *all) {
  const int64_t enough = 1 << 19; /* multiplications, some ten microseconds */
  const cpu_paged *paged = all->paged;
  int64_t longest = 1, queries = 1, tasks = 0;
  for (int64_t i = 0; i < paged->sequences; i++) {
    cpu_paged_sequence sequence = cpu_paged_sequence_at(paged, i);
    int64_t tiles = count_tiles(all, sequence.queries);
    if (!sequence.queries)
      continue;
    tasks += tiles * paged->kv_heads;
    all->tiles = tiles > all->tiles ? tiles : all->tiles;
    longest = sequence.length > longest ? sequence.length : longest;
    queries = sequence.queries > queries ? sequence.queries : queries;
  }
  if (!tasks)
    return FL_OK;
  int64_t parts = least(divide_up(ENOUGH_TASKS, tasks), divide_up(longest, PART_KEYS));
  all->parts = cut_keys(parts, longest, 1, paged->tokens * paged->heads, paged->size);
  fl_status status = take_parts(&all->parts, paged->tokens * paged->heads);
  if (status)
    return status;
  int64_t work = least(queries * all->group, ROW_TILE) * all->parts.length * 2 * paged->size + 1;
  status = cpu_parallel_for(paged->sequences * paged->kv_heads * all->parts.n * all->tiles, divide_up(enough, work),
                            tasks_range, all);
  int64_t rows = cpu_index(paged->starts, paged->sequences) * paged->heads;
  if (!status && all->parts.floats)
    status = cpu_parallel_for(rows, divide_up(enough, all->parts.n * paged->size + 1), join_range, all);
  cpu_scratch_give(all->parts.floats);
  return status;
}

static fl_status paged_attention(void *self, fl_call *call) {
  cpu_paged paged;
  fl_status status = cpu_paged_read(call, &paged);
  (void)self;
  if (status)
    return status;
  if (paged.heads) {
    attention all = {.paged = &paged, .group = paged.heads / paged.kv_heads};
    status = attend(&all);
  }
  if (status)
    return fl_fail(call, status, "out of memory");
  cpu_paged_clear_padding(&paged);
  return FL_OK;
}

static const fl_impl ops[] = {{.op_name = "paged_attention", CPU_FLAGOS, .fn = paged_attention}};
OP_LIST(ops);
