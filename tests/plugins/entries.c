/* Several entries, for ":symbol". */
#include "scale.h"

FL_PLUGIN("entries", "1", "Test", "MIT", "");

fl_status register_builtins(fl_registry *registry) {
  registry->error(registry, "the default entry was called");
  return FL_EINTERNAL;
}

FL_EXPORT fl_status acme_entry(fl_registry *registry);
fl_status acme_entry(fl_registry *registry) {
  fl_impl impl = scale_row("vendor.entries", "entries");
  fl_status status = registry->register_op(registry, &scale_op);
  return status ? status : registry->register_impl(registry, &impl);
}

/* A status that this host does not know, and no message. */
FL_EXPORT fl_status silent_entry(fl_registry *registry);
fl_status silent_entry(fl_registry *registry) {
  (void)registry;
  return 77;
}

/* Only what a refused row returned. */
FL_EXPORT fl_status refused_entry(fl_registry *registry);
fl_status refused_entry(fl_registry *registry) {
  fl_impl impl = scale_row("", "entries");
  registry->register_op(registry, &scale_op);
  return registry->register_impl(registry, &impl);
}

FL_EXPORT fl_status nothing_entry(fl_registry *registry);
fl_status nothing_entry(fl_registry *registry) {
  (void)registry;
  return FL_OK;
}

/* An error that is no error. */
FL_EXPORT fl_status contradicting_entry(fl_registry *registry);
fl_status contradicting_entry(fl_registry *registry) {
  registry->error(registry, "no firmware");
  return acme_entry(registry);
}

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = NULL;
  return true;
}

static fl_status register_platform(fl_registry *registry, int32_t device_type) {
  const fl_platform platform = {.size = sizeof platform, .device_type = device_type, .is_active = is_active};
  const fl_component component = {.size = sizeof component, .type = "platform", .name = "acme", .functions = &platform};
  return registry->register_component(registry, &component);
}

FL_EXPORT fl_status twin_platform_entry(fl_registry *registry);
fl_status twin_platform_entry(fl_registry *registry) {
  register_platform(registry, kDLExtDev);
  register_platform(registry, kDLExtDev);
  return FL_OK;
}

FL_EXPORT fl_status typeless_platform_entry(fl_registry *registry);
fl_status typeless_platform_entry(fl_registry *registry) {
  return register_platform(registry, 0);
}

static bool is_missing(void *self, const char **reason) {
  (void)self;
  *reason = "no Acme device found";
  return false;
}

/* The first of three can run anywhere. */
FL_EXPORT fl_status partial_entry(fl_registry *registry);
fl_status partial_entry(fl_registry *registry) {
  fl_impl second = scale_row("vendor.second", "entries"), third = scale_row("vendor.third", "entries");
  fl_status status = acme_entry(registry);
  second.is_available = third.is_available = is_missing;
  if (!status)
    status = registry->register_impl(registry, &second);
  return status ? status : registry->register_impl(registry, &third);
}

FL_EXPORT extern int variable_entry;
int variable_entry = 1;
