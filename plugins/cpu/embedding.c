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

/* An id of another shard may be any that is not negative: this one does not know how many there are. */
static fl_status check_ids(fl_call *call, DLTensor *ids, const vocabulary *v) {
  DLTensor *const tensors[] = {ids};
  int64_t position = 0;
  for (cpu_rows rows = cpu_rows_begin(1, tensors); rows.left; cpu_rows_next(&rows), position++) {
    int64_t id = id_at(ids, rows.at[0]);
    if (id < 0 && v->sharded)
      return fl_fail(call, FL_EINVAL, "argument 'input_ids'[%lld] is %lld, expected 0 or more", (long long)position,
                     (long long)id);
    if (!v->sharded && (id < 0 || id >= v->rows))
      return fl_fail(call, FL_EINVAL, "argument 'input_ids'[%lld] is %lld, expected 0 to %lld (rows of 'weight')",
                     (long long)position, (long long)id, (long long)v->rows - 1);
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

/* Where the weights of the row are that comes so many behind this one; if none does, those of this one. */
static const char *row_ahead(const lookup *of, const cpu_rows *rows, int64_t behind, const char *present) {
  int last = rows->n_dims - 1;
  if (last < 0 || rows->dims[last].index + behind >= rows->dims[last].size)
    return present;
  int64_t row =
      row_of(&of->vocabulary, id_at(of->ids, (const char *)rows->at[0] + behind * rows->dims[last].stride[0]));
  return row < 0 ? present : of->weight + row * of->stride;
}

static void copy_lines(char *to, const char *from, const char *ahead, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += LINE) {
    __builtin_prefetch(ahead + i, 0, 2);
    cpu_write_around(to + i, from + i, LINE);
  }
}

/* Of whole lines. Meanwhile what comes later is fetched, of this row or of one behind it, whose pages are other ones
 * and take long to find. */
static void copy_around(const lookup *of, const cpu_rows *rows, const char *from) {
  const int64_t behind = AHEAD / of->bytes, offset = AHEAD % of->bytes / LINE * LINE, size = of->bytes - offset;
  char *to = rows->at[1];
  copy_lines(to, from, row_ahead(of, rows, behind, from) + offset, size);
  copy_lines(to + size, from + size, row_ahead(of, rows, behind + 1, from), offset);
}

static void look_up(const void *user, const cpu_rows *rows) {
  const lookup *of = user;
  int64_t row = row_of(&of->vocabulary, id_at(of->ids, rows->at[0]));
  if (row < 0)
    memset(rows->at[1], 0, (size_t)of->bytes);
  else if (cpu_rows_around(rows, 1) && of->bytes % LINE == 0)
    copy_around(of, rows, of->weight + row * of->stride);
  else
    memcpy(rows->at[1], of->weight + row * of->stride, (size_t)of->bytes);
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
  return cpu_rows_run(2, tensors, (cpu_row_cost){2 * of.bytes, of.bytes}, look_up, &of);
}

static const fl_impl ops[] = {
    {.op_name = "vocab_parallel_embedding", CPU_REFERENCE, .fn = vocab_parallel_embedding},
    {.op_name = "vocab_parallel_embedding", CPU_FLAGOS, .fn = vocab_parallel_embedding},
};
OP_LIST(ops);
