/*
 * Products by rocBLAS. A handle has one stream and one workspace at a time, so a lock keeps them together with the
 * product that they are for. rocBLAS has no bias: it stands in the output before, and the product is added to it.
 */
#include "plugins/gpu/math.h"

#include <pthread.h>

enum { OP_NONE = 111, OP_TRANSPOSE = 112, TYPE_F16 = 150, TYPE_F32 = 151, TYPE_BF16 = 168 };
enum { ATOMICS_NOT_ALLOWED = 0, MOST_WORKSPACE = 32 << 20 };
enum { SUCCESS = 0, PERFORMANCE_DEGRADED = 7 };

static struct {
  int (*set_stream)(void *handle, void *stream);
  int (*set_workspace)(void *handle, void *memory, size_t size);
  int (*set_atomics_mode)(void *handle, int mode);
  int (*gemm)(void *handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha, const void *a,
              int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, const void *c, int type_c,
              int ldc, void *d, int type_d, int ldd, int compute, int algorithm, int32_t solution, uint32_t flags);
} rocblas;

static const gpu_symbol symbols[] = {
    {"rocblas_create_handle", &gpu_math.base.create},
    {"rocblas_destroy_handle", &gpu_math.base.destroy},
    {"rocblas_set_stream", &rocblas.set_stream},
    {"rocblas_gemm_ex", &rocblas.gemm},
    {NULL, NULL},
};

static const gpu_symbol optional[] = {
    {"rocblas_set_workspace", &rocblas.set_workspace},
    {"rocblas_set_atomics_mode", &rocblas.set_atomics_mode},
    {NULL, NULL},
};

static const gpu_library_status statuses[] = {
    {1, "rocblas_status_invalid_handle", FL_EDEVICE},    {2, "rocblas_status_not_implemented", FL_ENOTSUP},
    {3, "rocblas_status_invalid_pointer", FL_EINTERNAL}, {4, "rocblas_status_invalid_size", FL_EINTERNAL},
    {5, "rocblas_status_memory_error", FL_ENOMEM},       {6, "rocblas_status_internal_error", FL_EINTERNAL},
    {11, "rocblas_status_invalid_value", FL_EINTERNAL},  {14, "rocblas_status_excluded_from_build", FL_ENOTSUP},
    {15, "rocblas_status_arch_mismatch", FL_ENOTSUP},    {0, NULL, 0},
};

/* Sums whose order depends on who comes first would differ from call to call. */
static int prepare(void *handle) {
  return rocblas.set_atomics_mode ? rocblas.set_atomics_mode(handle, ATOMICS_NOT_ALLOWED) : SUCCESS;
}

/* Partial sums in float32, of as many parts as a large device has use for. Without a workspace rocBLAS uses the memory
 * that it took when the handle was made. */
static int workspace_of(int ordinal, void *handle, const gpu_product *p, size_t *size) {
  enum { PARTS = 16 };
  uint64_t wanted = (uint64_t)p->m * (uint64_t)p->n * sizeof(float) * PARTS;
  (void)ordinal;
  (void)handle;
  *size = !rocblas.set_workspace ? 0 : wanted < MOST_WORKSPACE ? (size_t)wanted : MOST_WORKSPACE;
  return SUCCESS;
}

/* Column-major: out^T [n, m] = weight [n, k] x^T [k, m], where a row-major matrix is its own transpose. */
static int multiply(int ordinal, void *handle, const gpu_product *p, void *workspace, size_t size, void *stream) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static const int types[GPU_N_DTYPES] = {TYPE_F32, TYPE_F16, TYPE_BF16};
  static const float one = 1, zero = 0;
  (void)ordinal;
  int type = types[p->dtype], ld_out = (int)p->out_stride;
  pthread_mutex_lock(&lock);
  int code = rocblas.set_stream(handle, stream);
  if (!code && rocblas.set_workspace)
    code = rocblas.set_workspace(handle, workspace, size);
  if (!code)
    code = rocblas.gemm(handle, OP_TRANSPOSE, OP_NONE, (int)p->n, (int)p->m, (int)p->k, &one, p->weight, type,
                        (int)p->weight_stride, p->x, type, (int)p->x_stride, p->onto ? &one : &zero, p->out, type,
                        ld_out, p->out, type, ld_out, TYPE_F32, 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return code == PERFORMANCE_DEGRADED ? SUCCESS : code;
}

gpu_math_library gpu_math = {
    .base = {.title = "rocBLAS",
             .setting = "FLHOST_ROCBLAS",
             .symbols = symbols,
             .optional = optional,
             .statuses = statuses,
             .prepare = prepare,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .library = {.libraries = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0"},
                         .root = "ROCM_PATH",
                         .usual_root = "/opt/rocm"}},
    .workspace = workspace_of,
    .multiply = multiply,
};
