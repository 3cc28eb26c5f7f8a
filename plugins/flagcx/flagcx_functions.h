/*
 * What this plugin uses of FlagCX 0.13 and later: functions and constants, as flagcx/include/flagcx.h declares them.
 * Lists, so that the table of functions (library.c) and the stand-in of the tests are made of the same lines. No type
 * is declared here.
 */
#ifndef FLHOST_FLAGCX_FUNCTIONS_H
#define FLHOST_FLAGCX_FUNCTIONS_H

/* X(name, field of the table, result, arguments); all are needed. A flagcxUniqueId_t is a pointer to an id. */
#define FLAGCX_FUNCTIONS(X)                                                                                            \
  X(flagcxGetVersion, get_version, flagcxResult_t, (int *version))                                                     \
  X(flagcxDeviceHandleInit, device_handle_init, flagcxResult_t, (flagcxDeviceHandle_t * handle))                       \
  X(flagcxGetUniqueId, get_unique_id, flagcxResult_t, (flagcxUniqueId_t id))                                           \
  X(flagcxCommInitRank, init_rank, flagcxResult_t, (flagcxComm_t * made, int ranks, flagcxUniqueId_t id, int rank))    \
  X(flagcxCommDestroy, destroy, flagcxResult_t, (flagcxComm_t comm))                                                   \
  X(flagcxCommAbort, abort, flagcxResult_t, (flagcxComm_t comm))                                                       \
  X(flagcxCommGetAsyncError, get_async_error, flagcxResult_t, (flagcxComm_t comm, flagcxResult_t * found))             \
  X(flagcxGroupStart, group_start, flagcxResult_t, (flagcxComm_t comm))                                                \
  X(flagcxGroupEnd, group_end, flagcxResult_t, (flagcxComm_t comm))                                                    \
  X(flagcxAllReduce, all_reduce, flagcxResult_t,                                                                       \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op, flagcxComm_t comm,           \
     flagcxStream_t stream))                                                                                           \
  X(flagcxReduce, reduce, flagcxResult_t,                                                                              \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op, int root, flagcxComm_t comm, \
     flagcxStream_t stream))                                                                                           \
  X(flagcxBroadcast, broadcast, flagcxResult_t,                                                                        \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, int root, flagcxComm_t comm,                   \
     flagcxStream_t stream))                                                                                           \
  X(flagcxAllGather, all_gather, flagcxResult_t,                                                                       \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxComm_t comm, flagcxStream_t stream))     \
  X(flagcxReduceScatter, reduce_scatter, flagcxResult_t,                                                               \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxRedOp_t op, flagcxComm_t comm,           \
     flagcxStream_t stream))                                                                                           \
  X(flagcxGather, gather, flagcxResult_t,                                                                              \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, int root, flagcxComm_t comm,                   \
     flagcxStream_t stream))                                                                                           \
  X(flagcxScatter, scatter, flagcxResult_t,                                                                            \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, int root, flagcxComm_t comm,                   \
     flagcxStream_t stream))                                                                                           \
  X(flagcxAlltoAll, all_to_all, flagcxResult_t,                                                                        \
    (const void *send, void *recv, size_t count, flagcxDataType_t type, flagcxComm_t comm, flagcxStream_t stream))     \
  X(flagcxAlltoAllv, all_to_all_v, flagcxResult_t,                                                                     \
    (const void *send, size_t *send_counts, size_t *send_offsets, void *recv, size_t *recv_counts,                     \
     size_t *recv_offsets, flagcxDataType_t type, flagcxComm_t comm, flagcxStream_t stream))                           \
  X(flagcxSend, send, flagcxResult_t,                                                                                  \
    (const void *send, size_t count, flagcxDataType_t type, int peer, flagcxComm_t comm, flagcxStream_t stream))       \
  X(flagcxRecv, recv, flagcxResult_t,                                                                                  \
    (void *recv, size_t count, flagcxDataType_t type, int peer, flagcxComm_t comm, flagcxStream_t stream))

/*
 * X(field, arguments): the functions of a device handle, of which there is no symbol, so that their order counts. Those
 * behind the streams' are not used, and those behind eventQuery have not kept their places.
 */
#define FLAGCX_DEVICE_HANDLE(X)                                                                                        \
  X(deviceSynchronize, (void))                                                                                         \
  X(deviceMemcpy, (void *to, void *from, size_t size, int type, flagcxStream_t stream))                                \
  X(deviceMemset, (void *memory, int value, size_t size, int type, flagcxStream_t stream))                             \
  X(deviceMalloc, (void **memory, size_t size, int type, flagcxStream_t stream))                                       \
  X(deviceFree, (void *memory, int type, flagcxStream_t stream))                                                       \
  X(setDevice, (int device))                                                                                           \
  X(getDevice, (int *device))                                                                                          \
  X(getDeviceCount, (int *count))                                                                                      \
  X(getVendor, (char *vendor))                                                                                         \
  X(hostGetDevicePointer, (void **device, void *host))                                                                 \
  X(streamCreate, (flagcxStream_t * stream))                                                                           \
  X(streamDestroy, (flagcxStream_t stream))                                                                            \
  X(streamCopy, (flagcxStream_t * stream, void *raw))                                                                  \
  X(streamFree, (flagcxStream_t stream))

/* X(name, value): those that NCCL has have NCCL's values, and no float8 is among them. */
#define FLAGCX_CONSTANTS(X)                                                                                            \
  X(Int8, 0)                                                                                                           \
  X(Uint8, 1)                                                                                                          \
  X(Int32, 2)                                                                                                          \
  X(Int64, 4)                                                                                                          \
  X(Float16, 6)                                                                                                        \
  X(Float32, 7)                                                                                                        \
  X(Float64, 8)                                                                                                        \
  X(Bfloat16, 9)                                                                                                       \
  X(Sum, 0)                                                                                                            \
  X(Prod, 1)                                                                                                           \
  X(Max, 2)                                                                                                            \
  X(Min, 3)                                                                                                            \
  X(Avg, 4)                                                                                                            \
  X(Success, 0)                                                                                                        \
  X(InProgress, 7)

enum { FLAGCX_UNIQUE_ID_BYTES = 256, FLAGCX_NOT_SUPPORTED = 9 };

/* X(name, value, what becomes of the collective, words): flagcxGetErrorString says "Not implemented." of each. */
#define FLAGCX_RESULTS(X)                                                                                              \
  X(flagcxUnhandledDeviceError, 1, FL_EDEVICE, "unhandled device error")                                               \
  X(flagcxSystemError, 2, FL_EDEVICE, "system error")                                                                  \
  X(flagcxInternalError, 3, FL_EINTERNAL, "internal error")                                                            \
  X(flagcxInvalidArgument, 4, FL_EINTERNAL, "invalid argument")                                                        \
  X(flagcxInvalidUsage, 5, FL_ESTATE, "invalid usage")                                                                 \
  X(flagcxRemoteError, 6, FL_EDEVICE, "remote process exited, or the network failed")                                  \
  X(flagcxInProgress, 7, FL_EDEVICE, "in progress")                                                                    \
  X(flagcxUnhandledCCLError, 8, FL_EDEVICE, "unhandled error of the library below it")                                 \
  X(flagcxNotSupported, 9, FL_ENOTSUP, "not supported")

#endif
