/* The stand-in's quantisation to int8, and products in it. Prototypes: op_api headers of ops-nn. */
#include "tests/drivers/ascend/stand_in.h"

#include <math.h>
#include <string.h>

/* To the nearest, saturated; NaN is 0. */
static double code_of(double value) {
  return isnan(value) ? 0 : value < -128 ? -128 : value > 127 ? 127 : nearbyint(value);
}

/* x, y, scale: of each row. A row of zeros has 0 / 0, which becomes 0. */
static int compute_dynamic(aclOpExecutor *e) {
  const aclTensor *x = &e->tensors[0];
  int64_t n = elements(x), width = x->shape[x->n - 1];
  for (int64_t row = 0; row * width < n; row++) {
    float most = 0;
    for (int64_t i = 0; i < width; i++)
      most = fmaxf(most, fabsf((float)get(x, row * width + i)));
    float factor = 127 / most;
    for (int64_t i = 0; i < width; i++)
      put(&e->tensors[1], row * width + i, code_of((double)((float)get(x, row * width + i) * factor)));
    put(&e->tensors[2], row, (double)(1 / factor));
  }
  return 0;
}

EXPORT int aclnnDynamicQuantGetWorkspaceSize(const aclTensor *x, const aclTensor *smooth_scales, const aclTensor *y_out,
                                             const aclTensor *scale_out, uint64_t *workspace_size,
                                             aclOpExecutor **executor);
int aclnnDynamicQuantGetWorkspaceSize(const aclTensor *x, const aclTensor *smooth_scales, const aclTensor *y_out,
                                      const aclTensor *scale_out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnDynamicQuant", compute_dynamic, ANY_CHIP, &status);
  const aclTensor *const given[] = {x, y_out, scale_out};
  if (!e)
    return status;
  for (int i = 0; i < 3; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
  }
  REQUIRE(e, x->type == F16 || (x->type == BF16 && stand_in_chip() != P310));
  REQUIRE(e, stand_in_chip() != P310 || x->shape[x->n - 1] % 32 == 0);
  REQUIRE(e, x->n >= 2 && y_out->type == I8 && scale_out->type == F32 && same_shape(e, 0, 1) && !smooth_scales);
  REQUIRE(e, scale_out->n == x->n - 1);
  for (int d = 0; d < scale_out->n; d++)
    REQUIRE(e, scale_out->shape[d] == x->shape[d]);
  return finish(e, workspace_size, executor);
}
PHASE_2(DynamicQuant)

/* x, scale, y, offset: by a number of the tensor or of each column. */
static int compute_quant(aclOpExecutor *e) {
  const aclTensor *t = e->tensors;
  int64_t width = t[0].shape[t[0].n - 1], n = elements(&t[0]);
  for (int64_t i = 0; i < n; i++) {
    int64_t at = elements(&t[1]) == 1 ? 0 : i % width;
    float scaled = (float)get(&t[0], i) * (float)get(&t[1], at);
    put(&t[2], i, code_of((double)(scaled + (present(e, 3) ? (float)get(&t[3], at) : 0))));
  }
  return 0;
}

EXPORT int aclnnAscendQuantV3GetWorkspaceSize(const aclTensor *x, const aclTensor *scale, const aclTensor *offset,
                                              _Bool sqrt_mode, const char *round_mode, int32_t dst_type, int32_t axis,
                                              const aclTensor *y, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnAscendQuantV3GetWorkspaceSize(const aclTensor *x, const aclTensor *scale, const aclTensor *offset,
                                       _Bool sqrt_mode, const char *round_mode, int32_t dst_type, int32_t axis,
                                       const aclTensor *y, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnAscendQuantV3", compute_quant, ANY_CHIP, &status);
  const aclTensor *const given[] = {x, scale, y, offset};
  if (!e)
    return status;
  for (int i = 0; i < 4; i++) {
    take(e, given[i]);
    if (i < 3)
      REQUIRE_TENSOR(e, i);
  }
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && y->type == I8 && dst_type == I8 && same_shape(e, 0, 2));
  REQUIRE(e, scale->n == 1 && (scale->shape[0] == 1 || scale->shape[0] == x->shape[x->n - 1]));
  REQUIRE(e, !offset || (same_shape(e, 1, 3) && same_type(e, 1, 3)));
  REQUIRE(e, !sqrt_mode && !strcmp(round_mode, "round") && (axis == -1 || axis == x->n - 1));
  return finish(e, workspace_size, executor);
}
PHASE_2(AscendQuantV3)

/* --------------------------------------------------------------------------------------------------------- products */

enum { X1, X2, SCALE, PER_TOKEN, OUT, BIAS };

/* Sums are exact, what follows is of float32. */
static int compute_product(aclOpExecutor *e) {
  const aclTensor *t = e->tensors;
  int64_t k = t[X1].shape[1], n = t[X2].shape[0];
  for (int64_t i = 0; i < elements(&t[OUT]); i++) {
    int64_t row = i / n, column = i % n;
    double sum = 0;
    for (int64_t j = 0; j < k; j++)
      sum += get(&t[X1], row * k + j) * get(&t[X2], column * k + j);
    float scale = (float)get(&t[SCALE], elements(&t[SCALE]) == 1 ? 0 : column);
    float scaled = (float)sum * scale * (float)get(&t[PER_TOKEN], row);
    put(&t[OUT], i, (double)(scaled + (present(e, BIAS) ? (float)get(&t[BIAS], column) : 0)));
  }
  return 0;
}

/* Of its forms the one of int8 with scales of tokens, and a weight that is stored as [n, k]. */
EXPORT int aclnnQuantMatmulV4GetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *scale,
                                              const aclTensor *offset, const aclTensor *per_token_scale,
                                              const aclTensor *bias, _Bool transpose_x1, _Bool transpose_x2,
                                              const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnQuantMatmulV4GetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *scale,
                                       const aclTensor *offset, const aclTensor *per_token_scale, const aclTensor *bias,
                                       _Bool transpose_x1, _Bool transpose_x2, const aclTensor *out,
                                       uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnQuantMatmulV4", compute_product, BIG_CHIP, &status);
  const aclTensor *const given[] = {x1, x2, scale, per_token_scale, out, bias};
  if (!e)
    return status;
  for (int i = X1; i <= BIAS; i++) {
    take(e, given[i]);
    if (i != BIAS)
      REQUIRE_TENSOR(e, i);
  }
  REQUIRE(e, x1->type == I8 && x2->type == I8 && scale->type == F32 && per_token_scale->type == F32 && !offset);
  REQUIRE(e, (out->type == F16 || out->type == BF16) && !transpose_x1 && transpose_x2);
  REQUIRE(e, x1->n == 2 && x2->n == 2 && out->n == 2 && is_compact(e, X1) && is_compact(e, X2));
  REQUIRE(e, x1->shape[1] == x2->shape[1] && x1->shape[1] >= 1 && x1->shape[1] <= 65535);
  REQUIRE(e, out->shape[0] == x1->shape[0] && out->shape[1] == x2->shape[0]);
  REQUIRE(e, scale->n == 1 && (scale->shape[0] == 1 || scale->shape[0] == x2->shape[0]));
  REQUIRE(e, per_token_scale->n == 1 && per_token_scale->shape[0] == x1->shape[0]);
  REQUIRE(e,
          !bias || (bias->n == 1 && bias->shape[0] == x2->shape[0] && (bias->type == F32 || bias->type == out->type)));
  return finish(e, workspace_size, executor);
}
PHASE_2(QuantMatmulV4)
