/*
 * Rotary embedding as vLLM's RotaryEmbedding.forward_native computes it: cos and sin are taken in the type of query,
 * each product and the sum are rounded to it.
 */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/reference/element.h"

static void rotate_head(const cpu_rotary *rotary, const char *cos, const char *sin, const char *in, char *out) {
  cpu_dtype dtype = rotary->dtype;
  for (int64_t i = 0; i < rotary->pairs; i++) {
    int64_t first = rotary->offset + (rotary->interleaved ? 2 * i : i);
    int64_t second = rotary->interleaved ? first + 1 : first + rotary->pairs;
    float c = round_to(dtype, load(rotary->table_dtype, cos, i));
    float s = round_to(dtype, load(rotary->table_dtype, sin, i));
    float x1 = load(dtype, in, first), x2 = load(dtype, in, second);
    if (rotary->inverse)
      s = -s;
    store(dtype, out, first, round_to(dtype, x1 * c) - round_to(dtype, x2 * s));
    store(dtype, out, second, round_to(dtype, x2 * c) + round_to(dtype, x1 * s));
  }
}

/* rotary_embedding(query, key, cos, sin, position_ids, interleaved, rope_dim_offset, inverse) -> (query_out, key_out)
 */
fl_status cpu_reference_rotary_embedding(void *self, fl_call *call) {
  cpu_rotary rotary;
  fl_status status = cpu_rotary_read(call, &rotary);
  (void)self;
  if (status)
    return status;
  for (int which = 0; which < 2; which++) {
    const cpu_heads *heads = &rotary.heads[which];
    for (int64_t token = 0; heads->in && token < rotary.tokens; token++) {
      int64_t position = cpu_rotary_position(&rotary, token);
      for (int64_t head = 0; head < heads->heads; head++) {
        const char *in = heads->in + token * heads->in_token + head * heads->in_head;
        char *out = heads->out + token * heads->out_token + head * heads->out_head;
        rotate_head(&rotary, rotary.cos + position * rotary.cos_stride, rotary.sin + position * rotary.sin_stride, in,
                    out);
        cpu_rotary_pass_through(&rotary, heads->size, in, out);
      }
    }
  }
  return FL_OK;
}
