/* A backend in one file: copy this directory, put your name in the place of "acme" and your kernels in that of its. */
#include <flhost/plugin.h>
#include <math.h>

/* Name, version, vendor, licence, and the instruction sets that this file is compiled for ("avx2,fma"). */
FL_PLUGIN("acme", "1.0.0", "Acme Corporation", "Apache-2.0", "");
/* The vendor of all that is registered below, as settings write it: who denies it does not load this file. */
FL_PLUGIN_VENDOR("acme");
/* FL_PLUGIN_OPS("silu_and_mul"); would let the host open this file only when one of these ops is first looked for. */

/* silu_and_mul(Tensor x) -> Tensor out: x is [n, 2d], out is [n, d]; the last dimension is always contiguous. */
static fl_status silu_and_mul(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  int64_t d = out->shape[1];
  (void)self;
  for (int64_t row = 0; row < out->shape[0]; row++) {
    const float *from = (const float *)fl_data(x) + row * fl_stride(x, 0);
    float *to = (float *)fl_data(out) + row * fl_stride(out, 0);
    for (int64_t i = 0; i < d; i++)
      to[i] = from[i] / (1 + expf(-from[i])) * from[d + i];
  }
  return FL_OK;
}

/* Asked once: are device, driver and library there? If not, `flhost plugins` and `flhost explain` show the reason. */
static bool is_available(void *self, const char **reason) {
  const int driver = 2, needed = 2; /* what your library says */
  (void)self;
  return driver >= needed || fl_reason(reason, "needs Acme driver %d, found %d", needed, driver);
}

/* Asked before each call, when the host has checked shapes and dtypes. What you refuse goes to the next candidate. */
static bool supports_args(void *self, const fl_call *call, const char **reason) {
  const int ndim = call->values[0].v.tensor->ndim;
  (void)self;
  return ndim == 2 || fl_reason(reason, "takes tensors of 2 dimensions, not %d", ndim);
}

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = {.size = sizeof impl, .op_name = "silu_and_mul", .impl_id = "vendor.acme", .vendor = "acme"};
  impl.kind = FL_KIND_VENDOR;
  impl.devices = FL_DEVICE(kDLCPU);
  impl.dtypes = FL_FLOAT32;
  impl.fn = silu_and_mul;
  impl.is_available = is_available;
  impl.supports_args = supports_args;
  return registry->register_impl(registry, &impl);
}
