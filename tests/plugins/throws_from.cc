// Throws from one of the functions that a host calls beside a kernel. Built once for each (WHERE, NAME).
#include <flhost/plugin.h>

#include <stdexcept>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");
#ifndef UNLISTED /* then it is loaded when its host is created */
FL_PLUGIN_OPS("thrown");
#endif

enum place { REGISTER_BUILTINS, IS_AVAILABLE, SUPPORTS_ARGS, WORKSPACE_SIZE, NOWHERE };

static void throw_from(place where) {
  if (where == WHERE)
    throw std::runtime_error("words that nobody asked for");
}

static fl_status twice(void *, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  for (int64_t i = 0; i < x->shape[0]; i++)
    static_cast<float *>(fl_data(out))[i] = 2 * static_cast<const float *>(fl_data(x))[i];
  return FL_OK;
}

static bool is_available(void *, const char **) {
  throw_from(IS_AVAILABLE);
  return true;
}

static bool supports_args(void *, const fl_call *, const char **) {
  throw_from(SUPPORTS_ARGS);
  return true;
}

static size_t workspace_size(void *, const fl_call *) {
  throw_from(WORKSPACE_SIZE);
  return 0;
}

extern "C" FL_EXPORT fl_status register_builtins(fl_registry *registry) {
  fl_op_def op = {};
  op.size = sizeof op;
  op.schema = "thrown(Tensor x) -> Tensor out";
  op.rules = "x: float32[d]; out: float32[d]";
  fl_impl impl = {};
  impl.size = sizeof impl;
  impl.op_name = "thrown";
  impl.impl_id = "reference.right";
  impl.kind = FL_KIND_REFERENCE;
  impl.devices = FL_DEVICE(kDLCPU);
  impl.fn = twice;
  fl_status status = registry->register_op(registry, &op);
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.throws";
  impl.kind = FL_KIND_VENDOR;
  impl.vendor = "throws";
  impl.is_available = is_available;
  impl.supports_args = supports_args;
  impl.workspace_size = workspace_size;
  if (!status)
    status = registry->register_impl(registry, &impl);
  throw_from(REGISTER_BUILTINS);
  return status;
}
