/*
 * quant_fp8, in steps: aclnnDynamicQuant has no least scale, so that a row of zeros gets the scale 0, and vLLM's have
 * one. Only 950 has the element type.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, SCALE, SCALE_UB, GROUP_SHAPE, USE_UE8M0, NUM_TOKEN_PADDING, Q, SCALE_OUT };

#define FP8_MAX   448.0
#define MIN_SCALE (1 / (FP8_MAX * 512))

/* Elements of a row that share a scale of their own: [1, G]. */
static int64_t group_of(const fl_call *call) {
  return call->values[GROUP_SHAPE].v.ints[0] == 1 ? call->values[GROUP_SHAPE].v.ints[1] : -1;
}

static bool supports_quant_fp8(const fl_call *call, ascend_chips chip, const char **reason) {
  static const uint32_t compact[] = {SCALE, SCALE_OUT, Q};
  const DLTensor *x = ascend_tensor_at(call, X);
  (void)chip;
  if (call->values[USE_UE8M0].v.b)
    return ascend_refuse(reason, "CANN's logarithm may miss a power of two, which 'use_ue8m0' rounds to");
  if (!ascend_tensor_at(call, SCALE) && group_of(call) > 0 && x->shape[x->ndim - 1] % group_of(call))
    return ascend_refuse(reason, "the last group of a row is not whole");
  if (x->ndim == FL_MAX_DIMS)
    return ascend_refuse(reason, "there is no dimension left to tell groups apart, of 8 that CANN knows");
  for (size_t i = 0; i < sizeof compact / sizeof compact[0]; i++)
    if (ascend_tensor_at(call, compact[i]) && !ascend_is_compact(ascend_tensor_at(call, compact[i])))
      return ascend_refuse(reason, "a scale or the result is not compact");
  return true;
}

/* x and its scales as they broadcast: with a dimension more where groups are apart, two where blocks are. */
typedef struct quantisation {
  ascend_view x, scale;
  bool divide; /* by the scale, else its reciprocal is multiplied with */
} quantisation;

/* A given scale: of the tensor, of each token or channel, or of blocks [R, C]. */
static quantisation given(ascend_call *c, ascend_view x) {
  const int64_t *group = c->call->values[GROUP_SHAPE].v.ints;
  ascend_view scale = ascend_argument(c, SCALE);
  int64_t shape[FL_MAX_DIMS] = {1, 1, 1, 1};
  quantisation q = {.x = x};
  if (group[0] < 0 && group[1] < 0) {
    q.scale = ascend_view_reshaped(&scale, 1, shape);
    return q;
  }
  int64_t rows = group[0] < 0 ? x.shape[0] : group[0], columns = group[1] < 0 ? x.shape[1] : group[1];
  shape[0] = x.shape[0] / rows;
  shape[2] = x.shape[1] / columns;
  q.x = ascend_view_split(&x, 1, columns);
  q.x = ascend_view_split(&q.x, 0, rows);
  q.scale = ascend_view_reshaped(&scale, 4, shape);
  return q;
}

/* The scale of the largest magnitude: of the tensor, each token or each group. */
static quantisation computed(ascend_call *c, ascend_view x) {
  const DLTensor *bound = ascend_tensor_at(c->call, SCALE_UB);
  ascend_view out = ascend_argument(c, SCALE_OUT);
  bool of_tensor = c->call->values[GROUP_SHAPE].v.ints[0] < 0;
  quantisation q = {.x = x, .divide = group_of(c->call) > 0};
  int64_t dims[FL_MAX_DIMS], shape[FL_MAX_DIMS], n = 0;
  if (q.divide)
    q.x = ascend_view_split(&x, x.n_dims - 1, group_of(c->call));
  for (int d = 0; d < q.x.n_dims; d++) {
    bool is_reduced = of_tensor || d == q.x.n_dims - 1;
    if (is_reduced)
      dims[n++] = d;
    shape[d] = is_reduced ? 1 : q.x.shape[d];
  }
  q.scale = ascend_view_reshaped(&out, q.x.n_dims, shape);
  ascend_view magnitude = ascend_scratch_like(c, &q.x, ACL_FLOAT), most = ascend_scratch_like(c, &q.scale, ACL_FLOAT);
  ACLNN(c, Abs, ascend_tensor(c, q.x), ascend_tensor(c, magnitude));
  ACLNN(c, Amax, ascend_tensor(c, magnitude), ascend_ints(c, dims, (uint64_t)n), true, ascend_tensor(c, most));
  if (bound)
    ACLNN(c, InplaceClampMaxTensor, ascend_tensor(c, most), ascend_tensor(c, ascend_view_of(bound)));
  ACLNN(c, InplaceDivs, ascend_tensor(c, most), ascend_scalar(c, FP8_MAX));
  ACLNN(c, ClampMin, ascend_tensor(c, most), ascend_scalar(c, MIN_SCALE), ascend_tensor(c, q.scale));
  return q;
}

/* Rows of q behind those of x are zeros, which have no bit set. */
static void clear_padding(ascend_call *c, ascend_view q, int64_t tokens) {
  if (q.shape[0] == tokens)
    return;
  ascend_view padding = ascend_view_part(&q, 0, tokens, q.shape[0] - tokens);
  padding.type = ACL_INT8;
  ACLNN(c, InplaceZero, ascend_tensor(c, padding));
}

static void run_quant_fp8(ascend_call *c) {
  ascend_view x = ascend_in_float(c, ascend_argument(c, X)), out = ascend_argument(c, Q);
  bool is_given = ascend_tensor_at(c->call, SCALE) != NULL;
  quantisation q = is_given ? given(c, x) : computed(c, x);
  ascend_view scaled = ascend_scratch_like(c, &q.x, ACL_FLOAT), clamped = ascend_scratch_like(c, &q.x, ACL_FLOAT);
  if (q.divide) {
    ascend_div(c, q.x, q.scale, scaled);
  } else {
    ascend_view reciprocal = ascend_scratch_like(c, &q.scale, ACL_FLOAT);
    ACLNN(c, Reciprocal, ascend_tensor(c, q.scale), ascend_tensor(c, reciprocal));
    ascend_mul(c, q.x, reciprocal, scaled);
  }
  ACLNN(c, Clamp, ascend_tensor(c, scaled), ascend_scalar(c, -FP8_MAX), ascend_scalar(c, FP8_MAX),
        ascend_tensor(c, clamped));
  ascend_cast(c, ascend_view_reshaped(&clamped, x.n_dims, x.shape), ascend_view_part(&out, 0, 0, x.shape[0]));
  clear_padding(c, out, x.shape[0]);
  if (is_given)
    ascend_copy(c, ascend_argument(c, SCALE_OUT), ascend_argument(c, SCALE));
}

static ascend_op ops[] = {
    {.name = "quant_fp8",
     .chips = ASCEND_950,
     .run = run_quant_fp8,
     .supports = supports_quant_fp8,
     .n_results = 2,
     .needs = {ACLNN_Cast, ACLNN_Abs, ACLNN_Amax, ACLNN_InplaceDivs, ACLNN_ClampMin, ACLNN_Clamp, ACLNN_Reciprocal,
               ACLNN_Mul, ACLNN_Div}},
};
OP_LIST(ops);
