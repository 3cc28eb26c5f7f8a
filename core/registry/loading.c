/* The loading lock, and what plugins list: see loading.h. */
#include "core/registry/loading.h"

#include <stdio.h>
#include <string.h>

void fl_loading_begin(fl_host *host) {
  pthread_mutex_lock(&host->loading);
}

void fl_loading_end(fl_host *host) {
  pthread_mutex_unlock(&host->loading);
}

static void set_in_hand(fl_host *host, const fl_in_hand *now) {
  pthread_mutex_lock(&host->lock);
  host->in_hand = *now;
  pthread_mutex_unlock(&host->lock);
}

fl_in_hand fl_loading_enter(fl_host *host, const char *plugin, const char *phase) {
  fl_in_hand before = host->in_hand, now = {.phase = phase};
  snprintf(now.plugin, sizeof now.plugin, "%s", plugin);
  set_in_hand(host, &now);
  if (host->watch)
    host->watch->enters(host->watch->user, phase);
  return before;
}

void fl_loading_leave(fl_host *host, const fl_in_hand *before) {
  set_in_hand(host, before);
}

bool fl_plugin_lists(const fl_plugin_record *record, const char *op) {
  return record->ops && fl_ops_list(record->ops, strlen(record->ops), op, strlen(op));
}

bool fl_is_deferred(const fl_host *host, const char *op) {
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_DEFERRED && fl_plugin_lists(&host->plugins[i], op))
      return true;
  return false;
}

bool fl_deferred_ops(const fl_host *host, fl_strings *ops) {
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_DEFERRED && !fl_split(ops, host->plugins[i].ops, ','))
      return false;
  return true;
}

const fl_plugin_record *fl_failed_lister(const fl_host *host, const char *op) {
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_FAILED && fl_plugin_lists(&host->plugins[i], op))
      return &host->plugins[i];
  return NULL;
}
