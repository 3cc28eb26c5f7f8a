/* A plugin of many ops with eight implementations each: as many ops as FLHOST_BENCH_OPS says, bench_op_00000 and on. */
#include <flhost/plugin.h>

#include <stdlib.h>

FL_PLUGIN("bench_many", "1.0.0", "bench", "Apache-2.0", "");

static fl_status nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

/* As in bench/dispatch/many.c. */
static const struct {
  const char *id;
  fl_kind kind;
  const char *vendor;
} impls[] = {{"default.flagos", FL_KIND_DEFAULT, NULL}, {"reference.c", FL_KIND_REFERENCE, NULL},
             {"vendor.a", FL_KIND_VENDOR, "a"},         {"vendor.b", FL_KIND_VENDOR, "b"},
             {"vendor.c", FL_KIND_VENDOR, "c"},         {"vendor.d", FL_KIND_VENDOR, "d"},
             {"vendor.e", FL_KIND_VENDOR, "e"},         {"vendor.f", FL_KIND_VENDOR, "f"}};

static fl_status register_one(fl_registry *registry, const char *name) {
  char schema[64];
  fl_op_def op = {.size = sizeof op, .schema = schema};
  snprintf(schema, sizeof schema, "%s(Tensor x) -> Tensor out", name);
  fl_status status = registry->register_op(registry, &op);
  for (size_t i = 0; i < sizeof impls / sizeof impls[0] && !status; i++) {
    fl_impl impl = {.size = sizeof impl,
                    .op_name = name,
                    .impl_id = impls[i].id,
                    .kind = impls[i].kind,
                    .vendor = impls[i].vendor,
                    .devices = FL_DEVICE(kDLCPU),
                    .fn = nothing};
    status = registry->register_impl(registry, &impl);
  }
  return status;
}

fl_status register_builtins(fl_registry *registry) {
  const char *n = getenv("FLHOST_BENCH_OPS");
  fl_status status = FL_OK;
  for (int i = 0; n && i < atoi(n) && !status; i++) {
    char name[32];
    snprintf(name, sizeof name, "bench_op_%05d", i);
    status = register_one(registry, name);
  }
  return status;
}
