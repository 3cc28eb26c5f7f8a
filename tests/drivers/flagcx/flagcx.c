/*
 * A stand-in for libflagcx.so of 0.13, built for NVIDIA's devices, between threads of one process: the functions; what
 * they do is tests/drivers/nccl's. It wants its own streams, as the library does, and knows those that it has made.
 * FLAGCX_OLD: as 0.12 was, where functions of the same names take other arguments: calling one ends the process.
 * FLAGCX_LACKS: without flagcxAlltoAllv.
 *
 * Beside what tests/drivers/nccl/world.h says there is
 *     int flhost_stand_in_flagcx_streams(void)   how many streams there are that were not freed
 */
#include "plugins/flagcx/flagcx_functions.h"
#include "tests/drivers/nccl/calls.h"

#include <stdlib.h>
#include <string.h>

typedef int flagcxResult_t, flagcxDataType_t, flagcxRedOp_t;
typedef ncclComm_t flagcxComm_t;

typedef struct flagcxStream {
  struct flagcxStream *self; /* while it is one */
  void *raw;
} * flagcxStream_t;

typedef struct flagcxUniqueId {
  char internal[FLAGCX_UNIQUE_ID_BYTES];
} * flagcxUniqueId_t;

struct flagcxDeviceHandle {
#define ENTRY(field, arguments) flagcxResult_t(*field) arguments;
  FLAGCX_DEVICE_HANDLE(ENTRY)
#undef ENTRY
};
typedef struct flagcxDeviceHandle *flagcxDeviceHandle_t;

#ifdef FLAGCX_OLD
EXPORT flagcxResult_t flagcxHandleInit(void **handler);
EXPORT flagcxResult_t flagcxGetVersion(int *version);
EXPORT flagcxResult_t flagcxGetUniqueId(flagcxUniqueId_t *id);

flagcxResult_t flagcxHandleInit(void **handler) {
  (void)handler;
  abort();
}

flagcxResult_t flagcxGetVersion(int *version) {
  (void)version;
  abort();
}

flagcxResult_t flagcxGetUniqueId(flagcxUniqueId_t *id) {
  (void)id;
  abort();
}
#else

#define EXPORTED(name, field, result, arguments) EXPORT result name arguments;
FLAGCX_FUNCTIONS(EXPORTED)
#undef EXPORTED

/* -------------------------------------------------------------------------------------------------------- streams */

static atomic_int streams;

EXPORT int flhost_stand_in_flagcx_streams(void);
int flhost_stand_in_flagcx_streams(void) {
  return atomic_load(&streams);
}

static flagcxResult_t copy_stream(flagcxStream_t *made, void *raw) {
  flagcxStream_t stream = malloc(sizeof *stream);
  if (!stream)
    return ncclSystemError;
  *stream = (struct flagcxStream){.self = stream, .raw = raw};
  atomic_fetch_add(&streams, 1);
  *made = stream;
  return ncclSuccess;
}

static flagcxResult_t free_stream(flagcxStream_t stream) {
  if (!stream || stream->self != stream)
    abort();
  stream->self = NULL;
  free(stream);
  atomic_fetch_sub(&streams, 1);
  return ncclSuccess;
}

/* The driver's stream; one that is no wrapper would be a fault in the real library, too. */
static void *raw_of(flagcxStream_t stream) {
  if (!stream || stream->self != stream)
    abort();
  return stream->raw;
}

/* --------------------------------------------------------------------------------------------------------- handle */

static flagcxResult_t get_vendor(char *vendor) {
  strcpy(vendor, settings.vendor ? "ASCEND" : "NVIDIA");
  return ncclSuccess;
}

/* Only what a communicator has to have is there. */
flagcxResult_t flagcxDeviceHandleInit(flagcxDeviceHandle_t *handle) {
  static struct flagcxDeviceHandle made = {
      .getVendor = get_vendor, .streamCopy = copy_stream, .streamFree = free_stream};
  if (settings.handle)
    return settings.handle;
  *handle = &made;
  return ncclSuccess;
}

flagcxResult_t flagcxGetVersion(int *version) {
  *version = settings.version ? settings.version : 1300;
  return ncclSuccess;
}

/* -------------------------------------------------------------------------------------------------------- joining */

/* All of the bytes have to arrive: the end is as the beginning. */
flagcxResult_t flagcxGetUniqueId(flagcxUniqueId_t id) {
  ncclUniqueId made;
  if (!id)
    return ncclInvalidArgument;
  if (settings.id)
    return settings.id;
  world_new(&made);
  memcpy(id->internal, &made, sizeof made);
  memcpy(id->internal + sizeof made, &made, sizeof made);
  return ncclSuccess;
}

flagcxResult_t flagcxCommInitRank(flagcxComm_t *made, int ranks, flagcxUniqueId_t id, int rank) {
  ncclUniqueId of_world;
  int device;
  memcpy(&of_world, id->internal, sizeof of_world);
  nccl_world *world = world_find(&of_world);
  if (memcmp(id->internal + sizeof of_world, &of_world, sizeof of_world) != 0 || !world || ranks < 1 ||
      ranks > MOST_RANKS || rank < 0 || rank >= ranks)
    return ncclInvalidArgument;
  if (settings.init)
    return settings.init;
  if (!find_device(&device))
    return ncclUnhandledCudaError;
  return world_join(world, rank, ranks, device, false, made);
}

flagcxResult_t flagcxCommDestroy(flagcxComm_t comm) {
  world_leave(comm);
  return ncclSuccess;
}

flagcxResult_t flagcxCommAbort(flagcxComm_t comm) {
  world_abort(comm);
  return ncclSuccess;
}

flagcxResult_t flagcxCommGetAsyncError(flagcxComm_t comm, flagcxResult_t *found) {
  if (settings.async == FLAGCX_NOT_SUPPORTED)
    return settings.async;
  *found = settings.async ? settings.async : world_error(comm);
  return ncclSuccess;
}

/* ---------------------------------------------------------------------------------------------------- collectives */

flagcxResult_t flagcxGroupStart(flagcxComm_t comm) {
  return comm ? group_begin() : ncclInvalidArgument;
}

flagcxResult_t flagcxGroupEnd(flagcxComm_t comm) {
  return comm ? group_finish() : ncclInvalidArgument;
}

#define OP(kind_, send_, recv_, op_, root_)                                                                            \
  ((nccl_op){.kind = (kind_),                                                                                          \
             .send = (send_),                                                                                          \
             .recv = (recv_),                                                                                          \
             .count = count,                                                                                           \
             .type = type,                                                                                             \
             .op = (op_),                                                                                              \
             .root = (root_),                                                                                          \
             .comm = comm,                                                                                             \
             .stream = raw_of(stream)})

flagcxResult_t flagcxAllReduce(const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op,
                               flagcxComm_t comm, flagcxStream_t stream) {
  return submit(OP(KIND_ALL_REDUCE, send, recv, op, 0));
}

flagcxResult_t flagcxReduce(const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op,
                            int root, flagcxComm_t comm, flagcxStream_t stream) {
  return submit(OP(KIND_REDUCE, send, recv, op, root));
}

flagcxResult_t flagcxBroadcast(const void *send, void *recv, size_t count, flagcxDataType_t type, int root,
                               flagcxComm_t comm, flagcxStream_t stream) {
  return submit(OP(KIND_BROADCAST, send, recv, 0, root));
}

flagcxResult_t flagcxAllGather(const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxComm_t comm,
                               flagcxStream_t stream) {
  return submit(OP(KIND_ALL_GATHER, send, recv, 0, 0));
}

flagcxResult_t flagcxReduceScatter(const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op,
                                   flagcxComm_t comm, flagcxStream_t stream) {
  return submit(OP(KIND_REDUCE_SCATTER, send, recv, op, 0));
}

flagcxResult_t flagcxGather(const void *send, void *recv, size_t count, flagcxDataType_t type, int root,
                            flagcxComm_t comm, flagcxStream_t stream) {
  return submit_gather(OP(KIND_GATHER, send, recv, 0, root));
}

flagcxResult_t flagcxScatter(const void *send, void *recv, size_t count, flagcxDataType_t type, int root,
                             flagcxComm_t comm, flagcxStream_t stream) {
  return submit_scatter(OP(KIND_SCATTER, send, recv, 0, root));
}

flagcxResult_t flagcxAlltoAll(const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxComm_t comm,
                              flagcxStream_t stream) {
  return submit_all_to_all(OP(KIND_ALL_TO_ALL, send, recv, 0, 0));
}

#ifndef FLAGCX_LACKS
flagcxResult_t flagcxAlltoAllv(const void *send, size_t *send_counts, size_t *send_offsets, void *recv,
                               size_t *recv_counts, size_t *recv_offsets, flagcxDataType_t type, flagcxComm_t comm,
                               flagcxStream_t stream) {
  size_t count = 0;
  return submit_all_to_all_v(OP(KIND_ALL_TO_ALL_V, send, recv, 0, 0), (parts){send_counts, send_offsets},
                             (parts){recv_counts, recv_offsets});
}
#endif

flagcxResult_t flagcxSend(const void *send, size_t count, flagcxDataType_t type, int peer, flagcxComm_t comm,
                          flagcxStream_t stream) {
  return submit(OP(KIND_SEND, send, NULL, 0, peer));
}

flagcxResult_t flagcxRecv(void *recv, size_t count, flagcxDataType_t type, int peer, flagcxComm_t comm,
                          flagcxStream_t stream) {
  return submit(OP(KIND_RECV, NULL, recv, 0, peer));
}
#endif
