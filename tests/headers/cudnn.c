/*
 * What plugins/gpu declares of cuDNN, against the vendor's own header: each prototype when this is compiled, each value
 * when it is run. tests/cuda-headers does both.
 */
#include <cudnn_graph.h>

#include "plugins/gpu/cudnn_functions.h"

#include <stdio.h>

/* Older ones cannot describe a device, and the plugin does not use them. */
#if CUDNN_VERSION < 90800
int main(void) {
  printf("skip: cuda-headers: the headers are of cuDNN %d, 9.8 or newer expected\n", CUDNN_VERSION);
  return 0;
}
#else

#define SAME_PROTOTYPE(result, name, field, arguments)                                                                 \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) arguments), #name " has another "           \
                                                                                             "prototype");
DNN_FUNCTIONS(SAME_PROTOTYPE)

/* Those that cudnn.h of the plugin declares as plain integers and pointers, and that it writes as attributes. */
_Static_assert(sizeof(cudnnStatus_t) == 4 && sizeof(cudnnBackendDescriptorType_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cudnnBackendAttributeName_t) == 4 && sizeof(cudnnBackendAttributeType_t) == 4,
               "enumerations of 32 bits");
_Static_assert(sizeof(cudnnDataType_t) == 4 && sizeof(cudnnConvolutionMode_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cudnnPointwiseMode_t) == 4 && sizeof(cudnnBackendHeurMode_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cudnnBackendNumericalNote_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cudnnHandle_t) == sizeof(void *) && sizeof(cudnnBackendDescriptor_t) == sizeof(void *) &&
                   sizeof(cudaStream_t) == sizeof(void *),
               "pointers");
_Static_assert(CUDNN_NUMERICAL_NOTE_TYPE_COUNT <= 32, "an engine's notes have room");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's header, %ld in plugins/gpu/cudnn_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(name, value) same(#name, (long)(name), (value)), checked++;
  DNN_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
#define COUNT(result, name, field, arguments) checked++;
  DNN_FUNCTIONS(COUNT)
#undef COUNT
  printf("%d prototypes and values of cuDNN checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}

#endif
