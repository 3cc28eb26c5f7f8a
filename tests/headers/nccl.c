/*
 * What plugins/nccl declares of NCCL, against the vendor's own header: each prototype when this is compiled, each value
 * when it is run. tests/cuda-headers does both.
 */
#include <nccl.h>

#include "plugins/nccl/nccl_functions.h"

#include <stddef.h>
#include <stdio.h>

#define SAME_PROTOTYPE(name, field, result, arguments)                                                                 \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name " has another "           \
                                                                                             "prototype");
NCCL_FUNCTIONS(SAME_PROTOTYPE)
NCCL_OPTIONAL(SAME_PROTOTYPE)

/* Those that library.h of the plugin declares as plain integers and pointers. */
_Static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4, "of 32 bits");
_Static_assert(sizeof(ncclComm_t) == sizeof(void *) && sizeof(cudaStream_t) == sizeof(void *), "pointers");
_Static_assert(sizeof(ncclUniqueId) == 128 && _Alignof(ncclUniqueId) == 1, "bytes, passed by value");

/* The beginning of the config: the same fields in the same places. */
typedef struct our_config {
#define OUR_FIELD(type, field) type field;
  NCCL_CONFIG_FIELDS(OUR_FIELD)
} our_config;
#define SAME_FIELD(type, field)                                                                                        \
  _Static_assert(offsetof(ncclConfig_t, field) == offsetof(our_config, field) &&                                       \
                     __builtin_types_compatible_p(__typeof__(((ncclConfig_t *)0)->field), type),                       \
                 "ncclConfig_t has " #field " elsewhere, or otherwise");
NCCL_CONFIG_FIELDS(SAME_FIELD)
_Static_assert(sizeof(our_config) <= sizeof(ncclConfig_t), "a later one is longer");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's header, %ld in plugins/nccl/nccl_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(name, value) same(#name, (long)(name), (value)), checked++;
  NCCL_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
  const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  same("the magic of NCCL_CONFIG_INITIALIZER", (long)config.magic, (long)NCCL_CONFIG_MAGIC), checked++;
  same("cgaClusterSize of NCCL_CONFIG_INITIALIZER", config.cgaClusterSize, NCCL_CONFIG_UNDEF_INT), checked++;
#define SAME_RESULT(name, value, status) same(#name, (long)(name), (value)), checked++;
  NCCL_RESULTS(SAME_RESULT)
#undef SAME_RESULT
#define COUNT(name, field, result, arguments) checked++;
  NCCL_FUNCTIONS(COUNT)
  NCCL_OPTIONAL(COUNT)
#undef COUNT
  printf("%d prototypes and values of NCCL %d.%d.%d checked, %d wrong\n", checked, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH,
         wrong);
  return wrong != 0;
}
