/* Which op replaces a layer class of vLLM's: see layers.h. */
#include "core/registry/layers.h"

#include "core/support.h"

#include <string.h>

static void copy_trimmed(char name[FL_NAME_MAX + 2], const char *text, size_t length) {
  length = fl_trim(&text, length);
  snprintf(name, FL_NAME_MAX + 2, "%.*s", (int)length, text);
}

const char *fl_layer_read(const char *list, fl_layer *layer) {
  size_t length = strcspn(list, ","), class = strcspn(list, ",:");
  copy_trimmed(layer->class, list, class);
  copy_trimmed(layer->former, list + class + (class < length), length - class - (class < length));
  return list[length] ? list + length + 1 : NULL;
}

/* Of the built-in ops, which come before all others. */
static bool next_builtin(fl_layers *at, fl_layer *layer) {
  const fl_host *host = at->host;
  for (; at->op < host->n_ops && host->ops[at->op]->def; at->op++) {
    const fl_op *op = host->ops[at->op];
    if (!at->rest && !(at->rest = op->def->layers))
      continue;
    layer->op = op->name;
    layer->plugin = op->schema_plugin;
    if (!(at->rest = fl_layer_read(at->rest, layer)))
      at->op++;
    return true;
  }
  return false;
}

bool fl_layers_next(fl_layers *at, fl_layer *layer) {
  if (next_builtin(at, layer))
    return true;
  while (at->component < at->host->n_components) {
    const fl_component_record *component = &at->host->components[at->component++];
    if (!component->op)
      continue;
    snprintf(layer->class, sizeof layer->class, "%s", component->name);
    snprintf(layer->former, sizeof layer->former, "%s", component->former ? component->former : "");
    layer->op = component->op;
    layer->plugin = component->plugin;
    return true;
  }
  return false;
}

bool fl_layer_named(const fl_host *host, const char *name, fl_layer *layer) {
  if (fl_layer_find(host, name, layer))
    return true;
  for (fl_layers all = {.host = host}; *name && fl_layers_next(&all, layer);)
    if (!strcmp(layer->former, name))
      return true;
  return false;
}

bool fl_layer_find(const fl_host *host, const char *class, fl_layer *layer) {
  for (fl_layers all = {.host = host}; fl_layers_next(&all, layer);)
    if (!strcmp(layer->class, class))
      return true;
  return false;
}
