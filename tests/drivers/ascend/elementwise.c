/* The stand-in's activations and norms. Prototypes: op_api headers of ops-nn. */
#include "tests/drivers/ascend/stand_in.h"

#include <math.h>
#include <string.h>

#define REFERENCE(e, op, ...)                                                                                          \
  do {                                                                                                                 \
    fl_value values_[] = {__VA_ARGS__};                                                                                \
    return reference(e, op, values_, sizeof values_ / sizeof values_[0]);                                              \
  } while (0)
#define AS_CPU(view, e, index) fl_tensor(as_cpu(&(view), &(e)->tensors[index]))

/* ------------------------------------------------------------------------------------------------------ activations */

static int halves(const aclOpExecutor *e) {
  const aclTensor *x = &e->tensors[0], *out = &e->tensors[1];
  if (x->n < 1 || x->n != out->n || x->shape[x->n - 1] % 2)
    return 0;
  for (int d = 0; d < x->n; d++)
    if (out->shape[d] != x->shape[d] / (d == x->n - 1 ? 2 : 1))
      return 0;
  return 1;
}

static int is_last(const aclOpExecutor *e, int64_t dim) {
  return dim == -1 || dim == e->tensors[0].n - 1;
}

static int compute_swiglu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "silu_and_mul", AS_CPU(x, e, 0), AS_CPU(out, e, 1));
}

EXPORT int aclnnSwiGluGetWorkspaceSize(const aclTensor *x, int64_t dim, const aclTensor *out, uint64_t *workspace_size,
                                       aclOpExecutor **executor);
int aclnnSwiGluGetWorkspaceSize(const aclTensor *x, int64_t dim, const aclTensor *out, uint64_t *workspace_size,
                                aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnSwiGlu", compute_swiglu, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, x);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && halves(e) && is_last(e, dim));
  REQUIRE(e, is_compact(e, 0) && is_compact(e, 1));
  REQUIRE(e, stand_in_chip() != P310 || (out->shape[out->n - 1] * element_size(out->type) % 64 == 0 && elements(out)));
  return finish(e, workspace_size, executor);
}
PHASE_2(SwiGlu)

/* Of its variants those that have a reference: halves, or pairs with a bias of 1. */
static int compute_clipped_swiglu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  if (e->i[0])
    REFERENCE(e, "swigluoai_and_mul", AS_CPU(x, e, 0), fl_float(e->f[0]), fl_float(e->f[1]), AS_CPU(out, e, 1));
  REFERENCE(e, "silu_and_mul_with_clamp", AS_CPU(x, e, 0), fl_float(e->f[1]), fl_float(e->f[0]), fl_float(e->f[2]),
            AS_CPU(out, e, 1));
}

EXPORT int aclnnClippedSwigluGetWorkspaceSize(const aclTensor *x, const aclTensor *group_index, int64_t dim,
                                              double alpha, double limit, double bias, _Bool interleaved,
                                              const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnClippedSwigluGetWorkspaceSize(const aclTensor *x, const aclTensor *group_index, int64_t dim, double alpha,
                                       double limit, double bias, _Bool interleaved, const aclTensor *out,
                                       uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnClippedSwiglu", compute_clipped_swiglu, BIG_CHIP, &status);
  if (!e)
    return status;
  take(e, x);
  take(e, out);
  e->f[0] = alpha;
  e->f[1] = limit;
  e->f[2] = bias;
  e->i[0] = interleaved;
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && halves(e) && is_last(e, dim));
  REQUIRE(e, limit > 0 && !group_index && (!interleaved || bias == 1));
  REQUIRE(e, is_compact(e, 0) && is_compact(e, 1));
  return finish(e, workspace_size, executor);
}
PHASE_2(ClippedSwiglu)

static int compute_situ_glu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "situ_and_mul", AS_CPU(x, e, 0), fl_float(e->f[0]), e->f[1] > 0 ? fl_float(e->f[1]) : fl_none(),
            AS_CPU(out, e, 1));
}

EXPORT int aclnnSituGluGetWorkspaceSize(const aclTensor *x, int64_t dim, double beta, double linear_beta,
                                        _Bool activate_left, const aclTensor *out, uint64_t *workspace_size,
                                        aclOpExecutor **executor);
int aclnnSituGluGetWorkspaceSize(const aclTensor *x, int64_t dim, double beta, double linear_beta, _Bool activate_left,
                                 const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnSituGlu", compute_situ_glu, BIG_CHIP, &status);
  if (!e)
    return status;
  take(e, x);
  take(e, out);
  e->f[0] = beta;
  e->f[1] = linear_beta;
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && halves(e) && is_last(e, dim) && is_compact(e, 1));
  REQUIRE(e, beta != 0 && activate_left); /* the other half has no reference */
  return finish(e, workspace_size, executor);
}
PHASE_2(SituGlu)

static int compute_gelu_mul(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "gelu_and_mul", AS_CPU(x, e, 0), fl_string(e->s), AS_CPU(out, e, 1));
}

EXPORT int aclnnGeluMulGetWorkspaceSize(const aclTensor *input, char *approximate, const aclTensor *out,
                                        uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnGeluMulGetWorkspaceSize(const aclTensor *input, char *approximate, const aclTensor *out,
                                 uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnGeluMul", compute_gelu_mul, BIG_CHIP, &status);
  if (!e)
    return status;
  take(e, input);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  e->s = !approximate || !strcmp(approximate, "none") ? "none" : "tanh";
  REQUIRE(e, !approximate || !strcmp(approximate, e->s));
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && halves(e) && input->n >= 2);
  int64_t last = input->shape[input->n - 1];
  REQUIRE(e, last <= 1024 && (!last || elements(input) / last <= 200000));
  return finish(e, workspace_size, executor);
}
PHASE_2(GeluMul)

/* Of one tensor to another of the same shape. */
static int check_unary(aclOpExecutor *e, const aclTensor *x, const aclTensor *out, uint64_t *workspace_size,
                       aclOpExecutor **executor) {
  take(e, x);
  take(e, out);
  REQUIRE_TENSOR(e, 0);
  REQUIRE_TENSOR(e, 1);
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && same_shape(e, 0, 1));
  return finish(e, workspace_size, executor);
}

static int compute_gelu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "gelu", AS_CPU(x, e, 0), fl_string(e->i[0] ? "tanh" : "none"), AS_CPU(out, e, 1));
}

EXPORT int aclnnGeluV2GetWorkspaceSize(const aclTensor *x, int64_t approximate, aclTensor *y, uint64_t *workspace_size,
                                       aclOpExecutor **executor);
int aclnnGeluV2GetWorkspaceSize(const aclTensor *x, int64_t approximate, aclTensor *y, uint64_t *workspace_size,
                                aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnGeluV2", compute_gelu, ANY_CHIP, &status);
  if (!e)
    return status;
  e->i[0] = approximate;
  REQUIRE(e, approximate == 0 || approximate == 1);
  return check_unary(e, x, y, workspace_size, executor);
}
PHASE_2(GeluV2)

static int compute_fast_gelu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "quick_gelu", AS_CPU(x, e, 0), AS_CPU(out, e, 1));
}

static int compute_squared_relu(aclOpExecutor *e) {
  cpu_tensor_view x, out;
  REFERENCE(e, "relu2", AS_CPU(x, e, 0), AS_CPU(out, e, 1));
}

#define UNARY(name, compute, chips)                                                                                    \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,            \
                                           aclOpExecutor **executor);                                                  \
  int aclnn##name##GetWorkspaceSize(const aclTensor *self, aclTensor *out, uint64_t *workspace_size,                   \
                                    aclOpExecutor **executor) {                                                        \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    return e ? check_unary(e, self, out, workspace_size, executor) : status;                                           \
  }                                                                                                                    \
  PHASE_2(name)
UNARY(FastGelu, compute_fast_gelu, BIG_CHIP)
UNARY(SquaredRelu, compute_squared_relu, BIG_CHIP)

/* ------------------------------------------------------------------------------------------------------------ norms */

enum { NORM_X, GAMMA, Y, RSTD, X2, X_OUT };

/* The reciprocal root, which nobody here reads, is written all the same. */
static void write_roots(aclOpExecutor *e, const aclTensor *x) {
  const aclTensor *rstd = &e->tensors[RSTD];
  int64_t h = x->shape[x->n - 1];
  for (int64_t row = 0; row < elements(rstd); row++) {
    double sum = 0;
    for (int64_t i = 0; i < h; i++)
      sum += get(x, row * h + i) * get(x, row * h + i);
    put(rstd, row, 1 / sqrt(sum / (double)h + e->f[0]));
  }
}

/* gamma [H], y like x, rstd one float a row. */
static int check_norm(aclOpExecutor *e, _Bool gamma_may_be_float) {
  const aclTensor *x = &e->tensors[NORM_X], *gamma = &e->tensors[GAMMA], *rstd = &e->tensors[RSTD];
  for (int i = NORM_X; i <= RSTD; i++)
    if (!present(e, i))
      return REFUSED_NULL;
  _Bool rounded = stand_in_chip() != P310 && gamma_may_be_float && gamma->type == F32;
  if (!is_float(e, NORM_X) || !(same_type(e, NORM_X, GAMMA) || rounded) || !same_type(e, NORM_X, Y) ||
      !same_shape(e, NORM_X, Y) || gamma->n != 1 || gamma->shape[0] != x->shape[x->n - 1] || rstd->type != F32)
    return REFUSED;
  if (rstd->n != x->n || rstd->shape[x->n - 1] != 1 || elements(rstd) * gamma->shape[0] != elements(x))
    return REFUSED;
  return stand_in_chip() == P310 && gamma->shape[0] * element_size(x->type) < 32 ? REFUSED : 0;
}

static int compute_rms_norm(aclOpExecutor *e) {
  cpu_tensor_view x, gamma, y;
  write_roots(e, &e->tensors[NORM_X]);
  REFERENCE(e, "rms_norm", AS_CPU(x, e, NORM_X), fl_none(), AS_CPU(gamma, e, GAMMA), fl_float(e->f[0]), fl_none(),
            AS_CPU(y, e, Y), fl_none());
}

static int compute_gemma_rms_norm(aclOpExecutor *e) {
  cpu_tensor_view x, gamma, y;
  write_roots(e, &e->tensors[NORM_X]);
  REFERENCE(e, "gemma_rms_norm", AS_CPU(x, e, NORM_X), fl_none(), AS_CPU(gamma, e, GAMMA), fl_float(e->f[0]),
            AS_CPU(y, e, Y), fl_none());
}

static int start_norm(aclOpExecutor *e, const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y,
                      const aclTensor *rstd, _Bool gamma_may_be_float) {
  take(e, x);
  take(e, gamma);
  take(e, y);
  take(e, rstd);
  e->f[0] = epsilon;
  return check_norm(e, gamma_may_be_float);
}

/* A row's elements may not be overwritten before all of them were read: nothing says that y may be x. */
static _Bool apart(const aclOpExecutor *e, int a, int b) {
  return e->tensors[a].data + e->tensors[a].offset != e->tensors[b].data + e->tensors[b].offset;
}

#define PLAIN_NORM(name, compute, chips, gamma_may_be_float)                                                           \
  EXPORT int aclnn##name##GetWorkspaceSize(const aclTensor *x, const aclTensor *gamma, double epsilon,                 \
                                           const aclTensor *y, const aclTensor *rstd, uint64_t *workspace_size,        \
                                           aclOpExecutor **executor);                                                  \
  int aclnn##name##GetWorkspaceSize(const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y,    \
                                    const aclTensor *rstd, uint64_t *workspace_size, aclOpExecutor **executor) {       \
    int status;                                                                                                        \
    aclOpExecutor *e = begin("aclnn" #name, compute, chips, &status);                                                  \
    if (!e)                                                                                                            \
      return status;                                                                                                   \
    if ((status = start_norm(e, x, gamma, epsilon, y, rstd, gamma_may_be_float)))                                      \
      return refuse(e, status, "shapes and types of a norm");                                                          \
    REQUIRE(e, apart(e, NORM_X, Y));                                                                                   \
    return finish(e, workspace_size, executor);                                                                        \
  }                                                                                                                    \
  PHASE_2(name)
PLAIN_NORM(RmsNorm, compute_rms_norm, ANY_CHIP, 1)
PLAIN_NORM(GemmaRmsNorm, compute_gemma_rms_norm, BIG_CHIP, 0)

static int compute_add_rms_norm(aclOpExecutor *e) {
  cpu_tensor_view x1, x2, gamma, y, sum;
  fl_value values[] = {AS_CPU(x1, e, NORM_X), AS_CPU(x2, e, X2), AS_CPU(gamma, e, GAMMA),
                       fl_float(e->f[0]),     fl_none(),         AS_CPU(y, e, Y),
                       AS_CPU(sum, e, X_OUT)};
  int code = reference(e, "rms_norm", values, 7);
  write_roots(e, &e->tensors[X_OUT]);
  return code;
}

EXPORT int aclnnAddRmsNormGetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma,
                                           double epsilon, aclTensor *y, aclTensor *rstd, aclTensor *x,
                                           uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnAddRmsNormGetWorkspaceSize(const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma, double epsilon,
                                    aclTensor *y, aclTensor *rstd, aclTensor *x, uint64_t *workspace_size,
                                    aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnAddRmsNorm", compute_add_rms_norm, ANY_CHIP, &status);
  if (!e)
    return status;
  if ((status = start_norm(e, x1, gamma, epsilon, y, rstd, 0)))
    return refuse(e, status, "shapes and types of a norm");
  take(e, x2);
  take(e, x);
  REQUIRE_TENSOR(e, X2);
  REQUIRE_TENSOR(e, X_OUT);
  REQUIRE(e, same_shape(e, NORM_X, X2) && same_type(e, NORM_X, X2));
  REQUIRE(e, same_shape(e, NORM_X, X_OUT) && same_type(e, NORM_X, X_OUT));
  REQUIRE(e, apart(e, NORM_X, Y) && apart(e, X2, Y) && apart(e, X2, X_OUT) && apart(e, NORM_X, X_OUT));
  return finish(e, workspace_size, executor);
}
PHASE_2(AddRmsNorm)

EXPORT int aclnnInplaceAddRmsNormGetWorkspaceSize(aclTensor *x1, aclTensor *x2, const aclTensor *gamma, double epsilon,
                                                  const aclTensor *rstd, uint64_t *workspace_size,
                                                  aclOpExecutor **executor);
int aclnnInplaceAddRmsNormGetWorkspaceSize(aclTensor *x1, aclTensor *x2, const aclTensor *gamma, double epsilon,
                                           const aclTensor *rstd, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnInplaceAddRmsNorm", compute_add_rms_norm, ANY_CHIP, &status);
  if (!e)
    return status;
  if ((status = start_norm(e, x1, gamma, epsilon, x1, rstd, 0)))
    return refuse(e, status, "shapes and types of a norm");
  take(e, x2);
  take(e, x2);
  REQUIRE_TENSOR(e, X2);
  REQUIRE(e, same_shape(e, NORM_X, X2) && same_type(e, NORM_X, X2) && elements(x1));
  REQUIRE(e, is_compact(e, NORM_X) && is_compact(e, X2) && is_compact(e, GAMMA));
  return finish(e, workspace_size, executor);
}
PHASE_2(InplaceAddRmsNorm)

/* ------------------------------------------------------------------------------------------------------- layer norm */

enum { LAYER_OUT = 1, LAYER_WEIGHT, LAYER_BIAS };

static int compute_layer_norm(aclOpExecutor *e) {
  cpu_tensor_view x, out, weight, bias;
  REFERENCE(
      e, "layer_norm", AS_CPU(x, e, NORM_X), present(e, LAYER_WEIGHT) ? AS_CPU(weight, e, LAYER_WEIGHT) : fl_none(),
      present(e, LAYER_BIAS) ? AS_CPU(bias, e, LAYER_BIAS) : fl_none(), fl_float(e->f[0]), AS_CPU(out, e, LAYER_OUT));
}

/* Of the last dimension alone, which has a reference; means and roots are not asked for. */
EXPORT int aclnnLayerNormGetWorkspaceSize(const aclTensor *input, const aclIntArray *normalized_shape,
                                          const aclTensor *weight, const aclTensor *bias, double eps, aclTensor *out,
                                          aclTensor *mean_out, aclTensor *rstd_out, uint64_t *workspace_size,
                                          aclOpExecutor **executor);
int aclnnLayerNormGetWorkspaceSize(const aclTensor *input, const aclIntArray *normalized_shape, const aclTensor *weight,
                                   const aclTensor *bias, double eps, aclTensor *out, aclTensor *mean_out,
                                   aclTensor *rstd_out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnLayerNorm", compute_layer_norm, BIG_CHIP, &status);
  const aclTensor *const given[] = {input, out, weight, bias};
  if (!e)
    return status;
  for (int i = NORM_X; i <= LAYER_BIAS; i++)
    take(e, given[i]);
  take_ints(e, 0, normalized_shape);
  REQUIRE_TENSOR(e, NORM_X);
  REQUIRE_TENSOR(e, LAYER_OUT);
  REQUIRE(e, is_float(e, NORM_X) && same_type(e, NORM_X, LAYER_OUT) && same_shape(e, NORM_X, LAYER_OUT));
  REQUIRE(e, input->n >= 1 && e->n_ints[0] == 1 && e->ints[0][0] == input->shape[input->n - 1]);
  for (int i = LAYER_WEIGHT; i <= LAYER_BIAS; i++)
    REQUIRE(e, !given[i] || (given[i]->n == 1 && given[i]->shape[0] == e->ints[0][0] &&
                             (same_type(e, NORM_X, i) || given[i]->type == F32)));
  REQUIRE(e, !weight || !bias || same_type(e, LAYER_WEIGHT, LAYER_BIAS));
  REQUIRE(e, apart(e, NORM_X, LAYER_OUT) && !mean_out && !rstd_out);
  e->f[0] = eps;
  return finish(e, workspace_size, executor);
}
PHASE_2(LayerNorm)
