/*
 * The Huawei backend: ops by CANN's operator library, and the platform "ascend". It links nothing of CANN, so that it
 * is built and loads on every machine and can say what is missing.
 */
#include "plugins/ascend/locks.h"
#include "plugins/ascend/ops.h"
#include "plugins/ascend/platform.h"
#include "plugins/ascend/workspace.h"

FL_PLUGIN("ascend", FLHOST_VERSION, "Huawei", "Apache-2.0", "");
FL_PLUGIN_VENDOR("ascend");
FL_PLUGIN_PLATFORM("ascend", "/dev/davinci_manager,$FLHOST_ASCEND_NODE");
/* The vendor also makes network cards and disks; the kernel's driver, which is several modules, makes the node. */
FL_PLUGIN_HARDWARE("title: Ascend; aliases: npu; device: ext_dev; pci: 19e5 1200;"
                   "nodes: /dev/davinci_manager /dev/davinci[0-9]* /dev/devmm_svm /dev/hisi_hdc;"
                   "kernel: /dev/davinci_manager; version: /usr/local/Ascend/driver/version.info;"
                   "masks: ASCEND_RT_VISIBLE_DEVICES; driver: libascendcl.so libacl_rt.so");

static fl_status register_op(fl_registry *registry, ascend_op *op) {
  const fl_impl impl = {
      .size = sizeof impl,
      .op_name = op->name,
      .impl_id = "vendor.ascend",
      .kind = FL_KIND_VENDOR,
      .vendor = "ascend",
      .devices = FL_DEVICE(kDLExtDev),
      .dtypes = op->dtypes,
      /* 310P is in no order with the others: what runs there, too, has no least architecture. */
      .min_arch = op->chips & ASCEND_310P ? NULL : "Ascend910B",
      .fn = op->answer ? op->answer : ascend_run,
      .self = op,
      .is_available = ascend_is_available,
      .supports_args = op->answer ? NULL : ascend_supports_args,
      .workspace_size = op->answer ? NULL : ascend_workspace_size,
  };
  return registry->register_impl(registry, &impl);
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_component component = {.size = sizeof component,
                                         .type = "platform",
                                         .name = "ascend",
                                         .functions = &ascend_platform,
                                         .functions_type = FL_FUNCTIONS_PLATFORM,
                                         .functions_size = sizeof ascend_platform};
  ascend_guard_forks(ascend_workspaces_unlock);
  fl_status status = registry->register_component(registry, &component);
  FOR_EACH_OP_LIST(list) {
    ascend_op *ops = (ascend_op *)(*list)->rows; /* of this backend they are not constant */
    for (size_t i = 0; i < (*list)->n && !status; i++)
      status = register_op(registry, &ops[i]);
  }
  return status;
}
