/*
 * Linear layers, logits and embeddings. The weight, stored as [n, k], is given to CANN as a view of its transpose.
 * Products are added in float32; float32 itself is not narrowed (cube type 0), which 310P cannot do.
 */
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
  ACLNN(c, Addmm, ascend_tensor(c, bias), ascend_tensor(c, rows), ascend_tensor(c, transposed), ascend_one(c),
        ascend_one(c), ascend_tensor(c, out_rows), KEEP_DTYPE);
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

static bool supports_logits(const fl_call *call, ascend_chips chip, const char **reason) {
  if (call->values[SOFT_CAP].type != FL_NONE || call->values[SCALE].v.f != 1)
    return ascend_refuse(reason, "logits with 'soft_cap' or 'scale' take more than a product");
  return supports(linear_of(call, 0, LOGITS), chip, reason);
}

static void run_logits(ascend_call *c) {
  multiply(c, linear_of(c->call, 0, LOGITS));
}

/* --------------------------------------------------------------------------------------------------------- embedding
 */

enum { INPUT_IDS, TABLE, ORG_START, ORG_END, EMBEDDED = 7 };

/* An id out of range is not checked for, as it would take a copy to the host: CANN reads something else then. */
static bool supports_embedding(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  if (call->values[ORG_END].type != FL_NONE)
    return ascend_refuse(reason, "aclnnEmbedding knows no shards");
  if (ascend_tensor_at(call, EMBEDDED)->ndim > FL_MAX_DIMS)
    return ascend_refuse(reason, "aclnnEmbedding takes up to 8 dimensions");
  return true;
}

static void run_embedding(ascend_call *c) {
  ascend_view ids = ascend_argument(c, INPUT_IDS), table = ascend_argument(c, TABLE);
  ascend_view out = ascend_argument(c, EMBEDDED);
  ACLNN(c, Embedding, ascend_tensor(c, table), ascend_tensor(c, ids), ascend_tensor(c, out));
}

#define LINEAR(name_, run_, supports_)                                                                                 \
  {                                                                                                                    \
    .name = name_, .dtypes = FLOATS, .chips = ASCEND_ALL, .run = run_, .supports = supports_, .needs = {               \
      ACLNN_Mm,                                                                                                        \
      ACLNN_Addmm                                                                                                      \
    }                                                                                                                  \
  }

ascend_op ascend_linear[] = {
    LINEAR("replicated_linear", run_replicated, supports_replicated),
    LINEAR("column_parallel_linear", run_column, supports_column),
    LINEAR("row_parallel_linear", run_row, supports_row),
    LINEAR("parallel_lm_head", run_head, supports_head),
    LINEAR("logits_processor", run_logits, supports_logits),
    {.name = "vocab_parallel_embedding",
     .chips = ASCEND_ALL,
     .run = run_embedding,
     .supports = supports_embedding,
     .needs = {ACLNN_Embedding}},
    {.name = NULL},
};
