/*
 * A vendor's backend that fails, to see what becomes of a call then: the host says so, calls the next implementation
 * and comes back to this one a second later. A failure has a status that tells what happened and a message for people.
 *     cc -O2 -shared -fPIC -fvisibility=hidden $(pkg-config --cflags flhost) failing_plugin.c -o flaky.so
 *     VLLM_FL_PLUGIN_MODULES=./flaky.so VLLM_FL_PREFER=vendor flhost run --explain FILE.safetensors
 */
#include <flhost/plugin.h>

FL_PLUGIN("flaky", "1.0.0", "flaky", "Apache-2.0", "");

/* FL_EINVAL would blame the caller, FL_ENOTSUP nobody. */
static fl_status silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EDEVICE, "the card does not answer");
}

/* Priority decides among vendors. */
fl_status register_builtins(fl_registry *registry) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "silu_and_mul",
                        .impl_id = "vendor.flaky",
                        .kind = FL_KIND_VENDOR,
                        .vendor = "flaky",
                        .priority = FL_PRIORITY_VENDOR + 1,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = silu_and_mul};
  return registry->register_impl(registry, &impl);
}
