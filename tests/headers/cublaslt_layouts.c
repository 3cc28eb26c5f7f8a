/*
 * Does the real cuBLASLt take matrices through arrays of addresses (plugins/gpu/cublaslt.c), and does it refuse an
 * attribute that it does not know, by which an older one is told? Layouts are host memory: no device is needed.
 *
 * cublaslt_layouts LIBRARY: the status is 0 when all is as the plugin expects.
 */
#include "plugins/gpu/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>

enum { NO_ATTRIBUTE = 99 };

static cublasStatus_t (*init)(cublasLtMatrixLayout_t, size_t, cudaDataType, uint64_t, uint64_t, int64_t);
static cublasStatus_t (*set)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t);

int main(int argc, char **argv) {
  const int32_t count = 7;
  const uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY;
  cublasLtMatrixLayoutOpaque_t layout;
  void *library = argc == 2 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
  if (!library) {
    printf("%s\n", argc == 2 ? dlerror() : "usage: cublaslt_layouts LIBRARY");
    return 1;
  }
  *(void **)&init = dlsym(library, "cublasLtMatrixLayoutInit_internal");
  *(void **)&set = dlsym(library, "cublasLtMatrixLayoutSetAttribute");
  if (!init || !set) {
    printf("%s lacks a function of layouts\n", argv[1]);
    return 1;
  }
  const struct {
    const char *what;
    int got, expected;
  } steps[] = {
      {"a layout", init(&layout, sizeof layout, CUDA_R_16BF, 64, 128, 64), 0},
      {"arrays of addresses", set(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode), 0},
      {"their number", set(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count), 0},
      {"an unknown attribute", set(&layout, NO_ATTRIBUTE, &count, sizeof count), CUBLAS_STATUS_INVALID_VALUE},
  };
  int wrong = 0;
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
    if (steps[i].got != steps[i].expected) {
      printf("%s: %s: status %d, expected %d\n", argv[1], steps[i].what, steps[i].got, steps[i].expected);
      wrong++;
    }
  printf("%zu steps with layouts of cuBLASLt, %d wrong\n", sizeof steps / sizeof steps[0], wrong);
  return wrong != 0;
}
