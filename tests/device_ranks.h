/*
 * Ranks as threads that have a device each, over a stand-in of a library of collectives (tests/drivers/nccl, and those
 * that are made of it). A test has one host and one such library.
 */
#ifndef FLHOST_TESTS_DEVICE_RANKS_H
#define FLHOST_TESTS_DEVICE_RANKS_H

#include "tests/collectives.h"

enum { MOST_RANKS = 4 };
extern fl_host *ranks_host;

/* The stand-in of the library, by its path below the build directory. */
void library_open(const char *path);
void library_find(const char *name, void *function);
/* A number of stand_in_settings. */
void library_set(const char *name, int value);
/* What it has been asked for: the kinds are those of tests/drivers/nccl/world.h. */
enum {
  ALL_REDUCES = 0,
  BROADCASTS = 2,
  SENDS = 5,
  RECVS = 6,
  SPLITS = 7,
  GATHERS = 8,
  SCATTERS = 9,
  ALL_TO_ALLS = 10,
  ALL_TO_ALL_VS = 11,
  ALL_GATHER_VS = 12,
  REDUCE_SCATTER_VS = 13,
  BATCHES = 14
};
int library_calls(int kind);
/* Communicators that nobody has ended. */
int library_comms(void);

/* The time limit of the ranks' groups in seconds; 0: what the host says. */
extern double ranks_timeout;

/* What became of a rank. */
typedef struct worker {
  pthread_t thread;
  const fl_group_id *id;
  int32_t rank, ranks, device;
  rank_body body;
  fl_status joined;
  char words[512];
} worker;

/* Rank i on device first + i * step, by the communicator of that name, which has to be the one that is chosen. */
void run_device_ranks(worker *workers, const char *communicator, int32_t device_type, int32_t ranks, int32_t first,
                      int32_t step, rank_body body);
/* On devices 1, 2 and so on; all have to join. */
void as_device_ranks(const char *communicator, int32_t device_type, int32_t ranks, rank_body body);

/* The first of `ranks` joins, and the others do not come within the limit. `left`: the library has to be left waiting,
 * in a thread; then the second one of two does come, and what the library makes of the first is ended all the same. */
void join_without_others(const char *title, int32_t device_type, int32_t ranks, double limit, bool left);

/* On the group's device. */
float *numbers(fl_group *group, size_t n, float value);
float number(fl_group *group, const float *memory, size_t i);
void give_back(fl_group *group, float *memory);

/* Why the communicator cannot be used, "" if it can. */
const char *communicator_reason(const char *name);
const fl_communicator_info *find_communicator(const fl_communicators *list, const char *name);

#endif
