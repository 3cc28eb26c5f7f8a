/*
 * Collectives by the library's. The work goes to the collective's stream, and nothing waits, but where the stream is
 * the default one: that the library does not take, so that a stream of the rank's own does the work, and is waited for.
 */
#include "plugins/hccl/rank.h"

#include <stdlib.h>
#include <string.h>

/* fl_reduction is numbered as the library's are, which has no mean. */
_Static_assert((int)FL_REDUCE_SUM == HCCL_REDUCE_SUM && (int)FL_REDUCE_PROD == HCCL_REDUCE_PROD &&
                   (int)FL_REDUCE_MAX == HCCL_REDUCE_MAX && (int)FL_REDUCE_MIN == HCCL_REDUCE_MIN,
               "the same numbers");

/* A collective as the library is told of it. */
typedef struct task {
  fl_rank *rank;
  const fl_collective *c;
  void *send, *recv; /* never NULL, where one has elements or none */
  uint64_t count;
  HcclDataType type;
  aclrtStream stream;
} task;

/* What a function of the library gave. One that it has not, on this kind of device, the host makes up. */
static fl_status result_of(const task *t, const char *function, HcclResult result) {
  return hccl_failed(t->rank, hccl_status(result, function, t->rank->message, t->rank->message_size));
}

/* ----------------------------------------------------------------------------------------------------------- types */

typedef struct type_row {
  DLDataType dtype;
  HcclDataType type;
} type_row;

/* Those that all of its reductions take. */
static const type_row reduced[] = {{{kDLInt, 8, 1}, HCCL_DATA_TYPE_INT8},      {{kDLInt, 32, 1}, HCCL_DATA_TYPE_INT32},
                                   {{kDLFloat, 16, 1}, HCCL_DATA_TYPE_FP16},   {{kDLFloat, 32, 1}, HCCL_DATA_TYPE_FP32},
                                   {{kDLBfloat, 16, 1}, HCCL_DATA_TYPE_BFP16}, {{0, 0, 0}, 0}};

/* What is only moved is told by its size: not every function takes every type. */
static const type_row moved[] = {{{kDLInt, 8, 1}, HCCL_DATA_TYPE_INT8},
                                 {{kDLInt, 16, 1}, HCCL_DATA_TYPE_FP16},
                                 {{kDLInt, 32, 1}, HCCL_DATA_TYPE_INT32},
                                 {{kDLInt, 64, 1}, HCCL_DATA_TYPE_INT64},
                                 {{0, 0, 0}, 0}};

static bool reduces(const fl_collective *c) {
  return c->kind == FL_ALL_REDUCE || c->kind == FL_REDUCE_SCATTER || c->kind == FL_REDUCE_SCATTER_V;
}

/* bfloat16 has no product in the library. */
static bool find_type(const fl_collective *c, HcclDataType *type) {
  bool exact = reduces(c);
  for (const type_row *row = exact ? reduced : moved; row->dtype.bits; row++)
    if (row->dtype.bits == c->dtype.bits && (!exact || row->dtype.code == c->dtype.code)) {
      *type = row->type;
      return !exact || c->reduction != FL_REDUCE_PROD || row->type != HCCL_DATA_TYPE_BFP16;
    }
  return false;
}

/* ------------------------------------------------------------------------------------------------------------- one */

typedef fl_status step_fn(const task *t);

static fl_status all_reduce(const task *t) {
  return result_of(t, "HcclAllReduce",
                   hccl.all_reduce(t->send, t->recv, t->count, t->type, t->c->reduction, t->rank->comm, t->stream));
}

/* It works in place: the root's elements have to be there first. */
static fl_status broadcast(const task *t) {
  size_t size = (size_t)t->count * (t->c->dtype.bits / 8);
  if (t->rank->me == t->c->root && t->send != t->recv) {
    fl_status status =
        hccl_failed_in(t->rank, "aclrtMemcpyAsync",
                       acl.aclrtMemcpyAsync(t->recv, size, t->send, size, ACL_MEMCPY_DEVICE_TO_DEVICE, t->stream));
    if (status)
      return status;
  }
  return result_of(t, "HcclBroadcast",
                   hccl.broadcast(t->recv, t->count, t->type, (uint32_t)t->c->root, t->rank->comm, t->stream));
}

static fl_status all_gather(const task *t) {
  return result_of(t, "HcclAllGather", hccl.all_gather(t->send, t->recv, t->count, t->type, t->rank->comm, t->stream));
}

static fl_status all_gather_v(const task *t) {
  const fl_collective *c = t->c;
  if (!hccl.all_gather_v)
    return FL_ENOTSUP;
  return result_of(t, "HcclAllGatherV",
                   hccl.all_gather_v(t->send, (uint64_t)c->recv_counts[t->rank->me], t->recv, c->recv_counts,
                                     c->recv_offsets, t->type, t->rank->comm, t->stream));
}

static fl_status reduce_scatter(const task *t) {
  return result_of(t, "HcclReduceScatter",
                   hccl.reduce_scatter(t->send, t->recv, t->count, t->type, t->c->reduction, t->rank->comm, t->stream));
}

static fl_status reduce_scatter_v(const task *t) {
  const fl_collective *c = t->c;
  if (!hccl.reduce_scatter_v)
    return FL_ENOTSUP;
  return result_of(t, "HcclReduceScatterV",
                   hccl.reduce_scatter_v(t->send, c->recv_counts, c->recv_offsets, t->recv,
                                         (uint64_t)c->recv_counts[t->rank->me], t->type, c->reduction, t->rank->comm,
                                         t->stream));
}

static fl_status scatter(const task *t) {
  if (!hccl.scatter)
    return FL_ENOTSUP;
  return result_of(t, "HcclScatter",
                   hccl.scatter(t->send, t->recv, t->count, t->type, (uint32_t)t->c->root, t->rank->comm, t->stream));
}

static fl_status all_to_all(const task *t) {
  return result_of(t, "HcclAlltoAll",
                   hccl.all_to_all(t->send, t->count, t->type, t->recv, t->count, t->type, t->rank->comm, t->stream));
}

static fl_status all_to_all_v(const task *t) {
  const fl_collective *c = t->c;
  return result_of(t, "HcclAlltoAllV",
                   hccl.all_to_all_v(t->send, c->send_counts, c->send_offsets, t->type, t->recv, c->recv_counts,
                                     c->recv_offsets, t->type, t->rank->comm, t->stream));
}

static fl_status send(const task *t) {
  return result_of(t, "HcclSend",
                   hccl.send(t->send, t->count, t->type, (uint32_t)t->c->root, t->rank->comm, t->stream));
}

static fl_status recv(const task *t) {
  return result_of(t, "HcclRecv",
                   hccl.recv(t->recv, t->count, t->type, (uint32_t)t->c->root, t->rank->comm, t->stream));
}

static fl_status barrier(const task *t) {
  return hccl.barrier ? result_of(t, "HcclBarrier", hccl.barrier(t->rank->comm, t->stream)) : FL_ENOTSUP;
}

/* `widest`: bytes of the largest elements that the function takes; the host makes up the rest. */
static const struct way {
  step_fn *make;
  uint8_t widest;
  bool counted; /* `count` is 0 on all ranks, or on none: there is nothing to do */
} ways[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = {all_reduce, 8, true},
    [FL_BROADCAST] = {broadcast, 8, true},
    [FL_ALL_GATHER] = {all_gather, 8, true},
    [FL_ALL_GATHER_V] = {all_gather_v, 4, false},
    [FL_REDUCE_SCATTER] = {reduce_scatter, 8, true},
    [FL_REDUCE_SCATTER_V] = {reduce_scatter_v, 8, false},
    [FL_SCATTER] = {scatter, 4, true},
    [FL_ALL_TO_ALL] = {all_to_all, 8, true},
    [FL_ALL_TO_ALL_V] = {all_to_all_v, 8, false},
    [FL_SEND] = {send, 8, true},
    [FL_RECV] = {recv, 8, true},
    [FL_BARRIER] = {barrier, 8, false},
};

/* Of those whose counts are alike on all ranks. */
static bool is_empty(const fl_rank *rank, const fl_collective *c) {
  if (c->kind != FL_ALL_GATHER_V && c->kind != FL_REDUCE_SCATTER_V)
    return ways[c->kind].counted && !c->count;
  for (int i = 0; i < rank->n; i++)
    if (c->recv_counts[i])
      return false;
  return true;
}

/* One that a rank does not have is another of its own: the library only reads what it is given to send. */
static void find_buffers(task *t) {
  t->recv = t->c->recv ? t->c->recv : t->rank->spare;
  t->send = t->c->send ? (void *)(uintptr_t)t->c->send : t->recv;
}

static fl_status make_on_stream(task *t) {
  fl_rank *rank = t->rank;
  t->stream = t->c->stream ? t->c->stream : rank->stream;
  fl_status status = hccl_check_late(rank);
  if (status)
    return status;
  work *begun = works_begin(&rank->works, t->c->kind, t->stream);
  if (!t->c->stream)
    status = hccl_wait_for(rank, NULL);
  if (!status)
    status = ways[t->c->kind].make(t);
  works_record(&rank->works, begun, t->stream, !status);
  if (!status && !t->c->stream)
    status = hccl_wait_for(rank, rank->stream);
  return status;
}

fl_status hccl_collective(void *self, fl_rank *rank, const fl_collective *c) {
  ascend_guard guard;
  task t = {.rank = rank, .c = c, .count = (uint64_t)c->count};
  (void)self;
  if (c->kind != FL_BARRIER && (!find_type(c, &t.type) || c->dtype.bits / 8 > ways[c->kind].widest))
    return FL_ENOTSUP;
  if (is_empty(rank, c))
    return FL_OK;
  find_buffers(&t);
  fl_status status = ascend_enter(rank->device, &guard, rank->message, rank->message_size);
  if (status)
    return hccl_failed(rank, FL_EDEVICE);
  status = make_on_stream(&t);
  ascend_leave(&guard);
  return status;
}

/* --------------------------------------------------------------------------------------------------------- several */

typedef struct exchange {
  fl_rank *rank;
  const fl_collective *collectives;
  uint32_t n, item_size;
  HcclSendRecvItem *items; /* those with other ranks, */
  uint32_t n_items;
  aclrtStream stream;
  bool waits; /* for what is on other streams than that, and for it */
} exchange;

static const fl_collective *collective_at(const exchange *e, uint32_t i) {
  return (const fl_collective *)((const char *)e->collectives + (size_t)i * e->item_size);
}

static HcclSendRecvItem item_of(const fl_collective *c) {
  bool sends = c->kind == FL_SEND;
  HcclSendRecvItem item = {.sendRecvType = sends ? HCCL_SEND : HCCL_RECV,
                           .buf = sends ? (void *)(uintptr_t)c->send : c->recv,
                           .count = (uint64_t)c->count,
                           .remoteRank = (uint32_t)c->root};
  find_type(c, &item.dataType);
  return item;
}

/* All on one stream is what the library can do; else one of the rank's own does it. */
static void choose_stream(exchange *e) {
  e->stream = collective_at(e, 0)->stream;
  e->waits = !e->stream;
  for (uint32_t i = 1; i < e->n; i++)
    e->waits = e->waits || collective_at(e, i)->stream != e->stream;
  if (e->waits)
    e->stream = e->rank->stream;
}

static fl_status wait_for_streams(const exchange *e) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < e->n && e->waits && !status; i++)
    status = hccl_wait_for(e->rank, collective_at(e, i)->stream);
  return status;
}

/* The next from or to the rank itself, from `i` on; n where there is none. */
static uint32_t next_own(const exchange *e, int32_t kind, uint32_t i) {
  for (; i < e->n; i++) {
    const fl_collective *c = collective_at(e, i);
    if (c->kind == kind && c->root == e->rank->me && c->count)
      break;
  }
  return i;
}

/* A rank's messages to itself are copies, the first sent to the first received, and so on. */
static fl_status copy_own(const exchange *e) {
  fl_rank *rank = e->rank;
  uint32_t from = next_own(e, FL_SEND, 0), to = next_own(e, FL_RECV, 0);
  fl_status status = FL_OK;
  while (from < e->n && to < e->n && !status) {
    const fl_collective *sent = collective_at(e, from), *received = collective_at(e, to);
    size_t size = (size_t)sent->count * (sent->dtype.bits / 8);
    if (sent->count != received->count || sent->dtype.bits != received->dtype.bits)
      break;
    status = hccl_failed_in(
        rank, "aclrtMemcpyAsync",
        acl.aclrtMemcpyAsync(received->recv, size, sent->send, size, ACL_MEMCPY_DEVICE_TO_DEVICE, e->stream));
    from = next_own(e, FL_SEND, from + 1);
    to = next_own(e, FL_RECV, to + 1);
  }
  if (!status && (from < e->n || to < e->n))
    return fl_say(rank->message, rank->message_size, FL_EINVAL,
                  "rank %d sends itself something else than it receives from itself", rank->me);
  return status;
}

static fl_status make_exchange(exchange *e) {
  const task t = {.rank = e->rank};
  fl_status status = hccl_check_late(e->rank);
  if (status)
    return status;
  work *begun = works_begin(&e->rank->works, WORK_BATCH, e->stream);
  status = wait_for_streams(e);
  if (!status)
    status = copy_own(e);
  if (!status && e->n_items)
    status = result_of(&t, "HcclBatchSendRecv", hccl.batch_send_recv(e->items, e->n_items, e->rank->comm, e->stream));
  works_record(&e->rank->works, begun, e->stream, !status);
  if (!status && e->waits)
    status = hccl_wait_for(e->rank, e->stream);
  return status;
}

/* All of them are sends and receives. */
fl_status hccl_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size) {
  ascend_guard guard;
  exchange e = {.rank = rank, .collectives = collectives, .n = n, .item_size = item_size};
  (void)self;
  if (!hccl.batch_send_recv)
    return FL_ENOTSUP;
  if (!n)
    return FL_OK;
  e.items = calloc(n, sizeof *e.items);
  if (!e.items)
    return fl_say(rank->message, rank->message_size, FL_ENOMEM, "no memory for %u sends and receives", (unsigned)n);
  for (uint32_t i = 0; i < n; i++) {
    const fl_collective *c = collective_at(&e, i);
    if (c->count && c->root != rank->me)
      e.items[e.n_items++] = item_of(c);
  }
  choose_stream(&e);
  fl_status status = ascend_enter(rank->device, &guard, rank->message, rank->message_size);
  if (status) {
    status = hccl_failed(rank, FL_EDEVICE);
  } else {
    status = make_exchange(&e);
    ascend_leave(&guard);
  }
  free(e.items);
  return status;
}
