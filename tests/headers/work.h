/* The rest of cuda.c and hip.c, which say first what the vendor calls things. */
#include "plugins/gpu/work_functions.h"

#include <stddef.h>
#include <stdio.h>

#define SAME_PROTOTYPE(part, field, cuda, hip, arguments)                                                              \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&THEIRS(cuda, hip)), RESULT(*) arguments),                    \
                 #field " has another prototype");
GPU_WORK_FUNCTIONS(SAME_PROTOTYPE)

/* Those that driver.h of the plugin declares as plain integers and pointers, and its struct. */
_Static_assert(sizeof(RESULT) == 4 && sizeof(gpu_pool_attribute) == 4 && sizeof(gpu_capture_mode) == 4, "of 32 bits");
_Static_assert(sizeof(gpu_stream) == 8 && sizeof(gpu_pool) == 8 && sizeof(gpu_address) == 8, "pointers");
_Static_assert(sizeof(POOL_PROPERTIES) == 88 && offsetof(POOL_PROPERTIES, allocType) == 0, "gpu_pool_properties");
_Static_assert(offsetof(POOL_PROPERTIES, handleTypes) == 4, "gpu_pool_properties");
_Static_assert(offsetof(POOL_PROPERTIES, location.type) == 8, "gpu_pool_properties");
_Static_assert(offsetof(POOL_PROPERTIES, location.id) == 12, "gpu_pool_properties");
_Static_assert(offsetof(POOL_PROPERTIES, win32SecurityAttributes) == 16, "gpu_pool_properties");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's header, %ld in plugins/gpu/work_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(ours, value, cuda, hip) same(#ours, (long)THEIRS(cuda, hip), (value)), checked++;
  GPU_WORK_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
#define COUNT(part, field, cuda, hip, arguments) checked++;
  GPU_WORK_FUNCTIONS(COUNT)
#undef COUNT
  printf("%d prototypes and values of %s checked, %d wrong\n", checked, VENDOR, wrong);
  return wrong != 0;
}
