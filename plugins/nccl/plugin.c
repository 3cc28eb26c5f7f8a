/*
 * The communicators nccl, rccl and flagcx: one rank a device, over a library of collectives. It is not linked, so
 * that the plugin loads on every machine and can say what is missing; the device is chosen by the vendor's driver, as
 * plugins/gpu does.
 */
#include "plugins/nccl/plugin.h"

#include "plugins/nccl/rank.h"

static bool is_available(void *self, const char **reason) {
  (void)self;
  return gpu_present(reason) && nccl_open(reason);
}

/* A library that cannot split, or is not there yet, leaves that to the host. Float8 does so, too: not every device that
 * the library knows reduces it, and it would round at each step. */
fl_status nccl_register(fl_registry *registry) {
  const char *reason;
  gpu_choose_library();
  nccl_choose_library(registry);
  nccl_guard_watchdog();
  bool splits = is_available(NULL, &reason) && nccl.split;
  const fl_communicator communicator = {
      .size = sizeof communicator,
      .device_type = gpu.device_type,
      .kind = nccl_vendor.kind,
      .vendor = nccl_vendor.kind == FL_KIND_VENDOR ? gpu.name : NULL,
      .id_size = nccl_vendor.id_size,
      .dtypes = FL_INT8 | FL_UINT8 | FL_INT32 | FL_INT64 | FL_FLOAT16 | FL_FLOAT32 | FL_FLOAT64 | FL_BFLOAT16,
      .reductions = (1u << FL_REDUCTIONS) - 1,
      .is_available = is_available,
      .make_id = nccl_make_id,
      .join = nccl_join,
      .leave = nccl_leave,
      .abort = nccl_abort,
      .state = nccl_state,
      .split = splits ? nccl_split : NULL,
      .batch = nccl_batch,
      .all_reduce = nccl_collective,
      .reduce = nccl_collective,
      .broadcast = nccl_collective,
      .all_gather = nccl_collective,
      .all_gather_v = nccl_collective,
      .reduce_scatter = nccl_collective,
      .reduce_scatter_v = nccl_collective,
      .gather = nccl_collective,
      .scatter = nccl_collective,
      .all_to_all = nccl_collective,
      .all_to_all_v = nccl_collective,
      .send = nccl_collective,
      .recv = nccl_collective,
  };
  const fl_component component = {.size = sizeof component,
                                  .type = "communicator",
                                  .name = nccl_vendor.name,
                                  .functions = &communicator,
                                  .functions_type = FL_FUNCTIONS_COMMUNICATOR,
                                  .functions_size = sizeof communicator};
  return registry->register_component(registry, &component);
}
