/* Collectives of a group: checked, and made by the communicator or composed of what it has. */
#ifndef FLHOST_CORE_GROUP_COLLECTIVE_H
#define FLHOST_CORE_GROUP_COLLECTIVE_H

#include "core/group/group.h"

/* Elements from the first to behind the last of what this rank gives and gets. */
typedef struct fl_extent {
  int64_t send, recv;
} fl_extent;
fl_extent fl_collective_extent(const fl_group *group, const fl_collective *collective);

static inline bool fl_collective_reduces(int32_t kind) {
  return kind == FL_ALL_REDUCE || kind == FL_REDUCE || kind == FL_REDUCE_SCATTER || kind == FL_REDUCE_SCATTER_V;
}

static inline bool fl_collective_has_root(int32_t kind) {
  return kind == FL_REDUCE || kind == FL_BROADCAST || kind == FL_GATHER || kind == FL_SCATTER || kind == FL_SEND ||
         kind == FL_RECV;
}

static inline bool fl_collective_has_counts(int32_t kind) {
  return kind == FL_ALL_GATHER_V || kind == FL_REDUCE_SCATTER_V || kind == FL_ALL_TO_ALL_V;
}

/* FL_EINVAL: a field of collective `index` of a batch (-1: it is in none) is wrong. */
fl_status fl_collective_check(const fl_group *group, const fl_collective *collective, int index);

/* VLLM_FL_COMM_CHECK: FL_EINVAL, with both sides in words, where another rank is about to do something else. */
fl_status fl_collective_compare(fl_group *group, const fl_collective *collective);

/* By the communicator's own function alone. FL_ENOTSUP: it has none, or not for these elements or this reduction. */
fl_status fl_collective_native(fl_group *group, const fl_collective *collective);

/* Does the communicator reduce so itself? */
bool fl_collective_is_reduced(const fl_group *group, const fl_collective *collective);

/* By its own function, else composed of others. What is wrong was found before. */
fl_status fl_collective_make(fl_group *group, const fl_collective *collective);
fl_status fl_collective_make_batch(fl_group *group, const fl_collective *collectives, uint32_t n);

#endif
