/*
 * Collectives, of messages between each two ranks (rank.c says why), or MPI's own (own.c). A reduction is cut into as
 * many parts as there are ranks: each gets all ranks' elements of its part, reduces them, and gives the result to all.
 * It goes by the loops of shm, in the order of ranks and rounded once, so that the numbers are the same with either;
 * MPI's own reductions promise no order, know no 16-bit floats, and not what becomes of a NaN.
 */
#include "plugins/mpi/collectives.h"

#include "plugins/mpi/own.h"
#include "plugins/shm/reduce.h"

#include <string.h>

enum {
  SMALL = 4096,            /* bytes up to which everybody reduces everything: one round of messages and not two */
  LARGE = 64 * 1024,       /* bytes from which a broadcast goes by parts, which all give on */
  CHUNK = 8 * 1024 * 1024, /* bytes of a reduction at a time, for which there is memory */
  LINE = 64                /* parts begin at a multiple */
};

static void copy(void *to, const void *from, size_t bytes) {
  if (bytes && to != from)
    memcpy(to, from, bytes);
}

static char *at(const void *memory, size_t offset) {
  return memory ? (char *)(uintptr_t)memory + offset : NULL;
}

/* The rest of `bytes` behind `done`, up to `most`. */
static size_t rest(size_t bytes, size_t done, size_t most) {
  return done >= bytes ? 0 : bytes - done < most ? bytes - done : most;
}

/* ----------------------------------------------------------------------------------------------------------- parts */

/* A buffer in parts, one a rank. */
typedef struct parts {
  const int64_t *counts, *offsets; /* in elements of `size` bytes; NULL: as below */
  size_t size;
  size_t bytes, stride; /* of each part, and from one to the next */
  size_t total;         /* not 0: the last parts are shorter, so that there is no more than this */
} parts;

static size_t bytes_of(const parts *p, int i) {
  return p->counts  ? (size_t)p->counts[i] * p->size
         : p->total ? rest(p->total, (size_t)i * p->stride, p->bytes)
                    : p->bytes;
}

static size_t offset_of(const parts *p, int i) {
  if (p->offsets)
    return (size_t)p->offsets[i] * p->size;
  size_t offset = (size_t)i * p->stride;
  return p->total && offset > p->total ? p->total : offset;
}

/* The same for or from each. */
static parts whole(size_t bytes) {
  return (parts){.bytes = bytes};
}

static parts even(size_t bytes) {
  return (parts){.bytes = bytes, .stride = bytes};
}

static parts cut(size_t total, int n) {
  size_t part = ((total + (size_t)n - 1) / (size_t)n + LINE - 1) / LINE * LINE;
  return (parts){.bytes = part, .stride = part, .total = total};
}

static size_t element(const fl_collective *c) {
  return c->dtype.bits / 8;
}

/* ---------------------------------------------------------------------------------------------------------- moving */

enum { ALL = -1 };

static bool takes_part(int who, int rank) {
  return who == ALL || who == rank;
}

/* Between each two: what `giver` has in `from` for another goes where `taker` has it in `to`. Not between a rank and
 * itself. */
static fl_status exchange(fl_rank *rank, int giver, int taker, const void *send, const parts *from, void *recv,
                          const parts *to) {
  for (int peer = 0; peer < rank->n && takes_part(taker, rank->me); peer++)
    if (peer != rank->me && takes_part(giver, peer) && bytes_of(to, peer))
      mpi_receive(rank, peer, at(recv, offset_of(to, peer)), bytes_of(to, peer));
  /* Each begins behind itself, so that not all send to the first at once. */
  for (int i = 1; i < rank->n && takes_part(giver, rank->me); i++) {
    int peer = (rank->me + i) % rank->n;
    if (takes_part(taker, peer) && bytes_of(from, peer))
      mpi_send(rank, peer, at(send, offset_of(from, peer)), bytes_of(from, peer));
  }
  return mpi_wait(rank);
}

fl_status mpi_move(void *self, fl_rank *rank, const fl_collective *c) {
  const size_t size = element(c), bytes = (size_t)c->count * size;
  const bool gathers = c->kind == FL_ALL_GATHER || c->kind == FL_GATHER || c->kind == FL_ALL_GATHER_V;
  parts from = gathers ? whole(bytes) : even(bytes), to = c->kind == FL_SCATTER ? whole(bytes) : even(bytes);
  int giver = c->kind == FL_SCATTER ? c->root : ALL, taker = c->kind == FL_GATHER ? c->root : ALL;
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status || mpi_own(rank, c, &status))
    return status;
  if (c->kind == FL_ALL_GATHER_V || c->kind == FL_ALL_TO_ALL_V)
    to = (parts){.counts = c->recv_counts, .offsets = c->recv_offsets, .size = size};
  if (c->kind == FL_ALL_GATHER_V)
    from = whole((size_t)c->recv_counts[rank->me] * size);
  else if (c->kind == FL_ALL_TO_ALL_V)
    from = (parts){.counts = c->send_counts, .offsets = c->send_offsets, .size = size};
  if (takes_part(giver, rank->me) && takes_part(taker, rank->me))
    copy(at(c->recv, offset_of(&to, rank->me)), at(c->send, offset_of(&from, rank->me)), bytes_of(&to, rank->me));
  return exchange(rank, giver, taker, c->send, &from, c->recv, &to);
}

fl_status mpi_broadcast(void *self, fl_rank *rank, const fl_collective *c) {
  const size_t bytes = (size_t)c->count * element(c);
  const parts all = whole(bytes), each = cut(bytes, rank->n);
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status || mpi_own(rank, c, &status))
    return status;
  if (rank->me == c->root)
    copy(c->recv, c->send, bytes);
  if (bytes < LARGE || rank->n == 2)
    return exchange(rank, c->root, ALL, c->send, &all, c->recv, &all);
  const parts mine = whole(bytes_of(&each, rank->me));
  char *own = at(c->recv, offset_of(&each, rank->me));
  status = exchange(rank, c->root, ALL, c->recv, &each, own, &mine);
  return status ? status : exchange(rank, ALL, ALL, own, &mine, c->recv, &each);
}

fl_status mpi_barrier(void *self, fl_rank *rank, const fl_collective *c) {
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status || mpi_own(rank, c, &status))
    return status;
  for (int peer = 0; peer < rank->n && !status; peer++)
    if (peer != rank->me)
      mpi_receive(rank, peer, NULL, 0);
  for (int peer = 0; peer < rank->n && !status; peer++)
    if (peer != rank->me)
      mpi_send(rank, peer, NULL, 0);
  return status ? status : mpi_wait(rank);
}

/* --------------------------------------------------------------------------------------------------------- reducing */

/* Of what others sent, which lies in the scratch, `stride` bytes apart, and of this rank's own. */
static void reduce(fl_rank *rank, shm_reduce_fn loop, void *result, const void *own, size_t stride, size_t count) {
  for (int peer = 0; peer < rank->n; peer++)
    rank->operands[peer] = peer == rank->me ? own : at(rank->scratch, (size_t)peer * stride);
  if (count)
    loop(result, rank->operands, rank->n, count);
}

static fl_status reduce_chunk(fl_rank *rank, const fl_collective *c, shm_reduce_fn loop, size_t done, size_t bytes) {
  const int taker = c->kind == FL_REDUCE ? c->root : ALL;
  const parts each = bytes <= SMALL ? whole(bytes) : cut(bytes, rank->n);
  const parts mine = even(bytes_of(&each, rank->me));
  parts slots = mine;
  slots.stride = each.bytes;
  if (!mpi_scratch(rank, (size_t)rank->n * each.bytes))
    return rank->broken;
  char *send = at(c->send, done), *own = send + offset_of(&each, rank->me), *result = at(c->recv, done);
  if (bytes <= SMALL) {
    fl_status status = exchange(rank, ALL, taker, send, &each, rank->scratch, &slots);
    if (!status && takes_part(taker, rank->me))
      reduce(rank, loop, result, send, slots.stride, bytes / element(c));
    return status;
  }
  fl_status status = exchange(rank, ALL, ALL, send, &each, rank->scratch, &slots);
  char *part = takes_part(taker, rank->me) ? result + offset_of(&each, rank->me)
                                           : at(rank->scratch, (size_t)rank->me * slots.stride);
  if (status)
    return status;
  reduce(rank, loop, part, own, slots.stride, mine.bytes / element(c));
  const parts given = whole(mine.bytes);
  return exchange(rank, ALL, taker, part, &given, result, &each);
}

/* Every rank says so, or none. */
static shm_reduce_fn loop_of(fl_rank *rank, const fl_collective *c, fl_status *status) {
  shm_reduce_fn loop = shm_reduce_of(c->dtype, c->reduction);
  if (!loop)
    *status =
        fl_say(rank->message, rank->message_size, FL_ENOTSUP, "no reduction %d of elements of code %d and %d bits",
               (int)c->reduction, (int)c->dtype.code, (int)c->dtype.bits);
  return loop;
}

fl_status mpi_all_reduce(void *self, fl_rank *rank, const fl_collective *c) {
  const size_t bytes = (size_t)c->count * element(c);
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status || mpi_own(rank, c, &status))
    return status;
  shm_reduce_fn loop = loop_of(rank, c, &status);
  for (size_t done = 0; done < bytes && !status; done += CHUNK)
    status = reduce_chunk(rank, c, loop, done, rest(bytes, done, CHUNK));
  return status;
}

fl_status mpi_reduce_scatter(void *self, fl_rank *rank, const fl_collective *c) {
  const size_t size = element(c), slot = CHUNK / (size_t)rank->n / LINE * LINE + LINE;
  parts from = even((size_t)c->count * size);
  size_t greatest = 0;
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status || mpi_own(rank, c, &status))
    return status;
  shm_reduce_fn loop = loop_of(rank, c, &status);
  if (c->kind == FL_REDUCE_SCATTER_V)
    from = (parts){.counts = c->recv_counts, .offsets = c->recv_offsets, .size = size};
  for (int i = 0; i < rank->n; i++)
    greatest = bytes_of(&from, i) > greatest ? bytes_of(&from, i) : greatest;
  const size_t stride = rest(greatest, 0, slot);
  if (!status && !mpi_scratch(rank, (size_t)rank->n * stride + 1))
    return rank->broken;
  for (size_t done = 0; done < greatest && !status; done += slot) {
    const size_t bytes = rest(bytes_of(&from, rank->me), done, slot);
    for (int peer = 0; peer < rank->n && bytes; peer++)
      if (peer != rank->me)
        mpi_receive(rank, peer, at(rank->scratch, (size_t)peer * stride), bytes);
    for (int i = 1; i < rank->n; i++) {
      int peer = (rank->me + i) % rank->n;
      size_t theirs = rest(bytes_of(&from, peer), done, slot);
      if (theirs)
        mpi_send(rank, peer, at(c->send, offset_of(&from, peer) + done), theirs);
    }
    status = mpi_wait(rank);
    if (!status)
      reduce(rank, loop, at(c->recv, done), at(c->send, offset_of(&from, rank->me) + done), stride, bytes / size);
  }
  return status;
}

/* --------------------------------------------------------------------------------------------------- one to another */

static void post(fl_rank *rank, const fl_collective *c, int32_t kind) {
  size_t bytes = (size_t)c->count * element(c);
  if (c->kind != kind)
    return;
  if (kind == FL_SEND)
    mpi_send(rank, c->root, c->send, bytes);
  else
    mpi_receive(rank, c->root, c->recv, bytes);
}

fl_status mpi_one(void *self, fl_rank *rank, const fl_collective *c) {
  fl_status status = mpi_enter(rank, c->kind);
  (void)self;
  if (status)
    return status;
  post(rank, c, c->kind);
  return mpi_wait(rank);
}

static const fl_collective_fn functions[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = mpi_all_reduce,
    [FL_REDUCE] = mpi_all_reduce,
    [FL_BROADCAST] = mpi_broadcast,
    [FL_ALL_GATHER] = mpi_move,
    [FL_ALL_GATHER_V] = mpi_move,
    [FL_REDUCE_SCATTER] = mpi_reduce_scatter,
    [FL_REDUCE_SCATTER_V] = mpi_reduce_scatter,
    [FL_GATHER] = mpi_move,
    [FL_SCATTER] = mpi_move,
    [FL_ALL_TO_ALL] = mpi_move,
    [FL_ALL_TO_ALL_V] = mpi_move,
    [FL_BARRIER] = mpi_barrier,
};

/* What is neither sent nor received goes first, one after the other, as all ranks have it in their batches. */
fl_status mpi_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size) {
  static const int32_t kinds[] = {FL_RECV, FL_SEND};
  fl_status status = FL_OK;
#define ITEM(i) ((const fl_collective *)((const char *)collectives + (size_t)(i)*item_size))
  for (uint32_t i = 0; i < n && !status; i++) {
    int32_t kind = ITEM(i)->kind;
    if (kind < 0 || kind >= FL_COLLECTIVES)
      status = fl_say(rank->message, rank->message_size, FL_EINVAL, "there is no collective %d", (int)kind);
    else if (functions[kind])
      status = functions[kind](self, rank, ITEM(i));
  }
  if (!status)
    status = mpi_enter(rank, FL_SEND);
  for (int pass = 0; pass < 2 && !status; pass++)
    for (uint32_t i = 0; i < n; i++)
      post(rank, ITEM(i), kinds[pass]);
#undef ITEM
  return status ? status : mpi_wait(rank);
}
