/*
 * A stand-in for libnccl.so.2 and librccl.so.1 between threads of one process, on the memory of the stand-in drivers
 * (tests/drivers/gpu), which is the host's. nccl.c has the library's functions, calls.c what they refuse and groups,
 * world.c makes ranks meet and computes. FlagCX's and HCCL's (tests/drivers/flagcx, tests/drivers/hccl) are made of the
 * same, but for their functions.
 *
 * What it has alike with the library: ids by value, joining that waits for all, groups, messages to oneself, results,
 * and that a device is one rank's. What not: a collective is done when the call returns, after what was queued on its
 * stream before; the library's returns before, and two of one thread outside of a group would wait for ever here. An
 * abort is noticed by all ranks. A communicator whose config says so does not block: what would wait goes on in the
 * background, and says ncclInProgress for some polls at least; to use it meanwhile is refused. Sums are made in the
 * order of ranks, those of 16 bits rounded at each step, and the mean is the sum, divided.
 *
 * Tests open the library that the plugin was told to use, and find
 *     bool flhost_stand_in_nccl_set(const char *name, int value)   a number of stand_in_settings
 *     int flhost_stand_in_nccl_calls(int kind)                     how many the library was asked for: nccl_kind
 *     int flhost_stand_in_nccl_comms(void)                         how many communicators there are that nobody ended
 */
#ifndef FLHOST_TESTS_NCCL_WORLD_H
#define FLHOST_TESTS_NCCL_WORLD_H

#include "plugins/nccl/nccl_functions.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef void *cudaStream_t;
typedef struct nccl_comm *ncclComm_t;

typedef struct ncclConfig {
#define NCCL_CONFIG_FIELD(type, field) type field;
  NCCL_CONFIG_FIELDS(NCCL_CONFIG_FIELD)
#undef NCCL_CONFIG_FIELD
} ncclConfig_t;

enum {
#define NCCL_CONSTANT(name, value) name = (value),
  NCCL_CONSTANTS(NCCL_CONSTANT)
#undef NCCL_CONSTANT
#define NCCL_RESULT(name, value, status) name = (value),
      NCCL_RESULTS(NCCL_RESULT)
#undef NCCL_RESULT
          ncclSuccess = 0
};

typedef struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

enum { MOST_RANKS = 16 };

typedef enum nccl_kind {
  KIND_ALL_REDUCE,
  KIND_REDUCE,
  KIND_BROADCAST,
  KIND_ALL_GATHER,
  KIND_REDUCE_SCATTER,
  KIND_SEND,
  KIND_RECV,
  KIND_SPLIT,
  /* Made of others, and counted beside those. */
  KIND_GATHER,
  KIND_SCATTER,
  KIND_ALL_TO_ALL,
  KIND_ALL_TO_ALL_V,
  KIND_ALL_GATHER_V,
  KIND_REDUCE_SCATTER_V,
  KIND_BATCH,
  KINDS
} nccl_kind;

/* All that have joined one another. */
typedef struct nccl_world nccl_world;

struct nccl_comm {
  nccl_world *world;
  int rank, device;
  bool aborted;
  int users; /* threads that wait in it */
  int tasks; /* in streams; the last one frees it once it has left */
  bool left;
  /* Of one that does not block: */
  bool background, busy, joining;
  int polls;               /* that are in progress yet, at least */
  struct nccl_op *pending; /* what is to be done, its own */
};

/* What one rank does. */
typedef struct nccl_op {
  nccl_kind kind;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root; /* or peer */
  ncclComm_t comm;
  const void *send;
  void *recv;
  cudaStream_t stream;
  int color, key;  /* of a split, */
  ncclComm_t made; /* and its result, */
  ncclComm_t *to;  /* which goes there in the end; may be NULL */
  bool done;
  ncclResult_t result; /* once it is done */
  struct nccl_op *next;
  struct nccl_op *next_pending;
} nccl_op;

/* An id of a world that is made with it; the world of an id, NULL if there is none. */
void world_new(ncclUniqueId *id);
nccl_world *world_find(const ncclUniqueId *id);

/* Waits until all `ranks` have come; or, in the background, lets world_poll say when they have. */
ncclResult_t world_join(nccl_world *world, int rank, int ranks, int device, bool background, ncclComm_t *made);
int world_ranks(const nccl_world *world);
int world_comms(void);

/* Makes all of a list together: returns when they are done. */
ncclResult_t world_make(nccl_op *first);
/* The same of a communicator that does not block: takes the list, each made by malloc. Of NULL: something else is done.
 */
void world_begin(ncclComm_t comm, nccl_op *first);
/* ncclInProgress, or what came of it, or of the ranks. */
ncclResult_t world_poll(ncclComm_t comm);
bool world_is_busy(ncclComm_t comm);

/* One that waits in a stream holds the communicator. */
void world_hold(ncclComm_t comm);
void world_make_held(nccl_op *op);

void world_leave(ncclComm_t comm);
void world_abort(ncclComm_t comm);
ncclResult_t world_error(ncclComm_t comm);

size_t type_size(ncclDataType_t type);
/* Element by element: all = all op more, and the mean. */
void reduce_into(ncclDataType_t type, ncclRedOp_t op, void *all, const void *more, size_t count);
void divide_by(ncclDataType_t type, void *all, size_t count, int ranks);

#endif
