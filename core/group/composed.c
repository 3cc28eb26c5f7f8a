/*
 * Collectives that a communicator lacks, of those that it has. All ranks go the same way, since it depends on nothing
 * but what they have alike: functions, element type, reduction. Only all_reduce, broadcast, send and recv are taken
 * for granted.
 */
#include "core/group/composed.h"

#include "core/group/reduced.h"

#include <stdlib.h>
#include <string.h>

static char *element(const void *buffer, int64_t i, const fl_collective *c) {
  return buffer || i ? (char *)(uintptr_t)buffer + i * (c->dtype.bits / 8) : NULL;
}

static fl_status no_memory(void) {
  return fl_error_status();
}

/* The same collective as another one, with buffers of its own. */
static fl_collective other(const fl_collective *c, fl_collective_kind kind, const void *send, void *recv, int64_t count,
                           int32_t root) {
  fl_collective made = fl_collective_of(kind, send, recv, count, c->dtype, c->stream);
  made.reduction = c->reduction;
  made.root = root;
  return made;
}

/* ---------------------------------------------------------------------------------------------------------- reduced */

/* The mean as a sum that is divided, where that is all that is missing. */
static fl_status mean(fl_group *group, const fl_collective *given) {
  fl_collective c = *given;
  c.reduction = FL_REDUCE_SUM;
  fl_status status = fl_collective_make(group, &c);
  int64_t results = fl_collective_extent(group, &c).recv;
  return status ? status : fl_collective_divide(group, c.recv, results, c.dtype, c.stream);
}

/* By an all_reduce of everything into memory of the group's; `kept` elements of it, from `from` on, are the result. */
static fl_status by_all_reduce(fl_group *group, const fl_collective *c, int64_t count, int64_t from, int64_t kept) {
  size_t item = c->dtype.bits / 8;
  void *all = fl_group_memory(group, 0, (size_t)count * item);
  if (!all)
    return no_memory();
  fl_collective reduce = other(c, FL_ALL_REDUCE, c->send, all, count, 0);
  fl_status status = fl_collective_make(group, &reduce);
  return status ? status : fl_group_copy(group, c->recv, element(all, from, c), (size_t)kept * item, c->stream);
}

static fl_status reduced(fl_group *group, const fl_collective *c) {
  fl_collective sum = *c;
  fl_extent extent = fl_collective_extent(group, c);
  sum.reduction = FL_REDUCE_SUM;
  if (!fl_collective_is_reduced(group, c))
    return c->reduction == FL_REDUCE_AVG && fl_collective_is_reduced(group, &sum) ? mean(group, c)
                                                                                  : fl_collective_reduce_here(group, c);
  switch (c->kind) {
  case FL_REDUCE:
    return by_all_reduce(group, c, c->count, 0, extent.recv);
  case FL_REDUCE_SCATTER:
    return by_all_reduce(group, c, extent.send, group->rank * c->count, c->count);
  case FL_REDUCE_SCATTER_V:
    return by_all_reduce(group, c, extent.send, c->recv_offsets[group->rank], extent.recv);
  default: /* one that it knows, but not with this element type */
    return fl_collective_reduce_here(group, c);
  }
}

/* ------------------------------------------------------------------------------------------------------------ moved */

/* A broadcast from each rank. `counts` NULL: c->count of each. */
static fl_status gathered(fl_group *group, const fl_collective *c) {
  fl_status status = FL_OK;
  for (int32_t i = 0; i < group->ranks && !status; i++) {
    int64_t count = c->kind == FL_ALL_GATHER ? c->count : c->recv_counts[i];
    int64_t offset = c->kind == FL_ALL_GATHER ? i * c->count : c->recv_offsets[i];
    const void *send = i == group->rank ? c->send : NULL;
    fl_collective broadcast = other(c, FL_BROADCAST, send, element(c->recv, offset, c), count, i);
    if (count)
      status = fl_collective_make(group, &broadcast);
  }
  return status;
}

/* Sends and receives to be made together. */
typedef struct exchange {
  fl_collective *items;
  uint32_t n;
} exchange;

static void add(exchange *e, fl_collective item) {
  if (item.count)
    e->items[e->n++] = item;
}

static void root_with_all(const fl_group *group, const fl_collective *c, exchange *e) {
  bool gathers = c->kind == FL_GATHER;
  if (group->rank != c->root) {
    add(e, other(c, gathers ? FL_SEND : FL_RECV, c->send, c->recv, c->count, c->root));
    return;
  }
  for (int32_t i = 0; i < group->ranks; i++)
    if (i != c->root)
      add(e, other(c, gathers ? FL_RECV : FL_SEND, element(c->send, gathers ? 0 : i * c->count, c),
                   element(c->recv, gathers ? i * c->count : 0, c), c->count, i));
}

static void all_with_all(const fl_group *group, const fl_collective *c, exchange *e) {
  bool counted = c->kind == FL_ALL_TO_ALL_V;
  for (int32_t i = 0; i < group->ranks; i++) {
    int64_t from = counted ? c->send_offsets[i] : i * c->count, to = counted ? c->recv_offsets[i] : i * c->count;
    if (i == group->rank)
      continue;
    add(e, other(c, FL_SEND, element(c->send, from, c), NULL, counted ? c->send_counts[i] : c->count, i));
    add(e, other(c, FL_RECV, NULL, element(c->recv, to, c), counted ? c->recv_counts[i] : c->count, i));
  }
}

/* This rank's own part, from itself to itself. */
static fl_status keep_own(fl_group *group, const fl_collective *c) {
  int64_t from = 0, to = 0, count = c->count;
  if (c->kind != FL_ALL_TO_ALL && c->kind != FL_ALL_TO_ALL_V && group->rank != c->root)
    return FL_OK;
  if (c->kind == FL_ALL_TO_ALL_V) {
    from = c->send_offsets[group->rank];
    to = c->recv_offsets[group->rank];
    count = c->recv_counts[group->rank];
  } else {
    from = c->kind == FL_GATHER ? 0 : group->rank * count;
    to = c->kind == FL_SCATTER ? 0 : group->rank * count;
  }
  return fl_group_copy(group, element(c->recv, to, c), element(c->send, from, c), (size_t)count * (c->dtype.bits / 8),
                       c->stream);
}

static fl_status exchanged(fl_group *group, const fl_collective *c) {
  exchange e = {calloc((size_t)group->ranks * 2, sizeof *e.items), 0};
  if (!e.items)
    return fl_error_no_memory();
  (c->kind == FL_GATHER || c->kind == FL_SCATTER ? root_with_all : all_with_all)(group, c, &e);
  fl_status status = keep_own(group, c);
  if (!status)
    status = fl_collective_make_batch(group, e.items, e.n);
  free(e.items);
  return status;
}

static fl_status met(fl_group *group, const fl_collective *c) {
  DLDataType type = {kDLFloat, 32, 1};
  float *one = fl_group_memory(group, 0, sizeof *one);
  if (!one)
    return no_memory();
  if (group->on_host)
    *one = 0;
  fl_collective reduce = fl_collective_of(FL_ALL_REDUCE, one, one, 1, type, c->stream);
  return fl_collective_make(group, &reduce);
}

static fl_status refused(fl_group *group, const fl_collective *c) {
  return fl_error(FL_ENOTSUP, "communicator '%s' refuses %s, which every communicator has to know",
                  group->communicator.name, fl_collective_name(c->kind));
}

fl_status fl_collective_compose(fl_group *group, const fl_collective *c) {
  static fl_status (*const composers[FL_COLLECTIVES])(fl_group *,
                                                      const fl_collective *) = {[FL_ALL_REDUCE] = reduced,
                                                                                [FL_REDUCE] = reduced,
                                                                                [FL_BROADCAST] = refused,
                                                                                [FL_ALL_GATHER] = gathered,
                                                                                [FL_ALL_GATHER_V] = gathered,
                                                                                [FL_REDUCE_SCATTER] = reduced,
                                                                                [FL_REDUCE_SCATTER_V] = reduced,
                                                                                [FL_GATHER] = exchanged,
                                                                                [FL_SCATTER] = exchanged,
                                                                                [FL_ALL_TO_ALL] = exchanged,
                                                                                [FL_ALL_TO_ALL_V] = exchanged,
                                                                                [FL_SEND] = refused,
                                                                                [FL_RECV] = refused,
                                                                                [FL_BARRIER] = met};
  return composers[c->kind](group, c);
}

/* ---------------------------------------------------------------------------------------------------------- batches */

/* All sends to a rank, or all that is received from it, in their order. */
static fl_status with_peer(fl_group *group, const fl_collective *c, uint32_t n, int32_t kind, int32_t peer) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < n && !status; i++)
    if (c[i].kind == kind && c[i].root == peer)
      status = fl_collective_make(group, &c[i]);
  return status;
}

/* What a rank sends to itself is what it receives from itself, in their order. */
static fl_status with_itself(fl_group *group, const fl_collective *c, uint32_t n) {
  fl_status status = FL_OK;
  uint32_t receive = 0;
  for (uint32_t i = 0; i < n && !status; i++) {
    if (c[i].kind != FL_SEND || c[i].root != group->rank)
      continue;
    while (receive < n && (c[receive].kind != FL_RECV || c[receive].root != group->rank))
      receive++;
    if (receive == n || c[receive].count != c[i].count || memcmp(&c[receive].dtype, &c[i].dtype, sizeof c[i].dtype))
      return fl_error(FL_EINVAL, "rank %d sends itself %lld %s and receives nothing like it in the batch", group->rank,
                      (long long)c[i].count, fl_dtype_name(c[i].dtype));
    status = fl_group_copy(group, c[receive].recv, c[i].send, (size_t)c[i].count * (c[i].dtype.bits / 8), c[i].stream);
    receive++;
  }
  return status;
}

/*
 * Collectives first, in their order. Then sends and receives in rounds: in round s ranks a and b meet whose numbers'
 * sum is s modulo the number of ranks, and the lower one sends first. So whoever waits waits for one that comes to him.
 */
fl_status fl_collective_compose_batch(fl_group *group, const fl_collective *c, uint32_t n) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < n && !status; i++)
    if (c[i].kind != FL_SEND && c[i].kind != FL_RECV)
      status = fl_collective_make(group, &c[i]);
  for (int32_t round = 0; round < group->ranks && !status; round++) {
    int32_t peer = (round - group->rank + group->ranks) % group->ranks;
    bool sends_first = group->rank < peer;
    if (peer == group->rank) {
      status = with_itself(group, c, n);
      continue;
    }
    status = with_peer(group, c, n, sends_first ? FL_SEND : FL_RECV, peer);
    if (!status)
      status = with_peer(group, c, n, sends_first ? FL_RECV : FL_SEND, peer);
  }
  return status;
}
