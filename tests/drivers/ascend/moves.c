/*
 * The stand-in's operators that only move elements, or give them another type. Prototypes: op_api headers of ops-math
 * and ops-nn.
 */
#include "tests/drivers/ascend/stand_in.h"

static int compute_cast(aclOpExecutor *e) {
  for (int64_t i = 0; i < elements(&e->tensors[0]); i++)
    put(&e->tensors[1], i, get(&e->tensors[0], i));
  return 0;
}

EXPORT int aclnnCastGetWorkspaceSize(const aclTensor *self, int type, aclTensor *out, uint64_t *workspace_size,
                                     aclOpExecutor **executor);
int aclnnCastGetWorkspaceSize(const aclTensor *self, int type, aclTensor *out, uint64_t *workspace_size,
                              aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnCast", compute_cast, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, self);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, same_shape(e, 0, 1) && out->type == type);
  REQUIRE(e, stand_in_chip() == A5 || type != F8);
  REQUIRE(e, stand_in_chip() != P310 || (type != BF16 && self->type != BF16));
  return finish(e, workspace_size, executor);
}
PHASE_2(Cast)

/* out, then the parts */
static int compute_cat(aclOpExecutor *e) {
  const aclTensor *out = &e->tensors[0];
  int dim = (int)e->i[0];
  int64_t inner = 1, start = 0;
  for (int d = dim + 1; d < out->n; d++)
    inner *= out->shape[d];
  for (int p = 1; p < e->n; p++) {
    const aclTensor *part = &e->tensors[p];
    int64_t run_length = part->shape[dim] * inner;
    for (int64_t i = 0; i < elements(part); i++)
      put(out, i / run_length * out->shape[dim] * inner + start * inner + i % run_length, get(part, i));
    start += part->shape[dim];
  }
  return 0;
}

EXPORT int aclnnCatGetWorkspaceSize(const aclTensorList *tensors, int64_t dim, aclTensor *out, uint64_t *workspace_size,
                                    aclOpExecutor **executor);
int aclnnCatGetWorkspaceSize(const aclTensorList *tensors, int64_t dim, aclTensor *out, uint64_t *workspace_size,
                             aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnCat", compute_cat, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE(e, tensors && tensors->n && dim >= 0 && dim < out->n);
  int64_t whole = 0;
  for (uint64_t i = 0; i < tensors->n; i++) {
    take(e, tensors->tensors[i]);
    REQUIRE(e, same_type(e, 0, (int)i + 1) && e->tensors[i + 1].n == out->n);
    for (int d = 0; d < out->n; d++)
      REQUIRE(e, d == dim || e->tensors[i + 1].shape[d] == out->shape[d]);
    whole += e->tensors[i + 1].shape[dim];
  }
  REQUIRE(e, whole == out->shape[dim]);
  e->i[0] = dim;
  return finish(e, workspace_size, executor);
}
PHASE_2(Cat)

EXPORT int aclnnInplaceCopyGetWorkspaceSize(aclTensor *self, const aclTensor *source, uint64_t *workspace_size,
                                            aclOpExecutor **executor);
int aclnnInplaceCopyGetWorkspaceSize(aclTensor *self, const aclTensor *source, uint64_t *workspace_size,
                                     aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnInplaceCopy", compute_cast, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, source);
  take(e, self);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, same_shape(e, 0, 1) && same_type(e, 0, 1)); /* of what it does, no more is needed */
  return finish(e, workspace_size, executor);
}
PHASE_2(InplaceCopy)

/* self, index, out: of dimension 0 */
static int compute_index_select(aclOpExecutor *e) {
  const aclTensor *out = &e->tensors[2];
  int64_t row = elements(out) / out->shape[0];
  for (int64_t i = 0; i < elements(out); i++)
    put(out, i, get(&e->tensors[0], (int64_t)get(&e->tensors[1], i / row) * row + i % row));
  return 0;
}

EXPORT int aclnnIndexSelectGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out,
                                            uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnIndexSelectGetWorkspaceSize(const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out,
                                     uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnIndexSelect", compute_index_select, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, self);
  take(e, index);
  take(e, out);
  for (int i = 0; i < 3; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, !dim && same_type(e, 0, 2) && self->n == out->n && out->shape[0] == index->shape[0]);
  REQUIRE(e, index->n == 1 && (index->type == I32 || index->type == I64) && is_compact(e, 1));
  for (int d = 1; d < out->n; d++)
    REQUIRE(e, out->shape[d] == self->shape[d]);
  return finish(e, workspace_size, executor);
}
PHASE_2(IndexSelect)
