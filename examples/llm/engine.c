/*
 * Requests, and passes over some tokens of each: see llm.h. A pass takes one token of each request that generates, and
 * as many as fit of the prompts of the others; a prompt that does not fit is taken in parts.
 *
 * The paged cache: a request owns the blocks that it needs to its end before it starts, so that none has to wait for
 * another in the middle. A full block of a prompt stays what it is until the block is needed for something else;
 * another prompt that begins with the same tokens takes it as it is.
 */
#include "llm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a block of the cache holds. */
typedef struct cached_block {
  int64_t *ids;   /* block_size tokens; NULL: not full, or not of a prompt */
  int32_t before; /* the block of the tokens before these; -1: none */
  int32_t users;
  int64_t used; /* the pass in which it was, for the choice of the one to take */
} cached_block;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *allocate(size_t n, size_t size) {
  void *made = calloc(n ? n : 1, size);
  if (!made)
    fail("out of memory");
  return made;
}

void engine_make(engine *e, model *m) {
  *e = (engine){.model = m, .tokens_at_once = 512, .at_once = m->n_states};
  e->cached = allocate((size_t)m->n_blocks, sizeof *e->cached);
  e->state_taken = allocate((size_t)m->n_states, sizeof *e->state_taken);
  for (int64_t i = 0; i < m->n_blocks; i++)
    e->cached[i].before = -1;
}

void engine_add(engine *e, const int64_t *ids, int64_t n, int64_t n_more, bool keep_logits) {
  const model *m = e->model;
  request *all = realloc(e->requests, (size_t)(e->n_requests + 1) * sizeof *all), *r;
  if (!all)
    fail("out of memory");
  e->requests = all;
  r = &all[e->n_requests++];
  *r = (request){.n_prompt = n, .n = n, .n_most = n + n_more, .state = -1};
  if (n < 1)
    fail("prompt %lld is empty", (long long)e->n_requests - 1);
  for (int64_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= m->vocabulary)
      fail("prompt %lld: token %lld is %lld, expected 0 to %lld", (long long)e->n_requests - 1, (long long)i,
           (long long)ids[i], (long long)m->vocabulary - 1);
  if (r->n_most > m->longest)
    fail("prompt %lld: %lld tokens with what is to follow, the model takes %lld", (long long)e->n_requests - 1,
         (long long)r->n_most, (long long)m->longest);
  r->ids = memcpy(allocate((size_t)r->n_most, sizeof *r->ids), ids, (size_t)n * sizeof *ids);
  r->blocks = allocate((size_t)(r->n_most / m->block_size + 1), sizeof *r->blocks);
  r->n_blocks = (r->n_most - 1 + m->block_size - 1) / m->block_size; /* the last token is not looked at again */
  if (r->n_blocks > m->n_blocks)
    fail("prompt %lld needs %lld blocks of the cache, which has %lld", (long long)e->n_requests - 1,
         (long long)r->n_blocks, (long long)m->n_blocks);
  if (keep_logits)
    r->logits = allocate((size_t)(r->n_most * m->vocabulary), sizeof *r->logits);
}

void engine_free(engine *e) {
  for (int64_t i = 0; i < e->n_requests; i++) {
    free(e->requests[i].ids);
    free(e->requests[i].blocks);
    free(e->requests[i].logits);
  }
  for (int64_t i = 0; e->cached && i < e->model->n_blocks; i++)
    free(e->cached[i].ids);
  free(e->requests);
  free(e->cached);
  free(e->state_taken);
}

/* ------------------------------------------------------------------------------------------------- the cache */

/* The block that holds these tokens behind those of `before`; -1: none does. */
static int32_t find_block(const engine *e, const int64_t *ids, int32_t before) {
  int64_t size = e->model->block_size;
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    if (e->cached[i].ids && e->cached[i].before == before && !memcmp(e->cached[i].ids, ids, (size_t)size * sizeof *ids))
      return (int32_t)i;
  return -1;
}

/* What was behind it in a prompt is not to be found any more. */
static void forget(engine *e, int32_t which) {
  free(e->cached[which].ids);
  e->cached[which] = (cached_block){.before = -1, .users = e->cached[which].users};
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    if (e->cached[i].ids && e->cached[i].before == which)
      forget(e, (int32_t)i);
}

/* One that nobody uses, an empty one or the one that was not used for the longest time; -1: there is none. */
static int32_t free_block(const engine *e) {
  int32_t found = -1;
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    if (!e->cached[i].users && (found < 0 || e->cached[i].used < e->cached[found].used))
      found = (int32_t)i;
  return found;
}

static int64_t count_free(const engine *e) {
  int64_t n = 0;
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    n += !e->cached[i].users;
  return n;
}

/* Blocks and a state for a request that waits. False: not yet. */
static bool admit(engine *e, request *r) {
  const model *m = e->model;
  int64_t reused = 0, n_state = 0;
  int32_t before = -1;
  while (n_state < m->n_states && e->state_taken[n_state])
    n_state++;
  if (n_state == m->n_states)
    return false;
  /* At least the last token of the prompt is computed, for its logits. */
  while (!m->has_states && (reused + 1) * m->block_size < r->n_prompt &&
         (before = find_block(e, r->ids + reused * m->block_size, before)) >= 0) {
    e->cached[before].users++;
    r->blocks[reused++] = before;
  }
  if (count_free(e) < r->n_blocks - reused) {
    while (reused)
      e->cached[r->blocks[--reused]].users--;
    return false;
  }
  for (int64_t i = reused; i < r->n_blocks; i++) {
    r->blocks[i] = free_block(e);
    forget(e, r->blocks[i]);
    e->cached[r->blocks[i]].users++;
  }
  r->n_reused = r->n_computed = reused * m->block_size;
  for (int64_t i = 0; r->logits && i < r->n_reused * m->vocabulary; i++)
    r->logits[i] = NAN;
  r->state = (int32_t)n_state;
  e->state_taken[n_state] = true;
  return true;
}

/* Full blocks of the prompt can be found by others from now on. */
static void remember(engine *e, const request *r, int64_t computed_before) {
  int64_t size = e->model->block_size;
  for (int64_t i = 0; i < r->n_blocks; i++) {
    cached_block *c = &e->cached[r->blocks[i]];
    c->used = e->n_passes;
    if (c->ids || (i + 1) * size > r->n_prompt || (i + 1) * size > r->n_computed || (i + 1) * size <= computed_before)
      continue;
    c->ids = memcpy(allocate((size_t)size, sizeof *c->ids), r->ids + i * size, (size_t)size * sizeof *c->ids);
    c->before = i ? r->blocks[i - 1] : -1;
  }
}

static void leave(engine *e, request *r) {
  for (int64_t i = 0; i < r->n_blocks; i++)
    e->cached[r->blocks[i]].users--;
  e->state_taken[r->state] = false;
}

/* ---------------------------------------------------------------------------------------------------- a pass */

/* Who takes part in a pass, with how many tokens. */
typedef struct part {
  request *request;
  int64_t n;
} part;

static bool is_done(const request *r) {
  return r->n == r->n_most;
}

/* Those that generate come first: a long prompt is not to hold them up. */
static int64_t choose(engine *e, part *parts) {
  int64_t n = 0, room = e->tokens_at_once;
  for (int prompts = 0; prompts < 2; prompts++)
    for (int64_t i = 0; i < e->n_requests && n < e->at_once && room; i++) {
      request *r = &e->requests[i];
      bool generates = r->state >= 0 && r->n_computed >= r->n_prompt;
      if (is_done(r) || generates == prompts || (r->state < 0 && !admit(e, r)))
        continue;
      int64_t left = r->n - r->n_computed;
      parts[n++] = (part){r, left < room ? left : room};
      room -= parts[n - 1].n;
    }
  return n;
}

/* The tensors that operators want to know it by. */
static batch describe(const engine *e, arena *a, const part *parts, int64_t n) {
  const model *m = e->model;
  batch b = {.n_sequences = n};
  int64_t widest = 1, at = 0;
  for (int64_t i = 0; i < n; i++) {
    b.n_tokens += parts[i].n;
    widest = parts[i].request->n_blocks > widest ? parts[i].request->n_blocks : widest;
  }
  b.ids = tensor(a, int64, SHAPE(b.n_tokens));
  b.positions = tensor(a, int64, SHAPE(b.n_tokens));
  b.slot_mapping = tensor(a, int64, SHAPE(b.n_tokens));
  b.query_start_loc = tensor(a, int32, SHAPE(n + 1));
  b.seq_lens = tensor(a, int32, SHAPE(n));
  b.block_table = tensor(a, int32, SHAPE(n, widest));
  b.states = tensor(a, int32, SHAPE(n));
  b.has_state = tensor(a, boolean, SHAPE(n));
  for (int64_t i = 0; i < n; i++) {
    const request *r = parts[i].request;
    ((int32_t *)b.query_start_loc->data)[i] = (int32_t)at;
    ((int32_t *)b.seq_lens->data)[i] = (int32_t)(r->n_computed + parts[i].n);
    ((int32_t *)b.states->data)[i] = r->state;
    ((uint8_t *)b.has_state->data)[i] = r->n_computed > 0;
    for (int64_t j = 0; j < widest; j++)
      ((int32_t *)b.block_table->data)[i * widest + j] = j < r->n_blocks ? r->blocks[j] : -1;
    for (int64_t j = r->n_computed; j < r->n_computed + parts[i].n; j++, at++) {
      ((int64_t *)b.ids->data)[at] = r->ids[j];
      ((int64_t *)b.positions->data)[at] = j;
      ((int64_t *)b.slot_mapping->data)[at] = r->blocks[j / m->block_size] * m->block_size + j % m->block_size;
    }
  }
  ((int32_t *)b.query_start_loc->data)[n] = (int32_t)at;
  return b;
}

/* A number in (0, 1) that seed and place alone decide (splitmix64): what is sampled does not depend on who else is in
 * the batch. */
static double noise_at(uint64_t seed, uint64_t place) {
  uint64_t z = seed + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return ((double)((z ^ z >> 31) >> 12) + 0.5) / (double)(UINT64_C(1) << 52);
}

static DLTensor *filled(arena *a, DLDataType dtype, int64_t n, double value) {
  DLTensor *t = tensor(a, dtype, SHAPE(n));
  for (int64_t i = 0; i < n; i++)
    fl_element_type_of(dtype)->put(t->data, i, value);
  return t;
}

/* The next token of each row. */
static DLTensor *sample(const engine *e, DLTensor *logits, request *const *requests) {
  model *m = e->model;
  const sampling *s = &e->sampling;
  int64_t n = logits->shape[0], v = logits->shape[1];
  DLTensor *ids = tensor(&m->step, int64, SHAPE(n));
  if (!s->temperature) {
    ok(fl_greedy_argmax(&m->ops, NULL, logits, ids));
    return ids;
  }
  DLTensor *top_k = s->top_k ? filled(&m->step, int64, n, (double)s->top_k) : NULL;
  DLTensor *top_p = s->top_p < 1 ? filled(&m->step, float32, n, s->top_p) : NULL;
  DLTensor *noise = tensor(&m->step, float32, SHAPE(n, v));
  for (int64_t i = 0; i < n; i++) {
    uint64_t place = (uint64_t)(requests[i] - e->requests) << 40 | (uint64_t)requests[i]->n;
    uint64_t seed = s->seed ^ (uint64_t)(noise_at(s->seed, place) * 0x1p60);
    for (int64_t j = 0; j < v; j++)
      ((float *)noise->data)[i * v + j] = (float)-__builtin_log(noise_at(seed, (uint64_t)j));
  }
  ok(fl_apply_temperature(&m->ops, NULL, logits, filled(&m->step, float32, n, s->temperature), logits));
  if (top_k || top_p)
    ok(fl_apply_top_k_top_p(&m->ops, NULL, logits, top_k, top_p, logits));
  ok(fl_exponential_sample(&m->ops, NULL, logits, noise, ids));
  return ids;
}

/* Rows of which logits are wanted, of each part the last, or all where they are kept; and of which those that are
 * sampled are. */
static DLTensor *wanted_rows(arena *a, const part *parts, int64_t n, int64_t n_tokens) {
  DLTensor *rows = tensor(a, int64, SHAPE(n_tokens));
  int64_t at = 0, n_rows = 0;
  for (int64_t i = 0; i < n; at += parts[i++].n)
    for (int64_t j = parts[i].request->logits ? 0 : parts[i].n - 1; j < parts[i].n; j++)
      ((int64_t *)rows->data)[n_rows++] = at + j;
  return view(a, rows, 0, NULL, SHAPE(n_rows));
}

/* Keeps what is to be kept, and gives the rows of those requests that are at their last known token. */
static DLTensor *take_logits(engine *e, const part *parts, int64_t n, const DLTensor *logits, request **next,
                             int64_t *n_next) {
  int64_t v = logits->shape[1], row = 0;
  DLTensor *rows = tensor(&e->model->step, float32, SHAPE(n, v));
  *n_next = 0;
  for (int64_t i = 0; i < n; i++) {
    request *r = parts[i].request;
    int64_t n_rows = r->logits ? parts[i].n : 1;
    const float *from = (const float *)data(logits) + row * v;
    if (r->logits)
      memcpy(r->logits + r->n_computed * v, from, (size_t)(n_rows * v) * sizeof *from);
    row += n_rows;
    if (r->n_computed + parts[i].n < r->n)
      continue;
    memcpy((float *)rows->data + *n_next * v, from + (n_rows - 1) * v, (size_t)v * sizeof *from);
    next[(*n_next)++] = r;
  }
  return *n_next ? view(&e->model->step, rows, 0, NULL, SHAPE(*n_next, v)) : NULL;
}

/* False: there is nothing to do. */
static bool pass(engine *e, part *parts, request **next) {
  model *m = e->model;
  double begin = now();
  int64_t n = choose(e, parts), n_next, n_prompt = 0;
  if (!n)
    return false;
  arena_reset(&m->step);
  batch b = describe(e, &m->step, parts, n);
  DLTensor *logits = model_run(m, &b, wanted_rows(&m->step, parts, n, b.n_tokens));
  logits = take_logits(e, parts, n, logits, next, &n_next);
  DLTensor *ids = n_next ? sample(e, logits, next) : NULL;
  e->n_passes++;
  for (int64_t i = 0; i < n; i++) {
    request *r = parts[i].request;
    int64_t before = r->n_computed, in_prompt = r->n_prompt - before;
    n_prompt += in_prompt < 0 ? 0 : in_prompt < parts[i].n ? in_prompt : parts[i].n;
    r->n_computed += parts[i].n;
    remember(e, r, before);
  }
  for (int64_t i = 0; i < n_next; i++) {
    next[i]->ids[next[i]->n++] = ((int64_t *)ids->data)[i];
    if (is_done(next[i]))
      leave(e, next[i]);
  }
  e->n_prompt_tokens += n_prompt;
  e->n_generated += n_next;
  *(n_prompt ? &e->prompt_seconds : &e->generate_seconds) += now() - begin;
  return true;
}

void engine_run(engine *e) {
  part *parts = allocate((size_t)e->n_requests, sizeof *parts);
  request **next = allocate((size_t)e->n_requests, sizeof *next);
  while (pass(e, parts, next))
    ;
  free(parts);
  free(next);
}
