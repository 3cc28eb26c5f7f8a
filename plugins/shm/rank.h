/* One rank's part of a communicator, how it waits for others, and how what went wrong becomes known to all of them. */
#ifndef FLHOST_PLUGINS_SHM_RANK_H
#define FLHOST_PLUGINS_SHM_RANK_H

#include "plugins/shm/segment.h"

/* A message that is under way to or from one other rank. */
typedef struct shm_lane {
  uint64_t done; /* bytes of it, its header included */
  uint32_t item; /* of the batch */
  bool active;
} shm_lane;

struct fl_rank {
  shm_segment *segment;
  shm_head *head;
  shm_seat *seats;
  unsigned char *boxes, *channels;
  int me, n;
  unsigned forks;      /* shm_forks() when it joined */
  bool threads;        /* all ranks are threads of this process: addresses may be handed about */
  int spins;           /* looks in a row (wait.c) */
  uint64_t meeting;    /* the last that it has come to */
  const char *calling; /* what it is in, for messages */
  const char *name;
  double timeout;
  char *message;
  size_t message_size;
  const void *operands[SHM_MOST_RANKS]; /* of one reduction */
  shm_lane *out, *in;                   /* to and from each rank */
  shm_lane lanes[];
};

/* What a rank waits for. `awaits` says whether it is for this rank, among others. */
typedef struct shm_wait shm_wait;
struct shm_wait {
  bool (*is_over)(fl_rank *rank, shm_wait *wait);
  bool (*awaits)(fl_rank *rank, shm_wait *wait, int peer);
  int first; /* none before it is awaited any more */
};

/* Waits until is_over: spinning, then asleep. An error breaks the communicator, for all. */
fl_status shm_wait_for(fl_rank *rank, shm_wait *wait);

/* Comes to the next meeting and waits until all ranks have. */
fl_status shm_meet(fl_rank *rank);

/* What is_over sees has changed for `peer`: wakes it if it sleeps. */
void shm_ring(fl_rank *rank, int peer);
void shm_ring_all(fl_rank *rank);

/* FL_OK, or what broke the communicator, in the rank's message. */
fl_status shm_state(fl_rank *rank);

/* This rank found what makes the communicator useless: everybody is told, unless another was first. */
FL_PRINTF(3, 4) fl_status shm_break(fl_rank *rank, fl_status status, const char *format, ...);

/* The same from any thread, and without words for this rank, which may be in a call. */
FL_PRINTF(3, 4) void shm_break_from_outside(fl_rank *rank, fl_status status, const char *format, ...);

/* Other ranks' buffers, in threads of one process: they stay until their owner's call returns, so a rank that leaves a
 * broken collective first waits until nobody uses them. False: it is broken, use none. */
bool shm_touch(fl_rank *rank);
void shm_touched(fl_rank *rank);

/* Is the rank's memory this process's? A child of fork has no part in it. */
static inline bool shm_is_ours(const fl_rank *rank) {
  return rank->forks == shm_forks();
}

static inline unsigned char *shm_box(const fl_rank *rank, int peer, uint64_t meeting) {
  return rank->boxes + ((size_t)peer * 2 + meeting % 2) * SHM_BOX_BYTES;
}

/* What a rank said it calls when it came to a meeting. */
static inline shm_call *shm_call_of(const fl_rank *rank, int peer, uint64_t meeting) {
  return &rank->seats[peer].calls[meeting % 2];
}

#endif
