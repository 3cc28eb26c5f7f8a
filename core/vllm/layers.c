/*
 * Out-of-tree replacement: whether the switches and lists of the settings let an op replace a layer class of vLLM's.
 */
#include "core/vllm/layers.h"

#include "core/registry.h"
#include "core/support.h"

#include <flhost/vllm.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------------------- permission
 */

static bool lists(const fl_setting_value *list, const fl_layer *layer) {
  return fl_strings_has(&list->names, layer->class) || fl_strings_has(&list->names, layer->op) ||
         (layer->former && fl_strings_has(&list->names, layer->former));
}

/* May the layer be replaced? If not, why. */
static bool is_allowed(const fl_config *config, const fl_layer *layer, fl_text *reason) {
  const fl_setting_value *enabled = &config->values[FL_SETTING_OOT_ENABLED],
                         *white = &config->values[FL_SETTING_OOT_WHITELIST],
                         *black = &config->values[FL_SETTING_OOT_BLACKLIST];
  if (!enabled->flag)
    fl_text_add(reason, "out-of-tree replacement is off (%s)", enabled->origin);
  else if (white->set && !lists(white, layer))
    fl_text_add(reason, "not in the list of %s", white->origin);
  else if (!white->set && black->set && lists(black, layer))
    fl_text_add(reason, "in oot_blacklist (%s)", black->origin);
  else
    return true;
  return false;
}

/* FL_ENOENT, with the nearest class. The host's lock is held. */
static fl_status no_such_class(const fl_host *host, const char *class) {
  char hint[FL_NAME_MAX + 32];
  fl_strings names = {0};
  fl_layer layer;
  for (uint32_t i = 0; fl_layer_at(host, i, &layer); i++)
    if (!fl_strings_add(&names, layer.class))
      break; /* the hint may then be missing */
  fl_status status =
      fl_error(FL_ENOENT, "no op replaces a layer class '%s'%s", class,
               fl_did_you_mean(hint, sizeof hint, fl_nearest_word(class, (const char *const *)names.items, names.n)));
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
  fl_text reason = {0};
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  fl_op *op = fl_layer_op(host, class);
  if (op && fl_layer_find(host, class, &layer) && !is_allowed(host->config, &layer, &reason)) {
    fl_error(FL_ESTATE, "layer class '%s' is not replaced: %s", class, fl_text_get(&reason));
    op = NULL;
  }
  pthread_mutex_unlock(&host->lock);
  fl_text_free(&reason);
  return op ? op->name : NULL; /* an op stays */
}

bool fl_layers_of(const fl_host *host, const char *op, fl_strings *strings, fl_replaced **replaced, uint32_t *n) {
  fl_layer layer;
  bool added = true;
  uint32_t most = 0;
  for (uint32_t i = 0; fl_layer_at(host, i, &layer); i++)
    most += !strcmp(layer.op, op);
  *n = 0;
  *replaced = calloc(most + 1, sizeof **replaced);
  for (uint32_t i = 0; *replaced && added && fl_layer_at(host, i, &layer); i++) {
    fl_text reason = {0};
    if (strcmp(layer.op, op) != 0)
      continue;
    bool allowed = is_allowed(host->config, &layer, &reason);
    added = fl_strings_add(strings, layer.class) && fl_strings_add(strings, fl_text_get(&reason));
    if (added)
      (*replaced)[(*n)++] =
          (fl_replaced){strings->items[strings->n - 2], allowed, allowed ? NULL : strings->items[strings->n - 1]};
    fl_text_free(&reason);
  }
  return *replaced && added;
}
