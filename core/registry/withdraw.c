/*
 * Takes away what a plugin registered: its implementations and components, while calls go on. What calls may still be
 * running is freed when none can be (thread.h).
 */
#include "core/registry/withdraw.h"

#include "core/registry/failures.h"
#include "core/registry/frozen.h"
#include "core/registry/implementations.h"
#include "core/registry/loading.h"
#include "core/registry/parts.h"
#include "core/registry/registry.h"
#include "core/registry/slots.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

static bool is_there(const fl_plugin_record *record) {
  return record->status == FL_PLUGIN_LOADED || record->status == FL_PLUGIN_DEFERRED || record->kept_out;
}

/* FL_ENOENT, with the nearest of those that are there. */
static fl_status no_such_plugin(const fl_host *host, const char *name) {
  fl_strings names = {0};
  bool listed = true;
  for (uint32_t i = 0; i < host->n_plugins && listed; i++)
    if (is_there(&host->plugins[i]))
      listed = fl_strings_add(&names, host->plugins[i].name);
  fl_status status = listed
                         ? fl_error(FL_ENOENT, "no plugin '%s' is loaded%s", name, fl_suggest_among(name, &names).text)
                         : fl_error_no_memory();
  fl_strings_free(&names);
  return status;
}

/* What is taken away: all that a plugin registered, or of that one implementation of one op. */
typedef struct taken {
  const char *plugin;
  const fl_op *op;     /* NULL: all */
  const char *impl_id; /* of `op` */
} taken;

static bool is_taken(const fl_impl_record *record, const taken *t) {
  return record != record->op->parts && !strcmp(record->provider->plugin, t->plugin) &&
         (!t->op || (record->op == t->op && !strcmp(record->impl_id, t->impl_id)));
}

/* Makes the set that an op has without what is taken, if it has such. */
static bool prepare(fl_op *op, const taken *t) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  uint32_t kept = 0, total = set ? set->n : 0;
  for (uint32_t i = 0; i < total; i++)
    kept += !is_taken(set->impls[i], t);
  if (kept == total)
    return true;
  if (!(op->successor = malloc(sizeof *set + kept * sizeof set->impls[0])))
    return false;
  op->successor->n = 0;
  for (uint32_t i = 0; i < total; i++)
    if (!is_taken(set->impls[i], t))
      op->successor->impls[op->successor->n++] = set->impls[i];
  return true;
}

/* Where a part has nothing left that runs it, the op goes without the record that needs it. */
static bool prepare_without_parts(fl_op *op) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  fl_impl_set *made = op->successor;
  if (op->parts_devices || !fl_parts_listed(op))
    return true;
  if (!made && (made = malloc(sizeof *set + set->n * sizeof set->impls[0])))
    memcpy(made, set, sizeof *set + set->n * sizeof set->impls[0]);
  if (!(op->successor = made))
    return false;
  uint32_t n = 0;
  for (uint32_t i = 0; i < made->n; i++)
    if (made->impls[i] != op->parts)
      made->impls[n++] = made->impls[i];
  made->n = n;
  return true;
}

/* Calls that are running may still use what was taken out: it is freed when none can. */
static uint32_t retire_impls(fl_host *host, fl_op *op, const taken *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; op->successor && i < op->successor->n; i++)
    if (is_taken(op->successor->impls[i], t)) {
      fl_failure_forget_locked(op, op->successor->impls[i]);
      fl_retire(&host->retired, op->successor->impls[i], fl_impl_record_free);
      n++;
    }
  fl_retire(&host->retired, op->successor, free);
  op->successor = NULL;
  return n;
}

static uint32_t withdraw_components(fl_host *host, const char *plugin) {
  uint32_t before = host->n_components, kept = 0;
  for (uint32_t i = 0; i < before; i++)
    if (strcmp(host->components[i].plugin, plugin) != 0)
      host->components[kept++] = host->components[i]; /* in the order of registration: it decides between class paths */
    else
      fl_arena_free(&host->components[i].owned);
  host->n_components = kept;
  return before - kept;
}

static uint32_t withdraw_records(fl_host *host, const char *plugin) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < host->n_plugins; i++) {
    fl_plugin_record *record = &host->plugins[i];
    if (strcmp(record->name, plugin) || !is_there(record))
      continue;
    host->n_deferred -= record->status == FL_PLUGIN_DEFERRED;
    record->reason = "withdrawn";
    record->status = FL_PLUGIN_SKIPPED;
    record->again = record->kept_out = false;
    record->impls = 0;
    n++;
  }
  return n;
}

static fl_status no_such_impl(const taken *t) {
  const fl_impl_record *other = fl_registry_find_impl(t->op, t->impl_id);
  return other ? fl_error(FL_ENOENT, "implementation '%s' of op '%s' is of plugin '%s', and goes with that",
                          other->impl_id, t->op->name, other->provider->plugin)
               : fl_registry_no_such_impl(t->op, t->impl_id);
}

/* All of it, or, after an error, none. The host's lock is held. */
static fl_status withdraw(fl_host *host, const taken *t) {
  fl_status status = fl_refuse_frozen(host, t->op ? "withdrawing an implementation" : "withdrawing a plugin");
  uint32_t n = 0;
  for (uint32_t i = 0; i < host->n_ops && !status; i++)
    if (!prepare(host->ops[i], t))
      status = fl_error_no_memory();
  if (!status)
    fl_parts_find_devices(host, NULL, 0);
  for (fl_op *op = host->with_parts; op && !status; op = op->next_with_parts)
    if (!prepare_without_parts(op))
      status = fl_error_no_memory();
  for (uint32_t i = 0; i < host->n_ops && status; i++)
    fl_op_give_up_successor(host->ops[i]);
  if (status)
    return status;
  for (uint32_t i = 0; i < host->n_ops; i++)
    fl_op_exchange_sets(host->ops[i]);
  for (fl_op *op = host->with_parts; op; op = op->next_with_parts) {
    fl_parts_set_devices(op);
    if (!op->parts_devices)
      fl_failure_forget_locked(op, op->parts);
  }
  fl_registry_advance(host); /* no call that begins from here on can reach what is retired */
  for (uint32_t i = 0; i < host->n_ops; i++)
    n += retire_impls(host, host->ops[i], t);
  if (t->op)
    return n ? FL_OK : no_such_impl(t);
  n += withdraw_components(host, t->plugin) + withdraw_records(host, t->plugin);
  return n ? FL_OK : no_such_plugin(host, t->plugin);
}

/* A call that does not end, in words. */
typedef struct blocking_call {
  char words[2 * FL_NAME_MAX + 128];
} blocking_call;

static void describe(const fl_thread *thread, void *user) {
  blocking_call *call = user;
  const fl_target *target = atomic_load_explicit(&thread->target, memory_order_relaxed);
  const fl_impl_record *running = atomic_load_explicit(&thread->running, memory_order_relaxed);
  const fl_bound *bound = target ? (const fl_bound *)target->binding : NULL; /* its first part */
  if (!running && bound)
    running = bound->first;
  int n = snprintf(call->words, sizeof call->words, "thread %llu has not left ", (unsigned long long)thread->id);
  if (running)
    snprintf(call->words + n, sizeof call->words - (size_t)n, "implementation '%s' of op '%s'", running->impl_id,
             running->op->name);
  else
    snprintf(call->words + n, sizeof call->words - (size_t)n, "a call in which no implementation runs");
}

static fl_status withdraw_within(fl_host *host, const taken *t, double seconds) {
  blocking_call call;
  if (fl_thread_join())
    return FL_ENOMEM;
  if (fl_is_reading(&fl_self))
    return fl_error(FL_ESTATE, "%s: called from inside a call of an op, which it would wait for",
                    t->op ? "fl_withdraw_impl" : "fl_withdraw_plugin");
  fl_loading_begin(host);
  pthread_mutex_lock(&host->lock);
  fl_status status = withdraw(host, t);
  pthread_mutex_unlock(&host->lock);
  fl_loading_end(host);
  if (status || fl_synchronize(seconds, describe, &call)) /* calls that began before may still run its kernels */
    return status;
  return fl_error(FL_ESTATE, "%s '%s' is withdrawn, but its code may still run: after %g seconds %s",
                  t->op ? "implementation" : "plugin", t->op ? t->impl_id : t->plugin, seconds, call.words);
}

fl_status fl_withdraw_within(fl_host *host, const char *plugin, double seconds) {
  return withdraw_within(host, &(taken){.plugin = plugin}, seconds);
}

/* Longer than calls take that will end. flhost/plugins.h names it. */
enum { PATIENCE = 30 };

fl_status fl_withdraw_plugin(fl_host *host, const char *plugin) {
  return fl_withdraw_within(host, plugin, PATIENCE);
}

fl_status fl_withdraw_impl(fl_host *host, const char *name, const char *impl_id) {
  if (fl_thread_join())
    return FL_ENOMEM;
  uint64_t outer = fl_read_begin(&fl_self);
  const fl_op *op = fl_registry_find(host, name);
  fl_read_end(&fl_self, outer);
  if (op)
    return withdraw_within(host, &(taken){"engine", op, impl_id}, PATIENCE);
  fl_registry_no_such_op(host, name);
  return FL_ENOENT;
}
