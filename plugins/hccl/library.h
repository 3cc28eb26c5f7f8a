/*
 * HCCL, opened by name and never linked; what is missing is said in words. The ACL runtime below it is opened and
 * initialised as plugins/ascend does it, whose files are linked in.
 */
#ifndef FLHOST_HCCL_LIBRARY_H
#define FLHOST_HCCL_LIBRARY_H

#include "plugins/ascend/runtime.h"
#include "plugins/hccl/hccl_functions.h"

#include <flhost/communicator.h>

/* The vendor's types, as far as they are passed. */
typedef int HcclResult, HcclDataType, HcclReduceOp;
typedef void *HcclComm;

enum {
#define HCCL_CONSTANT(name, value) name = (value),
  HCCL_CONSTANTS(HCCL_CONSTANT)
#undef HCCL_CONSTANT
#define HCCL_RESULT(name, value, status, words) name = (value),
      HCCL_RESULTS(HCCL_RESULT)
#undef HCCL_RESULT
          HCCL_SUCCESS = 0
};

typedef struct HcclRootInfo {
  char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

typedef struct HcclSendRecvItem {
  int sendRecvType; /* HCCL_SEND or HCCL_RECV */
  void *buf;
  uint64_t count;
  HcclDataType dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;

/* The library's functions, once hccl_open said yes; of HCCL_OPTIONAL some are NULL. */
typedef struct hccl_table {
#define HCCL_FIELD(name, field, arguments) HcclResult(*field) arguments;
  HCCL_FUNCTIONS(HCCL_FIELD)
  HCCL_OPTIONAL(HCCL_FIELD)
#undef HCCL_FIELD
} hccl_table;
extern hccl_table hccl;

/* Reads HCCL_SO_PATH, and sees to the locks. At registration. */
void hccl_choose_library(void);

/* Is it there, with all that is needed? Opens it, which initialises no device. Any thread; where it is not there the
 * next call looks again, as torch may have come since. */
bool hccl_open(const char **reason);

/* The status for a result that `function` gave; one other than HCCL_SUCCESS is said in the message. */
fl_status hccl_status(HcclResult result, const char *function, char *message, size_t message_size);

#endif
