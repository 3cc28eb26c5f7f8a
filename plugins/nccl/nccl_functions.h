/*
 * What this plugin uses of NCCL, which RCCL has alike: functions and constants, as the vendor's header declares them.
 * Lists, so that the table of functions (library.c), the stand-in of the tests and the check against the real header
 * (tests/headers/nccl.c) are made of the same lines. No type is declared here: library.h has ours, the check has the
 * vendor's.
 */
#ifndef FLHOST_NCCL_FUNCTIONS_H
#define FLHOST_NCCL_FUNCTIONS_H

#include <limits.h>

/* X(name, field of the table, result, arguments); all are needed. */
#define NCCL_FUNCTIONS(X)                                                                                              \
  X(ncclGetVersion, get_version, ncclResult_t, (int *version))                                                         \
  X(ncclGetUniqueId, get_unique_id, ncclResult_t, (ncclUniqueId * id))                                                 \
  X(ncclCommInitRank, init_rank, ncclResult_t, (ncclComm_t * made, int ranks, ncclUniqueId id, int rank))              \
  X(ncclCommDestroy, destroy, ncclResult_t, (ncclComm_t comm))                                                         \
  X(ncclCommAbort, abort, ncclResult_t, (ncclComm_t comm))                                                             \
  X(ncclCommGetAsyncError, get_async_error, ncclResult_t, (ncclComm_t comm, ncclResult_t * found))                     \
  X(ncclGetErrorString, get_error_string, const char *, (ncclResult_t result))                                         \
  X(ncclGroupStart, group_start, ncclResult_t, (void))                                                                 \
  X(ncclGroupEnd, group_end, ncclResult_t, (void))                                                                     \
  X(ncclAllReduce, all_reduce, ncclResult_t,                                                                           \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
     cudaStream_t stream))                                                                                             \
  X(ncclReduce, reduce, ncclResult_t,                                                                                  \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,       \
     cudaStream_t stream))                                                                                             \
  X(ncclBroadcast, broadcast, ncclResult_t,                                                                            \
    (const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) \
  X(ncclAllGather, all_gather, ncclResult_t,                                                                           \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))           \
  X(ncclReduceScatter, reduce_scatter, ncclResult_t,                                                                   \
    (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,                 \
     cudaStream_t stream))                                                                                             \
  X(ncclSend, send, ncclResult_t,                                                                                      \
    (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))             \
  X(ncclRecv, recv, ncclResult_t,                                                                                      \
    (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))

/* The same; what came later (2.13, 2.14, 2.18), and is done without where it lacks. */
#define NCCL_OPTIONAL(X)                                                                                               \
  X(ncclGetLastError, get_last_error, const char *, (ncclComm_t comm))                                                 \
  X(ncclCommInitRankConfig, init_rank_config, ncclResult_t,                                                            \
    (ncclComm_t * made, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))                                   \
  X(ncclCommFinalize, finalize, ncclResult_t, (ncclComm_t comm))                                                       \
  X(ncclCommSplit, split, ncclResult_t, (ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config))

/*
 * X(type, field) of ncclConfig_t, as 2.14 had it, which every later version takes from whoever says that size and
 * version; the last is of a later one, and lies where 2.14 had nothing. NCCL_CONFIG_MAGIC has no name in the header,
 * but is in NCCL_CONFIG_INITIALIZER.
 */
#define NCCL_CONFIG_FIELDS(X)                                                                                          \
  X(size_t, size)                                                                                                      \
  X(unsigned, magic)                                                                                                   \
  X(unsigned, version)                                                                                                 \
  X(int, blocking)                                                                                                     \
  X(int, cgaClusterSize)
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 21400

/* X(name, value) */
#define NCCL_CONSTANTS(X)                                                                                              \
  X(NCCL_UNIQUE_ID_BYTES, 128)                                                                                         \
  X(NCCL_SPLIT_NOCOLOR, -1)                                                                                            \
  X(NCCL_CONFIG_UNDEF_INT, INT_MIN)                                                                                    \
  X(ncclInt8, 0)                                                                                                       \
  X(ncclUint8, 1)                                                                                                      \
  X(ncclInt32, 2)                                                                                                      \
  X(ncclInt64, 4)                                                                                                      \
  X(ncclFloat16, 6)                                                                                                    \
  X(ncclFloat32, 7)                                                                                                    \
  X(ncclFloat64, 8)                                                                                                    \
  X(ncclBfloat16, 9)                                                                                                   \
  X(ncclSum, 0)                                                                                                        \
  X(ncclProd, 1)                                                                                                       \
  X(ncclMax, 2)                                                                                                        \
  X(ncclMin, 3)                                                                                                        \
  X(ncclAvg, 4)

/* X(name, value, what becomes of the collective) */
#define NCCL_RESULTS(X)                                                                                                \
  X(ncclUnhandledCudaError, 1, FL_EDEVICE)                                                                             \
  X(ncclSystemError, 2, FL_EDEVICE)                                                                                    \
  X(ncclInternalError, 3, FL_EINTERNAL)                                                                                \
  X(ncclInvalidArgument, 4, FL_EINTERNAL)                                                                              \
  X(ncclInvalidUsage, 5, FL_ESTATE)                                                                                    \
  X(ncclRemoteError, 6, FL_EDEVICE)                                                                                    \
  X(ncclInProgress, 7, FL_EDEVICE)

#endif
