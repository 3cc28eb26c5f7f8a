/*
 * What the functions of the stand-in libraries have alike: how they fail when they are told to, groups, and what is
 * made of several. The streams are the driver's, whose stand-in the process has: CUDA's, or with STANDIN_HIP HIP's,
 * with STANDIN_ACL ACL's.
 */
#ifndef FLHOST_TESTS_NCCL_CALLS_H
#define FLHOST_TESTS_NCCL_CALLS_H

#include "tests/drivers/nccl/world.h"

#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

/* Numbers that tests set by name. */
typedef struct stand_in_settings {
  atomic_int version;       /* 0: the library's own */
  atomic_int id, init, run; /* what making an id, joining and a collective return */
  atomic_int split;         /* what a split returns that has made its parts */
  atomic_int async;         /* what is found to have happened on streams */
  atomic_int queue;         /* 1: collectives wait in their streams, and the call does not */
  atomic_int handle;        /* what asking for a device handle returns, */
  atomic_int vendor;        /* and of which vendor it is then: 0, the one that is expected */
} stand_in_settings;
extern stand_in_settings settings;

/* Gives back the result, with words for the thread's last error. */
ncclResult_t refuse(ncclResult_t result, const char *words);
const char *refused_words(void);

void count_call(nccl_kind kind);

/* The thread's. */
bool find_device(int *device);

/* Checks it, then does it with the group that the thread has begun, or at once. */
ncclResult_t submit(nccl_op op);
ncclResult_t make_at_once(nccl_op op);
ncclResult_t group_begin(void);
/* Refuses one that is at something in the background. */
ncclResult_t check_idle(ncclComm_t comm);
ncclResult_t group_finish(void);

/* Collectives of several others, in a group; what there is of `c` is as in a nccl_op of that kind. */
typedef struct parts {
  const size_t *counts, *offsets;
} parts;
ncclResult_t submit_gather(nccl_op c);
ncclResult_t submit_scatter(nccl_op c);
ncclResult_t submit_all_to_all(nccl_op c);
ncclResult_t submit_all_to_all_v(nccl_op c, parts sent, parts received);
ncclResult_t submit_all_gather_v(nccl_op c, parts received);
ncclResult_t submit_reduce_scatter_v(nccl_op c, parts received);

#endif
