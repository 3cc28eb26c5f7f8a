/*
 * Brings a platform (PLATFORM, else NAME) that is active (ACTIVE 1), says why not (0), or crashes when it is asked (2);
 * with VENDOR also an implementation of that vendor.
 */
#include <flhost/plugin.h>
#include <stdlib.h>

#ifndef PLATFORM
#define PLATFORM NAME
#endif

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

static bool is_active(void *self, const char **reason) {
  (void)self;
  if (ACTIVE == 2)
    abort();
  *reason = ACTIVE ? NULL : "its device is asleep";
  return ACTIVE;
}

static int device_count(void *self) {
  (void)self;
  return 4;
}

#ifdef VENDOR
static fl_status not_called(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "not meant to be called");
}
#endif

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {
      .size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active, .device_count = device_count};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = PLATFORM, .functions = &platform};
  fl_status status = FL_OK;
#ifdef VENDOR
  static const fl_impl impl = {.size = sizeof impl,
                               .op_name = "relu2",
                               .impl_id = "vendor." VENDOR,
                               .kind = FL_KIND_VENDOR,
                               .vendor = VENDOR,
                               .devices = FL_DEVICE_ANY,
                               .fn = not_called};
  status = registry->register_impl(registry, &impl);
#endif
  return status ? status : registry->register_component(registry, &component);
}
