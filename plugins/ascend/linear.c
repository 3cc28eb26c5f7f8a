/*
 * Linear layers and logits. The weight, stored as [n, k], is given to CANN as a view of its transpose.
 * Products are added in float32; float32 itself is not narrowed (cube type 0), which 310P cannot do.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { X, WEIGHT, BIAS };
enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16, KEEP_DTYPE = 0 };

/* Which attributes stand where in the ops of this file. */
typedef struct linear {
  const DLTensor *x, *weight, *bias, *out; /* bias may be NULL */
  int64_t rows;                            /* of the weight that are used */
} linear;

static linear linear_of(const fl_call *call, int skip_bias_add, uint32_t out) {
  linear found = {ascend_tensor_at(call, X), ascend_tensor_at(call, WEIGHT), ascend_tensor_at(call, BIAS),
                  ascend_tensor_at(call, out), 0};
  if (skip_bias_add && call->values[skip_bias_add].v.b)
    found.bias = NULL;
  found.rows = found.out->shape[found.out->ndim - 1];
  return found;
}

static bool supports(linear l, ascend_chips chip, const char **reason) {
  ascend_view x = ascend_view_of(l.x), rows;
  if (chip == ASCEND_310P && x.type == ACL_FLOAT)
    return ascend_refuse(reason, "310P multiplies float32 matrices in float16 only");
  if (!ascend_view_rows(&x, &rows))
    return ascend_refuse(reason, "the rows of 'x' are not evenly spaced");
  if (!ascend_is_compact(l.out))
    return ascend_refuse(reason, "CANN writes compact matrices only");
  return true;
}

static void multiply(ascend_call *c, linear l) {
  ascend_view x = ascend_view_of(l.x), out = ascend_view_of(l.out), weight = ascend_view_of(l.weight);
  ascend_view rows, out_rows;
  if (!ascend_view_rows(&x, &rows) || !ascend_view_rows(&out, &out_rows)) {
    ascend_fail(c, FL_ENOTSUP, "the rows of a tensor are not evenly spaced");
    return;
  }
  ascend_view used = ascend_view_part(&weight, 0, 0, l.rows), transposed = ascend_view_swapped(&used, 0, 1);
  if (!l.bias) {
    ACLNN(c, Mm, ascend_tensor(c, rows), ascend_tensor(c, transposed), ascend_tensor(c, out_rows), KEEP_DTYPE);
    return;
  }
  ascend_view whole = ascend_view_of(l.bias), bias = ascend_view_part(&whole, 0, 0, l.rows);
  ACLNN(c, Addmm, ascend_tensor(c, bias), ascend_tensor(c, rows), ascend_tensor(c, transposed), ascend_scalar(c, 1),
        ascend_scalar(c, 1), ascend_tensor(c, out_rows), KEEP_DTYPE);
}

/* Where skip_bias_add and the result are. Without a communicator the parallel layers compute their local part. */
enum { REPLICATED_SKIP = 3, REPLICATED_OUT, COLUMN_SKIP = 4, COLUMN_OUT, ROW_SKIP = 5, ROW_OUT, HEAD_OUT = 3 };

static bool supports_replicated(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports(linear_of(call, REPLICATED_SKIP, REPLICATED_OUT), chip, reason);
}

static void run_replicated(ascend_call *c) {
  multiply(c, linear_of(c->call, REPLICATED_SKIP, REPLICATED_OUT));
}

static bool supports_column(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports(linear_of(call, COLUMN_SKIP, COLUMN_OUT), chip, reason);
}

static void run_column(ascend_call *c) {
  multiply(c, linear_of(c->call, COLUMN_SKIP, COLUMN_OUT));
}

static bool supports_row(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports(linear_of(call, ROW_SKIP, ROW_OUT), chip, reason);
}

static void run_row(ascend_call *c) {
  multiply(c, linear_of(c->call, ROW_SKIP, ROW_OUT));
}

static bool supports_head(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports(linear_of(call, 0, HEAD_OUT), chip, reason);
}

static void run_head(ascend_call *c) {
  multiply(c, linear_of(c->call, 0, HEAD_OUT));
}

/* Of the vocabulary only the rows that the result has are multiplied. */
enum { SOFT_CAP = 4, SCALE, LOGITS };

/* A cap and a factor are numbers of the element type, or they would be rounded to it on some chips. */
static bool supports_factors(const fl_call *call, ascend_chips chip, const char **reason) {
  const fl_value *cap = &call->values[SOFT_CAP], *scale = &call->values[SCALE];
  aclDataType type = ascend_type_of(ascend_tensor_at(call, X)->dtype);
  if (!ascend_is_exact(type, scale->v.f) || (cap->type != FL_NONE && !ascend_is_exact(type, cap->v.f)))
    return ascend_refuse(reason,
                         "'soft_cap' or 'scale' is no number of the element type, which it would be rounded to");
  if (chip == ASCEND_310P && cap->type != FL_NONE)
    return ascend_refuse(reason, "on 310P CANN has no tanh for 'soft_cap'");
  return true;
}

static bool supports_logits(const fl_call *call, ascend_chips chip, const char **reason) {
  return supports_factors(call, chip, reason) && supports(linear_of(call, 0, LOGITS), chip, reason);
}

static void run_logits(ascend_call *c) {
  const fl_value *cap = &c->call->values[SOFT_CAP];
  double scale = c->call->values[SCALE].v.f;
  ascend_view logits = ascend_argument(c, LOGITS);
  multiply(c, linear_of(c->call, 0, LOGITS));
  if (cap->type != FL_NONE) {
    ACLNN(c, InplaceDivs, ascend_tensor(c, logits), ascend_scalar(c, cap->v.f));
    ascend_tanh(c, logits);
    ascend_muls(c, logits, cap->v.f, logits);
  }
  if (scale != 1)
    ascend_muls(c, logits, scale, logits);
}

#define LINEAR(name_, run_, supports_)                                                                                 \
  {                                                                                                                    \
    .name = name_, .dtypes = FLOATS, .chips = ASCEND_ALL, .run = run_, .supports = supports_, .needs = {               \
      ACLNN_Mm,                                                                                                        \
      ACLNN_Addmm                                                                                                      \
    }                                                                                                                  \
  }

static ascend_op ops[] = {
    LINEAR("replicated_linear", run_replicated, supports_replicated),
    LINEAR("column_parallel_linear", run_column, supports_column),
    LINEAR("row_parallel_linear", run_row, supports_row),
    LINEAR("parallel_lm_head", run_head, supports_head),
    LINEAR("logits_processor", run_logits, supports_logits),
};
OP_LIST(ops);
