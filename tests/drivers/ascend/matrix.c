/* The stand-in's matrix products, embedding and convolution. Prototypes: op_api headers of ops-nn and ops-transformer.
 */
#include "tests/drivers/ascend/stand_in.h"

#include <stdlib.h>
#include <string.h>

#define AS_CPU(view, e, index) fl_tensor(as_cpu(&(view), &(e)->tensors[index]))

/* --------------------------------------------------------------------------------------------------------- products */

/* A matrix [k, n], transposed and compact, for the reference's weight [n, k]. */
static void *transposed(const aclTensor *matrix, aclTensor *made) {
  int64_t k = matrix->shape[0], n = matrix->shape[1];
  *made = *matrix;
  made->shape[0] = n;
  made->shape[1] = k;
  made->strides[0] = k;
  made->strides[1] = 1;
  made->offset = 0;
  made->data = malloc((size_t)(n * k * element_size(matrix->type)));
  if (!made->data)
    abort();
  for (int64_t row = 0; row < n; row++)
    for (int64_t column = 0; column < k; column++)
      put(made, row * k + column, get(matrix, column * n + row));
  return made->data;
}

/* out = self mat2 + bias */
static int multiply(aclOpExecutor *e, const aclTensor *self, const aclTensor *mat2, const aclTensor *bias,
                    const aclTensor *out) {
  aclTensor weight;
  cpu_tensor_view views[4];
  void *memory = transposed(mat2, &weight);
  fl_value values[] = {fl_tensor(as_cpu(&views[0], self)), fl_tensor(as_cpu(&views[1], &weight)),
                       bias ? fl_tensor(as_cpu(&views[2], bias)) : fl_none(), fl_bool(false),
                       fl_tensor(as_cpu(&views[3], out))};
  int code = reference(e, "replicated_linear", values, 5);
  free(memory);
  return code;
}

/* self, mat2, out, bias */
static int compute_mm(aclOpExecutor *e) {
  return multiply(e, &e->tensors[0], &e->tensors[1], e->n > 3 ? &e->tensors[3] : NULL, &e->tensors[2]);
}

static int are_matrices(const aclOpExecutor *e) {
  const aclTensor *self = &e->tensors[0], *mat2 = &e->tensors[1], *out = &e->tensors[2];
  return self->n == 2 && mat2->n == 2 && out->n == 2 && self->shape[1] == mat2->shape[0] &&
         out->shape[0] == self->shape[0] && out->shape[1] == mat2->shape[1];
}

/* 0 keep, 1 narrow float32, 2 float16, 3 hf32, 4 float32 additions. */
static int cube_type_fits(int type, int cube_math_type) {
  if (cube_math_type < 0 || cube_math_type > 4)
    return 0;
  if (stand_in_chip() == P310)
    return (type != F32 || cube_math_type) && cube_math_type != 3;
  return (cube_math_type != 2 || type != BF16) && (cube_math_type != 3 || type == F32);
}

static int check_mm(aclOpExecutor *e, const aclTensor *self, const aclTensor *mat2, const aclTensor *out,
                    int8_t cube_math_type) {
  take(e, self);
  take(e, mat2);
  take(e, out);
  for (int i = 0; i < 3; i++)
    if (!present(e, i))
      return REFUSED_NULL;
  if (!is_float(e, 0) || !same_type(e, 0, 1) || !same_type(e, 0, 2) || !are_matrices(e) || !is_compact(e, 2) ||
      !elements(self))
    return REFUSED;
  return cube_type_fits(self->type, cube_math_type) ? 0 : REFUSED;
}

EXPORT int aclnnMmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type,
                                   uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnMmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type,
                            uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnMm", compute_mm, ANY_CHIP, &status);
  if (!e)
    return status;
  if ((status = check_mm(e, self, mat2, out, cube_math_type)))
    return refuse(e, status, "two matrices that fit");
  return finish(e, workspace_size, executor);
}
PHASE_2(Mm)

EXPORT int aclnnAddmmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2,
                                      const aclScalar *beta, const aclScalar *alpha, aclTensor *out,
                                      int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnAddmmGetWorkspaceSize(const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2,
                               const aclScalar *beta, const aclScalar *alpha, aclTensor *out, int8_t cube_math_type,
                               uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnAddmm", compute_mm, ANY_CHIP, &status);
  if (!e)
    return status;
  if ((status = check_mm(e, mat1, mat2, out, cube_math_type)))
    return refuse(e, status, "two matrices that fit");
  take(e, self);
  REQUIRE_TENSOR(e, 3);
  REQUIRE(e, self->n == 1 && self->shape[0] == out->shape[1] && same_type(e, 0, 3));
  REQUIRE(e, beta && alpha && beta->value == 1 && alpha->value == 1);
  return finish(e, workspace_size, executor);
}
PHASE_2(Addmm)

/* The rows [start, start + n) of a matrix, or the matrix at `start` of a stack. */
static aclTensor rows_of(const aclTensor *matrix, int64_t start, int64_t n) {
  aclTensor part = *matrix;
  part.offset += start * matrix->strides[0];
  part.shape[0] = n;
  return part;
}

static aclTensor layer_of(const aclTensor *stack, int64_t at) {
  aclTensor layer = *stack;
  layer.n = 2;
  layer.offset += at * stack->strides[0];
  for (int d = 0; d < 2; d++) {
    layer.shape[d] = stack->shape[d + 1];
    layer.strides[d] = stack->strides[d + 1];
  }
  return layer;
}

/* With a bias of another type than x, which the reference has not: added before the only rounding. */
static void multiply_biased(const aclTensor *x, const aclTensor *weight, const aclTensor *bias, const aclTensor *out) {
  int64_t k = weight->shape[0], n = weight->shape[1];
  for (int64_t row = 0; row < out->shape[0]; row++)
    for (int64_t column = 0; column < n; column++) {
      double sum = get(bias, column);
      for (int64_t i = 0; i < k; i++)
        sum += get(x, row * k + i) * get(weight, i * n + column);
      put(out, row * n + column, sum);
    }
}

/* A row of a matrix, as a vector. */
static aclTensor row_of(const aclTensor *matrix, int64_t at) {
  aclTensor row = *matrix;
  row.n = 1;
  row.offset += at * matrix->strides[0];
  row.shape[0] = matrix->shape[1];
  row.strides[0] = matrix->strides[1];
  return row;
}

/* x, weights [groups, k, n], numbers of rows, out, biases [groups, n] */
static int compute_grouped_matmul(aclOpExecutor *e) {
  int64_t start = 0;
  int code = 0;
  for (int64_t group = 0; group < e->tensors[1].shape[0] && !code; group++) {
    int64_t n = (int64_t)get(&e->tensors[2], group);
    aclTensor x = rows_of(&e->tensors[0], start, n), out = rows_of(&e->tensors[3], start, n);
    aclTensor weight = layer_of(&e->tensors[1], group);
    if (present(e, 4)) {
      aclTensor bias = row_of(&e->tensors[4], group);
      multiply_biased(&x, &weight, &bias, &out);
    } else {
      code = n ? multiply(e, &x, &weight, NULL, &out) : 0;
    }
    start += n;
  }
  return code;
}

EXPORT int aclnnGroupedMatmulV4GetWorkspaceSize(
    const aclTensorList *x, const aclTensorList *weight, const aclTensorList *bias, const aclTensorList *scale,
    const aclTensorList *offset, const aclTensorList *antiquant_scale, const aclTensorList *antiquant_offset,
    const aclTensorList *per_token_scale, const aclTensor *group_list, const aclTensorList *activation_input,
    const aclTensorList *activation_quant_scale, const aclTensorList *activation_quant_offset, int64_t split_item,
    int64_t group_type, int64_t group_list_type, int64_t activation_type, aclTensorList *out,
    aclTensorList *activation_feature_out, aclTensorList *dynamic_quant_scale_out, uint64_t *workspace_size,
    aclOpExecutor **executor);
int aclnnGroupedMatmulV4GetWorkspaceSize(
    const aclTensorList *x, const aclTensorList *weight, const aclTensorList *bias, const aclTensorList *scale,
    const aclTensorList *offset, const aclTensorList *antiquant_scale, const aclTensorList *antiquant_offset,
    const aclTensorList *per_token_scale, const aclTensor *group_list, const aclTensorList *activation_input,
    const aclTensorList *activation_quant_scale, const aclTensorList *activation_quant_offset, int64_t split_item,
    int64_t group_type, int64_t group_list_type, int64_t activation_type, aclTensorList *out,
    aclTensorList *activation_feature_out, aclTensorList *dynamic_quant_scale_out, uint64_t *workspace_size,
    aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnGroupedMatmulV4", compute_grouped_matmul, A2 | A3, &status);
  if (!e)
    return status;
  REQUIRE(e, x && weight && out && x->n == 1 && weight->n == 1 && out->n == 1);
  REQUIRE(e, (!bias || bias->n == 1) && !scale && !offset && !antiquant_scale && !antiquant_offset && !per_token_scale);
  REQUIRE(e, !activation_input && !activation_quant_scale && !activation_quant_offset && !activation_type);
  REQUIRE(e, !activation_feature_out && !dynamic_quant_scale_out);
  REQUIRE(e, split_item == 2 || split_item == 3);
  REQUIRE(e, group_type == 0 && group_list_type == 1); /* rows in groups, given by their numbers */
  take(e, x->tensors[0]);
  take(e, weight->tensors[0]);
  take(e, group_list);
  take(e, out->tensors[0]);
  take(e, bias ? bias->tensors[0] : NULL);
  REQUIRE_TENSOR(e, 2);
  const aclTensor *t = e->tensors;
  REQUIRE(e, !bias || t[4].type == (t[0].type == BF16 ? F32 : F16)); /* of bfloat16 it is float32 */
  REQUIRE(e, !bias || (t[4].n == 2 && t[4].shape[0] == t[1].shape[0] && t[4].shape[1] == t[1].shape[2]));
  REQUIRE(e, is_float(e, 0) && t[0].type != F32 && same_type(e, 0, 1) && same_type(e, 0, 3) && t[2].type == I64);
  REQUIRE(e, t[0].n == 2 && t[1].n == 3 && t[3].n == 2 && t[2].n == 1 && t[2].shape[0] == t[1].shape[0]);
  REQUIRE(e, t[0].shape[1] == t[1].shape[1] && t[3].shape[0] == t[0].shape[0] && t[3].shape[1] == t[1].shape[2]);
  REQUIRE(e, t[1].shape[1] <= 65535 && t[1].shape[2] <= 65535 && t[1].shape[0] <= 1024);
  return finish(e, workspace_size, executor);
}
PHASE_2(GroupedMatmulV4)

/* -------------------------------------------------------------------------------------------------------- embedding */

static int compute_embedding(aclOpExecutor *e) {
  cpu_tensor_view weight, indices, out;
  fl_value values[] = {
      AS_CPU(indices, e, 1), AS_CPU(weight, e, 0), fl_int(0), fl_none(), fl_int(0), fl_int(0), fl_int(0),
      AS_CPU(out, e, 2)};
  return reference(e, "vocab_parallel_embedding", values, 8);
}

EXPORT int aclnnEmbeddingGetWorkspaceSize(const aclTensor *weight, const aclTensor *indices, const aclTensor *out,
                                          uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnEmbeddingGetWorkspaceSize(const aclTensor *weight, const aclTensor *indices, const aclTensor *out,
                                   uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnEmbedding", compute_embedding, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, weight);
  take(e, indices);
  take(e, out);
  for (int i = 0; i < 3; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, weight->n == 2 && is_float(e, 0) && same_type(e, 0, 2));
  REQUIRE(e, indices->type == I32 || indices->type == I64);
  REQUIRE(e, out->n == indices->n + 1 && out->shape[out->n - 1] == weight->shape[1]);
  return finish(e, workspace_size, executor);
}
PHASE_2(Embedding)

/* ------------------------------------------------------------------------------------------------------ convolution */

enum { STRIDE, PADDING, DILATION };

/* input, weight, output, bias */
static int compute_convolution(aclOpExecutor *e) {
  cpu_tensor_view x, weight, bias, out;
  fl_value values[] = {AS_CPU(x, e, 0),
                       AS_CPU(weight, e, 1),
                       present(e, 3) ? AS_CPU(bias, e, 3) : fl_none(),
                       fl_ints(e->ints[STRIDE], e->n_ints[STRIDE]),
                       fl_ints(e->ints[PADDING], e->n_ints[PADDING]),
                       fl_ints(e->ints[DILATION], e->n_ints[DILATION]),
                       fl_int(e->i[0]),
                       AS_CPU(out, e, 2)};
  return reference(e, "conv3d", values, 8); /* the kernel of conv2d, too */
}

EXPORT int aclnnConvolutionGetWorkspaceSize(const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
                                            const aclIntArray *stride, const aclIntArray *padding,
                                            const aclIntArray *dilation, _Bool transposed_,
                                            const aclIntArray *output_padding, const int64_t groups, aclTensor *output,
                                            int8_t cube_math_type, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnConvolutionGetWorkspaceSize(const aclTensor *input, const aclTensor *weight, const aclTensor *bias,
                                     const aclIntArray *stride, const aclIntArray *padding, const aclIntArray *dilation,
                                     _Bool transposed_, const aclIntArray *output_padding, const int64_t groups,
                                     aclTensor *output, int8_t cube_math_type, uint64_t *workspace_size,
                                     aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnConvolution", compute_convolution, ANY_CHIP, &status);
  if (!e)
    return status;
  take(e, input);
  take(e, weight);
  take(e, output);
  take(e, bias);
  for (int i = 0; i < 3; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, stride && padding && dilation && output_padding && !transposed_ && groups >= 1 && groups <= 65535);
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 1) && same_type(e, 0, 2));
  REQUIRE(e, input->n == 4 || input->n == 5);
  int format = input->n == 5 ? NCDHW : NCHW;
  REQUIRE(e, input->format == format && weight->format == format && output->format == format);
  REQUIRE(e, input->type != F32 || cube_math_type || stand_in_chip() == A5);
  REQUIRE(e, input->type != BF16 || cube_math_type != 2);
  REQUIRE(e, stand_in_chip() != P310 || cube_math_type != 3);
  REQUIRE(e, !present(e, 3) || (bias->n == 1 && bias->shape[0] == weight->shape[0] && same_type(e, 0, 3)));
  take_ints(e, STRIDE, stride);
  take_ints(e, PADDING, padding);
  take_ints(e, DILATION, dilation);
  for (int i = 0; i < 3; i++)
    REQUIRE(e, e->n_ints[i] == (uint32_t)input->n - 2);
  e->i[0] = groups;
  return finish(e, workspace_size, executor);
}
PHASE_2(Convolution)
