/* A stand-in for librocblas, a part of that for libamdhip64: see standin.h. */
#include "tests/drivers/gpu/product.h"
#include "tests/drivers/gpu/standin.h"

#include <stdlib.h>

enum { SUCCESS = 0, INVALID_HANDLE = 1, NOT_IMPLEMENTED = 2, INVALID_POINTER = 3, INVALID_SIZE = 4 };
enum { MEMORY_ERROR = 5, INTERNAL_ERROR = 6, INVALID_VALUE = 11 };
enum { OP_NONE = 111, OP_TRANSPOSE = 112, F16 = 150, F32 = 151, BF16 = 168, MADE_HANDLE = 0x524f43 };

typedef struct handle {
  int made, device, atomics;
  void *stream, *workspace;
  size_t workspace_size;
} handle;

#define EXPORT STANDIN_EXPORT
int hipGetDevice(int *device);

EXPORT int rocblas_create_handle(void **made);
int rocblas_create_handle(void **made) {
  standin_settings now = standin_now();
  handle *h = now.math_create ? NULL : calloc(1, sizeof *h);
  if (!h)
    return now.math_create ? now.math_create : MEMORY_ERROR;
  h->made = MADE_HANDLE;
  h->atomics = 1;
  standin_log("make handle");
  *made = h;
  return hipGetDevice(&h->device) ? INTERNAL_ERROR : SUCCESS;
}

EXPORT int rocblas_destroy_handle(void *h);
int rocblas_destroy_handle(void *h) {
  standin_log("destroy handle");
  free(h);
  return SUCCESS;
}

EXPORT int rocblas_set_stream(void *h, void *stream);
int rocblas_set_stream(void *h, void *stream) {
  if (!h || ((handle *)h)->made != MADE_HANDLE)
    return INVALID_HANDLE;
  ((handle *)h)->stream = stream;
  return SUCCESS;
}

EXPORT int rocblas_set_workspace(void *h, void *memory, size_t size);
int rocblas_set_workspace(void *h, void *memory, size_t size) {
  if (!memory != !size)
    return INVALID_VALUE;
  ((handle *)h)->workspace = memory;
  ((handle *)h)->workspace_size = size;
  return SUCCESS;
}

EXPORT int rocblas_set_atomics_mode(void *h, int mode);
int rocblas_set_atomics_mode(void *h, int mode) {
  ((handle *)h)->atomics = mode;
  return standin_now().math_prepare;
}

static int type_of(int type) {
  return type == F32 ? PRODUCT_F32 : type == F16 ? PRODUCT_F16 : type == BF16 ? PRODUCT_BF16 : PRODUCT_N_TYPES;
}

EXPORT int rocblas_gemm_ex(void *h, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                           const void *a, int type_a, int lda, const void *b, int type_b, int ldb, const void *beta,
                           const void *c, int type_c, int ldc, void *d, int type_d, int ldd, int compute, int algorithm,
                           int solution, unsigned flags);
int rocblas_gemm_ex(void *h, int operation_a, int operation_b, int m, int n, int k, const void *alpha, const void *a,
                    int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, const void *c,
                    int type_c, int ldc, void *d, int type_d, int ldd, int compute, int algorithm, int solution,
                    unsigned flags) {
  standin_settings now = standin_now();
  const handle *used = h;
  bool transpose_a = operation_a == OP_TRANSPOSE, transpose_b = operation_b == OP_TRANSPOSE;
  int device;
  if (!used || used->made != MADE_HANDLE || hipGetDevice(&device) || device != used->device)
    return INVALID_HANDLE;
  if (now.math_run)
    return now.math_run;
  if ((!transpose_a && operation_a != OP_NONE) || (!transpose_b && operation_b != OP_NONE) || used->atomics)
    return INVALID_VALUE;
  if (m < 0 || n < 0 || k < 0 || lda < (transpose_a ? k : m) || ldb < (transpose_b ? n : k) || ldc < m || ldd < m)
    return INVALID_SIZE;
  if (compute != F32 || type_of(type_a) == PRODUCT_N_TYPES || type_b != type_a || type_c != type_a ||
      type_d != type_a || algorithm || solution || flags || now.math_none == 1)
    return NOT_IMPLEMENTED;
  if (!alpha || !beta || !a || !b || !c || !d)
    return INVALID_POINTER;
  standin_log("gemm %d %d %d workspace %zu stream %p", m, n, k, used->workspace_size, used->stream);
  const product p = {.type = (product_type)type_of(type_a),
                     .m = m,
                     .n = n,
                     .k = k,
                     .alpha = *(const float *)alpha,
                     .beta = *(const float *)beta,
                     .a = {a, lda, transpose_a},
                     .b = {b, ldb, transpose_b},
                     .c = {c, ldc, false},
                     .d = d,
                     .ldd = ldd,
                     .workspace = used->workspace,
                     .workspace_size = used->workspace_size};
  return product_queue(&p, used->stream) ? INTERNAL_ERROR : SUCCESS;
}
