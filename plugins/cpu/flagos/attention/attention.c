/*
 * Attention by tiles of queries, for one block of keys after the other, with the softmax of what was seen so far: what
 * a tile needs stays in the second-level cache. Scores, weights and sums are kept transposed, a lane for each query: so
 * no lanes are added up, keys and values are used as they lie, and weights where they were computed. Where tasks are
 * few, tiles are small, and keys are cut into parts. A query's result depends on its own head and the call's sizes, not
 * on the threads (and, in bfloat16, on whether all queries of its tile, and all keys and values of a block, are
 * finite).
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/flagos/attention/key_parts.h"
#include "plugins/cpu/flagos/attention/panel.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

/* Threads share tiles of queries. For those of one part of a head's keys that a thread has one after the other, at most
 * MOST_QUERIES in all, keys and values are converted once. */
enum { QUERY_TILE = 384, LEAST_TILE = 2 * LEAST_PANEL };
/* So many tasks keep threads busy; results of parts of so many keys or more are joined in a small part of the time. */
enum { ENOUGH_TASKS = 16, PART_KEYS = 512 };
#ifdef __AVX512BF16__
enum { MOST_QUERIES = QUERY_TILE };
#else
enum { MOST_QUERIES = 3 * QUERY_TILE };
#endif

/* ------------------------------------------------------------------------------------------------- keys and values */

/* One head, or the heads of one query over the rows of a paged cache, which are keys, and begin with the values. */
typedef struct task {
  cpu_head head;
  const cpu_pages *pages; /* NULL: none */
  int64_t sequence;
  float *lse;             /* of each query; NULL: not wanted */
  const key_parts *parts; /* this is one of them */
  int64_t part, row;      /* and row `row` of them its first query */
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

/* Of the task's part. */
static key_range visible_to(const void *user, int64_t query) {
  const task *t = user;
  const int64_t begin = t->part * t->parts->length;
  const int64_t end = least(cpu_head_visible(&t->head, query), begin + t->parts->length);
  return (key_range){begin, end > begin ? end : begin};
}

static void begin_panel(const cpu_head *head, panel *p, const scoring *how) {
  clear_panel(p, head->value_size);
  for (int64_t query = 0; query < p->rows; query++)
    p->query_rows[query] = cpu_matrix_row(head->query, p->first + query);
  load_queries(how, head->query.dtype, head->size, p);
}

/* `sums` is changed. */
static void finish_row(const task *t, int64_t query, float *sums, float most, float total) {
  const cpu_head *head = &t->head;
  const float factor = head->keys ? 1 / total : 0;
  for (int64_t i = 0; i < head->value_size; i++)
    sums[i] *= factor;
  cpu_block_types[head->out.dtype].store(cpu_matrix_row(head->out, query), 0, sums, head->value_size);
  if (t->lse) /* keys whose scores are all -inf have no weights, not even 0 */
    t->lse[query] = head->keys && total == 0 ? NAN : most + logf(total);
}

/* `rows` has room for LANES of them. */
static void end_panel(const task *t, const panel *p, float *rows) {
  for (int64_t query = 0; query < p->rows; query++) {
    float *sums = rows + query % LANES * sums_stride(t->head.value_size);
    if (query % LANES == 0)
      read_sums(p, query, t->head.value_size, rows);
    if (t->parts->floats)
      keep_part(t->parts, t->row + p->first + query, t->part, sums, p->most[query], p->total[query]);
    else
      finish_row(t, p->first + query, sums, p->most[query], p->total[query]);
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

/* Queries first to first + queries - 1, at most MOST_QUERIES; may scores be of pairs? */
static void attend_queries(const task *t, int64_t first, int64_t queries, bool pairs, float *scratch) {
  const cpu_head *head = &t->head;
  areas sizes = needed_areas(head, t->pages);
  float *scores = scratch, *key = scores + sizes.scores, *value = key + sizes.key, *query = value + sizes.value;
  float *sums = query + sizes.query, most[MOST_QUERIES], total[MOST_QUERIES];
  const key_range visible = visible_to(t, first + queries - 1);
  key_block block = {.scoring = scoring_of(pairs, (float)head->scale),
                     .first = visible.begin,
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
  for (; block.first < visible.end; block.first += block_keys(&block.scoring)) {
    block.keys = least(block_keys(&block.scoring), visible.end - block.first);
    load_block(t, &block);
    attend_block(&owner, &block, panels, n, scores);
  }
  end_tiles();
  for (int64_t i = 0; i < n; i++)
    end_panel(t, &panels[i], t->pages ? key : value);
}

/* ---------------------------------------------------------------------------------------------------------- shares */

/* Heads of a call, or sequences of which each is one. Tasks are the tiles of each part of the keys of each. */
typedef struct heads_call {
  int64_t n;
  cpu_head largest;
  bool paged;
  task (*at)(const void *user, int64_t i);
  const void *user;
  int64_t tile, tiles; /* queries of one, and how many of a head */
  key_parts parts;     /* rows are the queries of each head */
} heads_call;

static task task_at(const heads_call *call, int64_t i, int64_t part) {
  task t = call->at(call->user, i);
  t.parts = &call->parts;
  t.part = part;
  t.row = i * call->largest.queries;
  return t;
}

/* The queries of a tile and of those behind it of which scores are of the same kind, up to `end`. */
static int64_t alike_queries(const heads_call *call, const task *t, int64_t first, int64_t end, bool pairs) {
  int64_t next = first + call->tile;
  while (next < end && next + call->tile - first <= MOST_QUERIES &&
         has_pairs(t, next, least(call->tile, end - next)) == pairs)
    next += call->tile;
  return least(next, end) - first;
}

static fl_status tiles_range(void *user, int64_t i, int64_t end) {
  const heads_call *call = user;
  float *scratch = cpu_scratch_take((size_t)add_areas(needed_areas(&call->largest, call->paged)));
  if (!scratch)
    return FL_ENOMEM;
  while (i < end) {
    const int64_t at = i / call->tiles, tile = i % call->tiles, tiles = least(call->tiles - tile, end - i);
    const task t = task_at(call, at / call->parts.n, at % call->parts.n);
    const int64_t last = least((tile + tiles) * call->tile, t.head.queries);
    for (int64_t first = tile * call->tile, queries; first < last; first += queries) {
      const bool pairs = has_pairs(&t, first, least(call->tile, last - first));
      queries = alike_queries(call, &t, first, last, pairs);
      attend_queries(&t, first, queries, pairs, scratch);
    }
    i += tiles;
  }
  cpu_scratch_give(scratch);
  return FL_OK;
}

static fl_status join_range(void *user, int64_t i, int64_t end) {
  const heads_call *call = user;
  for (; i < end; i++) {
    const task t = task_at(call, i / call->largest.queries, 0);
    const int64_t query = i % call->largest.queries;
    if (query >= t.head.queries)
      continue;
    float most, total, *sums = join_parts(&call->parts, i, &most, &total);
    finish_row(&t, query, sums, most, total);
  }
  return FL_OK;
}

/* Into tiles of about as many queries each. */
static void cut(heads_call *call) {
  const cpu_head *head = &call->largest;
  const int64_t tile = round_up(divide_up(head->queries, divide_up(ENOUGH_TASKS, call->n)), LEAST_TILE);
  call->tiles = divide_up(head->queries, least(tile, QUERY_TILE));
  call->tile = round_up(divide_up(head->queries, call->tiles), LEAST_PANEL);
  const int64_t parts = least(ENOUGH_TASKS / (call->n * call->tiles), head->keys / PART_KEYS);
  call->parts = cut_keys(parts, head->keys, KEY_BLOCK, call->n * head->queries, head->value_size);
}

static fl_status share_tiles(heads_call *call) {
  const int64_t enough = 1 << 19; /* multiplications, some ten microseconds */
  const cpu_head *head = &call->largest;
  const int64_t rows = call->n * head->queries;
  if (!rows)
    return FL_OK;
  cut(call);
  fl_status status = take_parts(&call->parts, rows);
  if (status)
    return status;
  const int64_t factors = call->tile * call->parts.length * (head->size + head->value_size) + 1;
  status = cpu_parallel_for(call->n * call->parts.n * call->tiles, divide_up(enough, factors), tiles_range, call);
  if (!status && call->parts.floats)
    status = cpu_parallel_for(rows, divide_up(enough, call->parts.n * head->value_size + 1), join_range, call);
  cpu_scratch_give(call->parts.floats);
  return status;
}

static task head_task(const void *user, int64_t i) {
  const cpu_head_list *heads = user;
  return (task){.head = heads->at(heads->user, i)};
}

static fl_status attend(const cpu_head_list *heads) {
  return share_tiles(&(heads_call){.n = heads->n, .largest = heads->largest, .at = head_task, .user = heads});
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
  heads_call all = {.n = decode.query->shape[0],
                    .largest = sequence_head(&decode, longest),
                    .paged = true,
                    .at = sequence_task,
                    .user = &decode};
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
