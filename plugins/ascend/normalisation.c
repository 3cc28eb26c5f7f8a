/*
 * Normalisations of rows. The reciprocal roots that the operators give as well go to scratch memory. In place,
 * CANN has an operator for the sum and both results; a normalisation alone is made in scratch memory and copied.
 */
#include "plugins/ascend/ops.h"

enum { X, RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };

/* Results of rms_norm and fused_add_rms_norm; gemma_rms_norm has no variance_size. */
enum { OUT = 5, RESIDUAL_OUT, GEMMA_OUT = 4, GEMMA_RESIDUAL_OUT };

static ascend_view root_like(ascend_call *c, ascend_view x) {
  x.shape[x.n_dims - 1] = 1;
  return ascend_scratch(c, ACL_FLOAT, x.n_dims, x.shape);
}

/* Where a result is made that may not be where its argument is. */
static ascend_view apart(ascend_call *c, ascend_view x, ascend_view out) {
  return x.data == out.data ? ascend_scratch(c, out.type, out.n_dims, out.shape) : out;
}

static void bring_back(ascend_call *c, ascend_view out, ascend_view made) {
  if (made.data != out.data)
    ascend_copy(c, out, made);
}

/* The weight, or one that changes nothing. */
static ascend_view weight_of(ascend_call *c, ascend_view x) {
  if (ascend_tensor_at(c->call, WEIGHT))
    return ascend_argument(c, WEIGHT);
  ascend_view ones = ascend_scratch(c, x.type, 1, &x.shape[x.n_dims - 1]);
  ACLNN(c, InplaceOne, ascend_tensor(c, ones));
  return ones;
}

/* -------------------------------------------------------------------------------------------------------- arguments */

static bool supports_weight(const fl_call *call, ascend_chips chip, bool may_be_float, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *weight = ascend_tensor_at(call, WEIGHT);
  ascend_view row = ascend_view_of(x);
  if (weight && !ascend_same_type(x, weight) && (!may_be_float || chip == ASCEND_310P))
    return ascend_refuse(reason, "the weight's element type is not that of 'x'");
  if (chip == ASCEND_310P && row.shape[row.n_dims - 1] * row.size < 32)
    return ascend_refuse(reason, "on 310P rows have at least 32 bytes");
  return true;
}

static bool supports_variance_size(const fl_call *call, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X);
  const fl_value *size = &call->values[VARIANCE_SIZE];
  if (size->type == FL_NONE || size->v.i == x->shape[x->ndim - 1])
    return true;
  return ascend_refuse(reason, "CANN takes the variance over the whole row only");
}

/* Both results in place, or neither. Copying and the operator in place want compact tensors. */
static bool supports_places(const fl_call *call, uint32_t out_at, uint32_t residual_out_at, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *out = ascend_tensor_at(call, out_at);
  const DLTensor *residual = ascend_tensor_at(call, RESIDUAL);
  const DLTensor *residual_out = ascend_tensor_at(call, residual_out_at);
  bool in_place = ascend_is_same(x, out);
  if (residual && in_place != ascend_is_same(residual, residual_out))
    return ascend_refuse(reason, "one of the two results is in place, the other is not");
  if (in_place && (!ascend_is_compact(x) || (residual && !ascend_is_compact(residual))))
    return ascend_refuse(reason, "in place, CANN takes compact tensors only");
  return true;
}

/* ------------------------------------------------------------------------------------------------------------ plain */

static bool supports_rms_norm(const fl_call *call, ascend_chips chip, const char **reason) {
  bool may_be_float = !ascend_tensor_at(call, RESIDUAL);
  return supports_weight(call, chip, may_be_float, reason) && supports_variance_size(call, reason) &&
         supports_places(call, OUT, RESIDUAL_OUT, reason);
}

static void add_and_normalise(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), residual = ascend_argument(c, RESIDUAL), root = root_like(c, x);
  ascend_view weight = weight_of(c, x), out = ascend_argument(c, OUT);
  ascend_view sum = ascend_argument(c, RESIDUAL_OUT);
  double epsilon = c->call->values[EPSILON].v.f;
  if (x.data == out.data)
    ACLNN(c, InplaceAddRmsNorm, ascend_tensor(c, x), ascend_tensor(c, residual), ascend_tensor(c, weight), epsilon,
          ascend_tensor(c, root));
  else
    ACLNN(c, AddRmsNorm, ascend_tensor(c, x), ascend_tensor(c, residual), ascend_tensor(c, weight), epsilon,
          ascend_tensor(c, out), ascend_tensor(c, root), ascend_tensor(c, sum));
}

static void run_rms_norm(ascend_call *c) {
  if (ascend_tensor_at(c->call, RESIDUAL)) {
    add_and_normalise(c);
    return;
  }
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT), weight = weight_of(c, x);
  ascend_view made = apart(c, x, out), root = root_like(c, x);
  ACLNN(c, RmsNorm, ascend_tensor(c, x), ascend_tensor(c, weight), c->call->values[EPSILON].v.f, ascend_tensor(c, made),
        ascend_tensor(c, root));
  bring_back(c, out, made);
}

/* ------------------------------------------------------------------------------------------------------------ gemma */

static bool supports_gemma(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports_weight(call, chip, false, reason) && supports_places(call, GEMMA_OUT, GEMMA_RESIDUAL_OUT, reason);
}

/* The sum, rounded to the tensors' type, is what is normalised then, as vLLM's CUDA kernel does it. */
static ascend_view add_residual(ascend_call *c) {
  ascend_view x = ascend_argument(c, X), residual = ascend_argument(c, RESIDUAL);
  ascend_view sum = ascend_argument(c, GEMMA_RESIDUAL_OUT);
  if (sum.data == residual.data)
    ACLNN(c, InplaceAdd, ascend_tensor(c, residual), ascend_tensor(c, x), ascend_scalar(c, 1));
  else
    ACLNN(c, Add, ascend_tensor(c, x), ascend_tensor(c, residual), ascend_scalar(c, 1), ascend_tensor(c, sum));
  return sum;
}

static void run_gemma_rms_norm(ascend_call *c) {
  bool adds = ascend_tensor_at(c->call, RESIDUAL) != NULL;
  ascend_view x = adds ? add_residual(c) : ascend_argument(c, X);
  ascend_view weight = ascend_argument(c, WEIGHT), out = ascend_argument(c, GEMMA_OUT);
  ascend_view made = apart(c, x, out), root = root_like(c, x);
  ACLNN(c, GemmaRmsNorm, ascend_tensor(c, x), ascend_tensor(c, weight), c->call->values[EPSILON].v.f,
        ascend_tensor(c, made), ascend_tensor(c, root));
  bring_back(c, out, made);
}

/* ------------------------------------------------------------------------------------------------------ with a mean */

enum { LAYER_WEIGHT = 1, LAYER_BIAS, LAYER_EPSILON, LAYER_OUT };

/* NULL where it is not given, which CANN takes for ones or zeros. */
static aclTensor *tensor_if_given(ascend_call *c, uint32_t index) {
  return ascend_tensor_at(c->call, index) ? ascend_tensor(c, ascend_argument(c, index)) : NULL;
}

static void run_layer_norm(ascend_call *c) {
  ascend_view x = ascend_argument(c, X);
  ACLNN(c, LayerNorm, ascend_tensor(c, x), ascend_ints(c, &x.shape[x.n_dims - 1], 1), tensor_if_given(c, LAYER_WEIGHT),
        tensor_if_given(c, LAYER_BIAS), c->call->values[LAYER_EPSILON].v.f,
        ascend_tensor(c, ascend_argument(c, LAYER_OUT)), NULL, NULL);
}

static ascend_op ops[] = {
    {.name = "rms_norm",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_rms_norm,
     .supports = supports_rms_norm,
     .needs = {ACLNN_RmsNorm, ACLNN_AddRmsNorm, ACLNN_InplaceAddRmsNorm, ACLNN_InplaceOne}},
    {.name = "fused_add_rms_norm",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_rms_norm,
     .supports = supports_rms_norm,
     .needs = {ACLNN_AddRmsNorm, ACLNN_InplaceAddRmsNorm, ACLNN_InplaceOne}},
    {.name = "gemma_rms_norm",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_gemma_rms_norm,
     .supports = supports_gemma,
     .needs = {ACLNN_GemmaRmsNorm, ACLNN_Add, ACLNN_InplaceAdd}},
    {.name = "layer_norm",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_layer_norm,
     .needs = {ACLNN_LayerNorm}},
};
OP_LIST(ops);
