/*
 * A plugin of one op whose kernel does nothing. The benchmark makes copies of the file in which "bench_idle_000" is
 * another name: that is the plugin's, the op's, also in the list of ops, and, as bytes, the build id's.
 */
#include <flhost/plugin.h>

FL_PLUGIN("bench_idle_000", "1.0.0", "bench", "Apache-2.0", "");
FL_PLUGIN_OPS("bench_idle_000");

static fl_status nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def op = {.size = sizeof op, .schema = "bench_idle_000(Tensor x) -> Tensor out"};
  static const fl_impl impl = {.size = sizeof impl,
                               .op_name = "bench_idle_000",
                               .impl_id = "default.flagos",
                               .kind = FL_KIND_DEFAULT,
                               .devices = FL_DEVICE(kDLCPU),
                               .fn = nothing};
  fl_status status = registry->register_op(registry, &op);
  return status ? status : registry->register_impl(registry, &impl);
}
