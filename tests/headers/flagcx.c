/*
 * What plugins/flagcx declares of FlagCX, against the vendor's own header of 0.13 or later: each prototype and the
 * place of each function of a device handle when this is compiled, each value when it is run. tests/cuda-headers does
 * both.
 */
#include <flagcx.h>

#undef FLAGCX_UNIQUE_ID_BYTES /* a macro there; the id has as many bytes as it says */

#include "plugins/flagcx/flagcx_functions.h"

#include <stddef.h>
#include <stdio.h>

#define SAME_TYPE(ours, theirs, name)                                                                                  \
  _Static_assert(__builtin_types_compatible_p(ours, theirs), #name " has another prototype");

#define SAME_PROTOTYPE(name, field, result, arguments) SAME_TYPE(__typeof__(&name), result(*) arguments, name)
FLAGCX_FUNCTIONS(SAME_PROTOTYPE)

/* Those that library.c of the plugin declares as plain integers and pointers. */
_Static_assert(sizeof(flagcxResult_t) == 4 && sizeof(flagcxDataType_t) == 4 && sizeof(flagcxRedOp_t) == 4,
               "of 32 bits");
_Static_assert(sizeof(flagcxComm_t) == sizeof(void *) && sizeof(flagcxStream_t) == sizeof(void *), "pointers");
_Static_assert(sizeof(*(flagcxUniqueId_t)NULL) == FLAGCX_UNIQUE_ID_BYTES, "an id is passed by its address");

/* The beginning of the device handle: the same functions in the same places. */
struct our_handle {
#define OUR_ENTRY(field, arguments) flagcxResult_t(*field) arguments;
  FLAGCX_DEVICE_HANDLE(OUR_ENTRY)
};
#define SAME_PLACE(field, arguments)                                                                                   \
  _Static_assert(offsetof(struct flagcxDeviceHandle, field) == offsetof(struct our_handle, field),                     \
                 #field " of the device handle is elsewhere");
FLAGCX_DEVICE_HANDLE(SAME_PLACE)

/* Of those that take an enum the plugin says int: it calls none of them. */
#define SAME_ENTRY(field)                                                                                              \
  SAME_TYPE(__typeof__(((struct our_handle *)0)->field), __typeof__(((struct flagcxDeviceHandle *)0)->field), field)
SAME_ENTRY(setDevice)
SAME_ENTRY(getVendor)
SAME_ENTRY(streamCopy)
SAME_ENTRY(streamFree)

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's header, %ld in plugins/flagcx/flagcx_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(name, value) same("flagcx" #name, (long)(flagcx##name), (value)), checked++;
  FLAGCX_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
#define SAME_RESULT(name, value, status, words) same(#name, (long)(name), (value)), checked++;
  FLAGCX_RESULTS(SAME_RESULT)
#undef SAME_RESULT
#define COUNT(name, field, result, arguments) checked++;
  FLAGCX_FUNCTIONS(COUNT)
#undef COUNT
#define COUNT(field, arguments) checked++;
  FLAGCX_DEVICE_HANDLE(COUNT)
#undef COUNT
  printf("%d prototypes, places and values of FlagCX checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
