/* Brings a platform (PLATFORM, else NAME) that is active (ACTIVE 1) or says why not. */
#include <flhost/plugin.h>

#ifndef PLATFORM
#define PLATFORM NAME
#endif

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = ACTIVE ? NULL : "its device is asleep";
  return ACTIVE;
}

static int device_count(void *self) {
  (void)self;
  return 4;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {
      .size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active, .device_count = device_count};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = PLATFORM, .functions = &platform};
  return registry->register_component(registry, &component);
}
