/*
 * A stand-in for libhccl.so between threads of one process, on the memory of ACL's stand-in (tests/drivers/ascend): the
 * functions, and what the library refuses; what they do is tests/drivers/nccl's. Default streams and buffers that are
 * NULL are refused, and so are element types that a function's header does not list.
 * HCCL_BARE: without what came later. HCCL_LACKS: without HcclAlltoAllV.
 */
#include "plugins/hccl/hccl_functions.h"
#include "tests/drivers/nccl/calls.h"

#include <string.h>

typedef int HcclResult, HcclDataType, HcclReduceOp;
typedef ncclComm_t HcclComm;
typedef void *aclrtStream;

enum {
#define CONSTANT(name, value) name = (value),
  HCCL_CONSTANTS(CONSTANT)
#undef CONSTANT
#define RESULT(name, value, status, words) name = (value),
      HCCL_RESULTS(RESULT)
#undef RESULT
          HCCL_SUCCESS = 0
};

typedef struct HcclRootInfo {
  char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

typedef struct HcclSendRecvItem {
  int sendRecvType;
  void *buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;

#define EXPORTED(name, field, arguments) EXPORT HcclResult name arguments;
HCCL_FUNCTIONS(EXPORTED)
HCCL_OPTIONAL(EXPORTED)
#undef EXPORTED

/* ---------------------------------------------------------------------------------------------------- what it takes */

static HcclResult result_of(ncclResult_t result) {
  static const HcclResult results[] = {[ncclUnhandledCudaError] = HCCL_E_RUNTIME, [ncclSystemError] = HCCL_E_SYSCALL,
                                       [ncclInternalError] = HCCL_E_INTERNAL,     [ncclInvalidArgument] = HCCL_E_PARA,
                                       [ncclInvalidUsage] = HCCL_E_UNAVAIL,       [ncclRemoteError] = HCCL_E_REMOTE};
  return result ? results[result] : HCCL_SUCCESS;
}

/* Bits of element types, by their numbers. */
#define BIT(type) (1u << HCCL_DATA_TYPE_##type)
enum {
  UINT8 = 7,
  FP64 = 10,
  SCATTERED = BIT(INT8) | BIT(INT32) | BIT(FP16) | BIT(FP32),
  REDUCED = SCATTERED | BIT(BFP16),
  MOVED = REDUCED | BIT(INT64) | 1u << UINT8 | 1u << FP64
};

static ncclDataType_t type_of(HcclDataType type) {
  static const ncclDataType_t types[] = {[HCCL_DATA_TYPE_INT8] = ncclInt8,
                                         [HCCL_DATA_TYPE_INT32] = ncclInt32,
                                         [HCCL_DATA_TYPE_FP16] = ncclFloat16,
                                         [HCCL_DATA_TYPE_FP32] = ncclFloat32,
                                         [HCCL_DATA_TYPE_INT64] = ncclInt64,
                                         [UINT8] = ncclUint8,
                                         [FP64] = ncclFloat64,
                                         [HCCL_DATA_TYPE_BFP16] = ncclBfloat16};
  return types[type];
}

/* What is told to fail does; else whether the arguments are such as the library takes. */
static HcclResult judge(const nccl_op *op, HcclDataType type, unsigned types) {
  int device;
  if (settings.run)
    return settings.run;
  if (!op->comm || !op->stream || !op->send || !op->recv)
    return HCCL_E_PTR;
  if (type < 0 || type > HCCL_DATA_TYPE_BFP16 || !(types >> type & 1))
    return HCCL_E_NOT_SUPPORT;
  if (!find_device(&device) || device != op->comm->device)
    return HCCL_E_RUNTIME;
  return op->op == ncclProd && type == HCCL_DATA_TYPE_BFP16 ? HCCL_E_NOT_SUPPORT : HCCL_SUCCESS;
}

#define OP(kind_, send_, recv_, count_, op_, root_)                                                                    \
  {                                                                                                                    \
    .kind = (kind_), .send = (send_), .recv = (recv_), .count = (count_), .op = (op_), .root = (int)(root_),           \
    .comm = comm, .stream = stream                                                                                     \
  }

static HcclResult make(nccl_op op, HcclDataType type, unsigned types, ncclResult_t (*submits)(nccl_op)) {
  HcclResult result = judge(&op, type, types);
  if (result)
    return result;
  op.type = type_of(type);
  return result_of(submits(op));
}

/* -------------------------------------------------------------------------------------------------------- joining */

enum { FILLER = 0x5a };

HcclResult HcclGetRootInfo(HcclRootInfo *id) {
  ncclUniqueId made;
  int device;
  if (settings.id)
    return settings.id;
  if (!find_device(&device))
    return HCCL_E_RUNTIME;
  world_new(&made);
  memset(id, FILLER, sizeof *id);
  memcpy(id, &made, sizeof made);
  return HCCL_SUCCESS;
}

/* All of the bytes have to arrive. */
HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo *id, uint32_t rank, HcclComm *made) {
  ncclUniqueId of_world;
  int device;
  memcpy(&of_world, id, sizeof of_world);
  for (size_t i = sizeof of_world; i < sizeof *id; i++)
    if (id->internal[i] != FILLER)
      return HCCL_E_PARA;
  nccl_world *world = world_find(&of_world);
  if (settings.init)
    return settings.init;
  if (!world || !ranks || ranks > MOST_RANKS || rank >= ranks)
    return HCCL_E_PARA;
  if (!find_device(&device))
    return HCCL_E_RUNTIME;
  return result_of(world_join(world, (int)rank, (int)ranks, device, false, made));
}

HcclResult HcclCommDestroy(HcclComm comm) {
  int device;
  if (!find_device(&device) || device != comm->device)
    return HCCL_E_RUNTIME;
  world_leave(comm);
  return HCCL_SUCCESS;
}

/* ---------------------------------------------------------------------------------------------------- collectives */

HcclResult HcclAllReduce(void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm,
                         aclrtStream stream) {
  nccl_op made = OP(KIND_ALL_REDUCE, send, recv, count, op, 0);
  return make(made, type, REDUCED, submit);
}

HcclResult HcclBroadcast(void *buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                         aclrtStream stream) {
  nccl_op made = OP(KIND_BROADCAST, buffer, buffer, count, 0, root);
  return make(made, type, MOVED, submit);
}

HcclResult HcclAllGather(void *send, void *recv, uint64_t count, HcclDataType type, HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_ALL_GATHER, send, recv, count, 0, 0);
  return make(made, type, MOVED, submit);
}

HcclResult HcclReduceScatter(void *send, void *recv, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm comm,
                             aclrtStream stream) {
  nccl_op made = OP(KIND_REDUCE_SCATTER, send, recv, count, op, 0);
  return make(made, type, REDUCED, submit);
}

HcclResult HcclAlltoAll(const void *send, uint64_t send_count, HcclDataType send_type, const void *recv,
                        uint64_t recv_count, HcclDataType recv_type, HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_ALL_TO_ALL, send, (void *)(uintptr_t)recv, recv_count, 0, 0);
  if (send_count != recv_count || send_type != recv_type)
    return HCCL_E_PARA;
  return make(made, send_type, MOVED, submit_all_to_all);
}

#ifndef HCCL_LACKS
HcclResult HcclAlltoAllV(const void *send, const void *send_counts, const void *send_offsets, HcclDataType send_type,
                         const void *recv, const void *recv_counts, const void *recv_offsets, HcclDataType recv_type,
                         HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_ALL_TO_ALL_V, send, (void *)(uintptr_t)recv, 0, 0, 0);
  HcclResult result = send_type == recv_type ? judge(&made, send_type, MOVED) : HCCL_E_PARA;
  if (result)
    return result;
  made.type = type_of(send_type);
  return result_of(submit_all_to_all_v(made, (parts){send_counts, send_offsets}, (parts){recv_counts, recv_offsets}));
}
#endif

HcclResult HcclSend(void *send, uint64_t count, HcclDataType type, uint32_t to, HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_SEND, send, send, count, 0, to);
  return make(made, type, MOVED, submit);
}

HcclResult HcclRecv(void *recv, uint64_t count, HcclDataType type, uint32_t from, HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_RECV, recv, recv, count, 0, from);
  return make(made, type, MOVED, submit);
}

/* -------------------------------------------------------------------------------------------------- what came later */

#ifndef HCCL_BARE
HcclResult HcclGetCommAsyncError(HcclComm comm, HcclResult *found) {
  *found = settings.async ? settings.async : result_of(world_error(comm));
  return HCCL_SUCCESS;
}

HcclResult HcclScatter(void *send, void *recv, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                       aclrtStream stream) {
  nccl_op made = OP(KIND_SCATTER, send, recv, count, 0, root);
  return make(made, type, SCATTERED, submit_scatter);
}

HcclResult HcclAllGatherV(void *send, uint64_t send_count, void *recv, const void *recv_counts,
                          const void *recv_offsets, HcclDataType type, HcclComm comm, aclrtStream stream) {
  nccl_op made = OP(KIND_ALL_GATHER_V, send, recv, send_count, 0, 0);
  HcclResult result = judge(&made, type, REDUCED);
  if (!result && send_count != ((const uint64_t *)recv_counts)[comm->rank])
    result = HCCL_E_PARA;
  if (result)
    return result;
  made.type = type_of(type);
  return result_of(submit_all_gather_v(made, (parts){recv_counts, recv_offsets}));
}

HcclResult HcclReduceScatterV(void *send, const void *send_counts, const void *send_offsets, void *recv,
                              uint64_t recv_count, HcclDataType type, HcclReduceOp op, HcclComm comm,
                              aclrtStream stream) {
  nccl_op made = OP(KIND_REDUCE_SCATTER_V, send, recv, recv_count, op, 0);
  HcclResult result = judge(&made, type, REDUCED);
  if (!result && recv_count != ((const uint64_t *)send_counts)[comm->rank])
    result = HCCL_E_PARA;
  if (result)
    return result;
  made.type = type_of(type);
  return result_of(submit_reduce_scatter_v(made, (parts){send_counts, send_offsets}));
}

/* With others only, as not every kind of device can do it with itself. */
HcclResult HcclBatchSendRecv(HcclSendRecvItem *items, uint32_t n, HcclComm comm, aclrtStream stream) {
  HcclResult result = HCCL_SUCCESS;
  count_call(KIND_BATCH);
  group_begin();
  for (uint32_t i = 0; i < n && !result; i++) {
    nccl_kind kind = items[i].sendRecvType == HCCL_SEND ? KIND_SEND : KIND_RECV;
    nccl_op made = OP(kind, items[i].buf, items[i].buf, items[i].count, 0, items[i].remoteRank);
    result = (int)items[i].remoteRank == comm->rank || !items[i].count ? HCCL_E_PARA
                                                                       : make(made, items[i].dataType, MOVED, submit);
  }
  HcclResult ended = result_of(group_finish());
  return result ? result : ended;
}

HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  char one = 1, all;
  nccl_op made = OP(KIND_ALL_REDUCE, &one, &all, 1, 0, 0);
  return make(made, HCCL_DATA_TYPE_INT8, MOVED, submit);
}
#endif
