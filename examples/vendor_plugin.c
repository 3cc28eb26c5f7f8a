/*
 * A vendor's backend: an implementation of an op that flhost knows, and an op of the vendor's own. Build, install, ask:
 *     cc -O2 -shared -fPIC -fvisibility=hidden $(pkg-config --cflags flhost) vendor_plugin.c -o acme.so -lm
 *     cp acme.so "$(pkg-config --variable=pluginsdir flhost)"
 *     flhost explain silu_and_mul
 *     VLLM_FL_PREFER=vendor flhost resolve silu_and_mul
 */
#include <flhost/plugin.h>
#include <math.h>

FL_PLUGIN("acme", "1.0.0", "acme", "Apache-2.0", "");

static int64_t elements(const DLTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++)
    n *= t->shape[i];
  return n;
}

/* Asked before each call, so cheap: these kernels take dense tensors only. Others go to the next candidate. */
static bool supports_args(void *self, const fl_call *call, const char **reason) {
  (void)self;
  for (uint32_t v = 0; v < call->count; v++) {
    const DLTensor *t = call->values[v].v.tensor;
    int64_t dense = 1;
    if (call->values[v].type != FL_TENSOR)
      continue;
    for (int i = t->ndim - 1; i >= 0; dense *= t->shape[i--]) {
      if (t->shape[i] == 1 || fl_stride(t, i) == dense)
        continue;
      return fl_reason(reason, "takes dense tensors only: value %u has other strides", v);
    }
  }
  return true;
}

/* silu_and_mul(Tensor x) -> Tensor out: x [..., 2d], out [..., d]. The host has checked shapes and dtypes. */
static fl_status silu_and_mul(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  const int64_t d = out->shape[out->ndim - 1], n = elements(out);
  const float *from = fl_data(x);
  float *to = fl_data(out);
  (void)self;
  for (int64_t i = 0; i < n; i++) {
    const float gate = from[i / d * 2 * d + i % d], up = from[i / d * 2 * d + d + i % d];
    to[i] = gate / (1 + expf(-gate)) * up;
  }
  return FL_OK;
}

/* acme_scale(Tensor x, float alpha=1.0) -> Tensor out */
static fl_status acme_scale(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[2].v.tensor;
  const double alpha = call->values[1].v.f;
  const int64_t n = elements(x);
  const float *from = fl_data(x);
  float *to = fl_data(out);
  (void)self;
  if (!isfinite(alpha)) /* the caller's mistake, not ours: no fallback, nothing remembered */
    return fl_fail(call, FL_EINVAL, "alpha is %g, expected a finite number", alpha);
  for (int64_t i = 0; i < n; i++)
    to[i] = (float)(alpha * from[i]);
  return FL_OK;
}

fl_status register_builtins(fl_registry *registry) {
  const fl_op_def scale = {.size = sizeof scale,
                           .schema = "acme_scale(Tensor x, float alpha=1.0) -> Tensor out",
                           .rules = "x: T[...]; out: T[...]; T = float32",
                           .doc = "alpha times x"};
  fl_impl impl = {.size = sizeof impl,
                  .impl_id = "vendor.acme",
                  .kind = FL_KIND_VENDOR,
                  .vendor = "acme",
                  .devices = FL_DEVICE(kDLCPU),
                  .dtypes = FL_FLOAT32,
                  .supports_args = supports_args};
  fl_status status = registry->register_op(registry, &scale);
  if (status == FL_OK) {
    impl.op_name = "acme_scale";
    impl.fn = acme_scale;
    status = registry->register_impl(registry, &impl);
  }
  if (status == FL_OK) {
    impl.op_name = "silu_and_mul";
    impl.fn = silu_and_mul;
    status = registry->register_impl(registry, &impl);
  }
  return status;
}
