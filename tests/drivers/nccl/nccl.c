/* The library's functions, as tests/drivers/nccl/world.h says. STANDIN_HIP: RCCL's, on HIP's stand-in. NCCL_OLD: as
 * 2.10 was, without what came later. */
#include "tests/drivers/nccl/calls.h"

#ifdef NCCL_OLD
enum { VERSION = 21003 };
#else
enum { VERSION = 22809 };
#endif

/* ---------------------------------------------------------------------------------------------------------- joining */

#define EXPORTED(name, field, result, arguments) EXPORT result name arguments;
NCCL_FUNCTIONS(EXPORTED)
NCCL_OPTIONAL(EXPORTED)
#undef EXPORTED

ncclResult_t ncclGetVersion(int *version) {
  if (version)
    *version = settings.version ? settings.version : VERSION;
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

static const char two_ranks[] = "two ranks on one device, or of one number";

static ncclResult_t join(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, bool background) {
  nccl_world *world = world_find(&id);
  int device;
  if (!made || ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || !world)
    return refuse(ncclInvalidArgument, "a rank, a number of ranks or an id that cannot be");
  if (settings.init)
    return refuse(settings.init, "as it was told to");
  if (!find_device(&device))
    return refuse(ncclUnhandledCudaError, "the thread has no device");
  ncclResult_t result = world_join(world, rank, ranks, device, background, made);
  return result && result != ncclInProgress ? refuse(result, two_ranks) : result;
}

ncclResult_t ncclCommInitRank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank) {
  return join(made, ranks, id, rank, false);
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
  *found = settings.async ? settings.async : comm->background ? world_poll(comm) : world_error(comm);
  if (*found == ncclInvalidUsage)
    refuse(*found, two_ranks);
  return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const words[] = {
      "no error",         "unhandled device error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",          "remote process exited",  "in progress"};
  return result >= 0 && result < (int)(sizeof words / sizeof *words) ? words[result] : "unknown result code";
}

/* ----------------------------------------------------------------------------------------------------------- groups */

ncclResult_t ncclGroupStart(void) {
  return group_begin();
}

ncclResult_t ncclGroupEnd(void) {
  return group_finish();
}

/* ------------------------------------------------------------------------------------------------------ collectives */

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

/* -------------------------------------------------------------------------------------------------- what came later */

#ifndef NCCL_OLD
const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return refused_words();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  if (!config || config->size < sizeof *config || config->magic != NCCL_CONFIG_MAGIC ||
      config->version < NCCL_CONFIG_VERSION || config->cgaClusterSize != NCCL_CONFIG_UNDEF_INT)
    return refuse(ncclInvalidArgument, "a config that was not initialised");
  return join(made, ranks, id, rank, config->blocking == 0);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!comm || check_idle(comm))
    return ncclInvalidArgument;
  if (!comm->background)
    return ncclSuccess;
  world_begin(comm, NULL);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
  if (!comm || !made || config || color < NCCL_SPLIT_NOCOLOR)
    return refuse(ncclInvalidArgument, "a split that cannot be");
  if (check_idle(comm))
    return ncclInvalidArgument;
  *made = NULL;
  count_call(KIND_SPLIT);
  nccl_op op = {.kind = KIND_SPLIT, .comm = comm, .color = color, .key = key, .to = made};
  if (!settings.split) {
    ncclResult_t result = make_at_once(op);
    return result == ncclInProgress ? ncclSuccess : result; /* the real one forgets to say so */
  }
  world_make(&op);
  return refuse(settings.split, "as it was told to");
}
#endif
