/*
 * flhost/group.h: ranks that work on one thing together, and their collectives.
 *
 *     fl_group_id id;                                       one rank makes it, the others get its bytes
 *     fl_group_make_id(host, kDLCPU, &id);
 *     fl_group *group;
 *     fl_group_create(host, &id, rank, ranks, NULL, &group);
 *     fl_all_reduce(group, x, x, n, (DLDataType){kDLFloat, 32, 1}, FL_REDUCE_SUM, NULL);
 *     fl_group_destroy(group);
 *
 * What moves the data is a communicator, which a plugin brings (communicator.h): shm between threads and processes of
 * one machine, others between machines and devices. Which one is chosen like an implementation: by settings
 * (VLLM_FL_COMMUNICATOR), else by the policy's preference, then by priority, among those that are available. Whoever
 * makes the id chooses, and its name is in the id, so that all ranks use the same.
 *
 * A group is one rank's part, and one thread at a time uses it; threads that are ranks have a group each. Where a rank
 * ends, hangs or leaves, the others' collectives fail with a message that names it, the collective and the group, at
 * the latest after VLLM_FL_COMM_TIMEOUT_S seconds; such a group is of no use any more, but to be destroyed.
 */
#ifndef FLHOST_GROUP_H
#define FLHOST_GROUP_H

#include <flhost/communicator.h>
#include <flhost/scope.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------------------- communicators */

/* A communicator that is registered. */
typedef struct fl_communicator_info {
  const char *name, *plugin;
  const char *vendor; /* NULL if none */
  fl_kind kind;
  int32_t priority;
  int32_t device_type;  /* where its buffers lie */
  bool available;       /* on this machine */
  bool chosen;          /* groups on its device type are made with it, under the policy in force */
  const char *reason;   /* why it is not available, or not allowed, or which is chosen instead; "" if it is chosen */
  uint32_t native;      /* set of 1 << fl_collective_kind that it has itself; the host makes up the others */
  uint32_t dtypes;      /* set of FL_FLOAT32… that it reduces itself */
  uint32_t reductions;  /* set of 1 << fl_reduction that it has itself */
  bool batches, splits; /* has batch, split */
} fl_communicator_info;

/* All that there are, the best of each device type first. */
typedef struct fl_communicators {
  uint32_t size; /* sizeof(fl_communicators) of the library */
  uint32_t n, item_size;
  const void *items; /* fl_communicator_at */
} fl_communicators;

/* Item i of the list; NULL: there are fewer. */
static inline const fl_communicator_info *fl_communicator_at(const fl_communicators *list, uint32_t i) {
  return (const fl_communicator_info *)fl_item_at(list->items, list->n, list->item_size, i);
}

/* Loads the plugins that bring communicators and asks each whether it is available. The caller frees the list. */
FL_API fl_status fl_get_communicators(fl_host *host, fl_communicators **communicators);
FL_API void fl_communicators_free(fl_communicators *communicators);

/* "all_reduce" and so on; NULL for other numbers. */
FL_API const char *fl_collective_name(int32_t kind);
/* "sum", "prod", "max", "min", "avg"; NULL for other numbers. */
FL_API const char *fl_reduction_name(int32_t reduction);

/* ----------------------------------------------------------------------------------------------------------- groups */

/* One rank's part of a group. */
typedef struct fl_group fl_group;

/* What ranks need to come together: plain bytes without pointers, to be passed on by a file, a socket or MPI. */
typedef struct fl_group_id {
  char communicator[FL_NAME_MAX + 1];
  unsigned char bytes[FL_COMMUNICATOR_ID_MAX];
} fl_group_id;

/* How a rank joins. A zero or NULL field stands for the default. */
typedef struct fl_group_options {
  uint32_t size;    /* sizeof(fl_group_options) */
  int32_t device;   /* index of this rank's device, of the communicator's type */
  const char *name; /* for messages: "tp"; NULL = "world" */
  double timeout;   /* seconds; 0 = VLLM_FL_COMM_TIMEOUT_S; INFINITY = without end */
  /* Not 0: ranks whose manifests differ come together all the same; else that is an error, since they would run
   * different implementations, and their results part ways. */
  uint64_t any_manifest;
} fl_group_options;

/* Chooses a communicator for tensors of a device type, and has it make an id; by one rank of the group to be, or by a
 * process that outlives the ranks' joining. FL_ENOIMPL: none is available or allowed, and the message says why each is
 * not; FL_ENOENT: a setting names one that is not there. */
FL_API fl_status fl_group_make_id(fl_host *host, int32_t device_type, fl_group_id *id);

/*
 * Joins as rank `rank` of `ranks`; returns when all have joined. `options` may be NULL. The caller destroys *group
 * before the host. FL_EINVAL: rank or ranks make no sense, or are other than the others'; FL_ENOENT: the id's
 * communicator is not there; FL_ENOIMPL: it is not available, or the policy keeps it out; FL_ESTATE: the ranks'
 * manifests differ; FL_EDEVICE: a rank did not come in time, and what the communicator reports.
 */
FL_API fl_status fl_group_create(fl_host *host, const fl_group_id *id, int32_t rank, int32_t ranks,
                                 const fl_group_options *options, fl_group **group);

/* Which rank this process is, as whoever started it says in its environment. */
typedef struct fl_launched {
  uint32_t size;        /* sizeof(fl_launched) of the caller */
  int32_t rank, ranks;  /* 0 of 1 where nobody says anything */
  int32_t local_rank;   /* among those of this machine, for choosing a device; `rank` where nobody says */
  const char *launcher; /* "flhost launch", "Open MPI", "torchrun", "PMI", "Slurm"; "" where nobody says anything */
} fl_launched;

/* Reads FLHOST_RANK and FLHOST_RANKS (flhost launch), OMPI_COMM_WORLD_RANK (mpirun), RANK (torchrun), PMI_RANK, or
 * SLURM_PROCID (srun: SLURM_STEP_ID is there, too), and what goes with each; the first that is there counts.
 * FL_ECONFIG: a value that makes no sense, by name. */
FL_API fl_status fl_find_launched(fl_host *host, fl_launched *launched);

/*
 * Comes together with the other ranks that were started with this process. The id is that of flhost launch
 * (FLHOST_GROUP_ID); else it is passed through the file that FLHOST_GROUP_FILE names, on a file system that all ranks
 * see, which is gone when they have met; a communicator whose ranks find each other by themselves (mpi) needs neither.
 * A process that is alone is rank 0 of 1. With `options` NULL a rank's device is that of its number on the machine
 * (fl_launched.local_rank), or 0 where the process does not see so many. Errors are those of the functions above, and
 * FL_ECONFIG: no way to pass the id is given, or what is given is no id.
 */
FL_API fl_status fl_group_create_launched(fl_host *host, int32_t device_type, const fl_group_options *options,
                                          fl_group **group);

/* Bytes that are enough for an id as text. */
#define FL_GROUP_ID_TEXT (FL_NAME_MAX + 2 + 2 * FL_COMMUNICATOR_ID_MAX)

/* Writes an id as text, for a variable or a command line: "shm:" and hexadecimal digits. FL_EINVAL: it is no id, or
 * `size` is too small. */
FL_API fl_status fl_group_id_to_text(const fl_group_id *id, char *text, size_t size);

/* Reads it. FL_EINVAL: it is no such text. */
FL_API fl_status fl_group_id_from_text(const char *text, fl_group_id *id);

/* Makes of the ranks with one `color`, 0 or more, a group of their own, in the order of `key` and then of their ranks;
 * all ranks of the group call it. A color of -1: this rank is in none, and *part is NULL. `options` as above. */
FL_API fl_status fl_group_split(fl_group *group, int32_t color, int32_t key, const fl_group_options *options,
                                fl_group **part);

/* This rank leaves. Others that wait for it get an error. NULL is ignored. */
FL_API void fl_group_destroy(fl_group *group);

/* This rank's number, how many there are, and what the group is called and made of. */
FL_API int32_t fl_group_rank(const fl_group *group);
FL_API int32_t fl_group_ranks(const fl_group *group);
FL_API const char *fl_group_name(const fl_group *group);
FL_API const char *fl_group_communicator(const fl_group *group);
FL_API DLDevice fl_group_device(const fl_group *group);

/* FL_OK, or what broke the group, also where work on a stream failed since. */
FL_API fl_status fl_group_state(fl_group *group);

/* Ends all waiting, in this rank and in the others, whose collectives fail. From any thread. FL_ENOTSUP: the
 * communicator cannot. */
FL_API fl_status fl_group_abort(fl_group *group);

/* ------------------------------------------------------------------------------------------------------ calls */

/*
 * A group for this thread's calls, until the scope is left (fl_scope_leave), under the policy in force. Ops that mean
 * something over ranks (fl_op_ranks) are made by all ranks of the group together:
 *
 *     fl_scope scope;
 *     fl_scope_group(host, tensor_parallel, &scope);
 *     fl_row_parallel_linear(&ops, NULL, &x, &weight, NULL, true, true, false, &out);     adds up all ranks' results
 *     fl_scope_leave(&scope);
 *
 * An op goes by the groups that it names ("tp", "ep"), the innermost scope with such a one; a group called "world", as
 * one without a name is, is of all ops. In a scope with a group an implementation that fails is not replaced by
 * another, and one that failed before is tried again (as under `strict`), since ranks that went different ways would
 * wait for each other. All ranks make the same calls in the same order; where one makes none, the others' fail when the
 * group's time is up. Results that are made over ranks are compact. FL_ESTATE: the host is frozen, or the group is
 * another host's, of before a fork or broken; FL_EINVAL: a NULL.
 */
FL_API fl_status fl_scope_group(fl_host *host, fl_group *group, fl_scope *scope);

/* ------------------------------------------------------------------------------------------------------ collectives */

/*
 * Makes one collective (fl_collective says what it needs); what the communicator lacks is made up of what it has. On
 * the processor it is done on return, elsewhere in the order of the stream.
 * FL_EINVAL: a field is wrong, and nothing was sent; with VLLM_FL_COMM_CHECK=1 also that another rank is about to do
 * something else, which is named. FL_ENOTSUP: not with this element type or reduction on this communicator. FL_ESTATE:
 * the group is broken, used by another thread at the moment, or of before a fork. Other errors break it.
 */
FL_API fl_status fl_collective_run(fl_group *group, const fl_collective *collective);

/* Several, as if at the same time: sends and receives among them do not wait for each other. They lie item_size bytes
 * apart. */
FL_API fl_status fl_collective_run_batch(fl_group *group, const fl_collective *collectives, uint32_t n,
                                         uint32_t item_size);

/* A collective of a kind, to be filled further. */
static inline fl_collective fl_collective_of(fl_collective_kind kind, const void *send, void *recv, int64_t count,
                                             DLDataType dtype, void *stream) {
  fl_collective collective;
  memset(&collective, 0, sizeof collective);
  collective.size = (uint32_t)sizeof collective;
  collective.kind = (int32_t)kind;
  collective.send = send;
  collective.recv = recv;
  collective.count = count;
  collective.dtype = dtype;
  collective.stream = stream;
  return collective;
}

/* recv[count] = the reduction of all ranks' send[count]; they may be the same. */
static inline fl_status fl_all_reduce(fl_group *group, const void *send, void *recv, int64_t count, DLDataType dtype,
                                      fl_reduction reduction, void *stream) {
  fl_collective collective = fl_collective_of(FL_ALL_REDUCE, send, recv, count, dtype, stream);
  collective.reduction = (int32_t)reduction;
  return fl_collective_run(group, &collective);
}

/* recv[ranks * count] = all ranks' send[count]. */
static inline fl_status fl_all_gather(fl_group *group, const void *send, void *recv, int64_t count, DLDataType dtype,
                                      void *stream) {
  fl_collective collective = fl_collective_of(FL_ALL_GATHER, send, recv, count, dtype, stream);
  return fl_collective_run(group, &collective);
}

/* recv[count] = this rank's part of the reduction of all ranks' send[ranks * count]. */
static inline fl_status fl_reduce_scatter(fl_group *group, const void *send, void *recv, int64_t count,
                                          DLDataType dtype, fl_reduction reduction, void *stream) {
  fl_collective collective = fl_collective_of(FL_REDUCE_SCATTER, send, recv, count, dtype, stream);
  collective.reduction = (int32_t)reduction;
  return fl_collective_run(group, &collective);
}

/* recv[count] = the root's send[count]. */
static inline fl_status fl_broadcast(fl_group *group, const void *send, void *recv, int64_t count, DLDataType dtype,
                                     int32_t root, void *stream) {
  fl_collective collective = fl_collective_of(FL_BROADCAST, send, recv, count, dtype, stream);
  collective.root = root;
  return fl_collective_run(group, &collective);
}

/* send[count] to another rank. */
static inline fl_status fl_send(fl_group *group, const void *send, int64_t count, DLDataType dtype, int32_t to,
                                void *stream) {
  fl_collective collective = fl_collective_of(FL_SEND, send, NULL, count, dtype, stream);
  collective.root = to;
  return fl_collective_run(group, &collective);
}

/* recv[count] from another rank. */
static inline fl_status fl_recv(fl_group *group, void *recv, int64_t count, DLDataType dtype, int32_t from,
                                void *stream) {
  fl_collective collective = fl_collective_of(FL_RECV, NULL, recv, count, dtype, stream);
  collective.root = from;
  return fl_collective_run(group, &collective);
}

/* Returns, or lets the stream go on, when all ranks have come here. */
static inline fl_status fl_barrier(fl_group *group, void *stream) {
  DLDataType bytes = {kDLUInt, 8, 1};
  fl_collective collective = fl_collective_of(FL_BARRIER, NULL, NULL, 0, bytes, stream);
  return fl_collective_run(group, &collective);
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_GROUP_H */
