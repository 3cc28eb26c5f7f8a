/*
 * Attention by tiles of queries, for one block of keys after the other, with the softmax of what was seen so far: what
 * a tile needs stays in the second-level cache. Scores, weights and sums are kept transposed, a lane for each query: so
 * no lanes are added up, keys and values are used as they lie, and weights where they were computed. A query's result
 * depends on nothing but its own head, in blocks that begin at fixed keys (and, in bfloat16, on whether all queries of
 * its tile, and all keys and values of a block, are finite).
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/panel.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/scratch.h"

#include <math.h>
#include <string.h>

/* For a tile's panels together keys and values are converted once. */
enum { QUERY_TILE = 384 };

/* ------------------------------------------------------------------------------------------------- keys and values */

/* One head, or the heads of one query over the rows of a paged cache, which are keys, and begin with the values. */
typedef struct task {
  cpu_head head;
  const cpu_pages *pages; /* NULL: none */
  int64_t sequence;
  float *lse; /* of each query; NULL: not wanted */
} task;

/* Pairs of keys that are values, too, need those of values; those of two parts that would share a pair are floats. */
static bool has_pairs(const task *t, int64_t first, int64_t queries) {
  const cpu_head *head = &t->head;
  const cpu_dtype key = t->pages ? head->query.dtype : head->key.dtype;
  bool has = (HAS_TILES || !t->pages) && !(head->shared_size && (head->size - head->shared_size) % 2) &&
             may_be_pairs(head->query.dtype, key, (float)head->scale);
  for (int64_t query = first; query < first + queries && has; query++)
    has = is_finite_row(cpu_matrix_row(head->query, query), head->size);
  return has;
}

/* Floats, or keys of pairs. Rows have room for a whole tile behind them, and no power of two between them: they would
 * displace each other from the cache. */
typedef struct key_block {
  scoring scoring;
  tile_form form; /* of keys */
  int64_t first, keys, key_stride;
  float *key, *value;
  block_values values; /* in `value`, or those keys */
} key_block;

static int64_t row_stride(int64_t size) {
  return round_up(size, 16) + 16;
}

static void convert_rows(float *to, int64_t stride, cpu_matrix from, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; row++)
    cpu_block_types[from.dtype].load(to + row * stride, cpu_matrix_row(from, row), 0, columns);
}

typedef struct row_list {
  const void *rows[KEY_BLOCK];
} row_list;

/* The rows of a block of the paged cache. */
static void list_pages(const task *t, const key_block *block, row_list *list) {
  const int64_t step = fl_stride(t->pages->cache, 1) * (t->pages->cache->dtype.bits / 8);
  for (int64_t row = 0, run; row < block->keys; row += run) {
    const char *at = cpu_pages_row(t->pages, t->sequence, block->first + row, &run);
    run = least(run, block->keys - row);
    for (int64_t i = 0; i < run; i++)
      list->rows[row + i] = at + i * step;
  }
}

/* Are all finite? */
static bool load_key_rows(const key_block *block, cpu_matrix from, int64_t size, int64_t first) {
  bool finite = true;
  for (int64_t row = 0; row < block->keys && finite; row++)
    finite =
        load_key_pairs(cpu_matrix_row(from, block->first + row), size, block->key + row * block->key_stride, first);
  return finite;
}

static void load_keys(const cpu_head *head, key_block *block) {
  const int64_t own = head->size - head->shared_size;
  bool are_pairs = block->scoring.has_pairs && load_key_rows(block, head->key, own, 0) &&
                   (!head->shared_size || load_key_rows(block, head->shared_key, head->shared_size, own));
  block->form = are_pairs ? TILE_PAIRS : TILE_FLOATS;
  if (are_pairs)
    return;
  convert_rows(block->key, block->key_stride, cpu_matrix_at(head->key, block->first, 0), block->keys, own);
  if (head->shared_size)
    convert_rows(block->key + own, block->key_stride, cpu_matrix_at(head->shared_key, block->first, 0), block->keys,
                 head->shared_size);
}

static void load_values(const cpu_head *head, key_block *block) {
  const cpu_matrix from = cpu_matrix_at(head->value, block->first, 0);
  row_list list;
  block->values.data = block->value;
  for (int64_t row = 0; row < block->keys; row++)
    list.rows[row] = cpu_matrix_row(from, row);
  if (load_value_pairs(&block->scoring, list.rows, block->keys, head->value_size, &block->values))
    return;
  block->values = (block_values){TILE_FLOATS, block->value, row_stride(head->value_size)};
  convert_rows(block->value, block->values.stride, from, block->keys, head->value_size);
}

/* Keys that are values, too. */
static void load_pages(const task *t, key_block *block) {
  const cpu_head *head = &t->head;
  row_list list;
  list_pages(t, block, &list);
  bool are_pairs = block->scoring.has_pairs;
  for (int64_t row = 0; row < block->keys && are_pairs; row++)
    are_pairs = load_key_pairs(list.rows[row], head->size, block->key + row * block->key_stride, 0);
  block->form = are_pairs ? TILE_PAIRS : TILE_FLOATS;
  block->values.data = block->value;
  if (are_pairs && load_value_pairs(&block->scoring, list.rows, block->keys, head->value_size, &block->values))
    return;
  for (int64_t row = 0; row < block->keys; row++)
    cpu_block_types[head->query.dtype].load(block->key + row * block->key_stride, list.rows[row], 0, head->size);
  block->values = (block_values){TILE_FLOATS, block->key, block->key_stride};
}

static void load_block(const task *t, key_block *block) {
  if (t->pages) {
    load_pages(t, block);
    return;
  }
  load_keys(&t->head, block);
  load_values(&t->head, block);
}

/* ---------------------------------------------------------------------------------------------------------- panels */

/* How many of the first `keys` of a block a query of the panel sees. */
static int64_t seen_by(const cpu_head *head, const panel *p, int64_t query, const key_block *block, int64_t keys) {
  int64_t seen = cpu_head_visible(head, p->first + query) - block->first;
  return seen < 0 ? 0 : least(seen, keys);
}

/* sums += values times weights, for queries that do not see all keys: weight 0 is not enough for values that are not
 * finite. */
static void add_seen(const cpu_head *head, const panel *p, const key_block *block, int64_t keys, const float *weights) {
  const block_values *values = &block->values;
  for (int64_t query = 0; query < p->rows; query++)
    for (int64_t key = 0; key < seen_by(head, p, query, block, keys); key++)
      for (int64_t i = 0; i < head->value_size; i++)
        p->sums[i * p->width + query] += weights[key * p->width + query] * values->data[key * values->stride + i];
}

static void attend_panel(const cpu_head *head, const panel *p, const key_block *block, float *scores) {
  int64_t keys = seen_by(head, p, p->rows - 1, block, block->keys);
  bool all_seen = seen_by(head, p, 0, block, keys) == keys;
  find_scores(&block->scoring, block->form, head->size, block->key, block->key_stride, keys, p, scores);
  for (int64_t query = 0; query < p->rows && !all_seen; query++)
    for (int64_t key = seen_by(head, p, query, block, keys); key < keys; key++)
      scores[key * p->width + query] = -INFINITY;
  weigh_scores(p, block->values.form, head->value_size, keys, scores);
  if (!all_seen && block->values.form == TILE_FLOATS &&
      !are_finite_rows(block->values.data, keys, block->values.stride, head->value_size))
    add_seen(head, p, block, keys, scores);
  else
    add_values(p, block->values, head->value_size, keys, scores);
}

static void begin_panel(const cpu_head *head, panel *p, const scoring *how) {
  clear_panel(p, head->value_size);
  for (int64_t query = 0; query < p->rows; query++)
    p->query_rows[query] = cpu_matrix_row(head->query, p->first + query);
  load_queries(how, head->query.dtype, head->size, p);
}

/* `rows` has room for LANES of them. */
static void end_panel(const task *t, const panel *p, float *rows) {
  const cpu_head *head = &t->head;
  for (int64_t query = 0; query < p->rows; query++) {
    float factor = head->keys ? 1 / p->total[query] : 0, *row = rows + query % LANES * sums_stride(head->value_size);
    if (query % LANES == 0)
      read_sums(p, query, head->value_size, rows);
    for (int64_t i = 0; i < head->value_size; i++)
      row[i] *= factor;
    cpu_block_types[head->out.dtype].store(cpu_matrix_row(head->out, p->first + query), 0, row, head->value_size);
    if (t->lse) /* keys whose scores are all -inf have no weights, not even 0 */
      t->lse[p->first + query] = head->keys && p->total[query] == 0 ? NAN : p->most[query] + logf(p->total[query]);
  }
}

/* ----------------------------------------------------------------------------------------------------------- tiles */

/* Floats of scratch memory. */
typedef struct areas {
  int64_t scores, key, value, query, sums;
} areas;

static areas needed_areas(const cpu_head *head, bool paged) {
  return (areas){KEY_BLOCK * PANEL, KEY_BLOCK * row_stride(head->size),
                 paged && !HAS_TILES ? 0 : KEY_BLOCK * row_stride(head->value_size),
                 QUERY_TILE * queries_floats(head->size), QUERY_TILE * round_up(head->value_size, ROW_STEP)};
}

static int64_t add_areas(areas a) {
  return a.scores + a.key + a.value + a.query + a.sums;
}

/* Queries first to first + queries - 1, at most QUERY_TILE. */
static void attend_tile(const task *t, int64_t first, int64_t queries, float *scratch) {
  const cpu_head *head = &t->head;
  areas sizes = needed_areas(head, t->pages);
  float *scores = scratch, *key = scores + sizes.scores, *value = key + sizes.key, *query = value + sizes.value;
  float *sums = query + sizes.query, most[QUERY_TILE], total[QUERY_TILE];
  const int64_t visible = cpu_head_visible(head, first + queries - 1);
  key_block block = {.scoring = scoring_of(has_pairs(t, first, queries), (float)head->scale),
                     .key = key,
                     .key_stride = row_stride(head->size),
                     .value = value};
  panel panels[QUERY_TILE / LEAST_PANEL];
  const panel memory = {.query = {.floats = query}, .sums = sums, .most = most, .total = total};
  const int64_t n = make_panels(&block.scoring, first, queries, head->size, head->value_size, memory, panels);
  for (int64_t i = 0; i < n; i++)
    begin_panel(head, &panels[i], &block.scoring);
  begin_tiles();
  for (; block.first < visible; block.first += block_keys(&block.scoring)) {
    block.keys = least(block_keys(&block.scoring), visible - block.first);
    load_block(t, &block);
    for (int64_t i = 0; i < n; i++)
      attend_panel(head, &panels[i], &block, scores);
  }
  end_tiles();
  for (int64_t i = 0; i < n; i++)
    end_panel(t, &panels[i], t->pages ? key : value);
}

/* ---------------------------------------------------------------------------------------------------------- shares */

/* Tasks of a call, the tiles of each one after the other. */
typedef struct tasks {
  int64_t n;
  cpu_head largest;
  bool paged;
  task (*at)(const void *user, int64_t i);
  const void *user;
} tasks;

static int64_t count_tiles(const tasks *all) {
  return divide_up(all->largest.queries, QUERY_TILE);
}

static fl_status tiles_range(void *user, int64_t i, int64_t end) {
  const tasks *all = user;
  float *scratch = cpu_scratch_take((size_t)add_areas(needed_areas(&all->largest, all->paged)));
  if (!scratch)
    return FL_ENOMEM;
  for (; i < end; i++) {
    task t = all->at(all->user, i / count_tiles(all));
    int64_t first = i % count_tiles(all) * QUERY_TILE;
    if (first < t.head.queries)
      attend_tile(&t, first, least(QUERY_TILE, t.head.queries - first), scratch);
  }
  cpu_scratch_give(scratch);
  return FL_OK;
}

static fl_status share_tiles(const tasks *all) {
  const int64_t enough = 1 << 19; /* multiplications, some ten microseconds */
  const cpu_head *head = &all->largest;
  int64_t factors = least(head->queries, QUERY_TILE) * head->keys * (head->size + head->value_size) + 1;
  return cpu_parallel_for(all->n * count_tiles(all), divide_up(enough, factors), tiles_range, (void *)all);
}

static task head_task(const void *user, int64_t i) {
  const cpu_head_list *heads = user;
  return (task){.head = heads->at(heads->user, i)};
}

static fl_status attend(const cpu_head_list *heads) {
  return share_tiles(&(tasks){heads->n, heads->largest, false, head_task, heads});
}

/* ---------------------------------------------------------------------------------------------------------- decode */

static cpu_head sequence_head(const cpu_decode *decode, int64_t keys) {
  return (cpu_head){.queries = decode->heads,
                    .keys = keys,
                    .size = decode->size,
                    .value_size = decode->rank,
                    .scale = decode->scale,
                    .offset = INT64_MAX};
}

static task sequence_task(const void *user, int64_t i) {
  const cpu_decode *decode = user;
  int64_t item = cpu_dtype_size(decode->dtype);
  task t = {.head = sequence_head(decode, cpu_pages_length(&decode->pages, i)),
            .pages = &decode->pages,
            .sequence = i,
            .lse = cpu_tensor_at(decode->lse, i, 0)};
  t.head.query = (cpu_matrix){cpu_tensor_at(decode->query, i, 0), decode->dtype, fl_stride(decode->query, 1) * item};
  t.head.out = (cpu_matrix){cpu_tensor_at(decode->out, i, 0), decode->dtype, fl_stride(decode->out, 1) * item};
  return t;
}

static fl_status mla_decode(void *self, fl_call *call) {
  cpu_decode decode;
  int64_t longest = 0;
  fl_status status = cpu_decode_read(call, &decode);
  (void)self;
  if (status)
    return status;
  for (int64_t sequence = 0; sequence < decode.query->shape[0]; sequence++)
    if (cpu_pages_length(&decode.pages, sequence) > longest)
      longest = cpu_pages_length(&decode.pages, sequence);
  tasks all = {decode.query->shape[0], sequence_head(&decode, longest), true, sequence_task, &decode};
  status = share_tiles(&all);
  return status ? fl_fail(call, status, "out of memory") : FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- parts */

static fl_status linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_matrix out) {
  const cpu_product whole = {.m = m, .n = n, .k = k, .a = x, .b = weight, .out = out};
  return cpu_product_share(&whole);
}

static fl_status product(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out) {
  const cpu_product whole = {.m = m, .n = n, .k = k, .a = a, .b = b, .b_is_k_by_n = true, .out = out};
  return cpu_product_share(&whole);
}

static cpu_attention_parts parts = {.linear = linear,
                                    .product = product,
                                    .attend = attend,
                                    .norm = cpu_flagos_norm,
                                    .rotary_embedding = cpu_flagos_rotary_embedding,
                                    .mla_decode = mla_decode};

static const fl_impl ops[] = {
    {.op_name = "mm_encoder_attn", CPU_FLAGOS, .fn = cpu_mm_encoder_attn, .self = &parts},
    {.op_name = "mla_prefill", CPU_FLAGOS, .fn = cpu_mla_prefill, .self = &parts},
    {.op_name = "mla_decode", CPU_FLAGOS, .fn = mla_decode},
    {.op_name = "multi_head_latent_attention", CPU_FLAGOS, .fn = cpu_multi_head_latent_attention, .self = &parts},
    {.op_name = "mla_paged_attention", CPU_FLAGOS, .fn = cpu_mla_paged_attention, .self = &parts},
    {.op_name = "concat_and_cache_mla", CPU_FLAGOS, .fn = cpu_concat_and_cache_mla},
};
OP_LIST(ops);
