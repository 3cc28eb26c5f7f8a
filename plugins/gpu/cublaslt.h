/* cuBLASLt's types as far as cublaslt.c needs them, so that nothing of CUDA is needed to build. tests/cuda-headers
 * holds them against the vendor's header. */
#ifndef FLHOST_GPU_CUBLASLT_H
#define FLHOST_GPU_CUBLASLT_H

#include "plugins/gpu/cublaslt_functions.h"

#include <stddef.h>
#include <stdint.h>

typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cudaDataType_t;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayoutAttribute_t;
typedef void *cublasLtHandle_t, *cudaStream_t;

/* Descriptors that the library fills in memory of ours, so that a call allocates none. */
typedef struct {
  uint64_t data[32];
} cublasLtMatmulDescOpaque_t, *cublasLtMatmulDesc_t;
typedef struct {
  uint64_t data[8];
} cublasLtMatrixLayoutOpaque_t, *cublasLtMatrixLayout_t;
typedef struct {
  uint64_t data[8];
} cublasLtMatmulPreferenceOpaque_t, *cublasLtMatmulPreference_t;

typedef struct {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

enum {
#define LT_CONSTANT(name, value) name = (value),
  LT_CONSTANTS(LT_CONSTANT)
#undef LT_CONSTANT
#define LT_STATUS(name, value, status) name = (value),
      LT_STATUSES(LT_STATUS)
#undef LT_STATUS
};

#endif
