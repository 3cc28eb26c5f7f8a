/*
 * What this plugin uses of cuBLASLt: functions and constants, as the vendor's header declares them, the same in CUDA 12
 * and 13, but that arrays of addresses (BATCH_MODE) came with 12.9. Lists, so that the table of functions (cublaslt.c)
 * and the check against the real header (tests/headers/cublaslt.c) are made of the same lines. No type is declared
 * here: cublaslt.h has ours, the check has the vendor's.
 */
#ifndef FLHOST_GPU_CUBLASLT_FUNCTIONS_H
#define FLHOST_GPU_CUBLASLT_FUNCTIONS_H

/* X(name, field of the table, arguments); all return cublasStatus_t. */
#define LT_FUNCTIONS(X)                                                                                                \
  X(cublasLtCreate, create, (cublasLtHandle_t * handle))                                                               \
  X(cublasLtDestroy, destroy, (cublasLtHandle_t handle))                                                               \
  X(cublasLtMatmulDescInit_internal, init_description,                                                                 \
    (cublasLtMatmulDesc_t description, size_t size, cublasComputeType_t compute, cudaDataType_t scale))                \
  X(cublasLtMatmulDescSetAttribute, set_description,                                                                   \
    (cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size))      \
  X(cublasLtMatrixLayoutInit_internal, init_layout,                                                                    \
    (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld))      \
  X(cublasLtMatrixLayoutSetAttribute, set_layout,                                                                      \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t size))        \
  X(cublasLtMatmulPreferenceInit_internal, init_preference, (cublasLtMatmulPreference_t preference, size_t size))      \
  X(cublasLtMatmulPreferenceSetAttribute, set_preference,                                                              \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,         \
     size_t size))                                                                                                     \
  X(cublasLtMatmulAlgoGetHeuristic, heuristic,                                                                         \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,    \
     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int requested,         \
     cublasLtMatmulHeuristicResult_t results[], int *found))                                                           \
  X(cublasLtMatmul, matmul,                                                                                            \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha, const void *a,                      \
     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, \
     cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, \
     void *workspace, size_t workspace_size, cudaStream_t stream))

/* X(name, value) */
#define LT_CONSTANTS(X)                                                                                                \
  X(CUBLAS_COMPUTE_32F, 68)                                                                                            \
  X(CUDA_R_32F, 0)                                                                                                     \
  X(CUDA_R_16F, 2)                                                                                                     \
  X(CUDA_R_16BF, 14)                                                                                                   \
  X(CUBLAS_OP_N, 0)                                                                                                    \
  X(CUBLAS_OP_T, 1)                                                                                                    \
  X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                                                    \
  X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                                                    \
  X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                                                  \
  X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                                              \
  X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                                      \
  X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                                         \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                                             \
  X(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, 8)                                                                              \
  X(CUBLASLT_BATCH_MODE_POINTER_ARRAY, 1)                                                                              \
  X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                                       \
  X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                                                     \
  X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                                                     \
  X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)

/* X(name, value, what becomes of the call) */
#define LT_STATUSES(X)                                                                                                 \
  X(CUBLAS_STATUS_NOT_INITIALIZED, 1, FL_EDEVICE)                                                                      \
  X(CUBLAS_STATUS_ALLOC_FAILED, 3, FL_ENOMEM)                                                                          \
  X(CUBLAS_STATUS_INVALID_VALUE, 7, FL_EINTERNAL)                                                                      \
  X(CUBLAS_STATUS_ARCH_MISMATCH, 8, FL_ENOTSUP)                                                                        \
  X(CUBLAS_STATUS_EXECUTION_FAILED, 13, FL_EDEVICE)                                                                    \
  X(CUBLAS_STATUS_INTERNAL_ERROR, 14, FL_EINTERNAL)                                                                    \
  X(CUBLAS_STATUS_NOT_SUPPORTED, 15, FL_ENOTSUP)

#endif
