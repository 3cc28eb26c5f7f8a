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

FL_EXPORT extern int variable_entry;
int variable_entry = 1;
