/*
 * What plugins/hccl declares of HCCL, against the vendor's own headers, which are C++: each prototype when this is
 * compiled, each value when it is run. tests/acl-headers does both.
 */
#include <stdbool.h>
#include <stddef.h>

#include "third_party/hccl/inc/hccl/hccl.h"

#include "plugins/hccl/hccl_functions.h"

#include <stdio.h>
#include <type_traits>

#define SAME_PROTOTYPE(name, field, arguments)                                                                         \
  static_assert(std::is_same<decltype(&name), HcclResult(*) arguments>::value, #name " has another prototype");
HCCL_FUNCTIONS(SAME_PROTOTYPE)
HCCL_OPTIONAL(SAME_PROTOTYPE)

/* Those that library.h of the plugin declares as plain integers and pointers, and its structs. */
static_assert(sizeof(HcclResult) == 4 && sizeof(HcclDataType) == 4 && sizeof(HcclReduceOp) == 4, "of 32 bits");
static_assert(std::is_same<HcclComm, void *>::value && std::is_same<aclrtStream, void *>::value, "pointers");
static_assert(sizeof(HcclRootInfo) == 4108 && alignof(HcclRootInfo) == 1, "bytes");
static_assert(sizeof(HcclSendRecvItem) == 32 && offsetof(HcclSendRecvItem, sendRecvType) == 0 &&
                  offsetof(HcclSendRecvItem, buf) == 8 && offsetof(HcclSendRecvItem, count) == 16 &&
                  offsetof(HcclSendRecvItem, dataType) == 24 && offsetof(HcclSendRecvItem, remoteRank) == 28,
              "as in library.h");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's headers, %ld in plugins/hccl/hccl_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main() {
  int checked = 0;
#define SAME_VALUE(name, value) same(#name, (long)(name), (value)), checked++;
  HCCL_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
#define SAME_RESULT(name, value, status, words) same(#name, (long)(name), (value)), checked++;
  HCCL_RESULTS(SAME_RESULT)
#undef SAME_RESULT
#define COUNT(name, field, arguments) checked++;
  HCCL_FUNCTIONS(COUNT)
  HCCL_OPTIONAL(COUNT)
#undef COUNT
  printf("%d prototypes and values of HCCL checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
