/*
 * A plugin for bench/python/run.py: ops whose kernels do nothing.
 */
#include <flhost/plugin.h>

FL_PLUGIN("bench_python", "1.0.0", "bench", "Apache-2.0", "");

static const char *const schemas[] = {
    "bench_three(Tensor x, Tensor y, Tensor(a!) z) -> ()",
    "bench_out(Tensor x, Tensor y) -> Tensor out",
    "bench_made(Tensor x, Tensor y, Tensor z) -> Tensor out",
    "bench_none() -> ()",
    "bench_one(Tensor x) -> ()",
    "bench_values(Tensor x, int n=3, float epsilon=1e-6, bool flag=False) -> ()",
    "bench_optional(Tensor x, Tensor? y=None, Tensor? z=None) -> ()",
};
static const char *const names[] = {"bench_three", "bench_out",    "bench_made",    "bench_none",
                                    "bench_one",   "bench_values", "bench_optional"};
enum { N_OPS = sizeof names / sizeof names[0] };

static fl_status nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

fl_status register_builtins(fl_registry *registry) {
  fl_status status = FL_OK;
  for (int i = 0; !status && i < N_OPS; i++) {
    const fl_op_def op = {.size = sizeof op, .schema = schemas[i]};
    const fl_impl impl = {.size = sizeof impl,
                          .op_name = names[i],
                          .impl_id = "default.flagos",
                          .kind = FL_KIND_DEFAULT,
                          .devices = FL_DEVICE(kDLCPU),
                          .fn = nothing};
    status = registry->register_op(registry, &op);
    if (!status)
      status = registry->register_impl(registry, &impl);
  }
  return status;
}
