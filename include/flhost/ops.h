/*
 * flhost/ops.h: a typed call for each built-in op. Written by generate-ops from the entries in core/ops; do not edit.
 *
 *     fl_ops ops;
 *     fl_ops_init(&ops, host);
 *     if (fl_silu_and_mul(&ops, NULL, &x, &out)) fprintf(stderr, "%s\n", fl_error_message());
 *
 * Each call takes the device's stream or queue (NULL: the default one), the op's arguments and its results. The caller
 * provides every output tensor; fl_infer says shapes and dtypes. Tensors are borrowed for the call, which may be made
 * from any thread. It returns what fl_invoke returns; FL_ENOENT when the host does not know the op.
 *
 * T[..., 2*d] is a tensor of dtype T with any leading dimensions and a last one of 2*d; a letter or name has the same
 * meaning wherever it stands in one op. The last dimension is contiguous, the others may be strided.
 */
#ifndef FLHOST_OPS_H
#define FLHOST_OPS_H

#include <flhost/flhost.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The handles of the built-in ops in one host, valid as long as the host; NULL for an op that it does not know. */
typedef struct fl_ops {
  uint32_t size; /* sizeof(fl_ops) */
  fl_op *silu_and_mul;
  fl_op *gelu_and_mul;
  fl_op *rms_norm;
  fl_op *fused_add_rms_norm;
  fl_op *rotary_embedding;
  fl_op *attention_backend;
} fl_ops;

/* Finds the handles. FL_EINVAL: a null pointer. */
static inline fl_status fl_ops_init(fl_ops *ops, fl_host *host) {
  if (!ops || !host)
    return FL_EINVAL;
  ops->size = (uint32_t)sizeof(fl_ops);
  ops->silu_and_mul = fl_find_op(host, "silu_and_mul");
  ops->gelu_and_mul = fl_find_op(host, "gelu_and_mul");
  ops->rms_norm = fl_find_op(host, "rms_norm");
  ops->fused_add_rms_norm = fl_find_op(host, "fused_add_rms_norm");
  ops->rotary_embedding = fl_find_op(host, "rotary_embedding");
  ops->attention_backend = fl_find_op(host, "attention_backend");
  return FL_OK;
}

/*
 * SiLU of the first half of x's last dimension, times the second half.
 *     silu_and_mul(Tensor x) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = silu(x[..., :d]) * x[..., d:], silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the
 * product (vLLM: SiluAndMul, kernel silu_and_mul)
 */
static inline fl_status fl_silu_and_mul(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_tensor(x);
  values[1] = fl_tensor(out);
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_invoke(ops->silu_and_mul, &call);
}

/*
 * GELU of the first half of x's last dimension, times the second half; approximate is "none" or "tanh".
 *     gelu_and_mul(Tensor x, str approximate="none") -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = gelu(x[..., :d]) * x[..., d:], gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for "none", v/2 * (1 +
 * tanh(sqrt(2/pi) * (v + 0.044715 * v^3))) for "tanh"; rounded to T after gelu and after the product (vLLM: GeluAndMul,
 * kernels gelu_and_mul, gelu_tanh_and_mul)
 */
static inline fl_status fl_gelu_and_mul(const fl_ops *ops, void *stream, DLTensor *x, const char *approximate,
                                        DLTensor *out) {
  fl_value values[3];
  values[0] = fl_tensor(x);
  values[1] = fl_string(approximate);
  values[2] = fl_tensor(out);
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_invoke(ops->gelu_and_mul, &call);
}

/*
 * Root-mean-square normalisation of x, or of x + residual when there is a residual.
 *     rms_norm(Tensor(a!) x, Tensor(b!)? residual=None, Tensor? weight=None, float epsilon=1e-6,
 *         int? variance_size=None) -> (Tensor(a) out, Tensor(b)? residual_out)
 * where  x: T[..., H]
 *        residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor residual (in place); else residual stays as it is. NULL exactly where that is
 * NULL.
 * residual, weight, variance_size: NULL for none.
 * Formula: s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) *
 * weight; the normalised value is rounded to weight's dtype before the product, the product to T (vLLM: RMSNorm,
 * kernels rms_norm, fused_add_rms_norm)
 */
static inline fl_status fl_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *residual, DLTensor *weight,
                                    double epsilon, const int64_t *variance_size, DLTensor *out,
                                    DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_tensor(x);
  values[1] = fl_tensor(residual);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = variance_size ? fl_int(*variance_size) : fl_none();
  values[5] = fl_tensor(out);
  values[6] = fl_tensor(residual_out);
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_invoke(ops->rms_norm, &call);
}

/*
 * Adds x_residual to x and normalises the sum by its root mean square.
 *     fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, int? variance_size=None)
 *         -> (Tensor(a) out, Tensor(b) residual_out)
 * where  x: T[..., H]
 *        x_residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as x_residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor x_residual (in place); else x_residual stays as it is.
 * weight, variance_size: NULL for none.
 * Formula: s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) *
 * weight; the normalised value is rounded to weight's dtype before the product, the product to T (residual is
 * x_residual; vLLM: IR op and kernel fused_add_rms_norm)
 */
static inline fl_status fl_fused_add_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *x_residual,
                                              DLTensor *weight, double epsilon, const int64_t *variance_size,
                                              DLTensor *out, DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_tensor(x);
  values[1] = fl_tensor(x_residual);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = variance_size ? fl_int(*variance_size) : fl_none();
  values[5] = fl_tensor(out);
  values[6] = fl_tensor(residual_out);
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_invoke(ops->fused_add_rms_norm, &call);
}

/*
 * Rotates pairs of dimensions of each head of query and key by the angle of the token's position.
 *     rotary_embedding(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids,
 *         bool interleaved=False, int rope_dim_offset=0, bool inverse=False) -> (Tensor(a) query_out,
 *         Tensor(b)? key_out)
 * where  query: T[n, h, d] or T[n, h*2*r]
 *        key: T[n, k, d] or T[n, k*2*r]
 *        cos: T|float32[p, r]
 *        sin: T|float32[p, r]
 *        position_ids: int32|int64[n]
 *        T = float32|float16|bfloat16
 *        query_out: as query
 *        key_out: as key
 * query_out may be the very tensor query (in place); else query stays as it is.
 * key_out may be the very tensor key (in place); else key stays as it is. NULL exactly where that is NULL.
 * key: NULL for none.
 * Formula: (x1, x2) -> (x1*c - x2*s, x2*c + x1*s), c = cos[position, i], s = sin[position, i] (-s if inverse); the pair
 * is (i, i + r), or (2*i, 2*i + 1) if interleaved, from rope_dim_offset on; other dimensions stay. Query and key of two
 * dimensions have heads of 2*r. Rounded to T after each product and the sum (vLLM: RotaryEmbedding, kernel
 * rotary_embedding)
 */
static inline fl_status fl_rotary_embedding(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key,
                                            DLTensor *cos, DLTensor *sin, DLTensor *position_ids, bool interleaved,
                                            int64_t rope_dim_offset, bool inverse, DLTensor *query_out,
                                            DLTensor *key_out) {
  fl_value values[10];
  values[0] = fl_tensor(query);
  values[1] = fl_tensor(key);
  values[2] = fl_tensor(cos);
  values[3] = fl_tensor(sin);
  values[4] = fl_tensor(position_ids);
  values[5] = fl_bool(interleaved);
  values[6] = fl_int(rope_dim_offset);
  values[7] = fl_bool(inverse);
  values[8] = fl_tensor(query_out);
  values[9] = fl_tensor(key_out);
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_invoke(ops->rotary_embedding, &call);
}

/*
 * The attention backend to use: the path of a class, or for a C engine the name of an attention component.
 *     attention_backend(bool use_mla=False, bool use_sparse=False) -> str
 * Formula: (vLLM: Platform.get_attn_backend_cls)
 */
static inline fl_status fl_attention_backend(const fl_ops *ops, void *stream, bool use_mla, bool use_sparse,
                                             const char **out) {
  fl_value values[3];
  values[0] = fl_bool(use_mla);
  values[1] = fl_bool(use_sparse);
  values[2] = fl_none();
  fl_call call = FL_CALL(values);
  call.stream = stream;
  fl_status status = fl_invoke(ops->attention_backend, &call);
  if (status == FL_OK)
    *out = values[2].v.s;
  return status;
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_OPS_H */
