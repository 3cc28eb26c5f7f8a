/*
 * What this plugin uses of HCCL: functions and constants, as hccl/hccl.h and hccl/hccl_types.h declare them. Lists, so
 * that the table of functions (library.c), the stand-in of the tests and the check against the real header
 * (tests/headers/hccl.cc) are made of the same lines. No type is declared here.
 */
#ifndef FLHOST_HCCL_FUNCTIONS_H
#define FLHOST_HCCL_FUNCTIONS_H

/* X(name, field of the table, arguments); each returns an HcclResult, and all are needed. */
#define HCCL_FUNCTIONS(X)                                                                                              \
  X(HcclGetRootInfo, get_root_info, (HcclRootInfo * id))                                                               \
  X(HcclCommInitRootInfo, init_root_info, (uint32_t ranks, const HcclRootInfo *id, uint32_t rank, HcclComm *made))     \
  X(HcclCommDestroy, destroy, (HcclComm comm))                                                                         \
  X(HcclAllReduce, all_reduce,                                                                                         \
    (void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream))   \
  X(HcclBroadcast, broadcast,                                                                                          \
    (void *buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm, aclrtStream stream))               \
  X(HcclAllGather, all_gather,                                                                                         \
    (void *send, void *recv, uint64_t send_count, HcclDataType type, HcclComm comm, aclrtStream stream))               \
  X(HcclReduceScatter, reduce_scatter,                                                                                 \
    (void *send, void *recv, uint64_t recv_count, HcclDataType type, HcclReduceOp op, HcclComm comm,                   \
     aclrtStream stream))                                                                                              \
  X(HcclAlltoAll, all_to_all,                                                                                          \
    (const void *send, uint64_t send_count, HcclDataType send_type, const void *recv, uint64_t recv_count,             \
     HcclDataType recv_type, HcclComm comm, aclrtStream stream))                                                       \
  X(HcclAlltoAllV, all_to_all_v,                                                                                       \
    (const void *send, const void *send_counts, const void *send_offsets, HcclDataType send_type, const void *recv,    \
     const void *recv_counts, const void *recv_offsets, HcclDataType recv_type, HcclComm comm, aclrtStream stream))    \
  X(HcclSend, send, (void *send, uint64_t count, HcclDataType type, uint32_t to, HcclComm comm, aclrtStream stream))   \
  X(HcclRecv, recv, (void *recv, uint64_t count, HcclDataType type, uint32_t from, HcclComm comm, aclrtStream stream))

/* The same; what came later, and is done without where it lacks. */
#define HCCL_OPTIONAL(X)                                                                                               \
  X(HcclGetCommAsyncError, get_async_error, (HcclComm comm, HcclResult * found))                                       \
  X(HcclScatter, scatter,                                                                                              \
    (void *send, void *recv, uint64_t recv_count, HcclDataType type, uint32_t root, HcclComm comm,                     \
     aclrtStream stream))                                                                                              \
  X(HcclAllGatherV, all_gather_v,                                                                                      \
    (void *send, uint64_t send_count, void *recv, const void *recv_counts, const void *recv_offsets,                   \
     HcclDataType type, HcclComm comm, aclrtStream stream))                                                            \
  X(HcclReduceScatterV, reduce_scatter_v,                                                                              \
    (void *send, const void *send_counts, const void *send_offsets, void *recv, uint64_t recv_count,                   \
     HcclDataType type, HcclReduceOp op, HcclComm comm, aclrtStream stream))                                           \
  X(HcclBatchSendRecv, batch_send_recv, (HcclSendRecvItem * items, uint32_t n, HcclComm comm, aclrtStream stream))     \
  X(HcclBarrier, barrier, (HcclComm comm, aclrtStream stream))

/* X(name, value) */
#define HCCL_CONSTANTS(X)                                                                                              \
  X(HCCL_ROOT_INFO_BYTES, 4108)                                                                                        \
  X(HCCL_DATA_TYPE_INT8, 0)                                                                                            \
  X(HCCL_DATA_TYPE_INT32, 2)                                                                                           \
  X(HCCL_DATA_TYPE_FP16, 3)                                                                                            \
  X(HCCL_DATA_TYPE_FP32, 4)                                                                                            \
  X(HCCL_DATA_TYPE_INT64, 5)                                                                                           \
  X(HCCL_DATA_TYPE_BFP16, 11)                                                                                          \
  X(HCCL_REDUCE_SUM, 0)                                                                                                \
  X(HCCL_REDUCE_PROD, 1)                                                                                               \
  X(HCCL_REDUCE_MAX, 2)                                                                                                \
  X(HCCL_REDUCE_MIN, 3)                                                                                                \
  X(HCCL_SEND, 0)                                                                                                      \
  X(HCCL_RECV, 1)

/* X(name, value, what becomes of the collective, words) */
#define HCCL_RESULTS(X)                                                                                                \
  X(HCCL_E_PARA, 1, FL_EINTERNAL, "invalid parameter")                                                                 \
  X(HCCL_E_PTR, 2, FL_EINTERNAL, "a pointer is NULL")                                                                  \
  X(HCCL_E_MEMORY, 3, FL_ENOMEM, "no memory")                                                                          \
  X(HCCL_E_INTERNAL, 4, FL_EINTERNAL, "internal error")                                                                \
  X(HCCL_E_NOT_SUPPORT, 5, FL_ENOTSUP, "not supported")                                                                \
  X(HCCL_E_NOT_FOUND, 6, FL_EDEVICE, "not found")                                                                      \
  X(HCCL_E_UNAVAIL, 7, FL_EDEVICE, "unavailable")                                                                      \
  X(HCCL_E_SYSCALL, 8, FL_EDEVICE, "a system call failed")                                                             \
  X(HCCL_E_TIMEOUT, 9, FL_EDEVICE, "waited too long")                                                                  \
  X(HCCL_E_OPEN_FILE_FAILURE, 10, FL_EDEVICE, "a file cannot be opened")                                               \
  X(HCCL_E_TCP_CONNECT, 11, FL_EDEVICE, "no TCP connection")                                                           \
  X(HCCL_E_ROCE_CONNECT, 12, FL_EDEVICE, "no RoCE connection")                                                         \
  X(HCCL_E_TCP_TRANSFER, 13, FL_EDEVICE, "a transfer by TCP failed")                                                   \
  X(HCCL_E_ROCE_TRANSFER, 14, FL_EDEVICE, "a transfer by RoCE failed")                                                 \
  X(HCCL_E_RUNTIME, 15, FL_EDEVICE, "the runtime failed")                                                              \
  X(HCCL_E_DRV, 16, FL_EDEVICE, "the driver failed")                                                                   \
  X(HCCL_E_PROFILING, 17, FL_EDEVICE, "profiling failed")                                                              \
  X(HCCL_E_CCE, 18, FL_EDEVICE, "CCE failed")                                                                          \
  X(HCCL_E_NETWORK, 19, FL_EDEVICE, "the network failed")                                                              \
  X(HCCL_E_AGAIN, 20, FL_EDEVICE, "to be tried again")                                                                 \
  X(HCCL_E_REMOTE, 21, FL_EDEVICE, "another rank failed")                                                              \
  X(HCCL_E_SUSPENDING, 22, FL_EDEVICE, "the communicator is suspended")                                                \
  X(HCCL_E_OPRETRY_FAIL, 23, FL_EDEVICE, "the operator failed again when it was retried")                              \
  X(HCCL_E_OOM, 24, FL_ENOMEM, "no device memory")

#endif
