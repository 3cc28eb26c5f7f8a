/*
 * What plugins/ascend declares of the ACL runtime, against the vendor's own headers: each prototype when this is
 * compiled, each value when it is run. tests/acl-headers does both.
 */
#include <stdbool.h>

#include "acl/acl.h"
#include "acl/error_codes/rt_error_codes.h"

#include "plugins/ascend/acl_functions.h"

#include <stdio.h>

#define SAME_PROTOTYPE(result, name, arguments)                                                                        \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name " has another "           \
                                                                                             "prototype");
ACL_RUNTIME_FUNCTIONS(SAME_PROTOTYPE)
ACL_OPTIONAL_FUNCTIONS(SAME_PROTOTYPE)

/* Those that acl.h of the plugin declares as plain integers and pointers. */
_Static_assert(sizeof(aclError) == 4 && sizeof(aclDataType) == 4 && sizeof(aclFormat) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(aclrtMemMallocPolicy) == 4 && sizeof(aclrtMemcpyKind) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(aclmdlRICaptureStatus) == 4 && sizeof(aclmdlRICaptureMode) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(aclrtEventRecordedStatus) == 4 && sizeof(aclrtDeviceStatus) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(aclrtMemAttr) == 4 && sizeof(aclrtDevAttr) == 4, "enumerations of 32 bits");
_Static_assert(__builtin_types_compatible_p(aclError, int), "aclError is int");
_Static_assert(__builtin_types_compatible_p(aclrtStream, void *), "aclrtStream is void *");
_Static_assert(__builtin_types_compatible_p(aclrtEvent, void *), "aclrtEvent is void *");
_Static_assert(__builtin_types_compatible_p(aclmdlRI, void *), "aclmdlRI is void *");
_Static_assert(__builtin_types_compatible_p(aclrtContext, void *), "aclrtContext is void *");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's headers, %ld in plugins/ascend/acl_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(name, value) same(#name, (long)(name), (value)), checked++;
  ACL_RUNTIME_CONSTANTS(SAME_VALUE)
  ACL_RUNTIME_CODES(SAME_VALUE)
#undef SAME_VALUE
#define COUNT(result, name, arguments) checked++;
  ACL_RUNTIME_FUNCTIONS(COUNT)
  ACL_OPTIONAL_FUNCTIONS(COUNT)
#undef COUNT
  printf("%d prototypes and values of the ACL runtime checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
