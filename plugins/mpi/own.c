/*
 * MPI's own collectives. They know the network, and the machine's memory, better than messages between each two ranks
 * do. But they wait until all ranks come, and cannot be given up: so they are used where no rank has a limit of time.
 *
 * Not used for what MPI does otherwise than fl_reduction says: it has no floats of 16 bits and fewer, no maximum that a
 * NaN wins, and not every sum of its integers wraps around. All ranks decide alike, by what is alike on all.
 */
#include "plugins/mpi/own.h"

#include <string.h>

enum {
  MOST = 1 << 30, /* bytes of a buffer at a time: MPI counts in int, and some of its algorithms count bytes in it */
  NOT_OWN = -1    /* no code of MPI's is negative */
};

static size_t element(const fl_collective *c) {
  return c->dtype.bits / 8;
}

/* Of nothing there may be no address, which MPI refuses. */
static void *address(const void *memory) {
  static char nothing;
  return memory ? (void *)(uintptr_t)memory : &nothing;
}

static char *at(const fl_collective *c, const void *memory, int64_t place) {
  return (char *)address(memory) + (size_t)place * element(c);
}

static void copy(const fl_collective *c, void *to, const void *from, int64_t count) {
  if (count && to != from)
    memcpy(to, from, (size_t)count * element(c));
}

/* ----------------------------------------------------------------------------------------------------------- moving */

/* What is moved is not looked into. NULL: there are no such elements. */
static MPI_Datatype moved_type(const fl_rank *rank, const fl_collective *c) {
  const mpi_library *mpi = rank->mpi;
  const size_t size = element(c);
  return size == 1 ? mpi->uint8 : size == 2 ? mpi->uint16 : size == 4 ? mpi->uint32 : size == 8 ? mpi->uint64 : NULL;
}

/* Do parts of all ranks fit into one call? */
static bool is_small(const fl_rank *rank, const fl_collective *c) {
  return (uint64_t)c->count <= MOST / element(c) / (uint64_t)rank->n;
}

static int all_gather(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  if (!type || !is_small(rank, c))
    return NOT_OWN;
  /* In place on all ranks or on none, says MPI. */
  copy(c, at(c, c->recv, rank->me * c->count), c->send, c->count);
  return rank->mpi->Allgather(MPI_IN_PLACE, 0, type, c->recv, (int)c->count, type, rank->comm);
}

static int gather(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  if (!type || !is_small(rank, c))
    return NOT_OWN;
  if (rank->me != c->root)
    return rank->mpi->Gather(c->send, (int)c->count, type, NULL, 0, type, c->root, rank->comm);
  copy(c, at(c, c->recv, rank->me * c->count), c->send, c->count);
  return rank->mpi->Gather(MPI_IN_PLACE, 0, type, c->recv, (int)c->count, type, c->root, rank->comm);
}

static int scatter(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  if (!type || !is_small(rank, c))
    return NOT_OWN;
  if (rank->me != c->root)
    return rank->mpi->Scatter(NULL, 0, type, c->recv, (int)c->count, type, c->root, rank->comm);
  copy(c, c->recv, at(c, c->send, rank->me * c->count), c->count);
  return rank->mpi->Scatter(c->send, (int)c->count, type, MPI_IN_PLACE, 0, type, c->root, rank->comm);
}

static int all_to_all(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  if (!type || !is_small(rank, c))
    return NOT_OWN;
  return rank->mpi->Alltoall(c->send, (int)c->count, type, c->recv, (int)c->count, type, rank->comm);
}

static int broadcast(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  const int64_t most = type ? (int64_t)(MOST / element(c)) : 0;
  int code = type ? MPI_SUCCESS : NOT_OWN;
  if (type && rank->me == c->root)
    copy(c, c->recv, c->send, c->count);
  for (int64_t done = 0; done < c->count && !code; done += most) {
    const int64_t n = c->count - done < most ? c->count - done : most;
    code = rank->mpi->Bcast(at(c, c->recv, done), (int)n, type, c->root, rank->comm);
  }
  return code;
}

/* ----------------------------------------------------------------------------------------------------- uneven parts */

/* As MPI wants them. False: some part ends too far behind. */
static bool narrow(const fl_rank *rank, const fl_collective *c, const int64_t *counts, const int64_t *offsets, int *n,
                   int *places) {
  const int64_t most = (int64_t)(MOST / element(c));
  for (int i = 0; i < rank->n; i++) {
    if (counts[i] > most || offsets[i] > most - counts[i])
      return false;
    n[i] = (int)counts[i];
    places[i] = (int)offsets[i];
  }
  return true;
}

static int all_gather_v(fl_rank *rank, const fl_collective *c) {
  MPI_Datatype type = moved_type(rank, c);
  int *counts = rank->numbers, *places = counts + rank->n;
  if (!type || !narrow(rank, c, c->recv_counts, c->recv_offsets, counts, places))
    return NOT_OWN;
  copy(c, at(c, c->recv, places[rank->me]), c->send, counts[rank->me]);
  return rank->mpi->Allgatherv(MPI_IN_PLACE, 0, type, address(c->recv), counts, places, type, rank->comm);
}

/* What one sends to another the others do not know: whether all fits, they have to tell. */
static int all_to_all_v(fl_rank *rank, const fl_collective *c) {
  const mpi_library *mpi = rank->mpi;
  MPI_Datatype type = moved_type(rank, c);
  int *sent = rank->numbers, *from = sent + rank->n, *received = from + rank->n, *to = received + rank->n;
  if (!type)
    return NOT_OWN;
  int fits = narrow(rank, c, c->send_counts, c->send_offsets, sent, from) &&
             narrow(rank, c, c->recv_counts, c->recv_offsets, received, to);
  int code = mpi->Allreduce(MPI_IN_PLACE, &fits, 1, mpi->int32, mpi->min, rank->comm);
  if (code || !fits)
    return code ? code : NOT_OWN;
  return mpi->Alltoallv(address(c->send), sent, from, type, address(c->recv), received, to, type, rank->comm);
}

/* --------------------------------------------------------------------------------------------------------- reducing */

/* Of what type MPI takes the elements, and what it makes of them. */
typedef struct reducing {
  MPI_Datatype type; /* NULL: it does not */
  MPI_Op op;
} reducing;

/* Signed sums and products wrap around, as those without sign do by C's rules. Not of 8 bits: where Open MPI adds these
 * up by AVX, it stops at the greatest. */
static MPI_Datatype integer_type(const mpi_library *mpi, DLDataType dtype, bool wraps) {
  const bool is_signed = dtype.code == kDLInt && !wraps;
  return dtype.bits == 8    ? (wraps       ? NULL
                               : is_signed ? mpi->int8
                                           : mpi->uint8)
         : dtype.bits == 32 ? (is_signed ? mpi->int32 : mpi->uint32)
         : dtype.bits == 64 ? (is_signed ? mpi->int64 : mpi->uint64)
                            : NULL;
}

static MPI_Datatype float_type(const mpi_library *mpi, DLDataType dtype) {
  return dtype.bits == 32 ? mpi->float32 : dtype.bits == 64 ? mpi->float64 : NULL;
}

static reducing reducing_of(const fl_rank *rank, const fl_collective *c) {
  const mpi_library *mpi = rank->mpi;
  const bool adds = c->reduction == FL_REDUCE_SUM || c->reduction == FL_REDUCE_PROD;
  const MPI_Op ops[FL_REDUCTIONS] = {mpi->sum, mpi->prod, mpi->max, mpi->min, mpi->sum};
  reducing made = {NULL, NULL};
  if (c->reduction < 0 || c->reduction >= FL_REDUCTIONS || c->dtype.lanes != 1)
    return made;
  made.op = ops[c->reduction];
  if (c->dtype.code == kDLFloat && (adds || c->reduction == FL_REDUCE_AVG))
    made.type = float_type(mpi, c->dtype);
  else if ((c->dtype.code == kDLInt || c->dtype.code == kDLUInt) && c->reduction != FL_REDUCE_AVG)
    made.type = integer_type(mpi, c->dtype, adds);
  else if (c->dtype.code == FL_DTYPE_BOOL && c->reduction != FL_REDUCE_AVG)
    made = (reducing){mpi->uint8, c->reduction == FL_REDUCE_SUM || c->reduction == FL_REDUCE_MAX ? mpi->logical_or
                                                                                                 : mpi->logical_and};
  return made;
}

/* Of the sum the mean. */
static void finish(const fl_rank *rank, const fl_collective *c, void *sum, int64_t count) {
  float *narrow_ones = sum;
  double *wide_ones = sum;
  if (c->reduction != FL_REDUCE_AVG)
    return;
  for (int64_t i = 0; i < count && c->dtype.bits == 32; i++)
    narrow_ones[i] /= (float)rank->n;
  for (int64_t i = 0; i < count && c->dtype.bits == 64; i++)
    wide_ones[i] /= (double)rank->n;
}

static int all_reduce(fl_rank *rank, const fl_collective *c) {
  const reducing how = reducing_of(rank, c);
  const int64_t most = how.type ? (int64_t)(MOST / element(c)) : 0;
  int code = how.type ? MPI_SUCCESS : NOT_OWN;
  if (how.type)
    copy(c, c->recv, c->send, c->count); /* in place on all ranks or on none */
  for (int64_t done = 0; done < c->count && !code; done += most) {
    const int64_t n = c->count - done < most ? c->count - done : most;
    code = rank->mpi->Allreduce(MPI_IN_PLACE, at(c, c->recv, done), (int)n, how.type, how.op, rank->comm);
  }
  if (!code)
    finish(rank, c, c->recv, c->count);
  return code;
}

static int reduce(fl_rank *rank, const fl_collective *c) {
  const reducing how = reducing_of(rank, c);
  const int64_t most = how.type ? (int64_t)(MOST / element(c)) : 0;
  const bool is_root = rank->me == c->root;
  int code = how.type ? MPI_SUCCESS : NOT_OWN;
  for (int64_t done = 0; done < c->count && !code; done += most) {
    const int64_t n = c->count - done < most ? c->count - done : most;
    const void *send = is_root && c->send == c->recv ? MPI_IN_PLACE : at(c, c->send, done);
    void *recv = is_root ? at(c, c->recv, done) : NULL;
    code = rank->mpi->Reduce(send, recv, (int)n, how.type, how.op, c->root, rank->comm);
  }
  if (!code && is_root)
    finish(rank, c, c->recv, c->count);
  return code;
}

/* MPI does not want the result to lie in what is sent, as this rank's place there does. NULL: no memory. */
static void *apart(fl_rank *rank, const fl_collective *c, int64_t place, int64_t count) {
  const bool is_in_place = count && at(c, c->send, place) == (char *)c->recv;
  return is_in_place ? mpi_scratch(rank, (size_t)count * element(c)) : address(c->recv);
}

static int reduce_scatter(fl_rank *rank, const fl_collective *c) {
  const reducing how = reducing_of(rank, c);
  if (!how.type || !is_small(rank, c))
    return NOT_OWN;
  void *result = apart(rank, c, rank->me * c->count, c->count);
  if (!result)
    return MPI_SUCCESS;
  int code = rank->mpi->Reduce_scatter_block(c->send, result, (int)c->count, how.type, how.op, rank->comm);
  if (code)
    return code;
  copy(c, c->recv, result, c->count);
  finish(rank, c, c->recv, c->count);
  return MPI_SUCCESS;
}

/* Does each part begin where the one before it ends? MPI knows no others. */
static bool is_dense(const fl_rank *rank, const int *counts, const int *places) {
  int end = 0;
  for (int i = 0; i < rank->n; end += counts[i++])
    if (counts[i] && places[i] != end)
      return false;
  return true;
}

static int reduce_scatter_v(fl_rank *rank, const fl_collective *c) {
  const reducing how = reducing_of(rank, c);
  int *counts = rank->numbers, *places = counts + rank->n;
  if (!how.type || !narrow(rank, c, c->recv_counts, c->recv_offsets, counts, places) || !is_dense(rank, counts, places))
    return NOT_OWN;
  const int mine = counts[rank->me];
  void *result = apart(rank, c, places[rank->me], mine);
  if (!result)
    return MPI_SUCCESS;
  int code = rank->mpi->Reduce_scatter(address(c->send), result, counts, how.type, how.op, rank->comm);
  if (code)
    return code;
  copy(c, c->recv, result, mine);
  finish(rank, c, c->recv, mine);
  return MPI_SUCCESS;
}

/* --------------------------------------------------------------------------------------------------------- choosing */

static int barrier(fl_rank *rank, const fl_collective *c) {
  (void)c;
  return rank->mpi->Barrier(rank->comm);
}

/* MPI's code, or NOT_OWN; MPI_SUCCESS, too, where the rank is broken. */
static int (*const functions[FL_COLLECTIVES])(fl_rank *rank, const fl_collective *c) = {
    [FL_ALL_REDUCE] = all_reduce,
    [FL_REDUCE] = reduce,
    [FL_BROADCAST] = broadcast,
    [FL_ALL_GATHER] = all_gather,
    [FL_ALL_GATHER_V] = all_gather_v,
    [FL_REDUCE_SCATTER] = reduce_scatter,
    [FL_REDUCE_SCATTER_V] = reduce_scatter_v,
    [FL_GATHER] = gather,
    [FL_SCATTER] = scatter,
    [FL_ALL_TO_ALL] = all_to_all,
    [FL_ALL_TO_ALL_V] = all_to_all_v,
    [FL_BARRIER] = barrier,
};

/* Nothing to be moved, on any rank. */
static bool is_empty(const fl_collective *c) {
  const bool has_count = c->kind != FL_BARRIER && c->kind != FL_ALL_GATHER_V && c->kind != FL_REDUCE_SCATTER_V &&
                         c->kind != FL_ALL_TO_ALL_V;
  return has_count && !c->count;
}

bool mpi_own(fl_rank *rank, const fl_collective *c, fl_status *status) {
  if (!rank->endless || rank->n < 2 || !functions[c->kind] || is_empty(c))
    return false;
  int code = functions[c->kind](rank, c);
  if (code == NOT_OWN)
    return false;
  *status = code ? mpi_failed(rank, code, "MPI's own collective in rank", rank->me) : rank->broken;
  return true;
}
