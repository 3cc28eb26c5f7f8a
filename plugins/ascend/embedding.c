/*
 * Embeddings. A shard has two ranges of ids, those of the vocabulary and those added to it; ids become rows of the
 * weight by arithmetic on the device, and what is in neither range reads row 0 and is cleared.
 *
 * An id that is out of range of the whole vocabulary is not checked for, as it would take a copy to the host: CANN
 * reads something else then.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

enum { INPUT_IDS, TABLE, ORG_START, ORG_END, ORG_PADDING, ADDED_START, ADDED_END, OUT };

static bool supports_embedding(const fl_call *call, ascend_chips chip, const char **reason) {
  bool is_shard = call->values[ORG_END].type != FL_NONE;
  if (ascend_tensor_at(call, OUT)->ndim > FL_MAX_DIMS)
    return ascend_refuse(reason, "aclnnEmbedding takes up to 8 dimensions");
  if (is_shard && chip == ASCEND_310P)
    return ascend_refuse(reason, "on 310P CANN has no addition of tensors, which a shard takes");
  return true;
}

/* Which ids are in [start, end), 1 or 0, in the ids' type; and those ids less `offset`, else 0, in `rows`. */
static ascend_view choose(ascend_call *c, ascend_view ids, int64_t start, int64_t end, int64_t offset,
                          ascend_view rows) {
  ascend_view above = ascend_scratch_like(c, &ids, ACL_BOOL), below = ascend_scratch_like(c, &ids, ACL_BOOL);
  ascend_view chosen = ascend_scratch_like(c, &ids, ids.type);
  ACLNN(c, GeScalar, ascend_tensor(c, ids), ascend_integer(c, start), ascend_tensor(c, above));
  ACLNN(c, LtScalar, ascend_tensor(c, ids), ascend_integer(c, end), ascend_tensor(c, below));
  ACLNN(c, InplaceLogicalAnd, ascend_tensor(c, above), ascend_tensor(c, below));
  ascend_cast(c, above, chosen);
  ACLNN(c, Adds, ascend_tensor(c, ids), ascend_integer(c, -offset), ascend_integer(c, 1), ascend_tensor(c, rows));
  ascend_mul(c, rows, chosen, rows);
  return chosen;
}

/* Rows of the shard's ids, 0 for others, and which those are. */
static ascend_view rows_of(ascend_call *c, ascend_view ids, ascend_view *others) {
  const fl_value *values = c->call->values;
  int64_t org_start = values[ORG_START].v.i, org_end = values[ORG_END].v.i;
  int64_t added_start = values[ADDED_START].v.i, added_end = values[ADDED_END].v.i;
  int64_t before_added = org_end - org_start + values[ORG_PADDING].v.i;
  ascend_view rows = ascend_scratch_like(c, &ids, ids.type);
  ascend_view chosen = choose(c, ids, org_start, org_end, org_start, rows);
  if (added_end > added_start) {
    ascend_view added_rows = ascend_scratch_like(c, &ids, ids.type);
    ascend_view added = choose(c, ids, added_start, added_end, added_start - before_added, added_rows);
    ascend_add(c, rows, added_rows, rows);
    ascend_add(c, chosen, added, chosen);
  }
  *others = ascend_scratch_like(c, &ids, ACL_BOOL);
  ACLNN(c, LtScalar, ascend_tensor(c, chosen), ascend_integer(c, 1), ascend_tensor(c, *others));
  return rows;
}

static void run_embedding(ascend_call *c) {
  ascend_view ids = ascend_argument(c, INPUT_IDS), table = ascend_argument(c, TABLE), out = ascend_argument(c, OUT);
  if (c->call->values[ORG_END].type == FL_NONE) {
    ACLNN(c, Embedding, ascend_tensor(c, table), ascend_tensor(c, ids), ascend_tensor(c, out));
    return;
  }
  ascend_view others, rows = rows_of(c, ids, &others);
  int last = others.n_dims++;
  others.shape[last] = others.strides[last] = 1; /* for each element of a row */
  ACLNN(c, Embedding, ascend_tensor(c, table), ascend_tensor(c, rows), ascend_tensor(c, out));
  ACLNN(c, InplaceMaskedFillScalar, ascend_tensor(c, out), ascend_tensor(c, others), ascend_scalar(c, 0));
}

static ascend_op ops[] = {
    {.name = "vocab_parallel_embedding",
     .chips = ASCEND_ALL,
     .run = run_embedding,
     .supports = supports_embedding,
     .needs = {ACLNN_Embedding, ACLNN_GeScalar, ACLNN_LtScalar, ACLNN_InplaceLogicalAnd, ACLNN_Cast, ACLNN_Adds,
               ACLNN_InplaceMul, ACLNN_InplaceAdd, ACLNN_InplaceMaskedFillScalar}},
};
OP_LIST(ops);
