/*
 * Two vendors' implementations in one plugin, for tests of selection: of silu_and_mul one by acme and one by bolt with
 * a higher priority, and one whose device is missing; of an op of the plugin's own, one for CUDA tensors only. None of
 * them computes anything: these tests look at what is chosen.
 */
#include <flhost/plugin.h>

FL_PLUGIN("two_vendors", "2.1", "acme", "Apache-2.0", "");

static fl_status not_called(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "not meant to be called");
}

static bool device_is_missing(void *self, const char **reason) {
  (void)self;
  *reason = "no bolt card in this machine";
  return false;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def op = {.size = sizeof op,
                               .schema = "acme_scale(Tensor x, float alpha=1.0) -> Tensor out",
                               .category = "test",
                               .doc = "alpha times x"};
#define VENDOR(vendor_, id_) .size = sizeof(fl_impl), .impl_id = (id_), .kind = FL_KIND_VENDOR, .vendor = (vendor_)
  static const fl_impl impls[] = {
      {VENDOR("acme", "vendor.acme"), .op_name = "silu_and_mul", .devices = FL_DEVICE(kDLCPU), .fn = not_called},
      {VENDOR("bolt", "vendor.bolt"), .op_name = "silu_and_mul", .priority = 120, .devices = FL_DEVICE(kDLCPU),
       .fn = not_called},
      {VENDOR("bolt", "vendor.bolt_card"), .op_name = "silu_and_mul", .devices = FL_DEVICE(kDLCPU), .fn = not_called,
       .is_available = device_is_missing},
      {VENDOR("acme", "vendor.acme"), .op_name = "acme_scale", .devices = FL_DEVICE(kDLCUDA),
       .dtypes = FL_FLOAT32 | FL_BFLOAT16, .min_arch = "sm_80", .fn = not_called},
  };
  fl_status status = registry->register_op(registry, &op);
  for (size_t i = 0; !status && i < sizeof impls / sizeof *impls; i++)
    status = registry->register_impl(registry, &impls[i]);
  return status;
}
