/*
 * The CPU backend: for each op a reference implementation (plain C that computes what vLLM's forward_native computes,
 * step by step) and a default one (portable C, optimised, for several instruction sets: variants.h). Needs the C
 * library and libm only, and takes oneDNN for large products where it is there (onednn.h).
 */
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/variants.h"

FL_PLUGIN("cpu", FLHOST_VERSION, "flhost", "Apache-2.0", "");

static fl_status register_row(fl_registry *registry, fl_impl row, const char *variant) {
  row.size = sizeof row;
  row.flags = FL_IMPL_DETERMINISTIC; /* a sum has one order, whichever thread adds it up */
  row.devices = FL_DEVICE(kDLCPU) | FL_DEVICE(kDLCUDAHost) | FL_DEVICE(kDLROCMHost); /* pinned memory is memory */
  row.variant = variant;
  return registry->register_impl(registry, &row);
}

static fl_status register_lists(fl_registry *registry, const op_list *const *lists, const op_list *const *end,
                                const char *variant) {
  fl_status status = FL_OK;
  for (; lists < end && !status; lists++) {
    const fl_impl *rows = (*lists)->rows;
    for (size_t i = 0; i < (*lists)->n && !status; i++)
      status = register_row(registry, rows[i], variant);
  }
  return status;
}

fl_status register_builtins(fl_registry *registry) {
  char reason[256], wanted[64] = "auto";
  if (registry->size >= offsetof(fl_registry, setting) + sizeof registry->setting && registry->setting)
    registry->setting(registry, "VLLM_FL_CPU_ISA", wanted, sizeof wanted);
  cpu_parallel_begin(registry);
  const cpu_variant *variant = cpu_variant_choose(wanted, reason, sizeof reason);
  if (!variant) {
    registry->error(registry, reason);
    return FL_ENOTSUP;
  }
  fl_status status = register_lists(registry, __start_op_lists, __stop_op_lists, NULL);
  return status ? status : register_lists(registry, variant->lists, variant->end, variant->name);
}
