/*
 * What a plugin brings besides ops: its platform, and layers of vLLM's that its ops replace.
 */
#ifndef FLHOST_CORE_REGISTRY_COMPONENTS_H
#define FLHOST_CORE_REGISTRY_COMPONENTS_H

#include "core/support.h"

/* A component that a plugin brought. */
typedef struct fl_component_record {
  fl_arena owned;     /* name, op and former */
  const char *plugin; /* the provider's */
  const char *type, *name;
  fl_platform platform; /* type "platform" */
  const char *op;       /* type "layer": what replaces the class `name`; else NULL */
  const char *former;   /* of a layer: another name that lists may have for it, or NULL */
  void *self;
  pthread_mutex_t *asking; /* held while is_active runs; NULL: nobody else asks */
  const char *not_asked;   /* of a copy: why it is not asked whether it is active (fl_platforms_take); else NULL */
} fl_component_record;

#endif
