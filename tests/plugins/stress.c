/* A plugin of tests/stress.c: one implementation ID of each of its ops, under the control that it exports. With EVEN
 * it takes even tags only. */
#include "stress.h"

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

FL_EXPORT extern stress_control stress_controls;
stress_control stress_controls;

static fl_status run(void *self, fl_call *call) {
  (void)self;
  return stress_run(&stress_controls, ID, call);
}

static bool is_available(void *self, const char **reason) {
  (void)self;
  *reason = "absent on command";
  return !atomic_load_explicit(&stress_controls.absent, memory_order_relaxed);
}

#ifdef EVEN
static bool supports_args(void *self, const fl_call *call, const char **reason) {
  (void)self;
  if (reason)
    *reason = "odd tags are not supported";
  return call->values[STRESS_TAG].v.i % 2 == 0;
}
#endif

fl_status register_builtins(fl_registry *registry) {
  fl_status status = FL_OK;
  for (int i = 0; i < STRESS_OPS && !status; i++) {
    char name[] = "stress_0", schema[64];
    name[sizeof name - 2] += (char)i;
    snprintf(schema, sizeof schema, "%s" STRESS_SCHEMA, name);
    fl_op_def op = {.size = sizeof op, .schema = schema};
    fl_impl impl = {.size = sizeof impl,
                    .op_name = name,
                    .impl_id = ID,
                    .kind = sizeof VENDOR > 1 ? FL_KIND_VENDOR : FL_KIND_REFERENCE,
                    .vendor = sizeof VENDOR > 1 ? VENDOR : NULL,
                    .devices = FL_DEVICE(kDLCPU),
                    .fn = run,
                    .is_available = is_available};
#ifdef EVEN
    impl.supports_args = supports_args;
#endif
    status = registry->register_op(registry, &op);
    if (!status)
      status = registry->register_impl(registry, &impl);
  }
  return status;
}
