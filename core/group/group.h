/* A group of ranks: one rank's part of it, and what its collectives need. */
#ifndef FLHOST_CORE_GROUP_GROUP_H
#define FLHOST_CORE_GROUP_GROUP_H

#include "core/group/communicators.h"
#include "core/support.h"

#include <sys/types.h>

/* Memory on the group's device that grows: what a collective is composed with needs some. */
enum { FL_GROUP_ROOMS = 2, FL_GROUP_MESSAGE = 1024 };
typedef struct fl_group_room {
  void *memory;
  size_t size;
} fl_group_room;

struct fl_group {
  fl_ranks ranks_of_calls; /* first: what calls are given */
  fl_host *host;
  fl_communicator_choice communicator;
  fl_rank *part;
  char name[FL_NAME_MAX + 1];
  char message[FL_GROUP_MESSAGE]; /* where the communicator says why */
  char broken[FL_GROUP_MESSAGE];  /* by what; "" while it is whole */
  fl_status broken_status;
  int32_t rank, ranks;
  DLDevice device;
  double timeout;
  uint64_t any_manifest;
  bool on_host;      /* the processor reads and writes its buffers */
  bool check;        /* VLLM_FL_COMM_CHECK */
  uint64_t sequence; /* collectives so far */
  pid_t process;     /* that made it */
  _Atomic bool in_use;
  fl_group_room rooms[FL_GROUP_ROOMS];
  int64_t *counts; /* room for 4 * ranks, of bytes where elements are moved as such */
};

/* What a group option says, in seconds; 0 = without end, where that was asked for (INFINITY) or is what
 * VLLM_FL_COMM_TIMEOUT_S says, which counts where nothing was. */
double fl_group_timeout(fl_host *host, double asked);

/* Memory of at least `size` bytes, valid until the room is asked for more. NULL, with an error: there is none. */
void *fl_group_memory(fl_group *group, int room, size_t size);

/* Within the group's device, in the order of the stream. */
fl_status fl_group_copy(fl_group *group, void *to, const void *from, size_t size, void *stream);

/* Notes a failure of the communicator, in its words, which breaks the group unless nothing was sent (FL_ENOTSUP,
 * FL_EINVAL). Gives back the status. */
fl_status fl_group_failed(fl_group *group, const char *what, fl_status status);

/* Every rank's `size` bytes, in the order of ranks; both on the host. Waits for all. */
fl_status fl_group_exchange(fl_group *group, const void *mine, size_t size, void *all);

#endif
