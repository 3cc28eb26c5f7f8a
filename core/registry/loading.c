/* The loading lock, and what plugins list: see loading.h. */
#include "core/registry/loading.h"

#include <string.h>

void fl_loading_begin(fl_host *host) {
  pthread_mutex_lock(&host->loading);
  host->loading_depth++;
}

/* Where it is not held any more it was abandoned, or the process has forked. */
void fl_loading_end(fl_host *host) {
  if (!host->loading_depth)
    return;
  host->loading_depth--;
  pthread_mutex_unlock(&host->loading);
}

void fl_loading_abandon(fl_host *host) {
  while (host->loading_depth)
    fl_loading_end(host);
}

bool fl_plugin_lists(const fl_plugin_record *record, const char *op) {
  return record->ops ? fl_ops_list(record->ops, strlen(record->ops), op, strlen(op)) : record->again;
}

bool fl_is_deferred(const fl_host *host, const char *op) {
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_DEFERRED && fl_plugin_lists(&host->plugins[i], op))
      return true;
  return false;
}

const fl_plugin_record *fl_kept_out_lister(const fl_host *host, const char *op) {
  for (uint32_t i = 0; atomic_load(&host->kept_out) && i < host->n_plugins; i++) {
    const fl_plugin_record *record = &host->plugins[i];
    if (record->kept_out && (!record->ops || fl_plugin_lists(record, op)))
      return record;
  }
  return NULL;
}

static bool has_impl_of(const fl_op *op, const char *plugin) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (!strcmp(set->impls[i]->provider->plugin, plugin))
      return true;
  return false;
}

/* One that is loaded without all that it lists was refused rows, or they were withdrawn: its reason says that. */
bool fl_is_missing(const fl_plugin_record *record, const fl_op *op) {
  if (record->status == FL_PLUGIN_LOADED)
    return *record->reason && record->ops && fl_plugin_lists(record, op->name) && !has_impl_of(op, record->name);
  return !record->gave_way && (!record->ops || fl_plugin_lists(record, op->name));
}

bool fl_deferred_ops(const fl_host *host, fl_strings *ops) {
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_DEFERRED && host->plugins[i].ops &&
        !fl_split(ops, host->plugins[i].ops, ','))
      return false;
  return true;
}

const fl_plugin_record *fl_failed_lister(const fl_host *host, const char *op) {
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if ((host->plugins[i].status == FL_PLUGIN_FAILED || host->plugins[i].again) &&
        fl_plugin_lists(&host->plugins[i], op))
      return &host->plugins[i];
  return NULL;
}

bool fl_is_tried_again(const fl_host *host, const char *op) {
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++)
    if (host->plugins[i].again && fl_plugin_lists(&host->plugins[i], op))
      return true;
  return false;
}
