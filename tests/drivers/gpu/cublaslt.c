/*
 * A stand-in for libcublasLt, a part of that for libcuda: see standin.h. Descriptors and algorithms carry what they
 * were made with, so that one that was not made, or was made for another product, is refused as the library would
 * refuse it, or finds out by a wrong result.
 */
#include "tests/drivers/gpu/product.h"
#include "tests/drivers/gpu/standin.h"

#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { COMPUTE_32F = 68, R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { MADE_DESCRIPTION = 0x4c54, MADE_LAYOUT, MADE_PREFERENCE, MADE_ALGORITHM, MADE_HANDLE };

typedef struct handle {
  int made, device;
} handle;

typedef struct description {
  int made, compute, scale, transpose_a, transpose_b, epilogue;
  const void *bias;
} description;

typedef struct layout {
  int made, type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch;
  uint32_t pointers; /* 1: what is passed for the matrix is an array of addresses */
} layout;

typedef struct preference {
  int made;
  uint64_t workspace;
  uint32_t alignment[4];
} preference;

/* 64 bytes, as the library's. */
typedef struct algorithm {
  uint32_t made, type;
  uint64_t m, n, k;
  uint64_t workspace;
  uint16_t alignment[4];
  uint32_t epilogue;
  int32_t batch;
  uint32_t pointers, reserved;
} algorithm;

typedef struct result {
  algorithm chosen;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} result;
_Static_assert(sizeof(algorithm) == 64 && sizeof(result) == 96, "as the library has them");

#define EXPORT STANDIN_EXPORT
int cuCtxGetDevice(int *device);

EXPORT int cublasLtCreate(void **made);
int cublasLtCreate(void **made) {
  standin_settings now = standin_now();
  handle *h = now.math_create ? NULL : malloc(sizeof *h);
  if (!h)
    return now.math_create ? now.math_create : ALLOC_FAILED;
  h->made = MADE_HANDLE;
  standin_log("make handle");
  *made = h;
  return cuCtxGetDevice(&h->device) ? 1 : SUCCESS;
}

EXPORT int cublasLtDestroy(void *h);
int cublasLtDestroy(void *h) {
  standin_log("destroy handle");
  free(h);
  return SUCCESS;
}

EXPORT int cublasLtMatmulDescInit_internal(void *made, size_t size, int compute, int scale);
int cublasLtMatmulDescInit_internal(void *made, size_t size, int compute, int scale) {
  description d = {MADE_DESCRIPTION, compute, scale, 0, 0, 1, NULL};
  if (size < sizeof d)
    return ALLOC_FAILED;
  memcpy(made, &d, sizeof d);
  return SUCCESS;
}

EXPORT int cublasLtMatmulDescSetAttribute(void *set, int attribute, const void *value, size_t size);
int cublasLtMatmulDescSetAttribute(void *set, int attribute, const void *value, size_t size) {
  description *d = set;
  const struct {
    int attribute;
    void *field;
    size_t size;
  } known[] = {{3, &d->transpose_a, 4}, {4, &d->transpose_b, 4}, {7, &d->epilogue, 4}, {8, &d->bias, 8}};
  for (size_t i = 0; i < sizeof known / sizeof known[0] && d->made == MADE_DESCRIPTION; i++)
    if (known[i].attribute == attribute && known[i].size == size) {
      memcpy(known[i].field, value, size);
      return SUCCESS;
    }
  return INVALID_VALUE;
}

EXPORT int cublasLtMatrixLayoutInit_internal(void *made, size_t size, int type, uint64_t rows, uint64_t columns,
                                             int64_t ld);
int cublasLtMatrixLayoutInit_internal(void *made, size_t size, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  layout l = {MADE_LAYOUT, type, rows, columns, ld, 1, 0};
  if (size < sizeof l)
    return ALLOC_FAILED;
  memcpy(made, &l, sizeof l);
  return SUCCESS;
}

/* An attribute that it does not know is no valid value, as in the library. */
EXPORT int cublasLtMatrixLayoutSetAttribute(void *set, int attribute, const void *value, size_t size);
int cublasLtMatrixLayoutSetAttribute(void *set, int attribute, const void *value, size_t size) {
  layout *l = set;
  if (l->made != MADE_LAYOUT || size != 4)
    return INVALID_VALUE;
  if (attribute == 5)
    memcpy(&l->batch, value, size);
  else if (attribute == 8 && !standin_now().math_old)
    memcpy(&l->pointers, value, size);
  else
    return INVALID_VALUE;
  return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceInit_internal(void *made, size_t size);
int cublasLtMatmulPreferenceInit_internal(void *made, size_t size) {
  preference p = {MADE_PREFERENCE, 0, {256, 256, 256, 256}};
  if (size < sizeof p)
    return ALLOC_FAILED;
  memcpy(made, &p, sizeof p);
  return SUCCESS;
}

EXPORT int cublasLtMatmulPreferenceSetAttribute(void *set, int attribute, const void *value, size_t size);
int cublasLtMatmulPreferenceSetAttribute(void *set, int attribute, const void *value, size_t size) {
  preference *p = set;
  if (p->made != MADE_PREFERENCE)
    return INVALID_VALUE;
  if (attribute == 1 && size == sizeof p->workspace)
    memcpy(&p->workspace, value, size);
  else if (attribute >= 5 && attribute <= 8 && size == sizeof p->alignment[0])
    memcpy(&p->alignment[attribute - 5], value, size);
  else if (attribute != 3 || size != sizeof(uint32_t))
    return INVALID_VALUE;
  return SUCCESS;
}

/* ----------------------------------------------------------------------------------------------------------- checks */

static int type_of(int type) {
  return type == R_32F ? PRODUCT_F32 : type == R_16F ? PRODUCT_F16 : type == R_16BF ? PRODUCT_BF16 : PRODUCT_N_TYPES;
}

/* One number of matrices in all, and no epilogue with arrays of addresses; a grid has no more blocks in a row. */
static int check_batch(const description *op, const layout *a, const layout *b, const layout *d) {
  enum { MOST = 65535 };
  if (a->batch != d->batch || b->batch != d->batch || d->batch < 1 || a->pointers > 1)
    return INVALID_VALUE;
  if (a->pointers != d->pointers || b->pointers != d->pointers || (d->pointers && op->epilogue != 1) ||
      d->batch > (d->pointers ? MOST : 1))
    return NOT_SUPPORTED;
  return SUCCESS;
}

/* m, n and k of a product; what the library has no code for is not supported, what cannot be is not valid. */
static int check(const description *op, const layout *a, const layout *b, const layout *c, const layout *d,
                 uint64_t *sizes) {
  if (op->made != MADE_DESCRIPTION || a->made != MADE_LAYOUT || b->made != MADE_LAYOUT || c->made != MADE_LAYOUT ||
      d->made != MADE_LAYOUT)
    return INVALID_VALUE;
  if (op->compute != COMPUTE_32F || op->scale != R_32F || type_of(a->type) == PRODUCT_N_TYPES || b->type != a->type ||
      c->type != a->type || d->type != a->type || (op->epilogue != 1 && op->epilogue != 4))
    return NOT_SUPPORTED;
  sizes[0] = op->transpose_a ? a->columns : a->rows;
  sizes[1] = op->transpose_b ? b->rows : b->columns;
  sizes[2] = op->transpose_a ? a->rows : a->columns;
  if ((op->transpose_b ? b->columns : b->rows) != sizes[2] || d->rows != sizes[0] || d->columns != sizes[1] ||
      memcmp(c, d, sizeof *c) != 0 || !sizes[0] || !sizes[1] || !sizes[2])
    return INVALID_VALUE;
  if (a->ld < (int64_t)a->rows || b->ld < (int64_t)b->rows || d->ld < (int64_t)d->rows)
    return INVALID_VALUE;
  return check_batch(op, a, b, d);
}

/* Does it begin at a multiple of what was promised? */
static bool aligned(const void *address, unsigned promised) {
  return (uintptr_t)address % promised == 0;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, const void *op, const void *a, const void *b, const void *c,
                                          const void *d, const void *preferred, int requested, result *results,
                                          int *found);
int cublasLtMatmulAlgoGetHeuristic(void *h, const void *op, const void *a, const void *b, const void *c, const void *d,
                                   const void *preferred, int requested, result *results, int *found) {
  standin_settings now = standin_now();
  const preference *p = preferred;
  uint64_t sizes[3], wanted = (uint64_t)now.math_workspace;
  int code = check(op, a, b, c, d, sizes);
  *found = 0;
  if (code)
    return code;
  if (((const handle *)h)->made != MADE_HANDLE || p->made != MADE_PREFERENCE || requested < 1)
    return INVALID_VALUE;
  const layout *results_at = d;
  if (now.math_none == 1 || (now.math_none == 2 && results_at->pointers))
    return NOT_SUPPORTED;
  standin_log("heuristic %d %d %d", (int)sizes[0], (int)sizes[1], (int)sizes[2]);
  result r = {.chosen = {.made = MADE_ALGORITHM,
                         .type = (uint32_t)((const layout *)a)->type,
                         .m = sizes[0],
                         .n = sizes[1],
                         .k = sizes[2],
                         .epilogue = (uint32_t)((const description *)op)->epilogue,
                         .batch = results_at->batch,
                         .pointers = results_at->pointers}};
  r.workspace = r.chosen.workspace = wanted <= p->workspace ? wanted : 0;
  for (int i = 0; i < 4; i++)
    r.chosen.alignment[i] = (uint16_t)p->alignment[i];
  results[0] = r;
  *found = 1;
  return SUCCESS;
}

EXPORT int cublasLtMatmul(void *h, const void *op, const void *alpha, const void *a, const void *a_at, const void *b,
                          const void *b_at, const void *beta, const void *c, const void *c_at, void *d,
                          const void *d_at, const void *algo, void *workspace, size_t workspace_size, void *stream);
int cublasLtMatmul(void *h, const void *op, const void *alpha, const void *a, const void *a_at, const void *b,
                   const void *b_at, const void *beta, const void *c, const void *c_at, void *d, const void *d_at,
                   const void *algo, void *workspace, size_t workspace_size, void *stream) {
  standin_settings now = standin_now();
  const description *op_ = op;
  const layout *la = a_at, *lb = b_at, *ld = d_at;
  const algorithm *chosen = algo;
  uint64_t sizes[3];
  int device, code = check(op, a_at, b_at, c_at, d_at, sizes);
  if (code)
    return code;
  if (now.math_run)
    return now.math_run;
  if (cuCtxGetDevice(&device) || ((const handle *)h)->device != device || chosen->made != MADE_ALGORITHM ||
      chosen->m != sizes[0] || chosen->n != sizes[1] || chosen->k != sizes[2] || chosen->type != (uint32_t)la->type ||
      chosen->epilogue != (uint32_t)op_->epilogue || chosen->batch != ld->batch || chosen->pointers != ld->pointers ||
      workspace_size < chosen->workspace || (chosen->workspace && (!workspace || (uintptr_t)workspace % 256)))
    return INVALID_VALUE;
  unsigned least = chosen->alignment[0];
  for (int i = 1; i < 4; i++)
    least = chosen->alignment[i] < least ? chosen->alignment[i] : least;
  if (ld->pointers && (!aligned(a, sizeof(void *)) || !aligned(b, sizeof(void *)) || c != d))
    return INVALID_VALUE;
  if (!ld->pointers &&
      (!aligned(a, chosen->alignment[0]) || !aligned(b, chosen->alignment[1]) || !aligned(d, chosen->alignment[3]) ||
       (op_->epilogue == 4 && !aligned(op_->bias, chosen->alignment[3]))))
    return EXECUTION_FAILED; /* as if the kernel had met the address */
  const uint64_t item = la->type == 0 ? 4 : 2, steps = (uint64_t)(la->ld | lb->ld | ld->ld) * item;
  const bool whole = aligned(a, 16) && aligned(b, 16) && aligned(d, 16) && aligned(op_->bias, 16) && steps % 16 == 0;
  standin_log("%s %d %d %d workspace %zu stream %p", ld->pointers ? "batch" : "matmul", (int)sizes[0], (int)sizes[1],
              (int)sizes[2], workspace_size, stream);
  const product p = {.type = (product_type)type_of(la->type),
                     .m = (int64_t)sizes[0],
                     .n = (int64_t)sizes[1],
                     .k = (int64_t)sizes[2],
                     .alpha = *(const float *)alpha,
                     .beta = *(const float *)beta,
                     .a = {a, la->ld, op_->transpose_a},
                     .b = {b, lb->ld, op_->transpose_b},
                     .c = {c, ld->ld, false},
                     .bias = op_->epilogue == 4 ? op_->bias : NULL,
                     .rounded_before_bias = !whole, /* seen on an H200 */
                     .d = d,
                     .ldd = ld->ld,
                     .workspace = workspace,
                     .workspace_size = workspace_size};
  if (op_->epilogue == 4 && !p.bias)
    return INVALID_VALUE;
  if (ld->pointers) {
    const product_batch batch = {p, ld->batch, least};
    return product_queue_batch(&batch, stream) ? EXECUTION_FAILED : SUCCESS;
  }
  return product_queue(&p, stream) ? EXECUTION_FAILED : SUCCESS;
}
