/*
 * Rotary embeddings. Query and key are rotated by one operator that looks cosines and sines up; what it does not take,
 * by the rows of the tables that are selected first. Where cosines and sines are neighbours in one cache, as vLLM
 * builds it, that cache is used as it is; else they are joined in scratch memory, which takes a pass over both.
 */
#include "plugins/ascend/ops.h"

enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };
enum { HALVES, PAIRS }; /* modes of aclnnRotaryPositionEmbedding */

/* Joins two views of one shape along `dim`, in scratch memory. */
static ascend_view join(ascend_call *c, ascend_view a, ascend_view b, int dim) {
  const ascend_view both[] = {a, b};
  int64_t shape[FL_MAX_DIMS];
  for (int d = 0; d < a.n_dims; d++)
    shape[d] = d == dim ? a.shape[d] + b.shape[d] : a.shape[d];
  ascend_view joined = ascend_scratch(c, a.type, a.n_dims, shape);
  ACLNN(c, Cat, ascend_list(c, 2, both), dim, ascend_tensor(c, joined));
  return joined;
}

/* A factor for each dimension of a head, of a table [tokens, r]: both halves alike, or both of a pair. */
static ascend_view factors(ascend_call *c, ascend_view table, bool in_halves) {
  int64_t shape[] = {1, table.shape[0], 1, 2 * table.shape[1]};
  if (!in_halves) { /* [tokens, r] as [tokens, r, 1] */
    table.n_dims = 3;
    table.shape[2] = table.strides[2] = 1;
  }
  ascend_view twice = join(c, table, table, in_halves ? 1 : 2);
  return ascend_view_reshaped(&twice, 4, shape);
}

/* ------------------------------------------------------------------------------------------------- rotary_embedding */

enum {
  QUERY,
  KEY,
  COS,
  SIN,
  POSITION_IDS,
  INTERLEAVED,
  ROPE_DIM_OFFSET,
  INVERSE,
  QUERY_OUT,
  KEY_OUT,
};

/* As [tokens, heads * size]; the operator knows the distance between tokens, heads lie side by side. */
static bool rows_of(const DLTensor *tensor, ascend_view *rows) {
  ascend_view view = ascend_view_of(tensor);
  int last = view.n_dims - 1;
  if (view.strides[last] != 1 || (last == 2 && view.shape[1] > 1 && view.strides[1] != view.shape[2]))
    return false;
  *rows = view;
  rows->n_dims = 2;
  rows->shape[1] = last == 2 ? view.shape[1] * view.shape[2] : view.shape[1];
  rows->strides[1] = 1;
  return true;
}

/* aclnnRopeWithSinCosCache does query and key at once, from the first dimension of a head on, and forwards. */
static bool takes_cache(const fl_call *call) {
  static const uint32_t tensors[] = {QUERY, KEY, QUERY_OUT, KEY_OUT};
  ascend_view rows;
  if (ascend_chip(NULL) == ASCEND_950 || !ascend_tensor_at(call, KEY) || call->values[ROPE_DIM_OFFSET].v.i ||
      call->values[INVERSE].v.b)
    return false;
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    if (!rows_of(ascend_tensor_at(call, tensors[i]), &rows))
      return false;
  return true;
}

enum { LONGEST_HEAD = 896, MOST_HEADS = 1000 }; /* of aclnnRotaryPositionEmbedding, both less one */

static bool supports_rotary_embedding(const fl_call *call, ascend_chips chip, const char **reason) {
  int64_t rotated = 2 * ascend_tensor_at(call, COS)->shape[1];
  (void)chip;
  if (!ascend_same_type(ascend_tensor_at(call, COS), ascend_tensor_at(call, QUERY)))
    return ascend_refuse(reason, "cosines and sines are not of the element type of 'query'");
  if (takes_cache(call))
    return true;
  if (!ascend_is_compact(ascend_tensor_at(call, POSITION_IDS)))
    return ascend_refuse(reason, "'position_ids' is not compact");
  if (rotated >= LONGEST_HEAD)
    return ascend_refuse(reason, "aclnnRotaryPositionEmbedding rotates fewer than 896 dimensions");
  for (uint32_t i = QUERY; i <= KEY; i++) {
    const DLTensor *tensor = ascend_tensor_at(call, i);
    if (tensor && (tensor->ndim == 3 ? tensor->shape[1] : tensor->shape[1] / rotated) >= MOST_HEADS)
      return ascend_refuse(reason, "aclnnRotaryPositionEmbedding takes fewer than 1000 heads");
  }
  return true;
}

/* The cache [positions, cosines | sines] that both are parts of, or made for this call. */
static ascend_view cache_of(ascend_call *c) {
  ascend_view cos = ascend_argument(c, COS), sin = ascend_argument(c, SIN);
  int64_t half = cos.shape[1];
  bool neighbours = (char *)cos.data + half * cos.size == (char *)sin.data && cos.strides[1] == 1 &&
                    sin.strides[1] == 1 && cos.strides[0] == 2 * half && sin.strides[0] == 2 * half;
  if (!neighbours)
    return join(c, cos, sin, 1);
  cos.shape[1] = 2 * half;
  return cos;
}

static void rotate_by_cache(ascend_call *c) {
  static const int64_t plain[3]; /* no sections: one position a token */
  const DLTensor *query = ascend_tensor_at(c->call, QUERY), *cos = ascend_tensor_at(c->call, COS);
  ascend_view in[2], out[2], positions = ascend_argument(c, POSITION_IDS), cache = cache_of(c);
  for (uint32_t i = 0; i < 2; i++)
    if (!rows_of(ascend_tensor_at(c->call, QUERY + i), &in[i]) ||
        !rows_of(ascend_tensor_at(c->call, QUERY_OUT + i), &out[i])) {
      ascend_fail(c, FL_ENOTSUP, "the heads of a token do not lie side by side");
      return;
    }
  int64_t head_size = query->ndim == 3 ? query->shape[2] : 2 * cos->shape[1];
  ACLNN(c, RopeWithSinCosCache, ascend_tensor(c, positions), ascend_tensor(c, in[0]), ascend_tensor(c, in[1]),
        ascend_tensor(c, cache), ascend_ints(c, plain, 3), head_size, !c->call->values[INTERLEAVED].v.b,
        ascend_tensor(c, out[0]), ascend_tensor(c, out[1]));
}

/* Rows of cosines or sines for the tokens, as factors. */
static ascend_view factors_of_tokens(ascend_call *c, uint32_t index, bool is_negative) {
  ascend_view table = ascend_argument(c, index), positions = ascend_argument(c, POSITION_IDS);
  const int64_t shape[] = {positions.shape[0], table.shape[1]};
  ascend_view rows = ascend_scratch(c, table.type, 2, shape);
  ACLNN(c, IndexSelect, ascend_tensor(c, table), 0, ascend_tensor(c, positions), ascend_tensor(c, rows));
  if (is_negative)
    ACLNN(c, InplaceNeg, ascend_tensor(c, rows));
  return factors(c, rows, !c->call->values[INTERLEAVED].v.b);
}

/* As [1, tokens, heads, size] */
static ascend_view in_heads(const ascend_call *c, uint32_t index, int64_t rotated) {
  ascend_view view = ascend_argument(c, index);
  if (view.n_dims == 2)
    view = ascend_view_split(&view, 1, rotated);
  return ascend_view_split(&view, 0, view.shape[0]);
}

/* The rotated dimensions are made apart, as the operator writes compact tensors only and not its argument. */
static void rotate(ascend_call *c, uint32_t from, uint32_t to, ascend_view cos, ascend_view sin) {
  int64_t rotated = cos.shape[3], offset = c->call->values[ROPE_DIM_OFFSET].v.i;
  ascend_view x = in_heads(c, from, rotated), out = in_heads(c, to, rotated);
  ascend_view part = ascend_view_part(&x, 3, offset, rotated), place = ascend_view_part(&out, 3, offset, rotated);
  ascend_view made = ascend_scratch_like(c, &part, x.type);
  if (x.data != out.data && rotated < x.shape[3])
    ACLNN(c, InplaceCopy, ascend_tensor(c, out), ascend_tensor(c, x));
  ACLNN(c, RotaryPositionEmbedding, ascend_tensor(c, part), ascend_tensor(c, cos), ascend_tensor(c, sin),
        c->call->values[INTERLEAVED].v.b ? PAIRS : HALVES, ascend_tensor(c, made));
  ACLNN(c, InplaceCopy, ascend_tensor(c, place), ascend_tensor(c, made));
}

static void run_rotary_embedding(ascend_call *c) {
  if (takes_cache(c->call)) {
    rotate_by_cache(c);
    return;
  }
  ascend_view cos = factors_of_tokens(c, COS, false);
  ascend_view sin = factors_of_tokens(c, SIN, c->call->values[INVERSE].v.b);
  rotate(c, QUERY, QUERY_OUT, cos, sin);
  if (ascend_tensor_at(c->call, KEY))
    rotate(c, KEY, KEY_OUT, cos, sin);
}

/* ------------------------------------------------------------------------------------------------- apply_rotary_emb */

enum { X, COS_TABLE, SIN_TABLE, IS_NEOX_STYLE, ENABLE_FP32_COMPUTE, OUT };

/* As [batch, S, H, D]. */
static ascend_view in_batches(const DLTensor *tensor) {
  ascend_view view = ascend_view_of(tensor);
  int64_t shape[4] = {1};
  int leading = tensor->ndim - 3;
  for (int d = 0; d < leading; d++)
    shape[0] *= tensor->shape[d];
  for (int d = 0; d < 3; d++)
    shape[d + 1] = tensor->shape[leading + d];
  return ascend_view_reshaped(&view, 4, shape);
}

static bool supports_apply_rotary_emb(const fl_call *call, ascend_chips chip, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *out = ascend_tensor_at(call, OUT);
  bool in_float = ascend_type_of(x->dtype) == ACL_FLOAT;
  ascend_view shape = in_batches(x);
  int64_t batch = shape.shape[0], heads = shape.shape[2];
  (void)chip;
  if (call->values[ENABLE_FP32_COMPUTE].v.b && !in_float)
    return ascend_refuse(reason, "aclnnRotaryPositionEmbedding computes in the element type of 'x'");
  if (!ascend_same_type(x, ascend_tensor_at(call, COS_TABLE)))
    return ascend_refuse(reason, "cosines and sines are not of the element type of 'x'");
  if (!ascend_is_compact(x) || !ascend_is_compact(out))
    return ascend_refuse(reason, "a tensor is not compact");
  if (shape.shape[3] >= 896)
    return ascend_refuse(reason, "aclnnRotaryPositionEmbedding takes heads of fewer than 896 dimensions");
  if (call->values[IS_NEOX_STYLE].v.b ? batch >= 1000 || heads >= 1000 : batch * heads >= 1000)
    return ascend_refuse(reason, "aclnnRotaryPositionEmbedding takes fewer than 1000 sequences and heads");
  return true;
}

static void run_apply_rotary_emb(ascend_call *c) {
  bool is_neox = c->call->values[IS_NEOX_STYLE].v.b;
  ascend_view x = in_batches(ascend_tensor_at(c->call, X)), out = in_batches(ascend_tensor_at(c->call, OUT));
  ascend_view cos = factors(c, ascend_argument(c, COS_TABLE), is_neox);
  ascend_view sin = factors(c, ascend_argument(c, SIN_TABLE), is_neox);
  ACLNN(c, RotaryPositionEmbedding, ascend_tensor(c, x), ascend_tensor(c, cos), ascend_tensor(c, sin),
        is_neox ? HALVES : PAIRS, ascend_tensor(c, out));
}

static ascend_op ops[] = {
    {.name = "rotary_embedding",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_rotary_embedding,
     .supports = supports_rotary_embedding,
     .needs = {ACLNN_RopeWithSinCosCache, ACLNN_Cat}},
    {.name = "apply_rotary_emb",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_apply_rotary_emb,
     .supports = supports_apply_rotary_emb,
     .needs = {ACLNN_RotaryPositionEmbedding, ACLNN_Cat}},
};
OP_LIST(ops);
