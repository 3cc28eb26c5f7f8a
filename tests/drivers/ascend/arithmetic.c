/*
 * The stand-in's arithmetic: of elements, with scalars, along dimensions. Operands broadcast, each result is rounded
 * once to its type, and some operators are on some chips only. Prototypes: op_api headers of ops-math and ops-nn.
 */
#include "tests/drivers/ascend/stand_in.h"

#include <math.h>

/* The element of `operand` that goes with an element of `out`: dimensions are matched from the last on. */
static double operand(const aclTensor *operand, const aclTensor *out, int64_t index) {
  int64_t at = 0, stride = 1;
  for (int d = out->n - 1, o = operand->n - 1; o >= 0; d--, o--) {
    at += (operand->shape[o] == 1 ? 0 : index % out->shape[d]) * stride;
    stride *= operand->shape[o];
    index /= out->shape[d];
  }
  return get(operand, at);
}

static int broadcasts(const aclTensor *operand, const aclTensor *out) {
  int missing = out->n - operand->n;
  for (int d = 0; missing >= 0 && d < operand->n; d++)
    if (operand->shape[d] != 1 && operand->shape[d] != out->shape[missing + d])
      return 0;
  return missing >= 0;
}

static int is_number(const aclOpExecutor *e, int index) {
  int type = e->tensors[index].type;
  return is_float(e, index) || type == I32 || type == I64;
}

/* ------------------------------------------------------------------------------------------------------- one tensor */

/* self, out; `f` are scalars. In place both are the same. */
#define ELEMENT_WISE(name, formula)                                                                                    \
  static int compute_##name(aclOpExecutor *e) {                                                                        \
    const aclTensor *out = &e->tensors[1];                                                                             \
    for (int64_t i = 0; i < elements(out); i++) {                                                                      \
      double x = get(&e->tensors[0], i);                                                                               \
      put(out, i, formula);                                                                                            \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }

ELEMENT_WISE(abs, fabs(x))
ELEMENT_WISE(exp, exp(x))
ELEMENT_WISE(expm1, expm1(x))
ELEMENT_WISE(log, log(x))
ELEMENT_WISE(neg, -x)
ELEMENT_WISE(one, (x = 1))
ELEMENT_WISE(reciprocal, (double)(1.0f / (float)x))
ELEMENT_WISE(rsqrt, (double)(1.0f / sqrtf((float)x)))
ELEMENT_WISE(sigmoid, 1 / (1 + exp(-x)))
ELEMENT_WISE(silu, x / (1 + exp(-x)))
ELEMENT_WISE(tanh, tanh(x))
ELEMENT_WISE(zero, (x = 0))

ELEMENT_WISE(adds, x + e->f[1] * e->f[0])
ELEMENT_WISE(clamp, x<e->f[0] ? e->f[0] : x> e->f[1] ? e->f[1] : x)
ELEMENT_WISE(clamp_max, x > e->f[0] ? e->f[0] : x)
ELEMENT_WISE(clamp_min, x < e->f[0] ? e->f[0] : x)
ELEMENT_WISE(divs, (double)((float)x / (float)e->f[0]))
ELEMENT_WISE(ge, x >= e->f[0])
ELEMENT_WISE(gt, x > e->f[0])
ELEMENT_WISE(le, x <= e->f[0])
ELEMENT_WISE(lt, x < e->f[0])
ELEMENT_WISE(muls, (double)((float)e->f[0] * (float)x))
ELEMENT_WISE(softplus, x * e->f[0] > e->f[1] ? x : log1p(exp(x * e->f[0])) / e->f[0])

/* `of_float`: what it is about has no integers. */
static int check_one(aclOpExecutor *e, const aclTensor *self, const aclTensor *out, int of_float,
                     uint64_t *workspace_size, aclOpExecutor **executor) {
  take(e, self);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, of_float ? is_float(e, 0) : is_number(e, 0));
  REQUIRE(e, same_type(e, 0, 1) && same_shape(e, 0, 1));
  return finish(e, workspace_size, executor);
}

/* The result is of another tensor, and may not be where self is. */
static int check_apart(aclOpExecutor *e, const aclTensor *self, const aclTensor *out, int of_float,
                       uint64_t *workspace_size, aclOpExecutor **executor) {
  REQUIRE(e, !self || !out || self->data != out->data || self->offset != out->offset);
  return check_one(e, self, out, of_float, workspace_size, executor);
}

#define UNARY(name, compute, chips)                                                                                    \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,            \
                                           aclOpExecutor **executor);                                                  \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,                   \
                                    aclOpExecutor **executor) {                                                        \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    return e ? check_apart(e, self, out, 1, workspace_size, executor) : status;                                        \
  }                                                                                                                    \
  PHASE_2(name)
UNARY(Abs, compute_abs, ANY_CHIP)
UNARY(Expm1, compute_expm1, ANY_CHIP)
UNARY(Log, compute_log, BIG_CHIP)
UNARY(Reciprocal, compute_reciprocal, BIG_CHIP)
UNARY(Sigmoid, compute_sigmoid, ANY_CHIP)
UNARY(Silu, compute_silu, ANY_CHIP)

#define UNARY_IN_PLACE(name, compute, chips)                                                                           \
  EXPORT int aclnn##name##GetWorkspaceSize(aclTensor *self, uint64_t *workspace_size, aclOpExecutor **executor);       \
  int aclnn##name##GetWorkspaceSize(aclTensor *self, uint64_t *workspace_size, aclOpExecutor **executor) {             \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    return e ? check_one(e, self, self, 1, workspace_size, executor) : status;                                         \
  }                                                                                                                    \
  PHASE_2(name)
UNARY_IN_PLACE(InplaceExp, compute_exp, BIG_CHIP)
UNARY_IN_PLACE(InplaceNeg, compute_neg, BIG_CHIP)
UNARY_IN_PLACE(InplaceOne, compute_one, ANY_CHIP)
UNARY_IN_PLACE(InplaceRsqrt, compute_rsqrt, ANY_CHIP)
UNARY_IN_PLACE(InplaceTanh, compute_tanh, BIG_CHIP)

EXPORT int aclnnInplaceZeroGetWorkspaceSize(aclTensor *self, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnInplaceZeroGetWorkspaceSize(aclTensor *self, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnInplaceZero", compute_zero, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, self);
  take(e, self);
  REQUIRE_TENSOR(e, 0);
  REQUIRE(e, is_number(e, 0) || self->type == I8 || self->type == U8);
  return finish(e, workspace_size, executor);
}
PHASE_2(InplaceZero)

/* ---------------------------------------------------------------------------------------------------- with a scalar */

/* As the tensor's type has it. Scalars that go with float16 are rounded to it, but for 950. */
static double scalar_for(const aclTensor *self, const aclScalar *scalar) {
  uint64_t memory = 0;
  aclTensor one = {.n = 0, .type = F16, .data = (char *)&memory};
  if (self->type != F16 || stand_in_chip() == A5)
    return scalar->value;
  put(&one, 0, scalar->value);
  return get(&one, 0);
}

static int check_scalars(aclOpExecutor *e, const aclTensor *self, const aclScalar *a, const aclScalar *b) {
  if (!self || !a || !b)
    return refuse(e, REFUSED_NULL, "no argument is NULL");
  e->f[0] = scalar_for(self, a);
  e->f[1] = scalar_for(self, b);
  return 0;
}

/* Arguments of phase 1, and which of them is the second scalar; of one in place the tensor itself is the result. */
#define WITH_SCALARS(name, compute, chips, second, ...)                                                                \
  EXPORT int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor);           \
  int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor) {                 \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    if (!e || (status = check_scalars(e, self, first, second)))                                                        \
      return status;                                                                                                   \
    return check_apart(e, self, out, 0, workspace_size, executor);                                                     \
  }                                                                                                                    \
  PHASE_2(name)
WITH_SCALARS(Muls, compute_muls, ANY_CHIP, first, const aclTensor *self, const aclScalar *first, aclTensor *out)
WITH_SCALARS(ClampMax, compute_clamp_max, ANY_CHIP, first, const aclTensor *self, const aclScalar *first,
             aclTensor *out)
WITH_SCALARS(ClampMin, compute_clamp_min, ANY_CHIP, first, const aclTensor *self, const aclScalar *first,
             aclTensor *out)
WITH_SCALARS(Adds, compute_adds, ANY_CHIP, alpha, const aclTensor *self, const aclScalar *first, const aclScalar *alpha,
             aclTensor *out)
WITH_SCALARS(Clamp, compute_clamp, ANY_CHIP, most, const aclTensor *self, const aclScalar *first, const aclScalar *most,
             aclTensor *out)
WITH_SCALARS(Softplus, compute_softplus, A2 | A3 | P310, threshold, const aclTensor *self, const aclScalar *first,
             const aclScalar *threshold, aclTensor *out)

#define IN_PLACE_WITH_SCALARS(name, compute, chips, second, ...)                                                       \
  EXPORT int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor);           \
  int aclnn##name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspace_size, aclOpExecutor **executor) {                 \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    if (!e || (status = check_scalars(e, self, first, second)))                                                        \
      return status;                                                                                                   \
    return check_one(e, self, self, 0, workspace_size, executor);                                                      \
  }                                                                                                                    \
  PHASE_2(name)
IN_PLACE_WITH_SCALARS(InplaceMuls, compute_muls, ANY_CHIP, first, aclTensor *self, const aclScalar *first)
IN_PLACE_WITH_SCALARS(InplaceDivs, compute_divs, BIG_CHIP, first, aclTensor *self, const aclScalar *first)
IN_PLACE_WITH_SCALARS(InplaceClampMax, compute_clamp_max, ANY_CHIP, first, const aclTensor *self,
                      const aclScalar *first)
IN_PLACE_WITH_SCALARS(InplaceAdds, compute_adds, ANY_CHIP, alpha, const aclTensor *self, const aclScalar *first,
                      const aclScalar *alpha)

/* Comparisons with a scalar give booleans. */
#define COMPARISON(name, compute, chips)                                                                               \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,              \
                                           uint64_t *workspace_size, aclOpExecutor **executor);                        \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclScalar *other, aclTensor *out,                     \
                                    uint64_t *workspace_size, aclOpExecutor **executor) {                              \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    if (!e || (status = check_scalars(e, self, other, other)))                                                         \
      return status;                                                                                                   \
    take(e, self);                                                                                                     \
    take(e, out);                                                                                                      \
    REQUIRE_TENSOR(e, 1);                                                                                              \
    REQUIRE(e, is_number(e, 0) && out->type == BOOL && same_shape(e, 0, 1));                                           \
    return finish(e, workspace_size, executor);                                                                        \
  }                                                                                                                    \
  PHASE_2(name)
COMPARISON(GeScalar, compute_ge, ANY_CHIP)
COMPARISON(GtScalar, compute_gt, ANY_CHIP)
COMPARISON(LeScalar, compute_le, ANY_CHIP)
COMPARISON(LtScalar, compute_lt, BIG_CHIP)

/* ------------------------------------------------------------------------------------------------------ two tensors */

/* out, self, other; products and quotients of 16 bits are exact enough in double to be rounded once. */
#define OF_TWO(name, formula)                                                                                          \
  static int compute_##name(aclOpExecutor *e) {                                                                        \
    const aclTensor *out = &e->tensors[0];                                                                             \
    for (int64_t i = 0; i < elements(out); i++) {                                                                      \
      double a = operand(&e->tensors[1], out, i), b = operand(&e->tensors[2], out, i);                                 \
      put(out, i, formula);                                                                                            \
    }                                                                                                                  \
    return 0;                                                                                                          \
  }
OF_TWO(mul, a *b)
OF_TWO(div, a / b)
OF_TWO(add, a + e->f[0] * b)
OF_TWO(sub, a - e->f[0] * b)
OF_TWO(least, a > b ? b : a)
OF_TWO(most, a > b ? a : b)
OF_TWO(both, a &&b)
OF_TWO(fill, b ? e->f[0] : a)

static int check_two(aclOpExecutor *e, const aclTensor *out, const aclTensor *self, const aclTensor *other,
                     uint64_t *workspace_size, aclOpExecutor **executor) {
  take(e, out);
  take(e, self);
  take(e, other);
  for (int i = 0; i < 3; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, is_number(e, 0) && same_type(e, 0, 1) && same_type(e, 0, 2));
  REQUIRE(e, broadcasts(self, out) && broadcasts(other, out));
  return finish(e, workspace_size, executor);
}

#define BINARY(name, compute, chips)                                                                                   \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,              \
                                           uint64_t *workspace_size, aclOpExecutor **executor);                        \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclTensor *other, aclTensor *out,                     \
                                    uint64_t *workspace_size, aclOpExecutor **executor) {                              \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    if (!e)                                                                                                            \
      return status;                                                                                                   \
    REQUIRE(e, !self || !out || self->data != out->data || self->offset != out->offset);                               \
    return check_two(e, out, self, other, workspace_size, executor);                                                   \
  }                                                                                                                    \
  PHASE_2(name)
BINARY(Mul, compute_mul, ANY_CHIP)
BINARY(Div, compute_div, BIG_CHIP)
BINARY(Maximum, compute_most, ANY_CHIP)

#define BINARY_IN_PLACE(name, compute, chips)                                                                          \
  EXPORT int aclnn##name##GetWorkspaceSize(aclTensor *self, const aclTensor *other, uint64_t *workspace_size,          \
                                           aclOpExecutor **executor);                                                  \
  int aclnn##name##GetWorkspaceSize(aclTensor *self, const aclTensor *other, uint64_t *workspace_size,                 \
                                    aclOpExecutor **executor) {                                                        \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    return e ? check_two(e, self, self, other, workspace_size, executor) : status;                                     \
  }                                                                                                                    \
  PHASE_2(name)
BINARY_IN_PLACE(InplaceMul, compute_mul, ANY_CHIP)
BINARY_IN_PLACE(InplaceDiv, compute_div, BIG_CHIP)
BINARY_IN_PLACE(InplaceClampMaxTensor, compute_least, ANY_CHIP)

static int check_sum(aclOpExecutor *e, const aclTensor *out, const aclTensor *self, const aclTensor *other,
                     const aclScalar *alpha, uint64_t *workspace_size, aclOpExecutor **executor) {
  REQUIRE(e, alpha);
  e->f[0] = alpha->value;
  return check_two(e, out, self, other, workspace_size, executor);
}

EXPORT int aclnnAddGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,
                                    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnAddGetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha, aclTensor *out,
                             uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnAdd", compute_add, BIG_CHIP, &status);
  return e ? check_sum(e, out, self, other, alpha, workspace_size, executor) : status;
}
PHASE_2(Add)

#define SUM_IN_PLACE(name, compute)                                                                                    \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,      \
                                           uint64_t *workspace_size, aclOpExecutor **executor);                        \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclTensor *other, const aclScalar *alpha,             \
                                    uint64_t *workspace_size, aclOpExecutor **executor) {                              \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, BIG_CHIP, &status);                                               \
    return e ? check_sum(e, self, self, other, alpha, workspace_size, executor) : status;                              \
  }                                                                                                                    \
  PHASE_2(name)
SUM_IN_PLACE(InplaceAdd, compute_add)
SUM_IN_PLACE(InplaceSub, compute_sub)

EXPORT int aclnnInplaceLogicalAndGetWorkspaceSize(aclTensor *self, const aclTensor *other, uint64_t *workspace_size,
                                                  aclOpExecutor **executor);
int aclnnInplaceLogicalAndGetWorkspaceSize(aclTensor *self, const aclTensor *other, uint64_t *workspace_size,
                                           aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnInplaceLogicalAnd", compute_both, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, self);
  take(e, self);
  take(e, other);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 2);
  REQUIRE(e, self->type == BOOL && other->type == BOOL && broadcasts(other, self));
  return finish(e, workspace_size, executor);
}
PHASE_2(InplaceLogicalAnd)

EXPORT int aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor *self, const aclTensor *mask, const aclScalar *value,
                                                        uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnInplaceMaskedFillScalarGetWorkspaceSize(aclTensor *self, const aclTensor *mask, const aclScalar *value,
                                                 uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnInplaceMaskedFillScalar", compute_fill, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, self);
  take(e, self);
  take(e, mask);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 2);
  REQUIRE(e, value && is_number(e, 0) && mask->type == BOOL && broadcasts(mask, self));
  e->f[0] = value->value;
  return finish(e, workspace_size, executor);
}
PHASE_2(InplaceMaskedFillScalar)

/* out, condition, self, other */
static int compute_where(aclOpExecutor *e) {
  const aclTensor *out = &e->tensors[0];
  for (int64_t i = 0; i < elements(out); i++)
    put(out, i, operand(&e->tensors[operand(&e->tensors[1], out, i) ? 2 : 3], out, i));
  return 0;
}

EXPORT int aclnnSWhereGetWorkspaceSize(const aclTensor *condition, const aclTensor *self, const aclTensor *other,
                                       aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnSWhereGetWorkspaceSize(const aclTensor *condition, const aclTensor *self, const aclTensor *other,
                                aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnSWhere", compute_where, ANY_CHIP, &status);
  const aclTensor *const given[] = {out, condition, self, other};
  if (!e)
    return status;
  for (int i = 0; i < 4; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
    REQUIRE(e, broadcasts(given[i], out));
  }
  REQUIRE(e, is_number(e, 0) && same_type(e, 0, 2) && same_type(e, 0, 3) && condition->type == BOOL);
  return finish(e, workspace_size, executor);
}
PHASE_2(SWhere)

/* ------------------------------------------------------------------------------------------------- along dimensions */

enum { SUM, MEAN, MOST };

/* Is a dimension one of those that are reduced? */
static int is_reduced(const aclOpExecutor *e, int d) {
  for (uint32_t i = 0; i < e->n_ints[0]; i++)
    if (e->ints[0][i] == d || e->ints[0][i] + e->tensors[0].n == d)
      return 1;
  return 0;
}

/* self, out; in float32, as the results that anybody asks for here are. NaN is more than anything: the vendor's tests
 * hold the maximum against PyTorch's. */
static int compute_reduction(aclOpExecutor *e) {
  const aclTensor *x = &e->tensors[0], *out = &e->tensors[1];
  int64_t n = elements(out), terms = n ? elements(x) / n : 0;
  for (int64_t i = 0; i < n; i++)
    put(out, i, e->i[0] == MOST ? -INFINITY : 0);
  for (int64_t i = 0; i < elements(x); i++) {
    int64_t rest = i, at = 0, stride = 1;
    for (int d = x->n - 1; d >= 0; rest /= x->shape[d--])
      if (!is_reduced(e, d)) {
        at += rest % x->shape[d] * stride;
        stride *= x->shape[d];
      }
    double value = get(x, i), before = get(out, at);
    put(out, at, e->i[0] != MOST ? before + value : value > before || isnan(value) ? value : before);
  }
  for (int64_t i = 0; e->i[0] == MEAN && i < n; i++)
    put(out, i, get(out, i) / (double)terms);
  return 0;
}

static int check_reduction(aclOpExecutor *e, const aclTensor *self, const aclIntArray *dims, _Bool keep_dims, int type,
                           aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int n = 0;
  take(e, self);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, dims && dims->n && is_float(e, 0) && out->type == type && type == F32);
  take_ints(e, 0, dims);
  for (int d = 0; d < self->n; d++) {
    if (is_reduced(e, d) && !keep_dims)
      continue;
    REQUIRE(e, n < out->n && out->shape[n] == (is_reduced(e, d) ? 1 : self->shape[d]));
    n++;
  }
  REQUIRE(e, n == out->n);
  return finish(e, workspace_size, executor);
}

#define REDUCTION(name, kind)                                                                                          \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, _Bool keep_dims, int type,  \
                                           aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);        \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, _Bool keep_dims, int type,         \
                                    aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor) {              \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute_reduction, ANY_CHIP, &status);                                     \
    if (!e)                                                                                                            \
      return status;                                                                                                   \
    e->i[0] = kind;                                                                                                    \
    return check_reduction(e, self, dims, keep_dims, type, out, workspace_size, executor);                             \
  }                                                                                                                    \
  PHASE_2(name)
REDUCTION(Mean, MEAN)
REDUCTION(ReduceSum, SUM)

EXPORT int aclnnAmaxGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, _Bool keep_dims, aclTensor *out,
                                     uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnAmaxGetWorkspaceSize(const aclTensor *self, const aclIntArray *dims, _Bool keep_dims, aclTensor *out,
                              uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnAmax", compute_reduction, ANY_CHIP, &status);
  if (!e)
    return status;
  e->i[0] = MOST;
  return check_reduction(e, self, dims, keep_dims, self ? self->type : 0, out, workspace_size, executor);
}
PHASE_2(Amax)
