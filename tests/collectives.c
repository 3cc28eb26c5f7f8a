/* Collectives against what they should give: see collectives.h. */
#include "tests/collectives.h"

#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------------ ranks */

typedef struct worker {
  pthread_t thread;
  fl_host *host;
  const fl_group_id *id;
  int32_t rank, ranks;
  rank_body body;
} worker;

static void be_rank(fl_host *host, const fl_group_id *id, int32_t rank, int32_t ranks, rank_body body) {
  const fl_group_options options = {.size = sizeof options, .name = "tp", .timeout = 60};
  fl_group *group;
  ck_ok(fl_group_create(host, id, rank, ranks, &options, &group));
  body(group);
  fl_group_destroy(group);
}

static void *run(void *of) {
  const worker *w = of;
  be_rank(w->host, w->id, w->rank, w->ranks, w->body);
  return NULL;
}

void ranks_as_threads(fl_host *host, int32_t ranks, rank_body body) {
  fl_group_id id;
  worker *workers = calloc((size_t)ranks, sizeof *workers);
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  for (int32_t i = 0; i < ranks; i++) {
    workers[i] = (worker){.host = host, .id = &id, .rank = i, .ranks = ranks, .body = body};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, run, &workers[i]), 0);
  }
  for (int32_t i = 0; i < ranks; i++)
    pthread_join(workers[i].thread, NULL);
  free(workers);
}

void ranks_as_processes(fl_host *(*make)(void), int32_t ranks, rank_body body) {
  fl_host *host = make();
  fl_group_id id;
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  for (int32_t i = 0; i < ranks; i++) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
      fl_host *own = make();
      be_rank(own, &id, i, ranks, body);
      fl_host_destroy(own);
      _exit(0);
    }
  }
  for (int32_t i = 0; i < ranks; i++) {
    int status = -1;
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(status, 0);
  }
  fl_host_destroy(host);
}

/* ----------------------------------------------------------------------------------------------------------- values */

static const uint32_t types[] = {FL_FLOAT32, FL_FLOAT16, FL_BFLOAT16, FL_FLOAT8_E4M3FN, FL_FLOAT64,
                                 FL_INT32,   FL_INT64,   FL_UINT8,    FL_INT8,          FL_BOOLEAN};
enum { N_TYPES = sizeof types / sizeof *types };

static bool is_integer(const fl_element_type *type) {
  return type->dtype.code == kDLInt || type->dtype.code == kDLUInt || type->bit == FL_BOOLEAN;
}

/* Small whole numbers, so that sums and means of 16-bit formats have one right answer. */
static int value_at(const fl_element_type *type, int32_t rank, int64_t i) {
  int v = (int)((rank * 5 + i * 3 + i / 7) % 7);
  if (type->bit == FL_BOOLEAN)
    return v > 2;
  return type->bit == FL_UINT8 ? v : v - 3;
}

static void fill(const fl_element_type *type, void *data, int32_t rank, int64_t first, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    type->put(data, i, value_at(type, rank, first + i));
}

/* The reduction of element i of `n` ranks, as it lies in memory. */
static void expect(const fl_element_type *type, int32_t reduction, int32_t n, int64_t i, void *bytes) {
  double all = value_at(type, 0, i);
  for (int32_t r = 1; r < n; r++) {
    double v = value_at(type, r, i);
    all = reduction == FL_REDUCE_PROD  ? all * v
          : reduction == FL_REDUCE_MAX ? (all > v ? all : v)
          : reduction == FL_REDUCE_MIN ? (all < v ? all : v)
                                       : all + v;
  }
  if (type->bit == FL_BOOLEAN)
    all = all != 0;
  else if (is_integer(type) && type->dtype.bits == 8) /* wraps around */
    all = type->bit == FL_INT8 ? (int8_t)(uint8_t)(int64_t)all : (uint8_t)(int64_t)all;
  if (reduction == FL_REDUCE_AVG)
    all = is_integer(type)         ? (double)((int64_t)all / n)
          : type->dtype.bits == 64 ? all / n
                                   : (double)((float)all / (float)n);
  memset(bytes, 0, 8);
  type->put(bytes, 0, all);
}

/* Memory with room behind it that nobody may touch. */
enum { GUARD = 64, GUARD_BYTE = 0x5a };
typedef struct buffer {
  char *memory;
  size_t size;
} buffer;

static buffer buffer_make(size_t size) {
  buffer b = {malloc(size + GUARD), size};
  ck_assert_ptr_nonnull(b.memory);
  memset(b.memory, 0x33, size);
  memset(b.memory + size, GUARD_BYTE, GUARD);
  return b;
}

static void buffer_free(buffer b) {
  for (size_t i = 0; i < GUARD; i++)
    ck_assert_msg(b.memory[b.size + i] == GUARD_BYTE, "byte %zu behind a buffer of %zu was written", i, b.size);
  free(b.memory);
}

/* What a case is, for messages. */
typedef struct scene {
  fl_group *group;
  const fl_element_type *type;
  int32_t kind, reduction, root, rank, ranks;
  int64_t count;
  bool in_place;
} scene;

static void ck_element(const scene *s, const char *data, int64_t i, const void *expected) {
  size_t item = s->type->dtype.bits / 8;
  ck_assert_msg(!memcmp(data + (size_t)i * item, expected, item),
                "%s of %lld %s (%s), rank %d of %d, root %d%s: element %lld is %g, expected %g",
                fl_collective_name(s->kind), (long long)s->count, s->type->name, fl_reduction_name(s->reduction),
                s->rank, s->ranks, s->root, s->in_place ? ", in place" : "", (long long)i, s->type->get(data, i),
                s->type->get(expected, 0));
}

/* `n` elements are those of a rank from `first` on. */
static void ck_moved(const scene *s, const char *data, int64_t at, int32_t rank, int64_t first, int64_t n) {
  char expected[8] = {0};
  for (int64_t i = 0; i < n; i++) {
    s->type->put(expected, 0, value_at(s->type, rank, first + i));
    ck_element(s, data, at + i, expected);
  }
}

static void ck_reduced(const scene *s, const char *data, int64_t first, int64_t n) {
  char expected[8];
  for (int64_t i = 0; i < n; i++) {
    expect(s->type, s->reduction, s->ranks, first + i, expected);
    ck_element(s, data, i, expected);
  }
}

/* ------------------------------------------------------------------------------------------------------------ cases */

static fl_collective collective_of(const scene *s, const void *send, void *recv) {
  fl_collective c = fl_collective_of((fl_collective_kind)s->kind, send, recv, s->count, s->type->dtype, NULL);
  c.reduction = s->reduction;
  c.root = s->root;
  return c;
}

/* Of kinds whose counts are even. Where the larger of two buffers is, and what part of it the smaller is in place. */
static void check_even(const scene *s) {
  size_t item = s->type->dtype.bits / 8;
  bool is_root = s->rank == s->root;
  bool gathers = s->kind == FL_ALL_GATHER || s->kind == FL_GATHER || s->kind == FL_ALL_TO_ALL;
  bool scatters = s->kind == FL_REDUCE_SCATTER || s->kind == FL_SCATTER || s->kind == FL_ALL_TO_ALL;
  int64_t sends = scatters ? s->count * s->ranks : s->count, receives = gathers ? s->count * s->ranks : s->count;
  buffer in = buffer_make((size_t)sends * item), out = buffer_make((size_t)receives * item);
  void *send = in.memory, *recv = out.memory;
  if (s->in_place && scatters)
    recv = in.memory + (size_t)(s->rank * s->count) * item;
  else if (s->in_place)
    send = gathers ? out.memory + (size_t)(s->rank * s->count) * item : out.memory;
  fill(s->type, send, s->rank, 0, sends);
  if ((s->kind == FL_BROADCAST || s->kind == FL_SCATTER) && !is_root)
    send = NULL;
  if ((s->kind == FL_REDUCE || s->kind == FL_GATHER) && !is_root)
    recv = NULL;
  fl_collective c = collective_of(s, send, recv);
  ck_ok(fl_collective_run(s->group, &c));
  switch (s->kind) {
  case FL_ALL_REDUCE:
    ck_reduced(s, recv, 0, s->count);
    break;
  case FL_REDUCE:
    ck_reduced(s, recv, 0, is_root ? s->count : 0);
    break;
  case FL_BROADCAST:
    ck_moved(s, recv, 0, s->root, 0, s->count);
    break;
  case FL_REDUCE_SCATTER:
    ck_reduced(s, recv, s->rank * s->count, s->count);
    break;
  case FL_SCATTER:
    ck_moved(s, recv, 0, s->root, s->rank * s->count, s->count);
    break;
  case FL_ALL_TO_ALL:
    for (int32_t r = 0; r < s->ranks; r++)
      ck_moved(s, recv, r * s->count, r, s->rank * s->count, s->count);
    break;
  default:
    for (int32_t r = 0; r < s->ranks && recv; r++)
      ck_moved(s, recv, r * s->count, r, 0, s->count);
  }
  buffer_free(in);
  buffer_free(out);
}

/* Counts that differ, some 0, with a gap between parts and the ranks' parts in falling order. */
enum { MOST_RANKS = 16, GAP = 3 };
typedef struct parts {
  int64_t counts[MOST_RANKS], offsets[MOST_RANKS], total;
} parts;

static parts parts_of(int64_t count, int32_t ranks, int32_t seed) {
  parts p = {.total = 0};
  for (int32_t r = ranks - 1; r >= 0; r--) {
    p.counts[r] = (seed + r) % 3 ? count + (seed + r) % 5 : 0;
    p.offsets[r] = p.total;
    p.total += p.counts[r] + GAP;
  }
  return p;
}

static void check_uneven(const scene *s) {
  size_t item = s->type->dtype.bits / 8;
  parts p = parts_of(s->count, s->ranks, 1);
  int64_t own = p.counts[s->rank];
  bool gathers = s->kind == FL_ALL_GATHER_V;
  buffer part = buffer_make((size_t)own * item), all = buffer_make((size_t)p.total * item);
  char *inner = s->in_place ? all.memory + (size_t)p.offsets[s->rank] * item : part.memory;
  if (gathers)
    fill(s->type, inner, s->rank, 0, own);
  else
    fill(s->type, all.memory, s->rank, 0, p.total);
  fl_collective c = collective_of(s, gathers ? inner : all.memory, gathers ? all.memory : inner);
  c.recv_counts = p.counts;
  c.recv_offsets = p.offsets;
  ck_ok(fl_collective_run(s->group, &c));
  for (int32_t r = 0; gathers && r < s->ranks; r++)
    ck_moved(s, all.memory, p.offsets[r], r, 0, p.counts[r]);
  if (!gathers)
    ck_reduced(s, inner, p.offsets[s->rank], own);
  buffer_free(part);
  buffer_free(all);
}

/* Rank a sends b as many elements as b expects of a. */
static void check_all_to_all_v(const scene *s) {
  size_t item = s->type->dtype.bits / 8;
  parts from = parts_of(s->count, s->ranks, s->rank), to = {.total = 0};
  for (int32_t r = 0; r < s->ranks; r++) {
    to.counts[r] = parts_of(s->count, s->ranks, r).counts[s->rank];
    to.offsets[r] = to.total;
    to.total += to.counts[r] + GAP;
  }
  buffer in = buffer_make((size_t)from.total * item), out = buffer_make((size_t)to.total * item);
  fill(s->type, in.memory, s->rank, 0, from.total);
  fl_collective c = collective_of(s, in.memory, out.memory);
  c.send_counts = from.counts;
  c.send_offsets = from.offsets;
  c.recv_counts = to.counts;
  c.recv_offsets = to.offsets;
  ck_ok(fl_collective_run(s->group, &c));
  for (int32_t r = 0; r < s->ranks; r++)
    ck_moved(s, out.memory, to.offsets[r], r, parts_of(s->count, s->ranks, r).offsets[s->rank], to.counts[r]);
  buffer_free(in);
  buffer_free(out);
}

/* Each rank with each, itself included, all at once; two messages each, whose order stays. */
static void check_batch(const scene *s) {
  size_t item = s->type->dtype.bits / 8, size = (size_t)s->count * item;
  uint32_t n = 0;
  buffer in = buffer_make(2 * size), out = buffer_make(2 * size * (size_t)s->ranks);
  fl_collective *items = calloc((size_t)s->ranks * 4, sizeof *items);
  fill(s->type, in.memory, s->rank, 0, 2 * s->count);
  for (int32_t r = 0; r < s->ranks; r++)
    for (int32_t part = 0; part < 2; part++) {
      items[n] =
          fl_collective_of(FL_RECV, NULL, out.memory + (size_t)(2 * r + part) * size, s->count, s->type->dtype, NULL);
      items[n++].root = r;
      items[n] = fl_collective_of(FL_SEND, in.memory + (size_t)part * size, NULL, s->count, s->type->dtype, NULL);
      items[n++].root = r;
    }
  ck_ok(fl_collective_run_batch(s->group, items, n, sizeof *items));
  for (int32_t r = 0; r < s->ranks; r++)
    ck_moved(s, out.memory, 2 * r * s->count, r, 0, 2 * s->count);
  free(items);
  buffer_free(in);
  buffer_free(out);
}

/* On from rank to rank. */
static void check_ring(const scene *s) {
  size_t size = (size_t)s->count * s->type->dtype.bits / 8;
  int32_t next = (s->rank + 1) % s->ranks, before = (s->rank + s->ranks - 1) % s->ranks;
  buffer in = buffer_make(size), out = buffer_make(size);
  fill(s->type, in.memory, s->rank, 0, s->count);
  if (s->ranks == 1)
    memcpy(out.memory, in.memory, size);
  for (int turn = 0; turn < 2 && s->ranks > 1; turn++)
    if ((s->rank == 0) == (turn == 0)) /* rank 0 begins */
      ck_ok(fl_send(s->group, in.memory, s->count, s->type->dtype, next, NULL));
    else
      ck_ok(fl_recv(s->group, out.memory, s->count, s->type->dtype, before, NULL));
  /* A rank other than 0 received first and sends then. */
  ck_moved(s, out.memory, 0, before, 0, s->count);
  buffer_free(in);
  buffer_free(out);
}

static void check_reductions(scene s, void (*check)(const scene *)) {
  for (s.reduction = 0; s.reduction < FL_REDUCTIONS; s.reduction++) {
    if (s.reduction == FL_REDUCE_AVG && s.type->bit == FL_BOOLEAN)
      continue;
    for (int place = 0; place < 2; place++) {
      s.in_place = place;
      check(&s);
    }
  }
}

static void check_type(scene s) {
  static const int32_t moving[] = {FL_BROADCAST, FL_ALL_GATHER, FL_GATHER, FL_SCATTER};
  for (s.kind = 0; s.kind < FL_COLLECTIVES; s.kind++)
    if (s.kind == FL_ALL_REDUCE || s.kind == FL_REDUCE || s.kind == FL_REDUCE_SCATTER)
      check_reductions(s, check_even);
  s.kind = FL_REDUCE_SCATTER_V;
  check_reductions(s, check_uneven);
  for (size_t i = 0; i < 2 * sizeof moving / sizeof *moving; i++) {
    s.kind = moving[i / 2];
    s.in_place = i % 2;
    check_even(&s);
  }
  s.kind = FL_ALL_GATHER_V;
  for (int place = 0; place < 2; place++) {
    s.in_place = place;
    check_uneven(&s);
  }
  s.in_place = false;
  s.kind = FL_ALL_TO_ALL;
  check_even(&s);
  s.kind = FL_ALL_TO_ALL_V;
  check_all_to_all_v(&s);
  s.kind = FL_SEND;
  check_batch(&s);
  check_ring(&s);
}

void check_collectives(fl_group *group, int sizes) {
  static const int64_t counts[] = {0, 1, 13, 257, 4099, 70001};
  scene s = {.group = group, .rank = fl_group_rank(group), .ranks = fl_group_ranks(group)};
  for (int size = 0; size < sizes && size < (int)(sizeof counts / sizeof *counts); size++)
    for (int t = 0; t < N_TYPES; t++) {
      s.type = fl_element_type_of_bit(types[t]);
      s.count = counts[size];
      s.root = (size + t) % s.ranks;
      check_type(s);
    }
  ck_ok(fl_barrier(group, NULL));
  ck_ok(fl_group_state(group));
}
