/* The library's functions, as tests/drivers/nccl/world.h says. STANDIN_HIP: RCCL's, on HIP's stand-in. NCCL_OLD: as
 * 2.10 was, without what came later. */
#include "tests/drivers/nccl/world.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Numbers that tests may set. */
static struct {
  atomic_int version;
  atomic_int id, init, run; /* what making an id, joining and a collective return */
  atomic_int async;         /* what ncclCommGetAsyncError finds */
} settings = {
#ifdef NCCL_OLD
    .version = 21003,
#else
    .version = 22809,
#endif
};

static atomic_int calls[KINDS];
static _Thread_local char last_error[128];

EXPORT bool flhost_stand_in_nccl_set(const char *name, int value);
bool flhost_stand_in_nccl_set(const char *name, int value) {
  const struct {
    const char *name;
    atomic_int *setting;
  } known[] = {{"version", &settings.version},
               {"id", &settings.id},
               {"init", &settings.init},
               {"run", &settings.run},
               {"async", &settings.async}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i].name, name)) {
      atomic_store(known[i].setting, value);
      return true;
    }
  return false;
}

EXPORT int flhost_stand_in_nccl_calls(int kind);
int flhost_stand_in_nccl_calls(int kind) {
  return atomic_load(&calls[kind]);
}

static ncclResult_t refuse(ncclResult_t result, const char *words) {
  snprintf(last_error, sizeof last_error, "stand-in: %s\n", words);
  return result;
}

/* ----------------------------------------------------------------------------------------------------------- driver
 */

#ifdef STANDIN_HIP
#define DRIVER      "FLHOST_ROCM_DRIVER"
#define GET_DEVICE  "hipGetDevice"
#define SYNCHRONIZE "hipStreamSynchronize"
#else
#define DRIVER      "FLHOST_CUDA_DRIVER"
#define GET_DEVICE  "cuCtxGetDevice"
#define SYNCHRONIZE "cuStreamSynchronize"
#endif

static void *of_driver(const char *name) {
  const char *path = getenv(DRIVER);
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
  return library ? dlsym(library, name) : NULL;
}

static bool find_device(int *device) {
  int (*get)(int *);
  *(void **)&get = of_driver(GET_DEVICE);
  return get && !get(device);
}

/* What was queued on the streams before. */
static bool finish_streams(const nccl_op *first) {
  int (*synchronize)(void *);
  *(void **)&synchronize = of_driver(SYNCHRONIZE);
  for (const nccl_op *op = first; op && synchronize; op = op->next)
    if (op->kind != KIND_SPLIT && synchronize(op->stream))
      return false;
  return true;
}

/* ---------------------------------------------------------------------------------------------------------- joining
 */

#define EXPORTED(name, field, result, arguments) EXPORT result name arguments;
NCCL_FUNCTIONS(EXPORTED)
NCCL_OPTIONAL(EXPORTED)
#undef EXPORTED

ncclResult_t ncclGetVersion(int *version) {
  *version = settings.version;
  return version ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  if (!id)
    return refuse(ncclInvalidArgument, "no room for the id");
  if (settings.id)
    return refuse(settings.id, "no interface for the bootstrap");
  world_new(id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank) {
  nccl_world *world = world_find(&id);
  int device;
  if (!made || ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || !world)
    return refuse(ncclInvalidArgument, "a rank, a number of ranks or an id that cannot be");
  if (settings.init)
    return refuse(settings.init, "as it was told to");
  if (!find_device(&device))
    return refuse(ncclUnhandledCudaError, "the thread has no device");
  ncclResult_t result = world_join(world, rank, ranks, device, made);
  return result ? refuse(result, "two ranks on one device, or of one number") : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  world_leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm)
    return ncclSuccess;
  world_abort(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *found) {
  if (!comm || !found)
    return refuse(ncclInvalidArgument, "no communicator");
  *found = settings.async ? settings.async : world_error(comm);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const words[] = {
      "no error",         "unhandled device error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",          "remote process exited",  "in progress"};
  return result >= 0 && result < (int)(sizeof words / sizeof *words) ? words[result] : "unknown result code";
}

/* ----------------------------------------------------------------------------------------------------------- groups
 */

static _Thread_local struct {
  int depth;
  nccl_op *first, **last;
  ncclResult_t error;
} group;

static ncclResult_t make(nccl_op *op) {
  return finish_streams(op) ? world_make(op) : refuse(ncclUnhandledCudaError, "the stream has failed");
}

static ncclResult_t check(const nccl_op *op) {
  bool reads = op->kind != KIND_RECV, writes = op->kind != KIND_SEND;
  if (!op->comm)
    return refuse(ncclInvalidArgument, "no communicator");
  if (op->type < 0 || op->type > ncclBfloat16)
    return refuse(ncclInvalidArgument, "a datatype that there is not");
  if (op->op < 0 || op->op > ncclAvg)
    return refuse(ncclInvalidArgument, "a reduction that there is not");
  if (op->root < 0 || op->root >= world_ranks(op->comm->world))
    return refuse(ncclInvalidArgument, "a root or peer that there is not");
  if (op->kind == KIND_BROADCAST)
    reads = op->comm->rank == op->root;
  if (op->kind == KIND_REDUCE)
    writes = op->comm->rank == op->root;
  if (op->count && ((reads && !op->send) || (writes && !op->recv)))
    return refuse(ncclInvalidArgument, "a buffer is NULL");
  return settings.run ? refuse(settings.run, "as it was told to") : ncclSuccess;
}

static ncclResult_t submit(nccl_op op) {
  ncclResult_t result = check(&op);
  atomic_fetch_add(&calls[op.kind], 1);
  if (!group.depth)
    return result ? result : make(&op);
  if (result) {
    group.error = result;
    return result;
  }
  nccl_op *kept = malloc(sizeof *kept);
  if (!kept)
    return group.error = ncclSystemError;
  *kept = op;
  *group.last = kept;
  group.last = &kept->next;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
  if (!group.depth++) {
    group.first = NULL;
    group.last = &group.first;
    group.error = ncclSuccess;
  }
  return ncclSuccess;
}

/* The list is the ranks' while it is made; what is to be freed is kept beside. */
ncclResult_t ncclGroupEnd(void) {
  enum { MOST = 256 };
  nccl_op *ops[MOST];
  int n = 0;
  if (!group.depth)
    return refuse(ncclInvalidUsage, "no group was begun");
  if (--group.depth)
    return ncclSuccess;
  for (nccl_op *op = group.first; op; op = op->next) {
    if (n == MOST)
      abort();
    ops[n++] = op;
  }
  ncclResult_t result = group.error;
  if (!result && n)
    result = make(group.first);
  while (n)
    free(ops[--n]);
  return result;
}

/* ------------------------------------------------------------------------------------------------------ collectives
 */

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit((nccl_op){.kind = KIND_ALL_REDUCE,
                          .send = send,
                          .recv = recv,
                          .count = count,
                          .type = type,
                          .op = op,
                          .comm = comm,
                          .stream = stream});
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit((nccl_op){.kind = KIND_REDUCE,
                          .send = send,
                          .recv = recv,
                          .count = count,
                          .type = type,
                          .op = op,
                          .root = root,
                          .comm = comm,
                          .stream = stream});
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit((nccl_op){.kind = KIND_BROADCAST,
                          .send = send,
                          .recv = recv,
                          .count = count,
                          .type = type,
                          .root = root,
                          .comm = comm,
                          .stream = stream});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit((nccl_op){.kind = KIND_ALL_GATHER,
                          .send = send,
                          .recv = recv,
                          .count = count,
                          .type = type,
                          .comm = comm,
                          .stream = stream});
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return submit((nccl_op){.kind = KIND_REDUCE_SCATTER,
                          .send = send,
                          .recv = recv,
                          .count = count,
                          .type = type,
                          .op = op,
                          .comm = comm,
                          .stream = stream});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit((nccl_op){
      .kind = KIND_SEND, .send = send, .count = count, .type = type, .root = peer, .comm = comm, .stream = stream});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit((nccl_op){
      .kind = KIND_RECV, .recv = recv, .count = count, .type = type, .root = peer, .comm = comm, .stream = stream});
}

/* ----------------------------------------------------------------------------------------------------- what came later
 */

#ifndef NCCL_OLD
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_error;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
  if (!comm || !made || config || color < NCCL_SPLIT_NOCOLOR)
    return refuse(ncclInvalidArgument, "a split that cannot be");
  nccl_op op = {.kind = KIND_SPLIT, .comm = comm, .color = color, .key = key};
  atomic_fetch_add(&calls[KIND_SPLIT], 1);
  ncclResult_t result = make(&op);
  *made = op.made;
  return result;
}
#endif
