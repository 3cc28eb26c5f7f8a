/*
 * Implementations that fail at call time, one a status: vendor.einval, vendor.enotsup, vendor.enomem, vendor.edevice,
 * vendor.einternal, vendor.unknown for test_scale, and vendor.edevice for silu_and_mul. They outrank each other in
 * this order, and all but einval and enotsup spoil the output before they fail.
 */
#include "scale.h"

FL_PLUGIN_WITH_FLAGS("failing", "1", "Test", "MIT", "", FL_PLUGIN_SKIP_REFUSED);

static const struct {
  fl_status status;
  const char *impl_id, *vendor;
} rows[] = {
    {FL_EINVAL, "vendor.einval", "einval"},          {FL_ENOTSUP, "vendor.enotsup", "enotsup"},
    {FL_ENOMEM, "vendor.enomem", "enomem"},          {FL_EDEVICE, "vendor.edevice", "edevice"},
    {FL_EINTERNAL, "vendor.einternal", "einternal"}, {77, "vendor.unknown", "unknown"},
};

static fl_status fail(void *self, fl_call *call) {
  fl_status status = *(const fl_status *)self;
  DLTensor *out = call->values[call->count - 1].v.tensor;
  if (status != FL_EINVAL && status != FL_ENOTSUP)
    *(float *)fl_data(out) = -1.0f;
  return fl_fail(call, status, "failing on purpose with status %d", (int)status);
}

fl_status register_builtins(fl_registry *registry) {
  static fl_status statuses[sizeof rows / sizeof rows[0]];
  registry->register_op(registry, &scale_op);
  for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
    fl_impl impl = scale_row(rows[i].impl_id, rows[i].vendor);
    statuses[i] = rows[i].status;
    impl.priority = FL_PRIORITY_VENDOR - i;
    impl.fn = fail;
    impl.self = &statuses[i];
    registry->register_impl(registry, &impl);
    impl.op_name = "silu_and_mul";
    if (rows[i].status == FL_EDEVICE)
      registry->register_impl(registry, &impl);
  }
  return FL_OK;
}
