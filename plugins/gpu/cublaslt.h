/*
 * What cublaslt.c has to know of cuBLASLt's interface, in our own words, so that nothing of CUDA is needed to build:
 * the same in CUDA 12 and 13. tests/cuda-headers holds each line against the vendor's header.
 */
#ifndef FLHOST_GPU_CUBLASLT_H
#define FLHOST_GPU_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

enum { LT_COMPUTE_32F = 68, LT_R_32F = 0, LT_R_16F = 2, LT_R_16BF = 14, LT_OP_N = 0, LT_OP_T = 1 };
enum { LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS_POINTER = 8 };
enum { LT_EPILOGUE_DEFAULT = 1, LT_EPILOGUE_BIAS = 4 };
enum {
  LT_PREFERENCE_MAX_WORKSPACE = 1,
  LT_PREFERENCE_REDUCTION_SCHEMES = 3,
  LT_PREFERENCE_ALIGNMENT_A = 5, /* then of B, C, D */
  LT_REDUCTION_COMPUTE_TYPE = 2  /* partial sums are float32, in the workspace, added in order */
};
enum {
  LT_SUCCESS = 0,
  LT_NOT_INITIALIZED = 1,
  LT_ALLOC_FAILED = 3,
  LT_INVALID_VALUE = 7,
  LT_ARCH_MISMATCH = 8,
  LT_EXECUTION_FAILED = 13,
  LT_INTERNAL_ERROR = 14,
  LT_NOT_SUPPORTED = 15
};

/* Room for descriptors that the library fills, so that a call allocates none: larger than those of any version. */
typedef struct lt_description {
  uint64_t data[32];
} lt_description;
typedef struct lt_layout {
  uint64_t data[8];
} lt_layout;
typedef struct lt_preference {
  uint64_t data[16];
} lt_preference;

typedef struct lt_algorithm {
  uint64_t data[8];
} lt_algorithm;
typedef struct lt_result {
  lt_algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} lt_result;

/* cublasLtCreate, and so on; each returns a status. */
typedef int (*lt_create)(void **handle);
typedef int (*lt_destroy)(void *handle);
typedef int (*lt_init_description)(lt_description *description, size_t size, int compute, int scale);
typedef int (*lt_set_description)(lt_description *description, int attribute, const void *value, size_t size);
typedef int (*lt_init_layout)(lt_layout *layout, size_t size, int type, uint64_t rows, uint64_t columns, int64_t ld);
typedef int (*lt_init_preference)(lt_preference *preference, size_t size);
typedef int (*lt_set_preference)(lt_preference *preference, int attribute, const void *value, size_t size);
typedef int (*lt_heuristic)(void *handle, lt_description *description, lt_layout *a, lt_layout *b, lt_layout *c,
                            lt_layout *d, lt_preference *preference, int requested, lt_result *results, int *found);
typedef int (*lt_matmul)(void *handle, lt_description *description, const void *alpha, const void *a, lt_layout *a_at,
                         const void *b, lt_layout *b_at, const void *beta, const void *c, lt_layout *c_at, void *d,
                         lt_layout *d_at, const lt_algorithm *algorithm, void *workspace, size_t workspace_size,
                         void *stream);

#endif
