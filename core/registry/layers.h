/*
 * Layer classes of vLLM's and the ops that replace them: those that the entries of built-in ops name, then those that
 * plugins bring. The host's lock is held around all but fl_layer_read.
 */
#ifndef FLHOST_CORE_REGISTRY_LAYERS_H
#define FLHOST_CORE_REGISTRY_LAYERS_H

#include "core/registry/records.h"

/* A layer class of vLLM's and the op that replaces it. The names have room for a byte more than is allowed. */
typedef struct fl_layer {
  char class[FL_NAME_MAX + 2];
  char former[FL_NAME_MAX + 2]; /* another name that lists may have for it, "" if none */
  const char *op;
  const char *plugin; /* who says so */
} fl_layer;

/* The layers of a host one by one: those of built-in ops in the order of their entries, then those of plugins. Begin
 * with `{.host = host}`. */
typedef struct fl_layers {
  const fl_host *host;
  const char *rest; /* of fl_op_def.layers */
  uint32_t op, component;
} fl_layers;
bool fl_layers_next(fl_layers *at, fl_layer *layer);

bool fl_layer_find(const fl_host *host, const char *class, fl_layer *layer);
/* By its class or its former name. */
bool fl_layer_named(const fl_host *host, const char *name, fl_layer *layer);

/* Reads the first layer of a list as fl_op_def.layers is: class and former name, cut off where they are too long. NULL:
 * it was the last; else what follows it. */
const char *fl_layer_read(const char *list, fl_layer *layer);

#endif
