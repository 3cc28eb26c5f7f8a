/*
 * Takes away what a plugin registered: its implementations and components, while calls go on. What calls may still be
 * running is freed when none can be (thread.h).
 */
#include "core/registry/failures.h"
#include "core/registry/frozen.h"
#include "core/registry/implementations.h"
#include "core/registry/loading.h"
#include "core/registry/slots.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* Those that were registered and are no more, until no call can be running them. */
typedef struct withdrawn_impls {
  fl_impl_record **records;
  uint32_t n;
} withdrawn_impls;

/* FL_ENOENT, with the nearest of those that are loaded or deferred. The host's lock is held. */
static fl_status no_such_plugin(const fl_host *host, const char *name) {
  fl_strings names = {0};
  bool listed = true;
  for (uint32_t i = 0; i < host->n_plugins && listed; i++)
    if (host->plugins[i].status == FL_PLUGIN_LOADED || host->plugins[i].status == FL_PLUGIN_DEFERRED)
      listed = fl_strings_add(&names, host->plugins[i].name);
  fl_status status = listed
                         ? fl_error(FL_ENOENT, "no plugin '%s' is loaded%s", name, fl_suggest_among(name, &names).text)
                         : fl_error_no_memory();
  fl_strings_free(&names);
  return status;
}

static uint32_t count_of(const fl_op *op, const char *plugin) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  uint32_t n = 0;
  for (uint32_t i = 0; set && i < set->n; i++)
    n += !strcmp(set->impls[i]->provider->plugin, plugin);
  return n;
}

/* Takes a plugin's impls out of one op. The host's lock is held. */
static bool withdraw_from(fl_host *host, fl_op *op, const char *plugin, withdrawn_impls *withdrawn) {
  fl_impl_set *old = atomic_load_explicit(&op->impls, memory_order_relaxed);
  uint32_t n = count_of(op, plugin), total = old ? old->n : 0, kept = total - n;
  if (!n)
    return true;
  fl_impl_set *set = malloc(sizeof *set + kept * sizeof set->impls[0]);
  if (!set)
    return false;
  set->n = 0;
  for (uint32_t i = 0; i < total; i++) {
    if (strcmp(old->impls[i]->provider->plugin, plugin)) {
      set->impls[set->n++] = old->impls[i];
      continue;
    }
    fl_failure_forget_locked(op, old->impls[i]);
    withdrawn->records[withdrawn->n++] = old->impls[i];
  }
  atomic_store_explicit(&op->impls, set, memory_order_release);
  fl_retire(&host->retired, old, free);
  return true;
}

fl_status fl_withdraw_plugin(fl_host *host, const char *plugin) {
  withdrawn_impls withdrawn = {0};
  uint32_t n = 0; /* of components and plugins */
  if (fl_thread_join())
    return FL_ENOMEM;
  if (fl_is_reading(&fl_self))
    return fl_error(FL_ESTATE, "fl_withdraw_plugin: called from inside a call of an op, which it would wait for");
  fl_loading_begin(host);
  pthread_mutex_lock(&host->lock);
  fl_status status = fl_refuse_frozen(host, "withdrawing a plugin");
  size_t n_impls = 0;
  for (uint32_t i = 0; i < host->n_ops; i++)
    n_impls += count_of(host->ops[i], plugin);
  if (!status && !(withdrawn.records = malloc((n_impls + 1) * sizeof *withdrawn.records)))
    status = fl_error_no_memory();
  if (status) {
    pthread_mutex_unlock(&host->lock);
    fl_loading_end(host);
    return status;
  }
  for (uint32_t i = 0; i < host->n_ops && !status; i++)
    if (!withdraw_from(host, host->ops[i], plugin, &withdrawn))
      status = fl_error_no_memory();
  for (uint32_t i = 0; i < host->n_components;) {
    if (strcmp(host->components[i].plugin, plugin)) {
      i++;
      continue;
    }
    fl_component_record_clear(&host->components[i]);
    host->components[i] = host->components[--host->n_components];
    n++;
  }
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (!strcmp(host->plugins[i].name, plugin) &&
        (host->plugins[i].status == FL_PLUGIN_LOADED || host->plugins[i].status == FL_PLUGIN_DEFERRED)) {
      host->plugins[i].reason = "withdrawn";
      host->n_deferred -= host->plugins[i].status == FL_PLUGIN_DEFERRED;
      host->plugins[i].status = FL_PLUGIN_SKIPPED;
      host->plugins[i].impls = 0;
      n++;
    }
  fl_registry_advance(host);
  if (!n && !withdrawn.n && !status)
    status = no_such_plugin(host, plugin);
  pthread_mutex_unlock(&host->lock);
  fl_loading_end(host);
  /* Calls that began before may still run its kernels. */
  fl_synchronize(30, NULL, NULL);
  for (uint32_t i = 0; i < withdrawn.n; i++)
    fl_impl_record_free(withdrawn.records[i]);
  free(withdrawn.records);
  return status;
}
