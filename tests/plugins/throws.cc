// A kernel that throws: a host is C, and nobody catches it.
#include <flhost/plugin.h>

#include <stdexcept>

FL_PLUGIN("throws", "1", "Test", "MIT", "");

static fl_status reference(void *, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  for (int64_t i = 0; i < x->shape[0]; i++)
    static_cast<float *>(fl_data(out))[i * fl_stride(out, 0)] =
        static_cast<const float *>(fl_data(x))[i * fl_stride(x, 0)];
  return FL_OK;
}

static fl_status throws(void *, fl_call *) {
  throw std::runtime_error("a kernel's own words");
}

extern "C" FL_EXPORT fl_status register_builtins(fl_registry *registry) {
  fl_op_def op = {};
  op.size = sizeof op;
  op.schema = "misbehaving(Tensor x) -> Tensor out";
  op.rules = "x: float32[d]; out: float32[d]";
  op.category = "test";
  op.cases = "d: 4";
  fl_impl impl = {};
  impl.size = sizeof impl;
  impl.op_name = "misbehaving";
  impl.impl_id = "reference.right";
  impl.kind = FL_KIND_REFERENCE;
  impl.devices = FL_DEVICE(kDLCPU);
  impl.fn = reference;
  fl_status status = registry->register_op(registry, &op);
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.wrong";
  impl.kind = FL_KIND_VENDOR;
  impl.vendor = "wrong";
  impl.fn = throws;
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.other";
  impl.vendor = "other";
  impl.fn = reference;
  return status ? status : registry->register_impl(registry, &impl);
}
