/* The memory that the ranks of one communicator share: made, found by an id, mapped once in a process. */
#ifndef FLHOST_PLUGINS_SHM_SEGMENT_H
#define FLHOST_PLUGINS_SHM_SEGMENT_H

#include "plugins/shm/layout.h"

#include <flhost/communicator.h>

/* How another process finds the memory: by the descriptor of the one that made it. No file has its name, so nothing
 * stays when all have ended, however they did. */
typedef struct shm_id {
  char magic[8];
  unsigned char cookie[SHM_COOKIE_BYTES];
  shm_machine machine;
  shm_process maker;
  uint32_t user;
  int32_t fd;
} shm_id;

/* A mapping of this process. Its ranks share one, so that an address means the same to all of them. */
typedef struct shm_segment {
  struct shm_segment *next;
  unsigned char cookie[SHM_COOKIE_BYTES];
  shm_head *head;
  size_t size;
  int ranks;
  int users;
} shm_segment;

/* fl_communicator.make_id: the descriptor stays open until all ranks have joined, or the process ends. */
fl_status shm_make_id(void *self, void *id, char *message, size_t message_size);

/* The memory of join->id, for join->ranks ranks. Any thread. */
fl_status shm_segment_open(const fl_join *join, shm_segment **segment);

/* The last of its ranks here unmaps it. Any thread. */
void shm_segment_close(shm_segment *segment);

/* Closes what this process keeps of communicators whose ranks have all joined. Any thread. */
void shm_sweep(void);

/* How often this process was forked from another that had this plugin: what a parent joined its children do not use. */
unsigned shm_forks(void);

#endif
