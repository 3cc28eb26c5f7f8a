/* Collectives of several others: see calls.h. */
#include "tests/drivers/nccl/calls.h"

static char *at(const void *buffer, size_t element, const nccl_op *c) {
  return (char *)(uintptr_t)buffer + element * type_size(c->type);
}

/* The same for another, as a part of it. */
static ncclResult_t part(const nccl_op *c, nccl_kind kind, const void *send, void *recv, size_t count, int root) {
  nccl_op made = *c;
  made.kind = kind;
  made.send = send;
  made.recv = recv;
  made.count = count;
  made.root = root;
  return count ? submit(made) : ncclSuccess;
}

static ncclResult_t end(ncclResult_t result) {
  ncclResult_t ended = group_finish();
  return result ? result : ended;
}

/* One of those that have a root, which is among the senders and the receivers. */
static ncclResult_t submit_rooted(const nccl_op *c, bool gathers) {
  int n = world_ranks(c->comm->world);
  count_call(c->kind);
  group_begin();
  ncclResult_t result = gathers ? part(c, KIND_SEND, c->send, NULL, c->count, c->root)
                                : part(c, KIND_RECV, NULL, c->recv, c->count, c->root);
  for (int i = 0; i < n && c->comm->rank == c->root && !result; i++) {
    size_t from = (size_t)i * c->count;
    result = gathers ? part(c, KIND_RECV, NULL, at(c->recv, from, c), c->count, i)
                     : part(c, KIND_SEND, at(c->send, from, c), NULL, c->count, i);
  }
  return end(result);
}

ncclResult_t submit_gather(nccl_op c) {
  return submit_rooted(&c, true);
}

ncclResult_t submit_scatter(nccl_op c) {
  return submit_rooted(&c, false);
}

ncclResult_t submit_all_to_all(nccl_op c) {
  size_t counts[MOST_RANKS], offsets[MOST_RANKS];
  for (size_t i = 0; i < MOST_RANKS; i++) {
    counts[i] = c.count;
    offsets[i] = i * c.count;
  }
  return submit_all_to_all_v(c, (parts){counts, offsets}, (parts){counts, offsets});
}

ncclResult_t submit_all_to_all_v(nccl_op c, parts sent, parts received) {
  ncclResult_t result = ncclSuccess;
  count_call(c.kind);
  group_begin();
  for (int i = 0; i < world_ranks(c.comm->world) && !result; i++) {
    result = part(&c, KIND_SEND, at(c.send, sent.offsets[i], &c), NULL, sent.counts[i], i);
    if (!result)
      result = part(&c, KIND_RECV, NULL, at(c.recv, received.offsets[i], &c), received.counts[i], i);
  }
  return end(result);
}

ncclResult_t submit_all_gather_v(nccl_op c, parts received) {
  ncclResult_t result = ncclSuccess;
  count_call(c.kind);
  group_begin();
  for (int i = 0; i < world_ranks(c.comm->world) && !result; i++)
    result = part(&c, KIND_BROADCAST, c.send, at(c.recv, received.offsets[i], &c), received.counts[i], i);
  return end(result);
}

ncclResult_t submit_reduce_scatter_v(nccl_op c, parts received) {
  ncclResult_t result = ncclSuccess;
  count_call(c.kind);
  group_begin();
  for (int i = 0; i < world_ranks(c.comm->world) && !result; i++)
    result = part(&c, KIND_REDUCE, at(c.send, received.offsets[i], &c), c.recv, received.counts[i], i);
  return end(result);
}
