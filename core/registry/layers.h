/*
 * Layer classes of vLLM's and the ops that replace them: those that vLLM registers are in a table, plugins add their
 * own (component type "layer"). The host's lock is held around both functions.
 */
#ifndef FLHOST_CORE_REGISTRY_LAYERS_H
#define FLHOST_CORE_REGISTRY_LAYERS_H

#include "core/registry/records.h"

/* A layer class of vLLM's and the op that replaces it. */
typedef struct fl_layer {
  const char *class, *op;
  const char *former; /* another name that lists may have for it, or NULL */
  const char *plugin; /* who says so */
} fl_layer;

/* The layers of a host in one row: those of the table, then those of plugins. False: there is no layer `i`. */
bool fl_layer_at(const fl_host *host, uint32_t i, fl_layer *layer);

bool fl_layer_find(const fl_host *host, const char *class, fl_layer *layer);

#endif
