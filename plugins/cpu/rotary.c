/* Reads the arguments of rotary_embedding for both kernels: see rotary.h. */
#include "plugins/cpu/rotary.h"

enum { QUERY, KEY, COS, SIN, POSITION_IDS, INTERLEAVED, ROPE_DIM_OFFSET, INVERSE, QUERY_OUT, KEY_OUT };

/* A tensor [tokens, heads * size] has heads of the rotary dimension: the schema gives no other size for it. */
static cpu_heads view_heads(const DLTensor *in, const DLTensor *out, int64_t rotary_dim) {
  int64_t bytes = in->dtype.bits / 8;
  bool flat = in->ndim == 2;
  return (cpu_heads){
      .in = fl_data(in),
      .out = fl_data(out),
      .heads = flat ? in->shape[1] / rotary_dim : in->shape[1],
      .size = flat ? rotary_dim : in->shape[2],
      .in_token = fl_stride(in, 0) * bytes,
      .in_head = (flat ? rotary_dim : fl_stride(in, 1)) * bytes,
      .out_token = fl_stride(out, 0) * bytes,
      .out_head = (flat ? rotary_dim : fl_stride(out, 1)) * bytes,
  };
}

static fl_status check_heads(fl_call *call, const char *name, const DLTensor *tensor, const cpu_rotary *rotary) {
  int64_t rotary_dim = 2 * rotary->pairs;
  int64_t size = tensor->ndim == 2 ? rotary_dim : tensor->shape[tensor->ndim - 1];
  if (tensor->ndim == 2 && tensor->shape[1] % rotary_dim)
    return fl_fail(call, FL_EINVAL,
                   "argument '%s': rows of %lld elements, expected a multiple of %lld (twice a row of "
                   "'cos')",
                   name, (long long)tensor->shape[1], (long long)rotary_dim);
  if (rotary->offset < 0 || rotary->offset > size - rotary_dim)
    return fl_fail(call, FL_EINVAL,
                   "argument 'rope_dim_offset' is %lld, expected 0 to %lld (head size %lld of '%s' "
                   "less %lld rotated)",
                   (long long)rotary->offset, (long long)(size - rotary_dim), (long long)size, name,
                   (long long)rotary_dim);
  return FL_OK;
}

static fl_status check_positions(fl_call *call, const cpu_rotary *rotary, int64_t max_position) {
  for (int64_t token = 0; token < rotary->tokens; token++) {
    int64_t position = cpu_rotary_position(rotary, token);
    if (position < 0 || position >= max_position)
      return fl_fail(call, FL_EINVAL, "argument 'position_ids'[%lld] is %lld, expected 0 to %lld (rows of 'cos')",
                     (long long)token, (long long)position, (long long)max_position - 1);
  }
  return FL_OK;
}

fl_status cpu_rotary_read(fl_call *call, cpu_rotary *rotary) {
  const DLTensor *query = cpu_tensor(call, QUERY), *key = cpu_tensor(call, KEY);
  const DLTensor *cos = cpu_tensor(call, COS), *sin = cpu_tensor(call, SIN), *ids = cpu_tensor(call, POSITION_IDS);
  fl_status status;

  *rotary = (cpu_rotary){
      .dtype = cpu_dtype_of(query),
      .table_dtype = cpu_dtype_of(cos),
      .tokens = query->shape[0],
      .pairs = cos->shape[1],
      .offset = call->values[ROPE_DIM_OFFSET].v.i,
      .interleaved = call->values[INTERLEAVED].v.b,
      .inverse = call->values[INVERSE].v.b,
      .cos = fl_data(cos),
      .sin = fl_data(sin),
      .cos_stride = fl_stride(cos, 0) * (cos->dtype.bits / 8),
      .sin_stride = fl_stride(sin, 0) * (sin->dtype.bits / 8),
      .positions = fl_data(ids),
      .wide_positions = ids->dtype.bits == 64,
  };
  if (rotary->dtype == CPU_OTHER || rotary->table_dtype == CPU_OTHER || cpu_dtype_of(sin) != rotary->table_dtype ||
      (key && cpu_dtype_of(key) != rotary->dtype) || ids->dtype.code != kDLInt ||
      (ids->dtype.bits != 32 && ids->dtype.bits != 64))
    return fl_fail(call, FL_ENOTSUP,
                   "element types: query and key, cos and sin each alike, float32, float16 or "
                   "bfloat16, and position_ids int32 or int64");
  if (rotary->pairs < 1)
    return fl_fail(call, FL_EINVAL, "argument 'cos' has rows of %lld elements, expected at least 1",
                   (long long)rotary->pairs);
  if ((status = check_heads(call, "query", query, rotary)) ||
      (key && (status = check_heads(call, "key", key, rotary))) ||
      (status = check_positions(call, rotary, cos->shape[0])))
    return status;
  rotary->heads[0] = view_heads(query, cpu_tensor(call, QUERY_OUT), 2 * rotary->pairs);
  if (key)
    rotary->heads[1] = view_heads(key, cpu_tensor(call, KEY_OUT), 2 * rotary->pairs);
  return FL_OK;
}
