/*
 * The Huawei backend: ops by CANN's operator library, and the platform "ascend". It links nothing of CANN, so that it
 * is built and loads on every machine and can say what is missing.
 */
#include "plugins/ascend/locks.h"
#include "plugins/ascend/ops.h"
#include "plugins/ascend/platform.h"

FL_PLUGIN("ascend", FLHOST_VERSION, "Huawei", "Apache-2.0", "");
FL_PLUGIN_PLATFORM("ascend", "/dev/davinci_manager,$FLHOST_ASCEND_NODE");

#define OURS                                                                                                           \
  .size = sizeof(fl_impl), .impl_id = "vendor.ascend", .kind = FL_KIND_VENDOR, .vendor = "ascend",                     \
  .devices = FL_DEVICE(kDLExtDev)

static fl_status register_op(fl_registry *registry, ascend_op *op) {
  /* 310P is in no order with the others: what runs there, too, has no least architecture. */
  const char *least = op->chips & ASCEND_310P ? NULL : "Ascend910B";
  const fl_impl impl = {OURS,
                        .op_name = op->name,
                        .dtypes = op->dtypes,
                        .min_arch = least,
                        .fn = ascend_run,
                        .self = op,
                        .is_available = ascend_is_available,
                        .supports_args = ascend_supports_args,
                        .workspace_size = ascend_workspace_size};
  return registry->register_impl(registry, &impl);
}

static bool is_available(void *self, const char **reason) {
  (void)self;
  return ascend_libraries_open(reason);
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_impl backend = {OURS, .op_name = "attention_backend", .fn = ascend_attention_backend,
                                  .is_available = is_available};
  static const fl_component component = {.size = sizeof component,
                                         .type = "platform",
                                         .name = "ascend",
                                         .functions = &ascend_platform,
                                         .functions_type = FL_FUNCTIONS_PLATFORM,
                                         .functions_size = sizeof ascend_platform};
  ascend_op *const lists[] = {
      ascend_activations, ascend_gated_activations, ascend_norms,        ascend_gated_norms, ascend_rotary,
      ascend_linear,      ascend_embedding,         ascend_convolutions, ascend_routing,     ascend_experts,
      ascend_attention,   ascend_quantisation,      ascend_merge};
  ascend_guard_forks();
  fl_status status = registry->register_component(registry, &component);
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
    for (ascend_op *op = lists[i]; op->name && !status; op++)
      status = register_op(registry, op);
  return status ? status : registry->register_impl(registry, &backend);
}
