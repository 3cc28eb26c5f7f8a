/* What both GPU plugins register: their platform, and the implementations that their files of ops list. */
#include "plugins/gpu/plugin.h"
#include "plugins/gpu/launch.h"
#include "plugins/gpu/math.h"
#include "plugins/gpu/platform.h"

static bool is_ready(const gpu_op *op, const char **reason) {
  bool loaded = !op->module || gpu_module_preload(op->module, reason);
  for (gpu_module *const *other = op->others; other && *other && loaded; other++)
    loaded = gpu_module_preload(*other, reason);
  return loaded && (!op->is_ready || op->is_ready(reason));
}

/* The first call may be one that the engine captures, and what makes an op ready allocates. That is no part of the
 * graph; a driver that is not told so refuses it, and ends the capture. */
static bool is_available(void *self, const char **reason) {
  int mode = GPU_CAPTURE_RELAXED;
  if (!gpu_has_suitable_device(reason))
    return false;
  bool relaxed = gpu_exchange_capture_mode(&mode);
  bool ready = is_ready(self, reason);
  if (relaxed)
    gpu_exchange_capture_mode(&mode);
  return ready;
}

static fl_status register_op(fl_registry *registry, const gpu_op *op) {
  const fl_impl impl = {.size = sizeof impl,
                        .flags = FL_IMPL_DETERMINISTIC,
                        .op_name = op->name,
                        .impl_id = op->impl_id ? op->impl_id : gpu.impl_id,
                        .kind = FL_KIND_VENDOR,
                        .priority = op->priority,
                        .vendor = gpu.name,
                        .devices = FL_DEVICE(gpu.device_type),
                        .dtypes = op->dtypes,
                        .min_arch = gpu.min_arch,
                        .fn = op->run,
                        .self = (void *)op,
                        .is_available = is_available,
                        .supports_args = op->supports,
                        .workspace_size = op->workspace_size};
  return registry->register_impl(registry, &impl);
}

fl_status gpu_register(fl_registry *registry) {
  gpu_choose_library();
  gpu_library_choose(&gpu_math.base);
  fl_status status = gpu_register_platform(registry);
  FOR_EACH_OP_LIST(list) {
    const gpu_op *ops = (*list)->rows;
    for (size_t i = 0; i < (*list)->n && !status; i++)
      status = register_op(registry, &ops[i]);
  }
  return status;
}
