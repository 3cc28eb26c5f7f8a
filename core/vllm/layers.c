/*
 * Out-of-tree replacement: whether the switches and lists of the settings let an op replace a layer class of vLLM's.
 */
#include "core/vllm/layers.h"

#include "core/registry.h"
#include "core/support.h"

#include <flhost/vllm.h>
#include <string.h>

/* May the layer be replaced? If not, why. */
static bool is_allowed(const fl_config *config, const fl_layer *layer, char *reason, size_t size) {
  const char *names[] = {layer->class, layer->op, *layer->former ? layer->former : NULL, NULL};
  return fl_config_oot_allowed(config, names, reason, size);
}

bool fl_is_oot_enabled(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  bool enabled = host->config->values[FL_SETTING_OOT_ENABLED].flag;
  pthread_mutex_unlock(&host->lock);
  return enabled;
}

/* Is the layer known by that name? */
static bool means(const char *name, const fl_layer *layer) {
  return !strcmp(layer->class, name) || !strcmp(layer->op, name) || (*layer->former && !strcmp(layer->former, name));
}

bool fl_is_oot_allowed(fl_host *host, const char *name) {
  bool known = false, allowed = false;
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  for (fl_layers all = {.host = host}; !allowed && fl_layers_next(&all, &layer);)
    if (means(name, &layer)) {
      known = true;
      allowed = is_allowed(host->config, &layer, NULL, 0);
    }
  if (!known)
    allowed = fl_config_oot_allowed(host->config, (const char *const[]){name, NULL}, NULL, 0);
  pthread_mutex_unlock(&host->lock);
  return allowed;
}

/* FL_ENOENT, with the nearest class. The host's lock is held. */
static fl_status no_such_class(const fl_host *host, const char *class) {
  fl_strings names = {0};
  fl_layer layer;
  for (fl_layers all = {.host = host}; fl_layers_next(&all, &layer);)
    if (!fl_strings_add(&names, layer.class))
      break; /* the hint may then be missing */
  fl_status status =
      fl_error(FL_ENOENT, "no op replaces a layer class '%s'%s", class, fl_suggest_among(class, &names).text);
  fl_strings_free(&names);
  return status;
}

fl_op *fl_layer_op(fl_host *host, const char *class) {
  fl_layer layer;
  if (!fl_layer_find(host, class, &layer)) {
    no_such_class(host, class);
    return NULL;
  }
  fl_op *op = fl_registry_known(host, layer.op);
  if (!op)
    fl_error(FL_ENOENT, "layer class '%s' is replaced by op '%s', which is not registered", class, layer.op);
  return op;
}

const char *fl_oot_op(fl_host *host, const char *class) {
  char reason[FL_ERROR_MAX];
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  fl_op *op = fl_layer_op(host, class);
  if (op && fl_layer_find(host, class, &layer) && !is_allowed(host->config, &layer, reason, sizeof reason)) {
    fl_error(FL_ESTATE, "layer class '%s' is not replaced: %s", class, reason);
    op = NULL;
  }
  pthread_mutex_unlock(&host->lock);
  return op ? op->name : NULL; /* an op stays */
}

const fl_replaced *fl_layers_of(const fl_host *host, const char *op, fl_arena *arena, uint32_t *n) {
  fl_layer layer;
  uint32_t most = 0;
  for (fl_layers all = {.host = host}; fl_layers_next(&all, &layer);)
    most += !strcmp(layer.op, op);
  fl_replaced *replaced = fl_arena_array(arena, most, sizeof *replaced);
  *n = 0;
  for (fl_layers all = {.host = host}; replaced && fl_layers_next(&all, &layer);) {
    char reason[FL_ERROR_MAX] = "";
    if (strcmp(layer.op, op) != 0)
      continue;
    bool allowed = is_allowed(host->config, &layer, reason, sizeof reason);
    replaced[(*n)++] = (fl_replaced){
        .class_name = fl_arena_string(arena, layer.class),
        .allowed = allowed,
        .reason = allowed ? NULL : fl_arena_string(arena, reason),
    };
  }
  return replaced;
}
