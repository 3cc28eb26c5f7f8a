/*
 * What plugins/gpu declares of cuBLASLt, against the vendor's own header: each prototype when this is compiled, each
 * value when it is run. tests/cuda-headers does both.
 */
#include <cublasLt.h>

#include "plugins/gpu/cublaslt_functions.h"

#include <stdio.h>

#define SAME_PROTOTYPE(name, field, arguments)                                                                         \
  _Static_assert(__builtin_types_compatible_p(__typeof__(&name), cublasStatus_t(*) arguments), #name " has another "   \
                                                                                                     "prototype");
LT_FUNCTIONS(SAME_PROTOTYPE)

/* Those that cublaslt.h of the plugin declares as plain integers and pointers. */
_Static_assert(sizeof(cublasStatus_t) == 4 && sizeof(cublasComputeType_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cudaDataType_t) == 4 && sizeof(cublasLtEpilogue_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cublasOperation_t) == 4 && sizeof(cublasLtReductionScheme_t) == 4, "enumerations of 32 bits");
_Static_assert(sizeof(cublasLtMatrixLayoutAttribute_t) == 4 && sizeof(cublasLtBatchMode_t) == 4, "of 32 bits, too");
_Static_assert(sizeof(cublasLtHandle_t) == sizeof(void *) && sizeof(cudaStream_t) == sizeof(void *), "pointers");
_Static_assert(sizeof(cublasLtMatmulDescOpaque_t) <= 32 * 8, "the plugin's has room for it");
_Static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) <= 8 * 8, "the plugin's has room for it");
_Static_assert(sizeof(cublasLtMatmulPreferenceOpaque_t) <= 8 * 8, "the plugin's has room for it");
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96, "results");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64, "results");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72, "results");

static int wrong;

static void same(const char *name, long theirs, long ours) {
  if (theirs != ours) {
    printf("%s is %ld in the vendor's header, %ld in plugins/gpu/cublaslt_functions.h\n", name, theirs, ours);
    wrong++;
  }
}

int main(void) {
  int checked = 0;
#define SAME_VALUE(name, value) same(#name, (long)(name), (value)), checked++;
  LT_CONSTANTS(SAME_VALUE)
#undef SAME_VALUE
#define SAME_STATUS(name, value, status) same(#name, (long)(name), (value)), checked++;
  LT_STATUSES(SAME_STATUS)
#undef SAME_STATUS
#define COUNT(name, field, arguments) checked++;
  LT_FUNCTIONS(COUNT)
#undef COUNT
  printf("%d prototypes and values of cuBLASLt checked, %d wrong\n", checked, wrong);
  return wrong != 0;
}
