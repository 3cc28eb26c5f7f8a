/*
 * vocab_parallel_embedding: rows of the weight, copied. There is nothing to compute, so both kinds of implementation
 * are this one.
 */
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/view.h"

#include <string.h>

/* Which ids have a row here, and which. */
typedef struct vocabulary {
  bool sharded;
  int64_t rows; /* of the weight */
  int64_t org_start, org_end, added_start, added_end;
  int64_t added_row; /* row of added_start */
} vocabulary;

enum { INPUT_IDS, WEIGHT, ORG_START, ORG_END, ORG_PADDING, ADDED_START, ADDED_END, OUT };

static vocabulary read_vocabulary(const fl_call *call) {
  const fl_value *values = call->values;
  vocabulary v = {.rows = values[WEIGHT].v.tensor->shape[0]};
  if (values[ORG_END].type == FL_NONE)
    return v;
  v.sharded = true;
  v.org_start = values[ORG_START].v.i;
  v.org_end = values[ORG_END].v.i;
  v.added_start = values[ADDED_START].v.i;
  v.added_end = values[ADDED_END].v.i;
  v.added_row = v.org_end - v.org_start + values[ORG_PADDING].v.i;
  return v;
}

/* -1: another shard's. */
static int64_t row_of(const vocabulary *v, int64_t id) {
  if (!v->sharded)
    return id;
  if (id >= v->org_start && id < v->org_end)
    return id - v->org_start;
  return id >= v->added_start && id < v->added_end ? id - v->added_start + v->added_row : -1;
}

static int64_t id_at(const DLTensor *ids, const void *at) {
  return ids->dtype.bits == 64 ? *(const int64_t *)at : *(const int32_t *)at;
}

/* The first of `n` ids, `stride` bytes apart, that is negative or not less than `limit`; none: n. */
static int64_t first_beyond(const DLTensor *ids, const char *at, int64_t stride, int64_t n, uint64_t limit) {
  for (int64_t i = 0; i < n; i++)
    if ((uint64_t)id_at(ids, at + i * stride) >= limit)
      return i;
  return n;
}

/* An id of another shard may be any that is not negative: this one does not know how many there are. */
static fl_status check_ids(fl_call *call, DLTensor *ids, const vocabulary *v) {
  DLTensor *const tensors[] = {ids};
  const uint64_t limit = v->sharded ? (uint64_t)INT64_MAX + 1 : (uint64_t)v->rows;
  int64_t position = 0;
  for (cpu_rows rows = cpu_rows_begin(1, tensors); rows.left;) {
    const cpu_rows_dim last = cpu_rows_last(&rows);
    const int64_t n = last.size, beyond = first_beyond(ids, rows.at[0], last.stride[0], n, limit);
    if (beyond < n) {
      const long long at = position + beyond, id = id_at(ids, (const char *)rows.at[0] + beyond * last.stride[0]);
      if (v->sharded)
        return fl_fail(call, FL_EINVAL, "argument 'input_ids'[%lld] is %lld, expected 0 or more", at, id);
      return fl_fail(call, FL_EINVAL, "argument 'input_ids'[%lld] is %lld, expected 0 to %lld (rows of 'weight')", at,
                     id, (long long)v->rows - 1);
    }
    position += n;
    cpu_rows_skip(&rows, n);
  }
  return FL_OK;
}

typedef struct lookup {
  vocabulary vocabulary;
  const DLTensor *ids;
  const char *weight;
  int64_t stride, bytes; /* from one row of the weight to the next, and of one */
} lookup;

enum { LINE = 64, AHEAD = 16 << 10 }; /* bytes: of a line of the caches, and fetched ahead of those that are copied */
/* Rows of so many bytes are copied in less time than memory takes to answer: ROWS_AHEAD before they are fetched. */
enum { SHORT = 1 << 10, ROWS_AHEAD = 8 };

/* Rows of ids and results, and how far one lies behind another. */
typedef struct id_run {
  const lookup *of;
  const char *ids;
  char *out;
  int64_t n, id_stride, out_stride;
} id_run;

/* The weights of row i; NULL: another shard has them. */
static const char *weights_of(const id_run *run, int64_t i) {
  const int64_t row = row_of(&run->of->vocabulary, id_at(run->of->ids, run->ids + i * run->id_stride));
  return row < 0 ? NULL : run->of->weight + row * run->of->stride;
}

/* Of row i; where there is none, or it has none here, those of another. */
static const char *weights_ahead(const id_run *run, int64_t i, const char *other) {
  const char *from = i < run->n ? weights_of(run, i) : NULL;
  return from ? from : other;
}

static void copy_lines(char *to, const char *from, const char *ahead, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += LINE) {
    __builtin_prefetch(ahead + i, 0, 2);
    cpu_write_around(to + i, from + i, LINE);
  }
}

/* Of whole lines. Meanwhile what comes later is fetched, of this row or of one behind it, whose pages are other ones
 * and take long to find. */
static void copy_around(const id_run *run, int64_t i, char *to, const char *from) {
  const int64_t bytes = run->of->bytes, behind = AHEAD / bytes, offset = AHEAD % bytes / LINE * LINE;
  const int64_t size = bytes - offset;
  copy_lines(to, from, weights_ahead(run, i + behind, from) + offset, size);
  copy_lines(to + size, from + size, weights_ahead(run, i + behind + 1, from), offset);
}

/* Of whole lines, and short. */
static void copy_short(const id_run *run, int64_t i, char *to, const char *from) {
  const char *ahead = weights_ahead(run, i + ROWS_AHEAD, from);
  for (int64_t at = 0; at < run->of->bytes; at += LINE) {
    __builtin_prefetch(ahead + at);
    memcpy(to + at, from + at, LINE);
  }
}

static void look_up(const void *user, const cpu_rows *rows, int64_t n) {
  const lookup *of = user;
  const cpu_rows_dim last = cpu_rows_last(rows);
  const id_run run = {of, rows->at[0], rows->at[1], n, last.stride[0], last.stride[1]};
  const bool is_of_lines = of->bytes % LINE == 0;
  for (int64_t i = 0; i < n; i++) {
    char *to = run.out + i * run.out_stride;
    const char *from = weights_of(&run, i);
    if (!from)
      memset(to, 0, (size_t)of->bytes);
    else if (rows->around && is_of_lines && (uintptr_t)to % LINE == 0)
      copy_around(&run, i, to, from);
    else if (is_of_lines && of->bytes <= SHORT)
      copy_short(&run, i, to, from);
    else
      memcpy(to, from, (size_t)of->bytes);
  }
}

static fl_status vocab_parallel_embedding(void *self, fl_call *call) {
  const DLTensor *weight = cpu_tensor(call, WEIGHT);
  tensor_view view;
  int64_t item = weight->dtype.bits / 8;
  (void)self;
  if (cpu_dtype_of(weight) == CPU_OTHER)
    return cpu_wrong_type(call, "weight");
  DLTensor *ids = view_column(&view, cpu_tensor(call, INPUT_IDS)), *const tensors[] = {ids, cpu_tensor(call, OUT)};
  const lookup of = {.vocabulary = read_vocabulary(call),
                     .ids = ids,
                     .weight = fl_data(weight),
                     .stride = fl_stride(weight, 0) * item,
                     .bytes = weight->shape[1] * item};
  fl_status status = check_ids(call, ids, &of.vocabulary);
  if (status || !of.bytes)
    return status;
  return cpu_rows_run_by_run(2, tensors, (cpu_row_cost){2 * of.bytes, of.bytes}, look_up, &of);
}

static const fl_impl ops[] = {
    {.op_name = "vocab_parallel_embedding", CPU_REFERENCE, .fn = vocab_parallel_embedding},
    {.op_name = "vocab_parallel_embedding", CPU_FLAGOS, .fn = vocab_parallel_embedding},
};
OP_LIST(ops);
