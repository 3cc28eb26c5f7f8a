/*
 * The CPU backend: for each op a reference implementation (plain C that computes what vLLM's forward_native computes,
 * step by step) and a default one (portable C, optimised). Needs the C library and libm only.
 */
#include "plugins/cpu/cpu.h"

FL_PLUGIN("cpu", FLHOST_VERSION, "flhost", "Apache-2.0", "");

static fl_status register_row(fl_registry *registry, fl_impl row) {
  row.size = sizeof row;
  row.flags = FL_IMPL_DETERMINISTIC;                                                 /* one thread, one order */
  row.devices = FL_DEVICE(kDLCPU) | FL_DEVICE(kDLCUDAHost) | FL_DEVICE(kDLROCMHost); /* pinned memory is memory */
  return registry->register_impl(registry, &row);
}

fl_status register_builtins(fl_registry *registry) {
  fl_status status = FL_OK;
  FOR_EACH_OP_LIST(list) {
    const fl_impl *rows = (*list)->rows;
    for (size_t i = 0; i < (*list)->n && !status; i++)
      status = register_row(registry, rows[i]);
  }
  return status;
}
