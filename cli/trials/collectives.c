/* Collectives that are checked: see collectives.h. */
#include "cli/trials/collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------ cases */

static const int64_t counts[COLLECTIVE_SIZES] = {0, 1, 13, 257, 4099, 70001};
static const uint32_t types[] = {FL_FLOAT32, FL_FLOAT16, FL_BFLOAT16, FL_FLOAT8_E4M3FN, FL_FLOAT64,
                                 FL_INT32,   FL_INT64,   FL_UINT8,    FL_INT8,          FL_BOOLEAN};
enum { N_TYPES = sizeof types / sizeof *types };

/* What is made with each type and size. */
static const struct form {
  int32_t kind;
  bool reduces, may_be_in_place;
} forms[] = {
    {FL_ALL_REDUCE, true, true},       {FL_REDUCE, true, true},         {FL_REDUCE_SCATTER, true, true},
    {FL_REDUCE_SCATTER_V, true, true}, {FL_BROADCAST, false, true},     {FL_ALL_GATHER, false, true},
    {FL_ALL_GATHER_V, false, true},    {FL_GATHER, false, true},        {FL_SCATTER, false, true},
    {FL_ALL_TO_ALL, false, false},     {FL_ALL_TO_ALL_V, false, false}, {FL_SEND, false, false},
    {FL_RECV, false, false},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static uint32_t variants_of(const struct form *form, uint32_t type) {
  uint32_t reductions = !form->reduces       ? 1
                        : type == FL_BOOLEAN ? FL_REDUCE_AVG
                                             : FL_REDUCTIONS; /* the mean is the last */
  return reductions * (form->may_be_in_place ? 2 : 1);
}

static uint32_t cases_of_type(uint32_t type) {
  uint32_t n = 0;
  for (size_t i = 0; i < N_FORMS; i++)
    n += variants_of(&forms[i], type);
  return n;
}

static uint32_t cases_of_size(void) {
  uint32_t n = 0;
  for (size_t i = 0; i < N_TYPES; i++)
    n += cases_of_type(types[i]);
  return n;
}

uint32_t collective_cases(int sizes) {
  return cases_of_size() * (uint32_t)sizes;
}

collective_case collective_case_at(uint32_t i, int32_t ranks) {
  uint32_t size = i / cases_of_size(), type = 0, form = 0;
  collective_case made = {.count = counts[size]};
  for (i %= cases_of_size(); i >= cases_of_type(types[type]); type++)
    i -= cases_of_type(types[type]);
  for (; i >= variants_of(&forms[form], types[type]); form++)
    i -= variants_of(&forms[form], types[type]);
  made.type = fl_element_type_of_bit(types[type]);
  made.kind = forms[form].kind;
  made.in_place = forms[form].may_be_in_place && i % 2;
  made.reduction = forms[form].reduces ? (int32_t)(i / 2) : 0;
  made.root = (int32_t)((size + type) % (uint32_t)ranks);
  return made;
}

const char *collective_words(const collective_case *c, char *text, size_t size) {
  bool has_root = c->kind == FL_REDUCE || c->kind == FL_BROADCAST || c->kind == FL_GATHER || c->kind == FL_SCATTER;
  bool reduces = c->kind == FL_ALL_REDUCE || c->kind == FL_REDUCE || c->kind == FL_REDUCE_SCATTER ||
                 c->kind == FL_REDUCE_SCATTER_V;
  char root[32] = "";
  if (has_root)
    snprintf(root, sizeof root, ", root %d", c->root);
  snprintf(text, size, "%s of %lld %s%s%s%s%s%s",
           c->kind == FL_SEND   ? "messages of all to all"
           : c->kind == FL_RECV ? "messages around a ring"
                                : fl_collective_name(c->kind),
           (long long)c->count, c->type->name, reduces ? " (" : "", reduces ? fl_reduction_name(c->reduction) : "",
           reduces ? ")" : "", root, c->in_place ? ", in place" : "");
  return text;
}

/* ----------------------------------------------------------------------------------------------------------- values */

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

/* The reduction of element i of `n` ranks, as it lies in memory. */
static void reduced_at(const fl_element_type *type, int32_t reduction, int32_t n, int64_t i, void *bytes) {
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
    all = is_integer(type) ? trunc(all / n) : type->dtype.bits == 64 ? all / n : (double)((float)all / (float)n);
  type->put(bytes, 0, all);
}

/* ---------------------------------------------------------------------------------------------------------- buffers */

/* What surrounds one case. */
typedef struct scene {
  const collective_case *c;
  fl_host *host;
  fl_group *group;
  DLDevice device;
  int32_t rank, ranks;
  size_t item;
  fl_status status; /* of the first thing that failed; nothing is done after it */
  char *mismatch;
} scene;

/* Memory on the group's device, and the same on the host; with room behind it that nobody may touch. */
enum { GUARD = 64, GUARD_BYTE = 0x5a };
typedef struct buffer {
  char *image, *memory;
  size_t size;
} buffer;

static bool is_ready(const scene *s) {
  return !s->status;
}

static buffer buffer_make(scene *s, int64_t elements) {
  buffer b = {NULL, NULL, (size_t)elements * s->item + GUARD};
  void *memory = NULL;
  if (!(b.image = malloc(b.size)) ||
      (s->device.device_type != kDLCPU && (s->status = fl_device_allocate(s->host, s->device, b.size, &memory)))) {
    s->status = s->status ? s->status : FL_ENOMEM;
    return b;
  }
  b.memory = s->device.device_type == kDLCPU ? b.image : memory;
  memset(b.image, 0x33, b.size - GUARD);
  memset(b.image + b.size - GUARD, GUARD_BYTE, GUARD);
  return b;
}

/* The host's image goes to the device, or comes from it. */
static void buffer_copy(scene *s, buffer *b, int32_t direction) {
  bool out = direction == FL_COPY_TO_DEVICE;
  if (is_ready(s) && b->memory != b->image)
    s->status = fl_device_copy(s->host, s->device, out ? b->memory : b->image, out ? b->image : b->memory, b->size,
                               direction, NULL);
}

static void buffer_free(scene *s, buffer *b) {
  for (size_t i = 0; is_ready(s) && !*s->mismatch && i < GUARD; i++)
    if (b->image[b->size - GUARD + i] != GUARD_BYTE)
      snprintf(s->mismatch, COLLECTIVE_MISMATCH, "byte %zu behind a buffer was written", i);
  if (b->memory != b->image)
    fl_device_free(s->host, s->device, b->memory);
  free(b->image);
}

static void *at(const scene *s, const buffer *b, int64_t element) {
  return b->memory + (size_t)element * s->item;
}

static void fill(const scene *s, buffer *b, int64_t from, int64_t n) {
  for (int64_t i = 0; is_ready(s) && i < n; i++)
    s->c->type->put(b->image, from + i, value_at(s->c->type, s->rank, i));
}

/* ------------------------------------------------------------------------------------------------------- comparison */

static void compare(const scene *s, const buffer *b, int64_t i, const char *expected) {
  if (*s->mismatch || !memcmp(b->image + (size_t)i * s->item, expected, s->item))
    return;
  snprintf(s->mismatch, COLLECTIVE_MISMATCH, "rank %d of %d: element %lld is %g, expected %g", s->rank, s->ranks,
           (long long)i, s->c->type->get(b->image, i), s->c->type->get(expected, 0));
}

/* `n` elements from `place` on are those of a rank from `first` on. */
static void expect_moved(const scene *s, const buffer *b, int64_t place, int32_t rank, int64_t first, int64_t n) {
  _Alignas(8) char expected[8] = {0};
  for (int64_t i = 0; is_ready(s) && i < n; i++) {
    s->c->type->put(expected, 0, value_at(s->c->type, rank, first + i));
    compare(s, b, place + i, expected);
  }
}

static void expect_reduced(const scene *s, const buffer *b, int64_t place, int64_t first, int64_t n) {
  _Alignas(8) char expected[8] = {0};
  for (int64_t i = 0; is_ready(s) && i < n; i++) {
    reduced_at(s->c->type, s->c->reduction, s->ranks, first + i, expected);
    compare(s, b, place + i, expected);
  }
}

/* ------------------------------------------------------------------------------------------------------ even counts */

static fl_collective collective_of(const scene *s, const void *send, void *recv) {
  fl_collective c = fl_collective_of((fl_collective_kind)s->c->kind, send, recv, s->c->count, s->c->type->dtype, NULL);
  c.reduction = s->c->reduction;
  c.root = s->c->root;
  return c;
}

static void run(scene *s, const fl_collective *c) {
  if (is_ready(s))
    s->status = fl_collective_run(s->group, c);
}

/* Results in `b` from element `place` on. */
static void expect_even(const scene *s, const buffer *b, int64_t place) {
  const collective_case *c = s->c;
  bool is_root = s->rank == c->root;
  int64_t n = c->count;
  switch (c->kind) {
  case FL_ALL_REDUCE:
    expect_reduced(s, b, place, 0, n);
    break;
  case FL_REDUCE:
    expect_reduced(s, b, place, 0, is_root ? n : 0);
    break;
  case FL_BROADCAST:
    expect_moved(s, b, place, c->root, 0, n);
    break;
  case FL_REDUCE_SCATTER:
    expect_reduced(s, b, place, s->rank * n, n);
    break;
  case FL_SCATTER:
    expect_moved(s, b, place, c->root, s->rank * n, n);
    break;
  case FL_ALL_TO_ALL:
    for (int32_t r = 0; r < s->ranks; r++)
      expect_moved(s, b, place + r * n, r, s->rank * n, n);
    break;
  default:
    for (int32_t r = 0; r < s->ranks && (is_root || c->kind != FL_GATHER); r++)
      expect_moved(s, b, place + r * n, r, 0, n);
  }
}

static void try_even(scene *s) {
  const collective_case *c = s->c;
  bool gathers = c->kind == FL_ALL_GATHER || c->kind == FL_GATHER || c->kind == FL_ALL_TO_ALL;
  bool scatters = c->kind == FL_REDUCE_SCATTER || c->kind == FL_SCATTER || c->kind == FL_ALL_TO_ALL;
  int64_t sends = scatters ? c->count * s->ranks : c->count, receives = gathers ? c->count * s->ranks : c->count;
  int64_t own = s->rank * c->count; /* where a rank's part lies in the larger buffer */
  buffer in = buffer_make(s, sends), out = buffer_make(s, receives);
  buffer *from = c->in_place && !scatters ? &out : &in, *to = c->in_place && scatters ? &in : &out;
  int64_t send_at = from == &out && gathers ? own : 0, recv_at = to == &in ? own : 0;
  fill(s, from, send_at, sends);
  buffer_copy(s, from, FL_COPY_TO_DEVICE);
  if (to != from)
    buffer_copy(s, to, FL_COPY_TO_DEVICE);
  bool is_root = s->rank == c->root;
  bool gives = is_root || (c->kind != FL_BROADCAST && c->kind != FL_SCATTER);
  bool gets = is_root || (c->kind != FL_REDUCE && c->kind != FL_GATHER);
  if (is_ready(s)) {
    fl_collective made = collective_of(s, gives ? at(s, from, send_at) : NULL, gets ? at(s, to, recv_at) : NULL);
    run(s, &made);
  }
  buffer_copy(s, to, FL_COPY_TO_HOST);
  expect_even(s, to, recv_at);
  buffer_free(s, &in);
  buffer_free(s, &out);
}

/* ---------------------------------------------------------------------------------------------------- uneven counts */

/* Counts that differ, some 0, with a gap between parts, and the ranks' parts in falling order. */
enum { GAP = 3 };
typedef struct parts {
  int64_t *counts, *offsets, total;
} parts;

static int64_t count_of(const scene *s, int32_t seed, int32_t rank) {
  return (seed + rank) % 3 ? s->c->count + (seed + rank) % 5 : 0;
}

/* Where the part of a rank begins; of number -1 the end. */
static int64_t offset_of(const scene *s, int32_t seed, int32_t rank) {
  int64_t offset = 0;
  for (int32_t r = s->ranks - 1; r > rank; r--)
    offset += count_of(s, seed, r) + GAP;
  return offset;
}

static parts parts_make(scene *s) {
  size_t n = (size_t)s->ranks;
  parts p = {calloc(n, sizeof *p.counts), calloc(n, sizeof *p.offsets), 0};
  if (!p.counts || !p.offsets)
    s->status = FL_ENOMEM;
  return p;
}

static parts parts_of(scene *s, int32_t seed) {
  parts p = parts_make(s);
  for (int32_t r = 0; is_ready(s) && r < s->ranks; r++) {
    p.counts[r] = count_of(s, seed, r);
    p.offsets[r] = offset_of(s, seed, r);
  }
  p.total = offset_of(s, seed, -1);
  return p;
}

static void parts_free(parts *p) {
  free(p->counts);
  free(p->offsets);
}

static void try_uneven(scene *s) {
  const collective_case *c = s->c;
  parts p = parts_of(s, 1);
  bool gathers = c->kind == FL_ALL_GATHER_V;
  int64_t own = count_of(s, 1, s->rank), place = c->in_place ? offset_of(s, 1, s->rank) : 0;
  buffer part = buffer_make(s, own), all = buffer_make(s, p.total), *inner = c->in_place ? &all : &part;
  if (gathers)
    fill(s, inner, place, own);
  else
    fill(s, &all, 0, p.total);
  buffer_copy(s, &part, FL_COPY_TO_DEVICE);
  buffer_copy(s, &all, FL_COPY_TO_DEVICE);
  if (is_ready(s)) {
    fl_collective made =
        collective_of(s, gathers ? at(s, inner, place) : all.memory, gathers ? all.memory : at(s, inner, place));
    made.recv_counts = p.counts;
    made.recv_offsets = p.offsets;
    run(s, &made);
  }
  buffer_copy(s, gathers ? &all : inner, FL_COPY_TO_HOST);
  for (int32_t r = 0; gathers && r < s->ranks; r++)
    expect_moved(s, &all, offset_of(s, 1, r), r, 0, count_of(s, 1, r));
  if (!gathers)
    expect_reduced(s, inner, place, offset_of(s, 1, s->rank), own);
  buffer_free(s, &part);
  buffer_free(s, &all);
  parts_free(&p);
}

/* Rank a sends b as many elements as b expects of a. */
static void try_all_to_all_v(scene *s) {
  parts from = parts_of(s, s->rank), to = parts_make(s);
  for (int32_t r = 0; is_ready(s) && r < s->ranks; r++) {
    to.counts[r] = count_of(s, r, s->rank);
    to.offsets[r] = to.total;
    to.total += to.counts[r] + GAP;
  }
  buffer in = buffer_make(s, from.total), out = buffer_make(s, to.total);
  fill(s, &in, 0, from.total);
  buffer_copy(s, &in, FL_COPY_TO_DEVICE);
  buffer_copy(s, &out, FL_COPY_TO_DEVICE);
  if (is_ready(s)) {
    fl_collective made = collective_of(s, in.memory, out.memory);
    made.send_counts = from.counts;
    made.send_offsets = from.offsets;
    made.recv_counts = to.counts;
    made.recv_offsets = to.offsets;
    run(s, &made);
  }
  buffer_copy(s, &out, FL_COPY_TO_HOST);
  for (int32_t r = 0; is_ready(s) && r < s->ranks; r++)
    expect_moved(s, &out, to.offsets[r], r, offset_of(s, r, s->rank), to.counts[r]);
  buffer_free(s, &in);
  buffer_free(s, &out);
  parts_free(&from);
  parts_free(&to);
}

/* --------------------------------------------------------------------------------------------------------- messages */

/* Two of each rank to each, itself included, all at once; of the same two ranks they keep their order. */
static void try_messages(scene *s) {
  int64_t n = s->c->count;
  uint32_t made = 0;
  buffer in = buffer_make(s, 2 * n), out = buffer_make(s, 2 * n * s->ranks);
  fl_collective *items = calloc((size_t)s->ranks * 4, sizeof *items);
  if (!items)
    s->status = FL_ENOMEM;
  fill(s, &in, 0, 2 * n);
  buffer_copy(s, &in, FL_COPY_TO_DEVICE);
  buffer_copy(s, &out, FL_COPY_TO_DEVICE);
  for (int32_t i = 0; is_ready(s) && i < 2 * s->ranks; i++) {
    DLDataType dtype = s->c->type->dtype;
    items[made] = fl_collective_of(FL_RECV, NULL, at(s, &out, i * n), n, dtype, NULL);
    items[made++].root = i / 2;
    items[made] = fl_collective_of(FL_SEND, at(s, &in, i % 2 * n), NULL, n, dtype, NULL);
    items[made++].root = i / 2;
  }
  if (is_ready(s))
    s->status = fl_collective_run_batch(s->group, items, made, sizeof *items);
  buffer_copy(s, &out, FL_COPY_TO_HOST);
  for (int32_t r = 0; r < s->ranks; r++)
    expect_moved(s, &out, 2 * r * n, r, 0, 2 * n);
  free(items);
  buffer_free(s, &in);
  buffer_free(s, &out);
}

/* Each to the next. Rank 0 sends first, the others when they have received. */
static void try_ring(scene *s) {
  int64_t n = s->c->count;
  DLDataType dtype = s->c->type->dtype;
  int32_t next = (s->rank + 1) % s->ranks, before = (s->rank + s->ranks - 1) % s->ranks;
  buffer in = buffer_make(s, n), out = buffer_make(s, n);
  fill(s, &in, 0, n);
  buffer_copy(s, &in, FL_COPY_TO_DEVICE);
  buffer_copy(s, &out, FL_COPY_TO_DEVICE);
  for (int turn = 0; turn < 2 && is_ready(s) && s->ranks > 1; turn++)
    s->status = (s->rank == 0) == (turn == 0) ? fl_send(s->group, in.memory, n, dtype, next, NULL)
                                              : fl_recv(s->group, out.memory, n, dtype, before, NULL);
  buffer_copy(s, &out, FL_COPY_TO_HOST);
  if (s->ranks > 1)
    expect_moved(s, &out, 0, before, 0, n);
  buffer_free(s, &in);
  buffer_free(s, &out);
}

fl_status collective_try(fl_host *host, fl_group *group, const collective_case *wanted,
                         char mismatch[COLLECTIVE_MISMATCH]) {
  scene s = {.c = wanted,
             .host = host,
             .group = group,
             .device = fl_group_device(group),
             .rank = fl_group_rank(group),
             .ranks = fl_group_ranks(group),
             .item = wanted->type->dtype.bits / 8,
             .mismatch = mismatch};
  *mismatch = 0;
  switch (wanted->kind) {
  case FL_ALL_GATHER_V:
  case FL_REDUCE_SCATTER_V:
    try_uneven(&s);
    break;
  case FL_ALL_TO_ALL_V:
    try_all_to_all_v(&s);
    break;
  case FL_SEND:
    try_messages(&s);
    break;
  case FL_RECV:
    try_ring(&s);
    break;
  default:
    try_even(&s);
  }
  return s.status;
}
