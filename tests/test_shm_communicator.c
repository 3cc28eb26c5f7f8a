/*
 * The communicator shm: each collective with each element type, as threads and as processes, against what is computed
 * from the inputs of all ranks, which every rank knows. Bits are compared, so all ranks, both ways through the memory
 * and every run have the same. What goes wrong among ranks is in test_shm_failures.c.
 */
#include "tests/shm.h"
#include "tests/suite.h"

#include <flhost/dtype.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

/* Numbers of ranks, each as threads and as processes. */
static const int ranks_of[] = {1, 2, 3, 4, 7};
enum { RANKS = sizeof ranks_of / sizeof *ranks_of, WAYS = 2 * RANKS };

static int n_of(int way) {
  int n = ranks_of[way / 2];
  return is_sparse() && n > 3 ? 3 : n;
}

static shm_kind_of_ranks kind_of(int way) {
  return way % 2 ? SHM_PROCESSES : SHM_THREADS;
}

/* ------------------------------------------------------------------------------------------------------- elements */

typedef enum family { SMALL_FLOAT, DOUBLE, INTEGER, TRUTH } family;

typedef struct type {
  DLDataType dtype;
  family family;
  const char *name;
} type;

static const type types[] = {
    {{kDLFloat, 32, 1}, SMALL_FLOAT, "float32"},
    {{kDLFloat, 16, 1}, SMALL_FLOAT, "float16"},
    {{kDLBfloat, 16, 1}, SMALL_FLOAT, "bfloat16"},
    {{FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, SMALL_FLOAT, "float8_e4m3fn"},
    {{kDLFloat, 64, 1}, DOUBLE, "float64"},
    {{kDLInt, 32, 1}, INTEGER, "int32"},
    {{kDLInt, 64, 1}, INTEGER, "int64"},
    {{kDLUInt, 8, 1}, INTEGER, "uint8"},
    {{kDLInt, 8, 1}, INTEGER, "int8"},
    {{FL_DTYPE_BOOL, 8, 1}, TRUTH, "bool"},
};
enum { TYPES = sizeof types / sizeof *types };

static size_t size_of(const type *t) {
  return t->dtype.bits / 8;
}

static void put_float(const type *t, void *at, float value) {
  if (t->dtype.bits == 32)
    memcpy(at, &value, 4);
  else if (t->dtype.bits == 8)
    *(uint8_t *)at = fl_float_to_e4m3fn(value);
  else
    *(uint16_t *)at = t->dtype.code == kDLBfloat ? fl_float_to_bf16(value) : fl_float_to_f16(value);
}

static float get_float(const type *t, const void *at) {
  float value;
  memcpy(&value, at, t->dtype.bits == 32 ? 4 : 0);
  if (t->dtype.bits == 8)
    return fl_e4m3fn_to_float(*(const uint8_t *)at);
  if (t->dtype.bits == 16)
    return t->dtype.code == kDLBfloat ? fl_bf16_to_float(*(const uint16_t *)at)
                                      : fl_f16_to_float(*(const uint16_t *)at);
  return value;
}

static void put_integer(const type *t, void *at, uint64_t value) {
  memcpy(at, &value, size_of(t)); /* the least bytes come first on all machines that this runs on */
}

static int64_t get_integer(const type *t, const void *at) {
  int64_t value = 0;
  memcpy(&value, at, size_of(t));
  int unused = 64 - t->dtype.bits;
  return t->dtype.code == kDLUInt ? value : (int64_t)((uint64_t)value << unused) >> unused;
}

/* Element i of what rank `rank` sends. */
static void input(const type *t, int n, int rank, int64_t i, void *at) {
  uint64_t h = ((uint64_t)rank * 7919 + (uint64_t)i * 31 + 17) * 0x9e3779b97f4a7c15u;
  bool is_nan = i % 97 == 5 && rank == i / 97 % n;
  double value = is_nan ? NAN : (double)((int)(h >> 40 & 1023) - 512) / 64;
  h >>= 20;
  if (t->family == SMALL_FLOAT)
    put_float(t, at, (float)value);
  else if (t->family == DOUBLE)
    memcpy(at, &value, sizeof value);
  else
    put_integer(t, at, t->family == TRUTH ? h % 3 : h);
}

#define COMBINED(name, T)                                                                                              \
  static T name(int reduction, T a, T b) {                                                                             \
    switch (reduction) {                                                                                               \
    case FL_REDUCE_PROD:                                                                                               \
      return a * b;                                                                                                    \
    case FL_REDUCE_MAX:                                                                                                \
      return isnan(a) || isnan(b) ? (T)NAN : a > b ? a : b;                                                            \
    case FL_REDUCE_MIN:                                                                                                \
      return isnan(a) || isnan(b) ? (T)NAN : a < b ? a : b;                                                            \
    default:                                                                                                           \
      return a + b;                                                                                                    \
    }                                                                                                                  \
  }
COMBINED(combined_float, float)
COMBINED(combined_double, double)

static int64_t combined_integer(const type *t, int reduction, int64_t a, int64_t b) {
  int64_t result;
  switch (reduction) {
  case FL_REDUCE_MAX:
    return a > b ? a : b;
  case FL_REDUCE_MIN:
    return a < b ? a : b;
  case FL_REDUCE_PROD:
    result = (int64_t)((uint64_t)a * (uint64_t)b);
    break;
  default:
    result = (int64_t)((uint64_t)a + (uint64_t)b);
  }
  return get_integer(t, &result); /* wraps around */
}

/* What the reduction of all ranks' element i is. */
static void reduced(const type *t, int n, int reduction, int64_t i, void *at) {
  float f = 0;
  double d = 0;
  int64_t k = 0;
  for (int rank = 0; rank < n; rank++) {
    union {
      double d;
      unsigned char bytes[8];
    } x;
    input(t, n, rank, i, x.bytes);
    if (t->family == SMALL_FLOAT) {
      f = rank ? combined_float(reduction, f, get_float(t, x.bytes)) : get_float(t, x.bytes);
    } else if (t->family == DOUBLE) {
      d = rank ? combined_double(reduction, d, x.d) : x.d;
    } else if (t->family == INTEGER) {
      k = rank ? combined_integer(t, reduction, k, get_integer(t, x.bytes)) : get_integer(t, x.bytes);
    } else {
      bool any = reduction == FL_REDUCE_SUM || reduction == FL_REDUCE_MAX, b = x.bytes[0] != 0;
      k = !rank ? b : any ? (k || b) : (k && b);
    }
  }
  if (reduction == FL_REDUCE_AVG) {
    f /= (float)n;
    d /= n;
    k /= n;
  }
  if (t->family == SMALL_FLOAT)
    put_float(t, at, f);
  else if (t->family == DOUBLE)
    memcpy(at, &d, sizeof d);
  else
    put_integer(t, at, (uint64_t)k);
}

/* The same bits; a NaN is a NaN. */
static bool is_same(const type *t, const void *a, const void *b) {
  double x, y;
  if (!memcmp(a, b, size_of(t)))
    return true;
  if (t->family == SMALL_FLOAT)
    return isnan(get_float(t, a)) && isnan(get_float(t, b));
  memcpy(&x, a, sizeof x * (t->family == DOUBLE));
  memcpy(&y, b, sizeof y * (t->family == DOUBLE));
  return t->family == DOUBLE && isnan(x) && isnan(y);
}

/* ------------------------------------------------------------------------------------------------ one collective */

enum { REDUCED = -1 };

/* `count` elements at `at` of recv: those at `from` of what `rank` sends, or of the reduction. */
typedef struct stretch {
  int64_t at, count, from;
  int rank;
} stretch;

typedef struct trial {
  const type *type;
  int64_t count;
  int kind, reduction, root;
  bool in_place;
} trial;

static bool reduces(int kind) {
  return kind == FL_ALL_REDUCE || kind == FL_REDUCE || kind == FL_REDUCE_SCATTER || kind == FL_REDUCE_SCATTER_V;
}

/* Counts that differ, some of them 0, with gaps between the parts. */
static int64_t uneven(int64_t count, int i) {
  return i % 3 == 1 ? 0 : count / (i + 1);
}
static int64_t uneven_pair(int64_t count, int from, int to) {
  return (from * 5 + to * 3) % 4 * (count / 3);
}

typedef struct layout {
  int64_t counts[SHM_RANKS], offsets[SHM_RANKS], elements;
} layout;

static layout lay_out(int n, int64_t (*count)(const trial *t, int from, int to), const trial *t, int from, int to) {
  layout l = {.elements = 0};
  for (int i = 0; i < n; i++) {
    l.counts[i] = count(t, from < 0 ? i : from, to < 0 ? i : to);
    l.offsets[i] = l.elements;
    l.elements += l.counts[i] + (i % 2 ? 2 : 0);
  }
  return l;
}
static int64_t count_of_rank(const trial *t, int from, int to) {
  (void)to;
  return uneven(t->count, from);
}
static int64_t count_of_pair(const trial *t, int from, int to) {
  return uneven_pair(t->count, from, to);
}

static fl_collective_fn function_of(const fl_communicator *f, int kind) {
  const fl_collective_fn functions[FL_COLLECTIVES] = {
      f->all_reduce,   f->reduce,         f->broadcast,        f->all_gather,
      f->all_gather_v, f->reduce_scatter, f->reduce_scatter_v, f->gather,
      f->scatter,      f->all_to_all,     f->all_to_all_v,     f->send,
      f->recv,         f->barrier};
  return functions[kind];
}

/* How long send and recv are, what is to come to recv, and which place the shorter has in the longer. */
typedef struct shape {
  int64_t send, recv, place;
  stretch stretches[SHM_RANKS];
  int n;
  layout mine, theirs;
} shape;

static shape shape_of(const member *m, const trial *t) {
  shape s = {.n = 1};
  const int64_t c = t->count;
  const int me = m->me, n = m->n;
  const bool at_root = me == t->root;
  s.mine = lay_out(n, count_of_rank, t, -1, -1);
  s.stretches[0] = (stretch){0, c, 0, REDUCED};
  switch (t->kind) {
  case FL_ALL_REDUCE:
  case FL_REDUCE:
    s.send = c;
    s.recv = t->kind == FL_ALL_REDUCE || at_root ? c : -1;
    break;
  case FL_BROADCAST:
    s.send = at_root ? c : -1;
    s.recv = c;
    s.stretches[0].rank = t->root;
    break;
  case FL_ALL_GATHER:
  case FL_GATHER:
    s.send = c;
    s.recv = t->kind == FL_ALL_GATHER || at_root ? n * c : -1;
    s.place = me * c;
    s.n = n;
    for (int i = 0; i < n; i++)
      s.stretches[i] = (stretch){i * c, c, 0, i};
    break;
  case FL_ALL_GATHER_V:
    s.send = s.mine.counts[me];
    s.recv = s.mine.elements;
    s.place = s.mine.offsets[me];
    s.n = n;
    for (int i = 0; i < n; i++)
      s.stretches[i] = (stretch){s.mine.offsets[i], s.mine.counts[i], 0, i};
    break;
  case FL_REDUCE_SCATTER:
    s.send = n * c;
    s.recv = c;
    s.place = s.stretches[0].from = me * c;
    break;
  case FL_REDUCE_SCATTER_V:
    s.send = s.mine.elements;
    s.recv = s.mine.counts[me];
    s.place = s.mine.offsets[me];
    s.stretches[0] = (stretch){0, s.recv, s.place, REDUCED};
    break;
  case FL_SCATTER:
    s.send = at_root ? n * c : -1;
    s.recv = c;
    s.place = me * c;
    s.stretches[0] = (stretch){0, c, me * c, t->root};
    break;
  case FL_ALL_TO_ALL:
    s.send = s.recv = n * c;
    s.n = n;
    for (int i = 0; i < n; i++)
      s.stretches[i] = (stretch){i * c, c, me * c, i};
    break;
  case FL_ALL_TO_ALL_V:
    s.theirs = lay_out(n, count_of_pair, t, me, -1);
    s.mine = lay_out(n, count_of_pair, t, -1, me);
    s.send = s.theirs.elements;
    s.recv = s.mine.elements;
    s.n = n;
    for (int i = 0; i < n; i++)
      s.stretches[i] =
          (stretch){s.mine.offsets[i], s.mine.counts[i], lay_out(n, count_of_pair, t, i, -1).offsets[me], i};
    break;
  default:
    break;
  }
  return s;
}

static void compare(member *m, const trial *t, const shape *s, const unsigned char *recv) {
  const size_t size = size_of(t->type);
  unsigned char expected[8];
  for (int k = 0; k < s->n; k++) {
    const stretch *part = &s->stretches[k];
    for (int64_t i = 0; i < part->count; i++) {
      if (part->rank == REDUCED)
        reduced(t->type, m->n, t->reduction, part->from + i, expected);
      else
        input(t->type, m->n, part->rank, part->from + i, expected);
      const unsigned char *got = recv + (size_t)(part->at + i) * size;
      want(is_same(t->type, got, expected), "kind %d, %s, reduction %d, count %lld, root %d%s: element %lld is wrong",
           t->kind, t->type->name, t->reduction, (long long)t->count, t->root, t->in_place ? ", in place" : "",
           (long long)(part->at + i));
    }
  }
}

static void try(member *m, const trial *t) {
  const shape s = shape_of(m, t);
  const size_t size = size_of(t->type);
  const int64_t longer = s.send > s.recv ? s.send : s.recv;
  /* As long as they are, so that the address sanitizer sees who goes beyond. */
  unsigned char *memory[2] = {malloc((size_t)longer * size + 1), malloc(s.recv > 0 ? (size_t)s.recv * size + 1 : 1)};
  unsigned char *send = s.send < 0 ? NULL : memory[0], *recv = s.recv < 0 ? NULL : memory[1];
  if (t->in_place && send && recv) {
    recv = s.send >= s.recv ? send + (size_t)s.place * size : send;
    send = s.send >= s.recv ? send : recv + (size_t)s.place * size;
    if (s.send == s.recv)
      send = recv = memory[0];
  }
  if (recv == memory[1])
    memset(recv, 0xa5, (size_t)s.recv * size);
  for (int64_t i = 0; i < s.send; i++)
    input(t->type, m->n, m->me, i, send + (size_t)i * size);
  fl_collective c = {.size = sizeof c, .kind = t->kind, .send = send, .recv = recv, .count = t->count};
  c.dtype = t->type->dtype;
  c.reduction = t->reduction;
  c.root = t->root;
  c.recv_counts = s.mine.counts;
  c.recv_offsets = s.mine.offsets;
  c.send_counts = s.theirs.counts;
  c.send_offsets = s.theirs.offsets;
  if (!t->count)
    c.send = c.recv = NULL;
  fl_status status = function_of(m->f, t->kind)(NULL, m->rank, &c);
  if (status)
    shm_found(m, __FILE__, __LINE__, "kind %d, %s: status %d: %s", t->kind, t->type->name, (int)status, m->message);
  else if (recv)
    compare(m, t, &s, recv);
  free(memory[0]);
  free(memory[1]);
}

static void each_kind(member *m, const type *elements, int64_t count, int reduction, bool in_place) {
  for (int kind = 0; kind < FL_SEND && !m->failure[0]; kind++) {
    trial t = {.type = elements, .count = count, .kind = kind, .reduction = reduction, .root = (kind + 1) % m->n};
    t.in_place = in_place && kind != FL_ALL_TO_ALL && kind != FL_ALL_TO_ALL_V;
    if (reduces(kind) ? elements->family != TRUTH || reduction != FL_REDUCE_AVG : reduction == FL_REDUCE_SUM)
      try(m, &t);
  }
}

static void each_small(member *m) {
  static const int64_t counts[] = {0, 1, 3, 1000};
  for (int k = 0; k < TYPES; k++)
    for (int reduction = 0; reduction < FL_REDUCTIONS; reduction++)
      for (int i = 0; i < 8 && !m->failure[0]; i++)
        if (!is_sparse() || (k + reduction + i) % 8 == 0)
          each_kind(m, &types[k], counts[i / 2], reduction, i % 2);
}

/* Several rounds through the memory, and by addresses; of 8 bytes an element several chunks. */
static void each_large(member *m) {
  for (int k = 0; k < TYPES && !m->failure[0]; k++) {
    int64_t count = types[k].dtype.bits < 64 ? 20011 : sample() == 1 ? 70001 : 30011;
    each_kind(m, &types[k], is_sparse() ? 5003 : count, k == 6 ? FL_REDUCE_MAX : FL_REDUCE_SUM, k & 1);
    if (k == 6)
      each_kind(m, &types[k], 5003, FL_REDUCE_SUM, false);
  }
  each_kind(m, &types[2], 20011, FL_REDUCE_AVG, true);
}

START_TEST(every_collective_has_what_the_inputs_of_all_ranks_make) {
  shm_run(n_of(_i), kind_of(_i), each_small);
}
END_TEST

START_TEST(large_ones_go_in_rounds) {
  shm_run(n_of(_i), kind_of(_i), each_large);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- messages */

static fl_collective message(int kind, int peer, void *memory, int64_t bytes) {
  fl_collective c = {.size = sizeof c, .kind = kind, .send = memory, .recv = memory, .count = bytes, .root = peer};
  c.dtype = (DLDataType){kDLUInt, 8, 1};
  return c;
}

static unsigned char byte_of(int from, int to, int nth, int64_t i) {
  return (unsigned char)((from * 31 + to * 17 + nth * 7 + i * 13) % 251);
}

static void fill_message(unsigned char *memory, int from, int to, int nth, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++)
    memory[i] = byte_of(from, to, nth, i);
}

static bool is_message(const unsigned char *memory, int from, int to, int nth, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i++)
    if (memory[i] != byte_of(from, to, nth, i))
      return false;
  return true;
}

/* From each rank to the next, one after another, as pipelines of layers do. */
static void hand_on(member *m) {
  static const int64_t lengths[] = {0, 1, 65521, 200003};
  unsigned char *memory = malloc(200003);
  for (int i = 0; i < 4 && m->n > 1; i++) {
    fl_collective in = message(FL_RECV, m->me - 1, memory, lengths[i]);
    fl_collective out = message(FL_SEND, m->me + 1, memory, lengths[i]);
    if (m->me)
      want_ok(m->f->recv(NULL, m->rank, &in));
    else
      fill_message(memory, 0, 0, i, lengths[i]);
    want(is_message(memory, 0, 0, i, lengths[i]), "message %d is another", i);
    if (m->me + 1 < m->n)
      want_ok(m->f->send(NULL, m->rank, &out));
  }
  free(memory);
}

START_TEST(a_message_is_handed_on) {
  shm_run(n_of(_i), kind_of(_i), hand_on);
}
END_TEST

enum { BATCH_MOST = 4 * SHM_RANKS + 1 };

/* All pairs, also with oneself, two messages each, longer than what the memory holds; and a collective among them. */
static void all_pairs(member *m) {
  static const int64_t lengths[] = {100003, 5};
  fl_collective items[BATCH_MOST];
  unsigned char *memory[BATCH_MOST];
  float ones = 1, sum = 0;
  int n = 0;
  for (int nth = 0; nth < 2; nth++)
    for (int peer = m->n - 1; peer >= 0; peer--) {
      memory[n] = malloc((size_t)lengths[nth]);
      fill_message(memory[n], m->me, peer, nth, lengths[nth]);
      items[n] = message(FL_SEND, peer, memory[n], lengths[nth]);
      n++;
      memory[n] = calloc((size_t)lengths[nth], 1);
      items[n] = message(FL_RECV, peer, memory[n], lengths[nth]);
      n++;
    }
  memory[n] = NULL;
  items[n] =
      (fl_collective){.size = sizeof *items, .send = &ones, .recv = &sum, .count = 1, .dtype = {kDLFloat, 32, 1}};
  n++;
  for (int round = 0; round < 3; round++)
    want_ok(m->f->batch(NULL, m->rank, items, (uint32_t)n, sizeof *items));
  want(sum == (float)m->n, "the sum is %g", sum);
  for (int i = 0; i < n; i++) {
    if (items[i].kind == FL_RECV)
      want(is_message(memory[i], items[i].root, m->me, i >= 2 * m->n, items[i].count), "message %d is another", i);
    free(memory[i]);
  }
}

START_TEST(a_batch_of_all_pairs_does_not_wait_for_itself) {
  shm_run(n_of(_i), kind_of(_i), all_pairs);
}
END_TEST

static void shift(member *m) {
  unsigned char *out = malloc(300007), *in = malloc(300007);
  int right = (m->me + 1) % m->n, left = (m->me + m->n - 1) % m->n;
  fill_message(out, m->me, right, 0, 300007);
  fl_collective items[] = {message(FL_SEND, right, out, 300007), message(FL_RECV, left, in, 300007)};
  want_ok(m->f->batch(NULL, m->rank, items, 2, sizeof *items));
  want(is_message(in, left, m->me, 0, 300007), "another message");
  free(out);
  free(in);
}

START_TEST(a_ring_of_ranks_shifts) {
  shm_run(n_of(_i), kind_of(_i), shift);
}
END_TEST

/* So many that what lies between two ranks is full up to a byte, and then to where the next cannot begin. */
static void many_small(member *m) {
  unsigned char byte = 0;
  if (m->me)
    usleep(20000);
  for (int i = 0; i < 8000; i++) {
    fl_collective c = message(m->me ? FL_RECV : FL_SEND, !m->me, &byte, 1);
    if (!m->me)
      byte = (unsigned char)(i % 251);
    want_ok((m->me ? m->f->recv : m->f->send)(NULL, m->rank, &c));
    want(byte == i % 251, "message %d is another", i);
  }
}

START_TEST(many_small_messages_keep_their_order) {
  shm_run(2, _i ? SHM_PROCESSES : SHM_THREADS, many_small);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- groups */

static void split_by_color(member *m) {
  int color = m->me == m->n - 1 && m->n > 2 ? -1 : m->me % 2, peers = 0, sum = 0;
  fl_join join = {.size = sizeof join, .name = "part", .timeout = 60, .message = m->message};
  fl_rank *part = NULL;
  join.message_size = sizeof m->message;
  want_ok(m->f->split(NULL, m->rank, color, -m->me, &join, &part));
  want((part != NULL) == (color >= 0), "there is %s part", part ? "a" : "no");
  if (part) {
    int32_t all[SHM_RANKS], me = m->me;
    for (int i = 0; i < m->n - (m->n > 2); i++)
      if (i % 2 == color) {
        peers++;
        sum += i;
      }
    fl_collective c = {.size = sizeof c, .kind = FL_ALL_GATHER, .send = &me, .recv = all, .count = 1};
    c.dtype = (DLDataType){kDLInt, 32, 1};
    want_ok(m->f->all_gather(NULL, part, &c));
    for (int i = 0; i < peers; i++)
      want(all[i] == color + 2 * (peers - 1 - i), "rank %d of the part was %d", i, all[i]);
    c = (fl_collective){.size = sizeof c, .send = &me, .recv = all, .count = 1, .dtype = {kDLInt, 32, 1}};
    want_ok(m->f->all_reduce(NULL, part, &c));
    want(all[0] == sum, "the sum is %d", all[0]);
    m->f->leave(NULL, part);
  }
  const fl_collective c = {.size = sizeof c, .kind = FL_BARRIER};
  want_ok(m->f->barrier(NULL, m->rank, &c));
}

START_TEST(a_group_is_divided_by_color_and_ordered_by_key) {
  shm_run(n_of(_i), kind_of(_i), split_by_color);
}
END_TEST

/* One thread of a rank's process, in a group of its own. */
static void *add_up(void *argument) {
  member *m = argument;
  double mine[500], all[500];
  for (int i = 0; i < 500; i++)
    mine[i] = m->me + i;
  fl_collective c = {.size = sizeof c, .send = mine, .recv = all, .count = 500, .dtype = {kDLFloat, 64, 1}};
  for (int round = 0; round < rounds(200) && !m->failure[0]; round++) {
    fl_status status = m->f->all_reduce(NULL, m->rank, &c);
    if (status || all[7] != 1 + 2 * 7)
      shm_found(m, __FILE__, __LINE__, "status %d, %g: %s", (int)status, all[7], m->message);
  }
  return NULL;
}

/* Each of two ranks divides the group twice, and uses both parts at once. */
static void two_at_once(member *m) {
  member parts[2] = {*m, *m};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    fl_join join = {.size = sizeof join, .name = "part", .timeout = 60, .message = parts[i].message};
    join.message_size = sizeof parts[i].message;
    want_ok(m->f->split(NULL, m->rank, 0, 0, &join, &parts[i].rank));
  }
  for (int i = 0; i < 2; i++)
    want(!pthread_create(&threads[i], NULL, add_up, &parts[i]), "no thread");
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) {
    want(!parts[i].failure[0], "%s", parts[i].failure);
    m->f->leave(NULL, parts[i].rank);
  }
}

START_TEST(two_groups_are_used_at_once) {
  shm_run(2, _i ? SHM_PROCESSES : SHM_THREADS, two_at_once);
}
END_TEST

/* The sums of what does not add up exactly, again and again, on all ranks. */
static void repeat(member *m) {
  enum { COUNT = 30011 };
  float *mine = malloc(COUNT * sizeof *mine), *first = malloc(COUNT * sizeof *mine),
        *all = malloc(COUNT * sizeof *mine);
  float *roots = malloc(COUNT * sizeof *mine);
  for (int i = 0; i < COUNT; i++)
    mine[i] = 1.0f / (float)(i * (m->me + 3) + 1);
  fl_collective c = {.size = sizeof c, .send = mine, .recv = first, .count = COUNT, .dtype = {kDLFloat, 32, 1}};
  want_ok(m->f->all_reduce(NULL, m->rank, &c));
  for (int round = 0; round < 5; round++) {
    c.recv = all;
    want_ok(m->f->all_reduce(NULL, m->rank, &c));
    want(!memcmp(all, first, COUNT * sizeof *all), "round %d has other bits", round);
  }
  c = (fl_collective){.size = sizeof c, .kind = FL_BROADCAST, .send = all, .recv = roots, .count = COUNT};
  c.dtype = (DLDataType){kDLFloat, 32, 1};
  want_ok(m->f->broadcast(NULL, m->rank, &c));
  want(!memcmp(all, roots, COUNT * sizeof *all), "rank 0 has other bits");
  free(mine);
  free(first);
  free(all);
  free(roots);
}

START_TEST(each_run_and_each_rank_has_the_same_bits) {
  shm_run(n_of(_i), kind_of(_i), repeat);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, every_collective_has_what_the_inputs_of_all_ranks_make, 0, WAYS);
  tcase_add_loop_test(tests, large_ones_go_in_rounds, 0, WAYS);
  tcase_add_loop_test(tests, a_message_is_handed_on, 0, WAYS);
  tcase_add_loop_test(tests, a_batch_of_all_pairs_does_not_wait_for_itself, 0, WAYS);
  tcase_add_loop_test(tests, a_ring_of_ranks_shifts, 0, WAYS);
  tcase_add_loop_test(tests, many_small_messages_keep_their_order, 0, 2);
  tcase_add_loop_test(tests, a_group_is_divided_by_color_and_ordered_by_key, 0, WAYS);
  tcase_add_loop_test(tests, two_groups_are_used_at_once, 0, 2);
  tcase_add_loop_test(tests, each_run_and_each_rank_has_the_same_bits, 0, WAYS);
}

int main(void) {
  return run_suite("shm_communicator", add_tests, 60);
}
