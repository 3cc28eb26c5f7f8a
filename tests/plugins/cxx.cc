// A plugin in C++: statics with constructors, templates, an exception that stays inside.
#include <flhost/plugin.h>
#include <stdexcept>
#include <string>

FL_PLUGIN("cxx", "1", "Test", "MIT", "");
FL_PLUGIN_OPS("test_scale");

namespace {

template <typename T> T multiply(T a, T b) {
  return a * b;
}

const std::string impl_id = std::string("vendor.") + "cxx";

fl_status scale(void *, fl_call *call) {
  try {
    const DLTensor *x = call->values[0].v.tensor;
    const float *from = static_cast<const float *>(fl_data(x));
    float *to = static_cast<float *>(fl_data(call->values[2].v.tensor));
    if (x->ndim != 1)
      throw std::invalid_argument("one dimension only");
    for (int64_t i = 0; i < x->shape[0]; i++)
      to[i] = multiply(static_cast<float>(call->values[1].v.f), from[i]);
    return FL_OK;
  } catch (const std::exception &error) {
    return fl_fail(call, FL_ENOTSUP, "%s", error.what());
  }
}

} // namespace

extern "C" fl_status register_builtins(fl_registry *registry) {
  fl_op_def op = {};
  fl_impl impl = {};
  op.size = sizeof op;
  op.schema = "test_scale(Tensor x, float factor=2.0) -> Tensor out";
  impl.size = sizeof impl;
  impl.op_name = "test_scale";
  impl.impl_id = impl_id.c_str();
  impl.kind = FL_KIND_VENDOR;
  impl.vendor = "cxx";
  impl.devices = FL_DEVICE(kDLCPU);
  impl.fn = scale;
  fl_status status = registry->register_op(registry, &op);
  return status ? status : registry->register_impl(registry, &impl);
}
