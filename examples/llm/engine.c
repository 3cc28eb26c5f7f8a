/* Requests, and passes over some tokens of each: see llm.h. A pass takes one token of each request that generates, and
 * as many as fit of the prompts of the others; a prompt that does not fit is taken in parts.
 * The paged cache: a request owns the blocks that it needs to its end before it starts, so that none has to wait for
 * another in the middle. A full block of a prompt stays what it is until the block is needed for something else;
 * another prompt that begins with the same tokens takes it as it is. */
#include "llm.h"

#include <time.h>

/* What a block of the cache holds. */
typedef struct cached_block {
  const int64_t *ids; /* of the prompt that it is of, from its beginning to the end of the block; NULL: of none */
  int64_t n, used;    /* how many these are; the pass in which it was, for the choice of the one to take */
  int32_t users;
} cached_block;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *allocate(engine *e, int64_t n, size_t size) {
  return memset(arena_take(&e->memory, n * size), 0, n * size);
}

void engine_make(engine *e, int64_t n_requests) {
  e->memory = (arena){.host = e->model->host, .stream = e->model->stream};
  e->requests = allocate(e, n_requests, sizeof *e->requests);
  e->cached = allocate(e, e->model->n_blocks, sizeof *e->cached);
  e->state_taken = allocate(e, e->model->n_states, sizeof *e->state_taken);
}

void engine_add(engine *e, const int64_t *ids, int64_t n, int64_t n_more, bool keep_logits) {
  const model *m = e->model;
  long long number = e->n_requests, longest = m->longest;
  request *r = &e->requests[e->n_requests++];
  *r = (request){.n_prompt = n, .n = n, .n_most = n + n_more, .state = -1};
  if (n < 1)
    fail("prompt %lld is empty", number);
  for (int64_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= m->vocabulary)
      fail("prompt %lld: token %lld is %lld, expected 0 to %lld", number, LL(i), LL(ids[i]), LL(m->vocabulary) - 1);
  if (r->n_most > longest)
    fail("prompt %lld: %lld tokens with what is to follow, the model takes %lld", number, LL(r->n_most), longest);
  r->n_blocks = (r->n_most - 1 + m->block_size - 1) / m->block_size; /* the last token is not looked at again */
  if (r->n_blocks > m->n_blocks)
    fail("prompt %lld needs %lld blocks of the cache, which has %lld", number, LL(r->n_blocks), LL(m->n_blocks));
  r->ids = memcpy(allocate(e, r->n_most, sizeof *r->ids), ids, (size_t)n * sizeof *ids);
  r->blocks = allocate(e, r->n_blocks, sizeof *r->blocks);
  r->logits = keep_logits ? tensor(&e->memory, float32, SHAPE(r->n_most, m->vocabulary)) : NULL;
}

/* The block that ends a prompt's first n tokens; -1: there is none. */
static int32_t find_block(const engine *e, const int64_t *ids, int64_t n) {
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    if (e->cached[i].ids && e->cached[i].n == n && !memcmp(e->cached[i].ids, ids, (size_t)n * sizeof *ids))
      return (int32_t)i;
  return -1;
}

/* One that nobody uses, an empty one or the one that was not used for the longest time; -1: there is none. */
static int32_t free_block(const engine *e) {
  int32_t found = -1;
  for (int64_t i = 0; i < e->model->n_blocks; i++)
    if (!e->cached[i].users && (found < 0 || e->cached[i].used < e->cached[found].used))
      found = (int32_t)i;
  return found;
}

/* Blocks and a state for a request that waits. False: not yet. */
static bool admit(engine *e, request *r) {
  const model *m = e->model;
  int64_t reused = 0, n_free = 0;
  int32_t found, state = 0;
  while (state < m->n_states && e->state_taken[state])
    state++;
  /* At least the last token of the prompt is computed, for its logits. */
  while (!m->has_states && (reused + 1) * m->block_size < r->n_prompt &&
         (found = find_block(e, r->ids, (reused + 1) * m->block_size)) >= 0) {
    e->cached[found].users++;
    r->blocks[reused++] = found;
  }
  for (int64_t i = 0; i < m->n_blocks; i++)
    n_free += !e->cached[i].users;
  if (state == m->n_states || n_free < r->n_blocks - reused) {
    while (reused)
      e->cached[r->blocks[--reused]].users--;
    return false;
  }
  for (int64_t i = reused; i < r->n_blocks; i++) {
    r->blocks[i] = free_block(e);
    e->cached[r->blocks[i]] = (cached_block){.users = 1};
  }
  r->n_computed = reused * m->block_size;
  for (int64_t i = 0; r->logits && i < r->n_computed * m->vocabulary; i++)
    ((float *)r->logits->data)[i] = NAN;
  r->state = state;
  return e->state_taken[state] = true;
}

/* Full blocks of the prompt can be found by others from now on. */
static void remember(engine *e, const request *r) {
  for (int64_t i = 0, n = e->model->block_size; i < r->n_blocks; i++, n += e->model->block_size) {
    cached_block *c = &e->cached[r->blocks[i]];
    c->used = e->n_passes;
    if (!c->ids && n <= r->n_prompt && n <= r->n_computed)
      *c = (cached_block){r->ids, n, c->used, c->users};
  }
}

/* Who takes part, with how many tokens. Those that generate come first: a long prompt is not to hold them up. */
static int64_t choose(engine *e, request **chosen) {
  int64_t n = 0, room = e->tokens_at_once;
  for (int prompts = 0; prompts < 2; prompts++)
    for (request *r = e->requests; r < e->requests + e->n_requests && room; r++) {
      bool generates = r->state >= 0 && r->n_computed >= r->n_prompt;
      if (r->n == r->n_most || generates == prompts || (r->state < 0 && !admit(e, r)))
        continue;
      r->n_now = r->n - r->n_computed < room ? r->n - r->n_computed : room;
      room -= r->n_now;
      chosen[n++] = r;
    }
  return n;
}

/* The tensors that operators want to know it by. */
static batch describe(const engine *e, request *const *chosen, int64_t n) {
  const model *m = e->model;
  arena *a = &e->model->step;
  batch b = {0};
  int64_t widest = 1, at = 0, n_wanted = 0;
  for (int64_t i = 0; i < n; i++) {
    b.n_tokens += chosen[i]->n_now;
    widest = chosen[i]->n_blocks > widest ? chosen[i]->n_blocks : widest;
  }
  b.ids = tensor(a, int64, SHAPE(b.n_tokens));
  b.positions = tensor(a, int64, SHAPE(b.n_tokens));
  b.slot_mapping = tensor(a, int64, SHAPE(b.n_tokens));
  b.query_start_loc = tensor(a, int32, SHAPE(n + 1));
  b.seq_lens = tensor(a, int32, SHAPE(n));
  b.block_table = tensor(a, int32, SHAPE(n, widest));
  b.states = tensor(a, int32, SHAPE(n));
  b.has_state = tensor(a, boolean, SHAPE(n));
  b.wanted = tensor(a, int64, SHAPE(b.n_tokens));
  b.owners = arena_take(a, (size_t)b.n_tokens * sizeof *b.owners);
  for (int64_t i = 0; i < n; i++) {
    const request *r = chosen[i];
    int64_t end = r->n_computed + r->n_now;
    ((int32_t *)b.query_start_loc->data)[i] = (int32_t)at;
    ((int32_t *)b.seq_lens->data)[i] = (int32_t)end;
    ((int32_t *)b.states->data)[i] = r->state;
    ((uint8_t *)b.has_state->data)[i] = r->n_computed > 0;
    for (int64_t j = 0; j < widest; j++)
      ((int32_t *)b.block_table->data)[i * widest + j] = j < r->n_blocks ? r->blocks[j] : -1;
    for (int64_t j = r->n_computed; j < end; j++, at++) {
      ((int64_t *)b.ids->data)[at] = r->ids[j];
      ((int64_t *)b.positions->data)[at] = j;
      ((int64_t *)b.slot_mapping->data)[at] = r->blocks[j / m->block_size] * m->block_size + j % m->block_size;
      if (r->logits || j + 1 == end) {
        ((int64_t *)b.wanted->data)[n_wanted] = at;
        b.owners[n_wanted++] = chosen[i];
      }
    }
  }
  ((int32_t *)b.query_start_loc->data)[n] = (int32_t)at;
  b.wanted = view(a, b.wanted, 0, NULL, SHAPE(n_wanted));
  return b;
}

/* A number in (0, 1) that seed and place alone decide (splitmix64), not who else is in the batch. */
static double noise_at(uint64_t seed, uint64_t place) {
  uint64_t z = seed + (place + 1) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return ((double)((z ^ z >> 31) >> 12) + 0.5) / (double)(UINT64_C(1) << 52);
}

/* The next token of each row, where its request is to have one. */
static DLTensor *sample(const engine *e, DLTensor *logits, request *const *owners) {
  const sampling s = e->sampling;
  model *m = e->model;
  arena *a = &m->step;
  int64_t n = logits->shape[0], v = logits->shape[1];
  DLTensor *ids = tensor(a, int64, SHAPE(n));
  if (s.temperature <= 0) {
    ok(fl_greedy_argmax(OPS, logits, ids));
    return ids;
  }
  DLTensor *temperature = tensor(a, float32, SHAPE(n)), *top_k = tensor(a, int64, SHAPE(n)),
           *top_p = tensor(a, float32, SHAPE(n)), *noise = tensor(a, float32, SHAPE(n, v)),
           *scaled = copied(a, logits, float32);
  for (int64_t i = 0; i < n; i++) {
    uint64_t place = (uint64_t)(owners[i] - e->requests) << 40 | (uint64_t)owners[i]->n;
    uint64_t seed = (uint64_t)s.seed ^ (uint64_t)(noise_at((uint64_t)s.seed, place) * 0x1p60);
    ((float *)temperature->data)[i] = (float)s.temperature;
    ((int64_t *)top_k->data)[i] = s.top_k;
    ((float *)top_p->data)[i] = (float)s.top_p;
    for (int64_t j = 0; j < v; j++)
      ((float *)noise->data)[i * v + j] = (float)-log(noise_at(seed, (uint64_t)j));
  }
  ok(fl_apply_temperature(OPS, scaled, temperature, scaled));
  ok(fl_apply_top_k_top_p(OPS, scaled, top_k, top_p, scaled)); /* 0 and 1: all */
  ok(fl_exponential_sample(OPS, scaled, noise, ids));
  return ids;
}

/* False: there is nothing to do. */
static bool pass(engine *e, request **chosen) {
  model *m = e->model;
  double took = -now();
  int64_t n = choose(e, chosen), n_next = 0, n_prompt = 0, row = 0, v = m->vocabulary;
  if (!n)
    return false;
  arena_reset(&m->step);
  batch b = describe(e, chosen, n);
  DLTensor *logits = model_run(m, &b), *ids = sample(e, logits, b.owners);
  ok(fl_device_synchronize(m->host, cpu, m->stream, false));
  e->n_passes++;
  for (int64_t i = 0; i < n; i++) {
    request *r = chosen[i];
    int64_t in_prompt = r->n_prompt - r->n_computed, rows = r->logits ? r->n_now : 1;
    n_prompt += in_prompt < 0 ? 0 : in_prompt < r->n_now ? in_prompt : r->n_now;
    if (r->logits)
      put(r->logits, r->n_computed * v, view(&m->step, logits, row * v, NULL, SHAPE(rows, v)));
    row += rows;
    r->n_computed += r->n_now;
    remember(e, r);
    if (r->n_computed < r->n)
      continue;
    n_next++;
    r->ids[r->n++] = ((int64_t *)ids->data)[row - 1];
    for (int64_t j = 0; r->n == r->n_most && j < r->n_blocks; j++)
      e->cached[r->blocks[j]].users--;
    e->state_taken[r->state] = r->n < r->n_most;
  }
  e->n_prompt_tokens += n_prompt;
  e->n_generated += n_next;
  e->n_decoded += n_prompt ? 0 : n_next;
  took += now();
  *(n_prompt ? &e->prompt_seconds : &e->generate_seconds) += took;
  if (e->timing)
    fprintf(stderr, "pass: %lld prompt tokens, %lld generated, %.6f s\n", LL(n_prompt), LL(n_next), took);
  return true;
}

void engine_run(engine *e) {
  for (request **chosen = allocate(e, e->n_requests, sizeof *chosen); pass(e, chosen);)
    ;
}
