/*
 * Attention: that of encoders of images by the fused operator, without mask, and the name of the class that serves the
 * decoder. Sequence lengths would be arrays of the host, so calls with cu_seqlens are not taken.
 */
#include "plugins/ascend/ops.h"

#include <math.h>

enum { QUERY, KEY, VALUE, SCALE, CU_SEQLENS, MAX_SEQLEN, OUT };

/* Heads and their size; a tensor of four dimensions tells it, and the op has seen to it that one does. */
typedef struct heads {
  int64_t queries, keys, size;
} heads;

static heads heads_of(const fl_call *call) {
  heads found = {0};
  for (uint32_t i = QUERY; i <= VALUE; i++) {
    const DLTensor *tensor = ascend_tensor_at(call, i);
    if (tensor->ndim == 4)
      found.size = tensor->shape[3];
  }
  const DLTensor *query = ascend_tensor_at(call, QUERY), *key = ascend_tensor_at(call, KEY);
  found.queries = query->ndim == 4 ? query->shape[2] : query->shape[2] / found.size;
  found.keys = key->ndim == 4 ? key->shape[2] : key->shape[2] / found.size;
  return found;
}

static bool supports_mm_encoder_attn(const fl_call *call, ascend_chips chip, const char **reason) {
  static const uint32_t tensors[] = {QUERY, KEY, VALUE, OUT};
  heads h = heads_of(call);
  (void)chip;
  if (call->values[CU_SEQLENS].type != FL_NONE)
    return ascend_refuse(reason, "the operator wants 'cu_seqlens' on the host");
  if (h.size > 512 || h.size % 16 || h.queries > 256 || h.queries / h.keys > 64 || h.queries * h.size >= 65535)
    return ascend_refuse(reason, "aclnnFusedInferAttentionScore takes heads of up to 512 dimensions, a multiple of 16, "
                                 "up to 256 of them and up to 64 to a key");
  if (ascend_tensor_at(call, QUERY)->shape[0] > 65536)
    return ascend_refuse(reason, "aclnnFusedInferAttentionScore takes up to 65536 sequences");
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
    if (!ascend_is_compact(ascend_tensor_at(call, tensors[i])))
      return ascend_refuse(reason, "aclnnFusedInferAttentionScore takes compact tensors only");
  return true;
}

/* [batch, tokens, heads, size] */
static ascend_view in_heads(const ascend_call *c, uint32_t index, int64_t n, int64_t size) {
  ascend_view view = ascend_argument(c, index);
  const int64_t shape[] = {view.shape[0], view.shape[1], n, size};
  return ascend_view_reshaped(&view, 4, shape);
}

static void run_mm_encoder_attn(ascend_call *c) {
  enum { ALL = 2147483647, NO_SPARSITY = 0, PRECISE = 0 };
  static char layout[] = "BSND";
  const fl_value *given = &c->call->values[SCALE];
  heads h = heads_of(c->call);
  double scale = given->type == FL_NONE ? 1 / sqrt((double)h.size) : given->v.f;
  ascend_view query = in_heads(c, QUERY, h.queries, h.size), out = in_heads(c, OUT, h.queries, h.size);
  ascend_view key = in_heads(c, KEY, h.keys, h.size), value = in_heads(c, VALUE, h.keys, h.size);
  ACLNN(c, FusedInferAttentionScoreV3, ascend_tensor(c, query), ascend_list(c, 1, &key), ascend_list(c, 1, &value),
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, h.queries, scale, ALL, ALL, layout, h.keys, NO_SPARSITY, PRECISE, 0, 0,
        false, 0, 0, ascend_tensor(c, out), NULL);
}

/* vllm-plugin-FL's own classes, which call torch_npu; it has none for sparse MLA. */
static fl_status attention_backend(void *self, fl_call *call) {
  enum { USE_MLA, USE_SPARSE, RESULT };
  bool use_mla = call->values[USE_MLA].v.b, use_sparse = call->values[USE_SPARSE].v.b;
  (void)self;
  if (use_sparse && !use_mla)
    return fl_fail(call, FL_EINVAL, "argument 'use_sparse' is true, expected false while 'use_mla' is false");
  if (use_sparse)
    return fl_fail(call, FL_ENOTSUP, "there is no attention backend for sparse MLA on Ascend");
  call->values[RESULT] =
      fl_string(use_mla ? "vllm_fl.dispatch.backends.vendor.ascend.impl.attention.AscendMLABackend"
                        : "vllm_fl.dispatch.backends.vendor.ascend.impl.attention.AscendAttentionBackend");
  return FL_OK;
}

static ascend_op ops[] = {
    {.name = "mm_encoder_attn",
     .dtypes = FL_FLOAT16 | FL_BFLOAT16,
     .chips = ASCEND_A2 | ASCEND_A3,
     .run = run_mm_encoder_attn,
     .supports = supports_mm_encoder_attn,
     .needs = {ACLNN_FusedInferAttentionScoreV3}},
    {.name = "attention_backend", .chips = ASCEND_ALL, .answer = attention_backend},
};
OP_LIST(ops);
