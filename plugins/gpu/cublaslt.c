/*
 * Products by cuBLASLt. Which algorithm suits a product is asked once for each form that products come in, and
 * remembered; descriptors lie on the stack. So a call of a form that was seen before takes no lock and no memory.
 */
#include "plugins/gpu/cublaslt.h"
#include "plugins/gpu/forms.h"
#include "plugins/gpu/math.h"

#include <stdlib.h>

static struct {
#define LT_FIELD(name, field, arguments) cublasStatus_t(*field) arguments;
  LT_FUNCTIONS(LT_FIELD)
#undef LT_FIELD
} lt;

static const gpu_symbol symbols[] = {
#define LT_SYMBOL(name, field, arguments) {#name, &lt.field},
    LT_FUNCTIONS(LT_SYMBOL)
#undef LT_SYMBOL
        {NULL, NULL},
};

static const gpu_library_status statuses[] = {
#define LT_STATUS(name, value, status) {value, #name, status},
    LT_STATUSES(LT_STATUS)
#undef LT_STATUS
        {0, NULL, 0},
};

/* ------------------------------------------------------------------------------------------------------ descriptors */

/* Column-major, as the library counts: out^T [n, m] = weight [n, k] x^T [k, m], where a row-major matrix is its own
 * transpose. A is the weight, B is x. */
typedef struct descriptors {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, d;
} descriptors;

static int describe(const gpu_product *p, descriptors *all) {
  static const int types[GPU_N_DTYPES] = {CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF}, transposed = CUBLAS_OP_T,
                   plain = CUBLAS_OP_N;
  const int epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, type = types[p->dtype];
  uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
  cublasLtMatmulDescOpaque_t *product = &all->product;
  int code = lt.init_description(product, sizeof *product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!code)
    code = lt.set_description(product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  if (!code)
    code = lt.set_description(product, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain);
  if (!code)
    code = lt.set_description(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!code && p->bias)
    code = lt.set_description(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
  if (!code)
    code = lt.init_layout(&all->a, sizeof all->a, type, k, n, p->weight_stride);
  if (!code)
    code = lt.init_layout(&all->b, sizeof all->b, type, k, m, p->x_stride);
  return code ? code : lt.init_layout(&all->d, sizeof all->d, type, n, m, p->out_stride);
}

/* ------------------------------------------------------------------------------------------------------- algorithms */

enum { N_SLOTS = 1 << 13, MOST_ALIGNED = 256, MOST_WORKSPACE = 32 << 20 };

/* All that an algorithm may depend on. */
typedef struct form {
  int64_t m, n, k, x_stride, weight_stride, out_stride;
  uint64_t workspace;    /* at most */
  uint16_t alignment[4]; /* of weight, x, out, and out and bias, in bytes */
  uint16_t ordinal, dtype, bias, zero;
} form;
_Static_assert(sizeof(form) == 9 * sizeof(uint64_t), "whole words, no padding");

typedef struct choice {
  form of;
  cublasLtMatmulHeuristicResult_t result;
} choice;

/* What finds no slot is asked for again each time. */
static gpu_form_slot slots[N_SLOTS];

static gpu_form_slot *find_slot(const form *f) {
  return gpu_form_find(slots, N_SLOTS, f, sizeof *f);
}

/* A tensor that has no memory yet, as when a workspace is planned, counts as aligned: its memory will be. */
static uint16_t alignment(const void *address) {
  uintptr_t value = (uintptr_t)address | MOST_ALIGNED;
  return (uint16_t)(value & -value);
}

static form form_of(int ordinal, const gpu_product *p, size_t workspace) {
  uint16_t of_out = alignment(p->out), of_bias = p->bias ? alignment(p->bias) : of_out;
  return (form){.m = p->m,
                .n = p->n,
                .k = p->k,
                .x_stride = p->x_stride,
                .weight_stride = p->weight_stride,
                .out_stride = p->out_stride,
                .workspace = workspace,
                .alignment = {alignment(p->weight), alignment(p->x), of_out, of_bias < of_out ? of_bias : of_out},
                .ordinal = (uint16_t)ordinal,
                .dtype = (uint16_t)p->dtype,
                .bias = p->bias != NULL};
}

static int ask(void *handle, const form *f, descriptors *all, cublasLtMatmulHeuristicResult_t *result) {
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* partial sums in float32, added in order */
  cublasLtMatmulPreferenceOpaque_t preference;
  int found = 0, code = lt.init_preference(&preference, sizeof preference);
  if (!code)
    code = lt.set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &f->workspace, sizeof f->workspace);
  if (!code)
    code = lt.set_preference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
  for (int i = 0; i < 4 && !code; i++) {
    uint32_t bytes = f->alignment[i];
    code = lt.set_preference(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, &bytes, sizeof bytes);
  }
  if (!code)
    code = lt.heuristic(handle, &all->product, &all->a, &all->b, &all->d, &all->d, &preference, 1, result, &found);
  return code ? code : !found ? CUBLAS_STATUS_NOT_SUPPORTED : result->state;
}

/* Without memory, or without a slot, it is not remembered; nor where another thread has done so. */
static void remember(const form *f, const cublasLtMatmulHeuristicResult_t *result) {
  choice *made = malloc(sizeof *made);
  if (!made)
    return;
  *made = (choice){.of = *f, .result = *result};
  for (gpu_form_slot *slot; (slot = find_slot(f)) && !atomic_load(slot);) {
    void *expected = NULL;
    if (atomic_compare_exchange_strong(slot, &expected, made))
      return;
  }
  free(made);
}

static int choose(int ordinal, void *handle, const gpu_product *p, size_t workspace, descriptors *all,
                  cublasLtMatmulHeuristicResult_t *result) {
  const form f = form_of(ordinal, p, workspace);
  gpu_form_slot *slot = find_slot(&f);
  const choice *made = slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
  if (made) {
    *result = made->result;
    return 0;
  }
  int code = ask(handle, &f, all, result);
  if (!code)
    remember(&f, result);
  return code;
}

/* --------------------------------------------------------------------------------------------------------- products */

static size_t workspace_of(int ordinal, void *handle, const gpu_product *p) {
  descriptors all;
  cublasLtMatmulHeuristicResult_t result;
  int code = describe(p, &all);
  if (!code)
    code = choose(ordinal, handle, p, MOST_WORKSPACE, &all, &result);
  return code ? 0 : result.workspaceSize;
}

/* The algorithm that one would like best, or, if the workspace is too small for it, one for what there is: the power of
 * two below, so that forms stay few. */
static int multiply(int ordinal, void *handle, const gpu_product *p, void *workspace, size_t size, void *stream) {
  static const float one = 1, zero = 0;
  descriptors all;
  cublasLtMatmulHeuristicResult_t result;
  int code = describe(p, &all);
  if (!code)
    code = choose(ordinal, handle, p, MOST_WORKSPACE, &all, &result);
  if (!code && result.workspaceSize > size) {
    size_t limit = 1;
    while (limit <= size / 2)
      limit *= 2;
    code = choose(ordinal, handle, p, size ? limit : 0, &all, &result);
  }
  if (code)
    return code;
  return lt.matmul(handle, &all.product, &one, p->weight, &all.a, p->x, &all.b, &zero, p->out, &all.d, p->out, &all.d,
                   &result.algo, result.workspaceSize ? workspace : NULL, result.workspaceSize, stream);
}

static int create(void **handle) {
  return lt.create(handle);
}

static int destroy(void *handle) {
  return lt.destroy(handle);
}

gpu_math_library gpu_math = {
    .base = {.title = "cuBLASLt",
             .setting = "FLHOST_CUBLASLT",
             .symbols = symbols,
             .statuses = statuses,
             .create = create,
             .destroy = destroy,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .library = {.libraries = {"libcublasLt.so.13", "libcublasLt.so.12"}}},
    .adds_bias = true,
    .workspace = workspace_of,
    .multiply = multiply,
};
