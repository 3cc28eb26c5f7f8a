/*
 * The communicator hccl: one rank a device, over Ascend's library of collectives. It is not linked, so that the plugin
 * loads on every machine and can say what is missing.
 */
#include "plugins/hccl/rank.h"

FL_PLUGIN("hccl", FLHOST_VERSION, "Huawei", "Apache-2.0", "");
FL_PLUGIN_COMMUNICATORS("hccl");

static bool is_available(void *self, const char **reason) {
  (void)self;
  return ascend_acl_open(reason) && hccl_open(reason);
}

/* `reduce` is made of all_reduce, since nobody says what becomes of the other ranks' buffers, and `gather` of sends and
 * receives, as the library has none. What it cannot do on this device, or lacks, is said when it is asked: all ranks
 * have the same library then, which need not be there yet. There is no function that ends waiting. */
fl_status register_builtins(fl_registry *registry) {
  static const fl_communicator communicator = {
      .size = sizeof communicator,
      .device_type = kDLExtDev,
      .kind = FL_KIND_VENDOR,
      .vendor = "ascend",
      .id_size = HCCL_ROOT_INFO_BYTES,
      .dtypes = FL_INT8 | FL_INT32 | FL_FLOAT16 | FL_FLOAT32 | FL_BFLOAT16,
      .reductions = 1u << FL_REDUCE_SUM | 1u << FL_REDUCE_PROD | 1u << FL_REDUCE_MAX | 1u << FL_REDUCE_MIN,
      .is_available = is_available,
      .make_id = hccl_make_id,
      .join = hccl_join,
      .leave = hccl_leave,
      .state = hccl_state,
      .batch = hccl_batch,
      .all_reduce = hccl_collective,
      .broadcast = hccl_collective,
      .all_gather = hccl_collective,
      .all_gather_v = hccl_collective,
      .reduce_scatter = hccl_collective,
      .reduce_scatter_v = hccl_collective,
      .scatter = hccl_collective,
      .all_to_all = hccl_collective,
      .all_to_all_v = hccl_collective,
      .send = hccl_collective,
      .recv = hccl_collective,
      .barrier = hccl_collective,
  };
  static const fl_component component = {.size = sizeof component,
                                         .type = "communicator",
                                         .name = "hccl",
                                         .functions = &communicator,
                                         .functions_type = FL_FUNCTIONS_COMMUNICATOR,
                                         .functions_size = sizeof communicator};
  hccl_choose_library();
  return registry->register_component(registry, &component);
}
