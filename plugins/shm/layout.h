/*
 * What lies in the memory that the ranks share, and who writes what:
 *
 *     head | a seat for each rank | two boxes for each rank | a channel for each pair of ranks
 *
 * A seat is written by its rank alone, but for the bell, which others ring. A rank writes its own boxes and reads those
 * of others; a meeting of all ranks lies between. Meetings are counted. What a rank writes into box s % 2 before
 * meeting s the others read between meetings s and s + 1, and it is not written again before meeting s + 1 is over: two
 * boxes let a loop have one meeting a round. A channel has one writer and one reader.
 *
 * Nobody writes all of it: pages that nobody has touched cost nothing.
 */
#ifndef FLHOST_PLUGINS_SHM_LAYOUT_H
#define FLHOST_PLUGINS_SHM_LAYOUT_H

#include "plugins/shm/process.h"

#include <stdatomic.h>
#include <stddef.h>

enum {
  SHM_MOST_RANKS = 256,
  SHM_LINE = 64, /* what two ranks write at the same time is this far apart */
  SHM_HEAD_BYTES = 4096,
  SHM_BOX_BYTES = 512 * 1024, /* its halves stay in a core's cache */
  SHM_COOKIE_BYTES = 16,
};

/* Of shm_head.broken. */
enum { SHM_WHOLE = 0, SHM_BREAKING = 1, SHM_BROKEN = 2 };

typedef struct shm_head {
  char magic[8];
  unsigned char cookie[SHM_COOKIE_BYTES]; /* the id has it, too */
  shm_process maker;
  _Atomic int32_t ranks;   /* 0 until the first has joined */
  _Atomic int32_t has_met; /* all ranks have joined */
  _Atomic uint32_t broken; /* SHM_BROKEN: it is of no use any more, and `breaker` and `text` say why */
  int32_t breaker;
  int32_t status;
  char text[512];
} shm_head;

/* What a rank calls, for the others to compare with theirs. The first part is the same on all of them. */
typedef struct shm_call {
  uint8_t kind, reduction, code, bits;
  int32_t root;
  int64_t count;
  /* Addresses, used where all ranks are threads of one process; and what else only the caller knows. */
  const void *send;
  void *recv;
  const int64_t *counts, *offsets;
  int64_t greatest; /* bytes to one rank, of an all_to_all_v */
} shm_call;

/* Where a rank sleeps. Who changes what it waits for reads `sleeps`, and only then calls the kernel. */
typedef struct shm_bell {
  _Atomic uint32_t rings;
  _Atomic uint32_t sleeps;
} shm_bell;

/* Of shm_seat.state. */
enum { SHM_EMPTY = 0, SHM_TAKEN = 1, SHM_PRESENT = 2, SHM_LEFT = 3 };

typedef struct shm_seat {
  _Alignas(SHM_LINE) _Atomic uint64_t met; /* the last meeting that it has come to */
  _Atomic uint32_t state;
  _Atomic uint32_t touches; /* it may be using other ranks' buffers, in threads of one process */
  shm_process process;
  _Alignas(SHM_LINE) shm_call calls[2]; /* of the meeting's number % 2 */
  _Alignas(SHM_LINE) shm_bell bell;
} shm_seat;

/* Bytes from one rank to another: a ring of shm_ring_bytes behind this, both counted from the beginning. */
typedef struct shm_channel {
  _Alignas(SHM_LINE) _Atomic uint64_t written;
  _Alignas(SHM_LINE) _Atomic uint64_t read;
  _Alignas(SHM_LINE) unsigned char ring[];
} shm_channel;

/* A power of two; the channels of many ranks are very many. */
static inline size_t shm_ring_bytes(int ranks) {
  return ranks <= 64 ? 64 * 1024 : 16 * 1024;
}

static inline size_t shm_boxes_at(int ranks) {
  size_t end = SHM_HEAD_BYTES + (size_t)ranks * sizeof(shm_seat);
  return (end + SHM_HEAD_BYTES - 1) / SHM_HEAD_BYTES * SHM_HEAD_BYTES;
}

static inline size_t shm_channels_at(int ranks) {
  return shm_boxes_at(ranks) + (size_t)ranks * 2 * SHM_BOX_BYTES;
}

static inline size_t shm_channel_bytes(int ranks) {
  return sizeof(shm_channel) + shm_ring_bytes(ranks);
}

static inline size_t shm_bytes(int ranks) {
  return shm_channels_at(ranks) + (size_t)ranks * (size_t)ranks * shm_channel_bytes(ranks);
}

#endif
