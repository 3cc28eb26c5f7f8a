/* Collectives: what is asked for is checked, compared where that is wished, and given to the communicator. */
#include "core/group/collective.h"

#include "core/group/composed.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- extents */

static int64_t greater(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* Behind the last element of all parts. */
static int64_t end_of(const fl_group *group, const int64_t *counts, const int64_t *offsets) {
  int64_t end = 0;
  for (int32_t i = 0; i < group->ranks; i++)
    if (counts[i])
      end = greater(end, offsets[i] + counts[i]);
  return end;
}

fl_extent fl_collective_extent(const fl_group *group, const fl_collective *c) {
  int64_t n = c->count, all = n * group->ranks;
  bool is_root = c->root == group->rank;
  switch ((fl_collective_kind)c->kind) {
  case FL_ALL_REDUCE:
    return (fl_extent){n, n};
  case FL_REDUCE:
    return (fl_extent){n, is_root ? n : 0};
  case FL_BROADCAST:
    return (fl_extent){is_root ? n : 0, n};
  case FL_ALL_GATHER:
    return (fl_extent){n, all};
  case FL_ALL_GATHER_V:
    return (fl_extent){c->recv_counts[group->rank], end_of(group, c->recv_counts, c->recv_offsets)};
  case FL_REDUCE_SCATTER:
    return (fl_extent){all, n};
  case FL_REDUCE_SCATTER_V:
    return (fl_extent){end_of(group, c->recv_counts, c->recv_offsets), c->recv_counts[group->rank]};
  case FL_GATHER:
    return (fl_extent){n, is_root ? all : 0};
  case FL_SCATTER:
    return (fl_extent){is_root ? all : 0, n};
  case FL_ALL_TO_ALL:
    return (fl_extent){all, all};
  case FL_ALL_TO_ALL_V:
    return (fl_extent){end_of(group, c->send_counts, c->send_offsets), end_of(group, c->recv_counts, c->recv_offsets)};
  case FL_SEND:
    return (fl_extent){n, 0};
  case FL_RECV:
    return (fl_extent){0, n};
  case FL_BARRIER:
    break;
  }
  return (fl_extent){0, 0};
}

/* ----------------------------------------------------------------------------------------------------------- checks */

static fl_status wrong(const fl_collective *c, int index, const char *format, ...) FL_PRINTF(3, 4);

static fl_status wrong(const fl_collective *c, int index, const char *format, ...) {
  char what[256], where[48] = "";
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (index >= 0)
    snprintf(where, sizeof where, "collective %d of the batch, ", index);
  return fl_error(FL_EINVAL, "%s%s: %s", where, fl_collective_name(c->kind), what);
}

/* More elements than memory can have bytes. */
enum { MOST_SHIFT = 56 };
#define MOST_ELEMENTS (INT64_C(1) << MOST_SHIFT)

/* Of a _V: no part is beyond memory, or lies in another that is written. */
static fl_status check_parts(const fl_group *group, const fl_collective *c, int index, const char *which,
                             const int64_t *counts, const int64_t *offsets, bool written) {
  if (!counts || !offsets)
    return wrong(c, index, "%s_%s is NULL, expected an element for each rank", which, counts ? "offsets" : "counts");
  for (int32_t i = 0; i < group->ranks; i++)
    if (counts[i] < 0 || offsets[i] < 0 || counts[i] > MOST_ELEMENTS || offsets[i] > MOST_ELEMENTS)
      return wrong(c, index, "%s_counts[%d] is %lld and %s_offsets[%d] %lld, expected 0 or more", which, i,
                   (long long)counts[i], which, i, (long long)offsets[i]);
  bool ascending = true;
  for (int32_t i = 1; i < group->ranks; i++)
    ascending = ascending && offsets[i] >= offsets[i - 1] + counts[i - 1];
  for (int32_t i = 0; written && !ascending && i < group->ranks; i++)
    for (int32_t j = 0; j < i; j++)
      if (counts[i] && counts[j] && offsets[i] < offsets[j] + counts[j] && offsets[j] < offsets[i] + counts[i])
        return wrong(c, index, "the parts of ranks %d and %d overlap in %s", j, i, which);
  return FL_OK;
}

static fl_status check_counts(const fl_group *group, const fl_collective *c, int index) {
  fl_status status = FL_OK;
  if (!fl_collective_has_counts(c->kind))
    return c->count >= 0 && c->count <= MOST_ELEMENTS / group->ranks
               ? FL_OK
               : wrong(c, index, "count is %lld, expected 0 or more%s", (long long)c->count,
                       c->count < 0 ? "" : ", and no more than memory can hold");
  if (c->kind == FL_ALL_TO_ALL_V)
    status = check_parts(group, c, index, "send", c->send_counts, c->send_offsets, false);
  return status ? status
                : check_parts(group, c, index, "recv", c->recv_counts, c->recv_offsets, c->kind != FL_REDUCE_SCATTER_V);
}

/* Where one buffer may lie in the other, in elements from its beginning. -1: nowhere. */
static int64_t place_in(const fl_group *group, const fl_collective *c) {
  switch ((fl_collective_kind)c->kind) {
  case FL_ALL_REDUCE:
  case FL_REDUCE:
  case FL_BROADCAST:
    return 0;
  case FL_ALL_GATHER:
  case FL_GATHER:
  case FL_REDUCE_SCATTER:
  case FL_SCATTER:
    return group->rank * c->count;
  case FL_ALL_GATHER_V:
  case FL_REDUCE_SCATTER_V:
    return c->recv_offsets[group->rank];
  default:
    return -1;
  }
}

static fl_status check_overlap(const fl_group *group, const fl_collective *c, int index, fl_extent extent,
                               size_t item) {
  uintptr_t send = (uintptr_t)c->send, recv = (uintptr_t)c->recv;
  size_t send_size = (size_t)extent.send * item, recv_size = (size_t)extent.recv * item;
  if (!send_size || !recv_size || send + send_size <= recv || recv + recv_size <= send)
    return FL_OK;
  int64_t place = place_in(group, c);
  uintptr_t outer = extent.send > extent.recv ? send : recv, inner = extent.send > extent.recv ? recv : send;
  if (place >= 0 && inner == outer + (size_t)place * item)
    return FL_OK;
  return place < 0 ? wrong(c, index, "send and recv overlap, expected buffers apart from each other")
                   : wrong(c, index,
                           "send and recv overlap otherwise than in place, where the smaller would begin at element "
                           "%lld of the larger",
                           (long long)place);
}

static fl_status check_buffer(const fl_collective *c, int index, const char *name, const void *buffer, int64_t count,
                              size_t item) {
  if (count && !buffer)
    return wrong(c, index, "%s is NULL, expected %lld elements of %s", name, (long long)count, fl_dtype_name(c->dtype));
  if (count && (uintptr_t)buffer % item)
    return wrong(c, index, "%s is not aligned to its elements of %zu bytes", name, item);
  return FL_OK;
}

fl_status fl_collective_check(const fl_group *group, const fl_collective *c, int index) {
  if (!fl_collective_name(c->kind))
    return fl_error(FL_EINVAL, "kind is %d, expected one of FL_ALL_REDUCE to FL_BARRIER", c->kind);
  if (c->kind == FL_BARRIER)
    return FL_OK;
  if (!fl_dtype_bit(c->dtype))
    return wrong(c, index,
                 "dtype is {%u, %u, %u}, expected one of float32, float16, bfloat16, float8_e4m3fn, float64, "
                 "int32, int64, uint8, int8, bool",
                 c->dtype.code, c->dtype.bits, c->dtype.lanes);
  if (fl_collective_reduces(c->kind) && !fl_reduction_name(c->reduction))
    return wrong(c, index, "reduction is %d, expected one of FL_REDUCE_SUM to FL_REDUCE_AVG", c->reduction);
  if (fl_collective_reduces(c->kind) && c->reduction == FL_REDUCE_AVG && c->dtype.code == FL_DTYPE_BOOL)
    return wrong(c, index, "truth values have no mean, expected sum, prod, max or min");
  if (fl_collective_has_root(c->kind) && (c->root < 0 || c->root >= group->ranks))
    return wrong(c, index, "root is %d, expected a rank, 0 to %d", c->root, group->ranks - 1);
  size_t item = c->dtype.bits / 8;
  fl_status status = check_counts(group, c, index);
  if (status)
    return status;
  fl_extent extent = fl_collective_extent(group, c);
  status = check_buffer(c, index, "send", c->send, extent.send, item);
  if (!status)
    status = check_buffer(c, index, "recv", c->recv, extent.recv, item);
  return status ? status : check_overlap(group, c, index, extent, item);
}

/* ------------------------------------------------------------------------------------------------------- comparison */

/* What a rank is about to do, but for where its buffers are; behind it two counts a rank for FL_ALL_TO_ALL_V. */
typedef struct intent {
  uint64_t sequence;
  int64_t count;
  uint64_t counts; /* a hash of those that all ranks have alike */
  int32_t kind, reduction, root;
  DLDataType dtype;
} intent;

static uint64_t hash_counts(const int64_t *counts, const int64_t *offsets, int32_t n) {
  size_t size = (size_t)n * sizeof *counts;
  return fl_hash_name((const char *)counts, size) * 31 + fl_hash_name((const char *)offsets, size);
}

static void describe(const intent *i, int32_t rank, fl_text *text) {
  fl_text_add(text, "rank %d makes %s", rank, fl_collective_name(i->kind) ? fl_collective_name(i->kind) : "?");
  if (i->kind == FL_BARRIER)
    return;
  if (fl_collective_has_counts(i->kind))
    fl_text_add(text, " of %s with counts of its own", fl_dtype_name(i->dtype));
  else
    fl_text_add(text, " of %lld %s", (long long)i->count, fl_dtype_name(i->dtype));
  if (fl_collective_reduces(i->kind))
    fl_text_add(text, ", %s", fl_reduction_name(i->reduction) ? fl_reduction_name(i->reduction) : "?");
  if (fl_collective_has_root(i->kind))
    fl_text_add(text, ", root %d", i->root);
  fl_text_add(text, ", its collective number %llu", (unsigned long long)i->sequence);
}

static fl_status differ(const fl_group *group, const intent *a, int32_t rank_a, const intent *b, int32_t rank_b) {
  fl_text text = {0};
  describe(a, rank_a, &text);
  fl_text_add(&text, "; ");
  describe(b, rank_b, &text);
  fl_status status =
      fl_error(FL_EINVAL, "the ranks of group '%s' are not about to do the same: %s", group->name, fl_text_get(&text));
  fl_text_free(&text);
  return status;
}

/* What one rank sends to another is what that expects of it. */
static fl_status compare_matrix(const fl_group *group, const char *all, size_t size) {
  for (int32_t i = 0; i < group->ranks; i++)
    for (int32_t j = 0; j < group->ranks; j++) {
      const int64_t *sends = (const int64_t *)(all + (size_t)i * size + sizeof(intent));
      const int64_t *receives = (const int64_t *)(all + (size_t)j * size + sizeof(intent)) + group->ranks;
      if (sends[j] != receives[i])
        return fl_error(FL_EINVAL,
                        "all_to_all_v of group '%s': rank %d sends %lld elements to rank %d, which expects %lld",
                        group->name, i, (long long)sends[j], j, (long long)receives[i]);
    }
  return FL_OK;
}

/* Sends and receives are two ranks' affair: they are not compared. */
fl_status fl_collective_compare(fl_group *group, const fl_collective *c) {
  size_t counts = sizeof(int64_t) * 2 * (size_t)group->ranks, size = sizeof(intent) + counts;
  if (c->kind == FL_SEND || c->kind == FL_RECV)
    return FL_OK;
  char *mine = calloc(1, size), *all = calloc((size_t)group->ranks, size);
  fl_status status = mine && all ? FL_OK : fl_error_no_memory();
  if (!status) {
    intent own = {.sequence = group->sequence + 1, .count = c->count, .kind = c->kind, .dtype = c->dtype};
    own.reduction = fl_collective_reduces(c->kind) ? c->reduction : 0;
    own.root = fl_collective_has_root(c->kind) ? c->root : 0;
    if (fl_collective_has_counts(c->kind)) {
      own.count = 0;
      if (c->kind != FL_ALL_TO_ALL_V)
        own.counts = hash_counts(c->recv_counts, c->recv_offsets, group->ranks);
    }
    memcpy(mine, &own, sizeof own);
    if (c->kind == FL_ALL_TO_ALL_V) {
      memcpy(mine + sizeof own, c->send_counts, counts / 2);
      memcpy(mine + sizeof own + counts / 2, c->recv_counts, counts / 2);
    }
    status = fl_group_exchange(group, mine, size, all);
  }
  for (int32_t i = 1; !status && i < group->ranks; i++) {
    const intent *first = (const intent *)all, *other = (const intent *)(all + (size_t)i * size);
    if (memcmp(first, other, sizeof *first) != 0)
      status = differ(group, first, 0, other, i);
  }
  if (!status && c->kind == FL_ALL_TO_ALL_V)
    status = compare_matrix(group, all, size);
  free(mine);
  free(all);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- making */

bool fl_collective_is_reduced(const fl_group *group, const fl_collective *c) {
  const fl_communicator *functions = &group->communicator.functions;
  return fl_dtype_bit(c->dtype) & functions->dtypes && functions->reductions & 1u << c->reduction;
}

/* The same elements as bytes; counts go to the group's room. */
static void as_bytes(const fl_group *group, fl_collective *c) {
  const int64_t **lists[] = {&c->send_counts, &c->send_offsets, &c->recv_counts, &c->recv_offsets};
  int64_t item = c->dtype.bits / 8;
  c->count *= item;
  for (int i = 0; i < 4; i++) {
    int64_t *bytes = group->counts + (size_t)i * (size_t)group->ranks;
    if (!*lists[i] || !fl_collective_has_counts(c->kind))
      continue;
    for (int32_t j = 0; j < group->ranks; j++)
      bytes[j] = (*lists[i])[j] * item;
    *lists[i] = bytes;
  }
  c->dtype = (DLDataType){kDLUInt, 8, 1};
}

/* What it takes of a collective that moves elements without looking at them. */
static fl_collective moved(const fl_group *group, const fl_collective *given) {
  fl_collective c = *given;
  if (!fl_collective_reduces(c.kind) && c.kind != FL_BARRIER &&
      !(fl_dtype_bit(c.dtype) & group->communicator.functions.dtypes))
    as_bytes(group, &c);
  return c;
}

fl_status fl_collective_native(fl_group *group, const fl_collective *given) {
  const fl_communicator_choice *communicator = &group->communicator;
  fl_collective_fn function = fl_communicator_function(&communicator->functions, given->kind);
  if (!function || (fl_collective_reduces(given->kind) && !fl_collective_is_reduced(group, given)))
    return FL_ENOTSUP;
  fl_collective c = moved(group, given);
  group->message[0] = 0;
  fl_status status = function(communicator->self, group->part, &c);
  return status ? fl_group_failed(group, fl_collective_name(c.kind), status) : FL_OK;
}

fl_status fl_collective_make(fl_group *group, const fl_collective *c) {
  group->sequence++;
  fl_status status = fl_collective_native(group, c);
  return status == FL_ENOTSUP ? fl_collective_compose(group, c) : status;
}

fl_status fl_collective_make_batch(fl_group *group, const fl_collective *given, uint32_t n) {
  const fl_communicator_choice *communicator = &group->communicator;
  bool simple = communicator->functions.batch != NULL;
  if (!n)
    return FL_OK;
  for (uint32_t i = 0; i < n && simple; i++)
    simple = given[i].kind == FL_SEND || given[i].kind == FL_RECV;
  if (!simple)
    return fl_collective_compose_batch(group, given, n);
  fl_collective *c = calloc(n, sizeof *c);
  if (!c)
    return fl_error_no_memory();
  for (uint32_t i = 0; i < n; i++)
    c[i] = moved(group, &given[i]);
  group->sequence++;
  group->message[0] = 0;
  fl_status status = communicator->functions.batch(communicator->self, group->part, c, n, sizeof *c);
  free(c);
  if (status == FL_ENOTSUP)
    return fl_collective_compose_batch(group, given, n);
  return status ? fl_group_failed(group, "batch", status) : FL_OK;
}
