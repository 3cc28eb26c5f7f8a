/* mm_encoder_attn: its arguments, and the walk over batch rows, heads and segments. */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/support/index.h"

#include <math.h>

enum { QUERY, KEY, VALUE, SCALE, CU_SEQLENS, MAX_SEQLEN, OUT };

/* A tensor [batch, tokens, heads, size] or [batch, tokens, heads * size]; strides in bytes. */
typedef struct heads_view {
  char *data;
  int64_t heads, batch_stride, token_stride, head_stride;
} heads_view;

static heads_view view_heads(const DLTensor *tensor, int64_t size) {
  int64_t bytes = tensor->dtype.bits / 8;
  bool flat = tensor->ndim == 3;
  return (heads_view){
      .data = fl_data(tensor),
      .heads = !flat  ? tensor->shape[2]
               : size ? tensor->shape[2] / size
                      : 0,
      .batch_stride = fl_stride(tensor, 0) * bytes,
      .token_stride = fl_stride(tensor, 1) * bytes,
      .head_stride = flat ? size * bytes : fl_stride(tensor, 2) * bytes,
  };
}

static cpu_matrix head_matrix(const heads_view *view, cpu_dtype dtype, int64_t batch, int64_t head, int64_t token) {
  return (cpu_matrix){view->data + batch * view->batch_stride + head * view->head_stride + token * view->token_stride,
                      dtype, view->token_stride};
}

/* The schema has seen to it that one of the tensors has a dimension for heads. */
static int64_t head_size(const fl_call *call) {
  for (uint32_t i = QUERY; i <= VALUE; i++)
    if (cpu_tensor(call, i)->ndim == 4)
      return cpu_tensor(call, i)->shape[3];
  return 0;
}

/* From 0 to the number of tokens, never down. *longest is the longest segment. */
static fl_status check_segments(fl_call *call, const DLTensor *ends, int64_t tokens, int64_t *longest) {
  int64_t last = ends->shape[0] - 1, before = 0;
  for (int64_t i = 0; i <= last; i++) {
    int64_t end = cpu_index(ends, i), least = i == last ? tokens : before, most = i ? tokens : 0;
    if (end < least || end > most)
      return fl_fail(call, FL_EINVAL, "argument 'cu_seqlens'[%lld] is %lld, expected %lld to %lld (%s)", (long long)i,
                     (long long)end, (long long)least, (long long)most,
                     i == last ? "the tokens of 'query'"
                     : i       ? "the one before and the tokens of 'query'"
                               : "the start");
    if (end - before > *longest)
      *longest = end - before;
    before = end;
  }
  return FL_OK;
}

typedef struct encoder {
  heads_view query, key, value, out;
  cpu_dtype dtype;
  const DLTensor *ends; /* of segments, may be NULL */
  int64_t segments;
  cpu_head head; /* what all have in common */
} encoder;

/* The i-th of [batch, head, segment]. */
static cpu_head head_at(const void *user, int64_t i) {
  const encoder *e = user;
  cpu_head head = e->head;
  int64_t segment = i % e->segments, h = i / e->segments % e->query.heads, batch = i / e->segments / e->query.heads;
  int64_t first = e->ends ? cpu_index(e->ends, segment) : 0, of_keys = h / (e->query.heads / e->key.heads);
  if (e->ends)
    head.queries = head.keys = cpu_index(e->ends, segment + 1) - first;
  head.query = head_matrix(&e->query, e->dtype, batch, h, first);
  head.key = head_matrix(&e->key, e->dtype, batch, of_keys, first);
  head.value = head_matrix(&e->value, e->dtype, batch, of_keys, first);
  head.out = head_matrix(&e->out, e->dtype, batch, h, first);
  return head;
}

fl_status cpu_mm_encoder_attn(void *self, fl_call *call) {
  const cpu_attention_parts *parts = self;
  const DLTensor *query = cpu_tensor(call, QUERY), *key = cpu_tensor(call, KEY), *value = cpu_tensor(call, VALUE);
  const DLTensor *ends = cpu_tensor(call, CU_SEQLENS);
  cpu_dtype dtype = cpu_dtype_of(query);
  int64_t size = head_size(call), longest = 0;
  double scale = call->values[SCALE].type == FL_FLOAT ? call->values[SCALE].v.f : 1 / sqrt((double)size);
  if (dtype == CPU_OTHER || cpu_dtype_of(key) != dtype || cpu_dtype_of(value) != dtype)
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16, and the same, expected");
  fl_status status = ends ? check_segments(call, ends, query->shape[1], &longest) : FL_OK;
  if (status)
    return status;
  encoder e = {.query = view_heads(query, size),
               .key = view_heads(key, size),
               .value = view_heads(value, size),
               .out = view_heads(cpu_tensor(call, OUT), size),
               .dtype = dtype,
               .ends = ends,
               .segments = ends ? ends->shape[0] - 1 : 1,
               .head = {.queries = ends ? longest : query->shape[1],
                        .keys = ends ? longest : key->shape[1],
                        .size = size,
                        .value_size = size,
                        .scale = scale,
                        .offset = INT64_MAX}};
  cpu_head_list heads = {query->shape[0] * e.query.heads * e.segments, e.head, head_at, &e};
  status = parts->attend(&heads);
  return status ? fl_fail(call, status, "out of memory") : FL_OK;
}
