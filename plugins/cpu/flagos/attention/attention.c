/*
 * Attention by tiles of queries, for one block of keys after the other, with the softmax of what was seen so far: what
 * a tile needs stays in the second-level cache. Scores, weights and sums are kept transposed, a lane for each query: so
 * no lanes are added up, keys and values are used as they lie, and weights where they were computed. A query's result
 * depends on nothing but its own head, in blocks that begin at fixed keys (and, in bfloat16, on whether all queries of
 * its tile, and all keys and values of a block, are finite).
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/flagos/attention/panel.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

/* Threads share tiles of queries. For those of one head that a thread has one after the other, and at most so many,
 * keys and values are converted once; where a tile's queries decide how scores are found, for each tile. */
#ifdef __AVX512BF16__
enum { QUERY_TILE = 384, TILES_AT_ONCE = 1 };
#else
enum { QUERY_TILE = 384, TILES_AT_ONCE = 3 };
#endif
enum { MOST_QUERIES = TILES_AT_ONCE * QUERY_TILE };

/* ------------------------------------------------------------------------------------------------- keys and values */

/* One head, or the heads of one query over the rows of a paged cache, which are keys, and begin with the values. */
typedef struct task {
  cpu_head head;
  const cpu_pages *pages; /* NULL: none */
  int64_t sequence;
  float *lse; /* of each query; NULL: not wanted */
} task;

/* A head's rows are no sequence that processors foresee. */
static void fetch_row(cpu_matrix from, int64_t row, int64_t size) {
  const int64_t bytes = size * cpu_dtype_size(from.dtype);
  for (int64_t line = 0; line < bytes; line += 64)
    __builtin_prefetch((const char *)cpu_matrix_row(from, row) + line);
}

enum { ROWS_AHEAD = 8 };

/* Pairs of keys that are values, too, need those of values; those of two parts that would share a pair are floats. */
static bool has_pairs(const task *t, int64_t first, int64_t queries) {
  const cpu_head *head = &t->head;
  const cpu_dtype key = t->pages ? head->query.dtype : head->key.dtype;
  bool has = (HAS_TILES || !t->pages) && !(head->shared_size && (head->size - head->shared_size) % 2) &&
             may_be_pairs(head->query.dtype, key, (float)head->scale);
  for (int64_t query = first; query < first + queries && has; query++) {
    fetch_row(head->query, query + ROWS_AHEAD, head->size);
    has = is_finite_row(cpu_matrix_row(head->query, query), head->size);
  }
  return has;
}

static int64_t row_stride(int64_t size) {
  return round_up(size, 16) + 16;
}

static void convert_rows(float *to, int64_t stride, cpu_matrix from, int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; row++) {
    fetch_row(from, row + ROWS_AHEAD, columns);
    cpu_block_types[from.dtype].load(to + row * stride, cpu_matrix_row(from, row), 0, columns);
  }
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
  for (int64_t row = 0; row < block->keys && finite; row++) {
    fetch_row(from, block->first + row + ROWS_AHEAD, size);
    finite = load_key_pairs(cpu_matrix_row(from, block->first + row), size, block->key + row * block->stride, first);
  }
  return finite;
}

/* Keys as pairs, and values where there are tiles: then `values` is set. false: some are not finite. */
static bool load_pairs(const cpu_head *head, key_block *block) {
  const int64_t own = head->size - head->shared_size;
  const cpu_matrix from = cpu_matrix_at(head->value, block->first, 0);
  row_list list;
  for (int64_t row = 0; row < block->keys; row++) {
    fetch_row(from, row, head->value_size);
    list.rows[row] = cpu_matrix_row(from, row);
  }
  block->values.data = block->value;
  return load_key_rows(block, head->key, own, 0) &&
         (!head->shared_size || load_key_rows(block, head->shared_key, head->shared_size, own)) &&
         load_value_pairs(list.rows, block->keys, head->value_size, &block->values);
}

static void load_keys(const cpu_head *head, key_block *block) {
  const int64_t own = head->size - head->shared_size;
  convert_rows(block->key, block->stride, cpu_matrix_at(head->key, block->first, 0), block->keys, own);
  if (head->shared_size)
    convert_rows(block->key + own, block->stride, cpu_matrix_at(head->shared_key, block->first, 0), block->keys,
                 head->shared_size);
}

static void load_values(const cpu_head *head, key_block *block) {
  block->values = (block_values){TILE_FLOATS, block->value, row_stride(head->value_size)};
  convert_rows(block->value, block->values.stride, cpu_matrix_at(head->value, block->first, 0), block->keys,
               head->value_size);
}

/* The same of the paged cache, whose keys are values, too. */
static bool load_page_pairs(const cpu_head *head, const row_list *list, key_block *block) {
  bool are_pairs = true;
  for (int64_t row = 0; row < block->keys && are_pairs; row++)
    are_pairs = load_key_pairs(list->rows[row], head->size, block->key + row * block->stride, 0);
  block->values.data = block->value;
  return are_pairs && load_value_pairs(list->rows, block->keys, head->value_size, &block->values);
}

static void load_pages(const task *t, key_block *block) {
  const cpu_head *head = &t->head;
  row_list list;
  list_pages(t, block, &list);
  block->form = block->scoring.has_pairs && load_page_pairs(head, &list, block) ? TILE_PAIRS : TILE_FLOATS;
  if (block->form == TILE_PAIRS)
    return;
  for (int64_t row = 0; row < block->keys; row++)
    cpu_block_types[head->query.dtype].load(block->key + row * block->stride, list.rows[row], 0, head->size);
  block->values = (block_values){TILE_FLOATS, block->key, block->stride};
}

static void load_block(const task *t, key_block *block) {
  if (t->pages) {
    load_pages(t, block);
    return;
  }
  block->form = block->scoring.has_pairs && load_pairs(&t->head, block) ? TILE_PAIRS : TILE_FLOATS;
  if (block->form == TILE_FLOATS)
    load_keys(&t->head, block);
  if (block->form == TILE_FLOATS || !HAS_TILES)
    load_values(&t->head, block);
}

/* ---------------------------------------------------------------------------------------------------------- panels */

static key_range visible_to(const void *user, int64_t query) {
  const task *t = user;
  return (key_range){0, cpu_head_visible(&t->head, query)};
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
  const int64_t queries = least(round_up(head->queries, PANEL), MOST_QUERIES);
  return (areas){SCORES, KEY_BLOCK * row_stride(head->size),
                 paged && !HAS_TILES ? 0 : KEY_BLOCK * row_stride(head->value_size),
                 queries * queries_floats(head->size), queries * round_up(head->value_size, ROW_STEP)};
}

static int64_t add_areas(areas a) {
  return a.scores + a.key + a.value + a.query + a.sums;
}

/* Queries first to first + queries - 1, at most MOST_QUERIES. */
static void attend_queries(const task *t, int64_t first, int64_t queries, float *scratch) {
  const cpu_head *head = &t->head;
  areas sizes = needed_areas(head, t->pages);
  float *scores = scratch, *key = scores + sizes.scores, *value = key + sizes.key, *query = value + sizes.value;
  float *sums = query + sizes.query, most[MOST_QUERIES], total[MOST_QUERIES];
  const int64_t visible = cpu_head_visible(head, first + queries - 1);
  key_block block = {.scoring = scoring_of(has_pairs(t, first, queries), (float)head->scale),
                     .key = key,
                     .stride = row_stride(head->size),
                     .value = value};
  panel panels[MOST_QUERIES / LEAST_PANEL];
  const panel_owner owner = {t, head->size, head->value_size, visible_to, NULL};
  const panel memory = {.query = {.floats = query}, .sums = sums, .most = most, .total = total};
  const int64_t n = make_panels(&block.scoring, first, queries, head->size, head->value_size, memory, panels);
  for (int64_t i = 0; i < n; i++)
    begin_panel(head, &panels[i], &block.scoring);
  begin_tiles();
  for (; block.first < visible; block.first += block_keys(&block.scoring)) {
    block.keys = least(block_keys(&block.scoring), visible - block.first);
    load_block(t, &block);
    attend_block(&owner, &block, panels, n, scores);
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
  for (int64_t tiles; i < end; i += tiles) {
    task t = all->at(all->user, i / count_tiles(all));
    int64_t tile = i % count_tiles(all), first = tile * QUERY_TILE;
    tiles = least(least(TILES_AT_ONCE, count_tiles(all) - tile), end - i);
    if (first < t.head.queries)
      attend_queries(&t, first, least(tiles * QUERY_TILE, t.head.queries - first), scratch);
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
