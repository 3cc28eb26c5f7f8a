/*
 * What one plugin registers, until it is published: rows that were judged when they were handed in, since the plugin is
 * to hear of a refusal at once, and that are judged again then, since others may have come first. One thread's.
 */
#ifndef FLHOST_CORE_REGISTRY_STAGE_H
#define FLHOST_CORE_REGISTRY_STAGE_H

#include "core/registry/allowance.h"
#include "core/registry/records.h"
#include "core/registry/registration.h"
#include "core/registry/row_index.h"

struct fl_stage {
  fl_host *host;
  struct fl_registrar *registrar; /* what the plugin was handed */
  const fl_provider *provider;
  const char *plugin;        /* its name */
  const char *ops;           /* the only ones that it may bring anything of; NULL: any */
  const char *platform;      /* the only platform that it may bring then; NULL: none */
  const char *communicators; /* the only ones that it may bring then; NULL: none */
  const char *vendor;        /* of all of its implementations; NULL: any */
  const fl_allowance *allowed[FL_ALLOWANCES_MAX];
  uint32_t n_allowed;
  uint32_t flags;
  fl_op **new_ops; /* the registry's when they are published */
  uint32_t n_new_ops;
  fl_impl_record **impls; /* their op is the registry's or one of these */
  uint32_t n_impls;
  fl_row_index ops_by_name, impls_by_id;
  fl_component_record *components;
  uint32_t n_components;
  uint32_t n_refused;
  bool no_memory;  /* some row is missing for want of it, so nothing may be published */
  fl_text refused; /* what was refused, a line each, up to a limit */
  fl_text told;    /* registry->error(), up to a limit */
};

/* Which row it is, for messages: "impl 'vendor.acme' of op 'rms_norm'". */
typedef struct fl_row_name {
  char text[2 * FL_NAME_MAX + 32];
} fl_row_name;

static inline bool fl_name_is_bad(const char *name) {
  return !name || !*name || strlen(name) > FL_NAME_MAX;
}

#endif
