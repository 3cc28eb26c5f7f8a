/*
 * Collectives by the library's: its own where it has them in all versions, else sends and receives, or several of its
 * collectives, in one group. Nothing here waits; the library's work goes to the collective's stream.
 */
#include "plugins/nccl/rank.h"

static bool find_type(DLDataType dtype, ncclDataType_t *type) {
  static const struct {
    DLDataType dtype;
    ncclDataType_t type;
  } types[] = {
      {{kDLInt, 8, 1}, ncclInt8},       {{kDLUInt, 8, 1}, ncclUint8},       {{kDLInt, 32, 1}, ncclInt32},
      {{kDLInt, 64, 1}, ncclInt64},     {{kDLFloat, 16, 1}, ncclFloat16},   {{kDLFloat, 32, 1}, ncclFloat32},
      {{kDLFloat, 64, 1}, ncclFloat64}, {{kDLBfloat, 16, 1}, ncclBfloat16},
  };
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].dtype.code == dtype.code && types[i].dtype.bits == dtype.bits) {
      *type = types[i].type;
      return true;
    }
  return false;
}

/* fl_reduction is numbered as the library's are. */
_Static_assert((int)FL_REDUCE_SUM == ncclSum && (int)FL_REDUCE_PROD == ncclProd && (int)FL_REDUCE_MAX == ncclMax &&
                   (int)FL_REDUCE_MIN == ncclMin && (int)FL_REDUCE_AVG == ncclAvg,
               "the same numbers");

static char *at(const void *buffer, int64_t element, const fl_collective *c) {
  return buffer ? (char *)(uintptr_t)buffer + element * (c->dtype.bits / 8) : NULL;
}

/* --------------------------------------------------------------------------------------- one of the library's own */

typedef ncclResult_t step_fn(fl_rank *rank, const fl_collective *c, ncclDataType_t type);

/* The mean of one rank's is the sum, too: with it the library forgets the last of an odd number of float64. */
static ncclRedOp_t reduction_of(const fl_rank *rank, const fl_collective *c) {
  return rank->n == 1 && c->reduction == FL_REDUCE_AVG ? ncclSum : (ncclRedOp_t)c->reduction;
}

static ncclResult_t all_reduce(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.all_reduce(c->send, c->recv, (size_t)c->count, type, reduction_of(rank, c), rank->comm, rank->stream);
}

static ncclResult_t reduce(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.reduce(c->send, c->recv, (size_t)c->count, type, reduction_of(rank, c), c->root, rank->comm,
                     rank->stream);
}

static ncclResult_t broadcast(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  const void *send = rank->me == c->root ? c->send : c->recv;
  return nccl.broadcast(send, c->recv, (size_t)c->count, type, c->root, rank->comm, rank->stream);
}

static ncclResult_t all_gather(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.all_gather(c->send, c->recv, (size_t)c->count, type, rank->comm, rank->stream);
}

static ncclResult_t reduce_scatter(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.reduce_scatter(c->send, c->recv, (size_t)c->count, type, reduction_of(rank, c), rank->comm, rank->stream);
}

static ncclResult_t send(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.send(c->send, (size_t)c->count, type, c->root, rank->comm, rank->stream);
}

static ncclResult_t recv(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.recv(c->recv, (size_t)c->count, type, c->root, rank->comm, rank->stream);
}

static ncclResult_t own_gather(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.gather(c->send, c->recv, (size_t)c->count, type, c->root, rank->comm, rank->stream);
}

static ncclResult_t own_scatter(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.scatter(c->send, c->recv, (size_t)c->count, type, c->root, rank->comm, rank->stream);
}

static ncclResult_t own_all_to_all(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.all_to_all(c->send, c->recv, (size_t)c->count, type, rank->comm, rank->stream);
}

/* None of them is negative, so that they are the library's numbers. */
static size_t *numbers(const int64_t *counts) {
  return (size_t *)(uintptr_t)counts;
}

static ncclResult_t own_all_to_all_v(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  return nccl.all_to_all_v(c->send, numbers(c->send_counts), numbers(c->send_offsets), c->recv, numbers(c->recv_counts),
                           numbers(c->recv_offsets), type, rank->comm, rank->stream);
}

/* ----------------------------------------------------------------------------------------------- several in a group */

/* Within a group; parts of no elements are left out, by who sends and who receives. */
static ncclResult_t give(fl_rank *rank, const fl_collective *c, ncclDataType_t type, int64_t from, int64_t n,
                         int peer) {
  return n ? nccl.send(at(c->send, from, c), (size_t)n, type, peer, rank->comm, rank->stream) : ncclSuccess;
}

static ncclResult_t take(fl_rank *rank, const fl_collective *c, ncclDataType_t type, int64_t to, int64_t n, int peer) {
  return n ? nccl.recv(at(c->recv, to, c), (size_t)n, type, peer, rank->comm, rank->stream) : ncclSuccess;
}

static ncclResult_t all_gather_v(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  ncclResult_t result = ncclSuccess;
  for (int root = 0; root < rank->n && !result; root++) {
    void *part = at(c->recv, c->recv_offsets[root], c);
    if (c->recv_counts[root])
      result = nccl.broadcast(root == rank->me ? c->send : part, part, (size_t)c->recv_counts[root], type, root,
                              rank->comm, rank->stream);
  }
  return result;
}

static ncclResult_t reduce_scatter_v(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  ncclResult_t result = ncclSuccess;
  for (int root = 0; root < rank->n && !result; root++)
    if (c->recv_counts[root])
      result = nccl.reduce(at(c->send, c->recv_offsets[root], c), root == rank->me ? c->recv : NULL,
                           (size_t)c->recv_counts[root], type, reduction_of(rank, c), root, rank->comm, rank->stream);
  return result;
}

/* A root that works in place has its own part where it belongs. */
static ncclResult_t gather(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  bool root = rank->me == c->root, stays = root && c->send == at(c->recv, rank->me * c->count, c);
  ncclResult_t result = stays ? ncclSuccess : give(rank, c, type, 0, c->count, c->root);
  for (int peer = 0; peer < rank->n && root && !result; peer++)
    if (peer != rank->me || !stays)
      result = take(rank, c, type, peer * c->count, c->count, peer);
  return result;
}

static ncclResult_t scatter(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  bool root = rank->me == c->root, stays = root && c->recv == at(c->send, rank->me * c->count, c);
  ncclResult_t result = stays ? ncclSuccess : take(rank, c, type, 0, c->count, c->root);
  for (int peer = 0; peer < rank->n && root && !result; peer++)
    if (peer != rank->me || !stays)
      result = give(rank, c, type, peer * c->count, c->count, peer);
  return result;
}

static ncclResult_t all_to_all(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  ncclResult_t result = ncclSuccess;
  for (int peer = 0; peer < rank->n && !result; peer++) {
    result = give(rank, c, type, peer * c->count, c->count, peer);
    if (!result)
      result = take(rank, c, type, peer * c->count, c->count, peer);
  }
  return result;
}

static ncclResult_t all_to_all_v(fl_rank *rank, const fl_collective *c, ncclDataType_t type) {
  ncclResult_t result = ncclSuccess;
  for (int peer = 0; peer < rank->n && !result; peer++) {
    result = give(rank, c, type, c->send_offsets[peer], c->send_counts[peer], peer);
    if (!result)
      result = take(rank, c, type, c->recv_offsets[peer], c->recv_counts[peer], peer);
  }
  return result;
}

/* -------------------------------------------------------------------------------------------------------- which one */

typedef struct way {
  const char *name; /* of the library's function */
  step_fn *make;
  bool counted; /* `count` is 0 on all ranks, or on none: there is nothing to do */
  bool grouped;
} way;

static const way ways[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = {"AllReduce", all_reduce, true, false},
    [FL_REDUCE] = {"Reduce", reduce, true, false},
    [FL_BROADCAST] = {"Broadcast", broadcast, true, false},
    [FL_ALL_GATHER] = {"AllGather", all_gather, true, false},
    [FL_ALL_GATHER_V] = {"Broadcast, one from each rank", all_gather_v, false, true},
    [FL_REDUCE_SCATTER] = {"ReduceScatter", reduce_scatter, true, false},
    [FL_REDUCE_SCATTER_V] = {"Reduce, one to each rank", reduce_scatter_v, false, true},
    [FL_GATHER] = {"Send and Recv", gather, true, true},
    [FL_SCATTER] = {"Send and Recv", scatter, true, true},
    [FL_ALL_TO_ALL] = {"Send and Recv", all_to_all, true, true},
    [FL_ALL_TO_ALL_V] = {"Send and Recv", all_to_all_v, false, true},
    [FL_SEND] = {"Send", send, true, false},
    [FL_RECV] = {"Recv", recv, true, false},
};

/* Where the library has more of its own. */
static const way own_ways[FL_COLLECTIVES] = {
    [FL_GATHER] = {"Gather", own_gather, true, false},
    [FL_SCATTER] = {"Scatter", own_scatter, true, false},
    [FL_ALL_TO_ALL] = {"AlltoAll", own_all_to_all, true, false},
    [FL_ALL_TO_ALL_V] = {"AlltoAllv", own_all_to_all_v, false, false},
};

static const way *way_of(const fl_collective *c) {
  return nccl.gather && own_ways[c->kind].make ? &own_ways[c->kind] : &ways[c->kind];
}

static ncclResult_t make(fl_rank *rank, const fl_collective *c, const way *w, ncclDataType_t type) {
  if (w->counted && !c->count)
    return ncclSuccess;
  rank->stream = c->stream;
  ncclResult_t result = nccl.find_stream ? nccl.find_stream(&rank->streams, c->stream, &rank->stream) : ncclSuccess;
  return result ? result : w->make(rank, c, type);
}

/* A group that was begun ends, also when something in it was refused. */
static ncclResult_t end_group(const fl_rank *rank, ncclResult_t result) {
  ncclResult_t ended = nccl.group_end(rank->comm);
  return result ? result : ended;
}

/* What comes behind asking the library for it. */
static fl_status finish(fl_rank *rank, const gpu_scope *scope, work *begun, void *stream, ncclResult_t result,
                        const char *name) {
  result = nccl_await(rank, result);
  pthread_mutex_unlock(&rank->lock);
  works_record(&rank->works, begun, stream, !result);
  gpu.call.leave(scope);
  return nccl_outcome(rank, result, name);
}

fl_status nccl_collective(void *self, fl_rank *rank, const fl_collective *c) {
  const way *w = way_of(c);
  ncclDataType_t type;
  gpu_scope scope;
  (void)self;
  if (!w->make || !find_type(c->dtype, &type))
    return FL_ENOTSUP;
  fl_status status = nccl_enter(rank, &scope);
  if (status)
    return status;
  work *begun = works_begin(&rank->works, c->kind, c->stream);
  ncclResult_t result = w->grouped ? nccl.group_start(rank->comm) : ncclSuccess;
  if (!result) {
    result = make(rank, c, w, type);
    if (w->grouped)
      result = end_group(rank, result);
  }
  return finish(rank, &scope, begun, c->stream, result, w->name);
}

static const fl_collective *item(const fl_collective *collectives, uint32_t i, uint32_t item_size) {
  return (const fl_collective *)((const char *)collectives + (size_t)i * item_size);
}

/* The library lets the streams of a group wait for each other: behind one of them is behind all. */
fl_status nccl_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size) {
  const char *name = "GroupStart";
  ncclDataType_t type;
  gpu_scope scope;
  (void)self;
  for (uint32_t i = 0; i < n; i++) {
    const fl_collective *c = item(collectives, i, item_size);
    if (!ways[c->kind].make || !find_type(c->dtype, &type))
      return FL_ENOTSUP;
  }
  fl_status status = nccl_enter(rank, &scope);
  if (status)
    return status;
  work *begun = works_begin(&rank->works, WORK_BATCH, collectives->stream);
  ncclResult_t result = nccl.group_start(rank->comm);
  if (!result) {
    for (uint32_t i = 0; i < n && !result; i++) {
      const fl_collective *c = item(collectives, i, item_size);
      find_type(c->dtype, &type);
      name = way_of(c)->name;
      result = make(rank, c, way_of(c), type);
    }
    name = result ? name : "GroupEnd";
    result = end_group(rank, result);
  }
  return finish(rank, &scope, begun, collectives->stream, result, name);
}
