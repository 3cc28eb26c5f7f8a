/*
 * Policies of a host: the global one, and scopes of a thread (rules P5, P6). A scope's bindings are kept with its
 * policy in a view, so that entering the same policy again finds them resolved.
 */
#include "core/call/scope.h"

#include "core/platform.h"
#include "core/registry.h"
#include "core/schema.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

enum { VIEWS_KEPT = 32 }; /* that no scope holds */

/* -------------------------------------------------------------------------------------------------------- views */

/* Its slots are empty. */
static void view_free(void *memory) {
  fl_view *view = memory;
  fl_view_table *table = atomic_load_explicit(&view->table, memory_order_relaxed);
  for (uint32_t i = 0; table && i < table->n; i++)
    free(atomic_load_explicit(&table->ops[i], memory_order_relaxed));
  free(table);
  fl_policy_release(view->policy);
  free(view);
}

/* The host's lock is held. */
static void view_unbind(fl_host *host, const fl_view *view) {
  fl_view_table *table = atomic_load_explicit(&view->table, memory_order_relaxed);
  for (uint32_t i = 0; table && i < table->n; i++) {
    fl_slots *slots = atomic_load_explicit(&table->ops[i], memory_order_relaxed);
    if (slots)
      fl_unbind(host->ops[i], slots, NULL);
  }
}

void fl_views_free(fl_host *host) {
  while (host->views) {
    fl_view *next = host->views->next;
    view_free(host->views);
    host->views = next;
  }
}

/* The host's lock is held. NULL: out of memory. */
static fl_view *view_get(fl_host *host, fl_policy *policy, bool grouped) {
  fl_view **link = &host->views;
  while (*link && ((*link)->grouped != grouped || !fl_policy_equal((*link)->policy, policy)))
    link = &(*link)->next;
  fl_view *view = *link;
  if (view)
    *link = view->next;
  else if ((view = calloc(1, sizeof *view)))
    *view = (fl_view){.policy = fl_policy_retain(policy), .grouped = grouped};
  else
    return NULL;
  view->next = host->views;
  host->views = view;
  view->users++;
  return view;
}

/* A scope lets go of its view. Throws out the one that was not entered for the longest time, of those that no scope
 * holds, if these are too many. The host's lock is held. */
static void view_put(fl_host *host, fl_view *view) {
  fl_view **oldest = NULL;
  uint32_t unused = 0;
  view->users--;
  for (fl_view **link = &host->views; *link; link = &(*link)->next)
    if (!(*link)->users) {
      unused++;
      oldest = link;
    }
  if (unused <= VIEWS_KEPT)
    return;
  view = *oldest;
  *oldest = view->next;
  view_unbind(host, view);
  fl_retire(&host->retired, view, view_free);
}

void fl_views_after_fork(fl_host *host) {
  for (fl_view *view = host->views; view; view = view->next)
    view->users = 0;
  for (const fl_scope *scope = fl_self.scope; scope; scope = scope->outer)
    if (scope->host == host)
      ((fl_view *)scope->view)->users++;
}

fl_slots *fl_view_add_slots(fl_view *view, fl_op *op) {
  fl_host *host = op->host;
  fl_slots *slots = NULL;
  pthread_mutex_lock(&host->lock);
  fl_view_table *table = atomic_load_explicit(&view->table, memory_order_relaxed);
  if (!table || op->index >= table->n) {
    uint32_t n = host->n_ops + host->n_ops / 2;
    fl_view_table *grown = calloc(1, sizeof *grown + n * sizeof grown->ops[0]);
    if (grown) {
      grown->n = n;
      for (uint32_t i = 0; table && i < table->n; i++)
        atomic_init(&grown->ops[i], atomic_load_explicit(&table->ops[i], memory_order_relaxed));
      atomic_store_explicit(&view->table, grown, memory_order_release);
      fl_retire(&host->retired, table, free);
    }
    table = grown;
  }
  if (table) {
    slots = atomic_load_explicit(&table->ops[op->index], memory_order_relaxed);
    if (!slots && (slots = malloc(sizeof *slots))) {
      fl_slots_init(slots, op);
      atomic_store_explicit(&table->ops[op->index], slots, memory_order_release);
    }
  }
  pthread_mutex_unlock(&host->lock);
  return slots;
}

fl_slots *fl_scope_slots(fl_op *op) {
  const fl_scope *scope = fl_scope_innermost(op->host);
  return scope ? fl_view_slots(scope->view, op) : &op->slots;
}

bool fl_scope_is_grouped(const fl_host *host) {
  const fl_scope *scope = fl_scope_innermost(host);
  return scope && ((const fl_view *)scope->view)->grouped;
}

fl_policy *fl_scope_unasked(fl_host *host) {
  if (!fl_vendor_filter(host))
    return NULL; /* nothing is kept out */
  if (!fl_registry_is_asked(host, host->policy))
    return fl_policy_retain(host->policy);
  for (fl_view *view = host->views; view; view = view->next)
    if (view->users && !fl_registry_is_asked(host, view->policy))
      return fl_policy_retain(view->policy);
  return NULL;
}

/* ------------------------------------------------------------------------------------------------- global policy */

fl_policy *fl_get_policy(fl_host *host) {
  bool scoped;
  pthread_mutex_lock(&host->lock);
  fl_policy *policy = fl_policy_retain(fl_scope_policy(host, &scoped));
  pthread_mutex_unlock(&host->lock);
  return policy;
}

fl_status fl_set_global_policy(fl_host *host, fl_policy *policy) {
  if (!policy)
    return fl_error(FL_EINVAL, "fl_set_global_policy: the policy is NULL; fl_reset_global_policy rereads the settings");
  pthread_mutex_lock(&host->lock);
  fl_status status = fl_refuse_frozen(host, "setting the global policy");
  if (status) {
    pthread_mutex_unlock(&host->lock);
    return status;
  }
  fl_policy_release(host->policy);
  host->policy = fl_policy_retain(policy);
  host->policy_is_set = true;
  fl_host_advance(host);
  pthread_mutex_unlock(&host->lock);
  fl_host_let_in(host);
  fl_host_bound_memory(host);
  return FL_OK;
}

void fl_bump_policy_epoch(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  if (fl_refuse_frozen(host, "bumping the policy epoch")) {
    pthread_mutex_unlock(&host->lock);
    fl_log_line(&host->log, FL_LOG_WARNING, "%s", fl_error_message());
    return;
  }
  for (uint32_t i = 0; i < host->n_ops; i++)
    fl_failures_clear_locked(host->ops[i]);
  fl_registry_advance(host); /* availability is asked again */
  uint64_t epoch = host->epoch;
  pthread_mutex_unlock(&host->lock);
  fl_log_line(&host->log, FL_LOG_DEBUG, "Policy epoch bumped to %llu", (unsigned long long)epoch);
  fl_host_bound_memory(host);
}

/* -------------------------------------------------------------------------------------------------------- scopes */

/* The innermost scope, and that there is one. */
static void set_scope(fl_scope *scope) {
  uint64_t state = atomic_load_explicit(&fl_self.state, memory_order_relaxed) & ~(uint64_t)FL_THREAD_SCOPED;
  fl_self.scope = scope;
  atomic_store_explicit(&fl_self.state, scope ? state | FL_THREAD_SCOPED : state, memory_order_relaxed);
}

fl_status fl_scope_enter(fl_host *host, fl_policy *policy, fl_scope *scope) {
  return fl_scope_enter_ranks(host, policy, NULL, scope);
}

fl_status fl_scope_enter_ranks(fl_host *host, fl_policy *policy, const fl_ranks *group, fl_scope *scope) {
  if (!policy)
    return fl_error(FL_EINVAL, "fl_scope_enter: the policy is NULL");
  if (fl_thread_join())
    return FL_ENOMEM;
  for (const fl_scope *entered = fl_self.scope; entered; entered = entered->outer)
    if (entered == scope)
      return fl_error(FL_ESTATE, "fl_scope_enter: this scope is entered already");
  bool grouped = group || fl_scope_is_grouped(host);
  pthread_mutex_lock(&host->lock);
  fl_status refused = fl_refuse_frozen(host, "entering a scope");
  fl_view *view = refused ? NULL : view_get(host, policy, grouped);
  pthread_mutex_unlock(&host->lock);
  if (!view)
    return refused ? refused : fl_error_no_memory();
  *scope = (fl_scope){
      .host = host,
      .policy = fl_policy_retain(policy),
      .outer = fl_self.scope,
      .view = view,
      .thread_id = fl_self.id,
      .reserved =
          {[FL_SCOPE_GROUP] = (uintptr_t)group, [FL_SCOPE_GROUP_NAME] = group ? fl_ranks_group_of(group->name) : 0},
  };
  set_scope(scope);
  fl_host_let_in(host);
  fl_host_bound_memory(host);
  return FL_OK;
}

fl_status fl_scope_leave(fl_scope *scope) {
  if (!scope || fl_self.scope != scope)
    return fl_error(FL_ESTATE,
                    "fl_scope_leave: not the innermost scope of this thread: scopes are left in reverse order, by "
                    "the thread that entered them");
  set_scope(scope->outer);
  pthread_mutex_lock(&scope->host->lock);
  view_put(scope->host, scope->view);
  pthread_mutex_unlock(&scope->host->lock);
  fl_policy_release(scope->policy);
  scope->policy = NULL;
  return FL_OK;
}

/* Enters the policy that was derived from `base`, unless that failed, and lets go of both. */
static fl_status enter_derived(fl_host *host, fl_status status, fl_policy *base, fl_policy *const *derived,
                               fl_scope *scope) {
  fl_policy_release(base);
  if (status)
    return status;
  status = fl_scope_enter(host, *derived, scope);
  fl_policy_release(*derived);
  return status;
}

fl_status fl_scope_strict(fl_host *host, fl_scope *scope) {
  fl_policy *base = fl_get_policy(host), *derived;
  return enter_derived(host, fl_policy_with_strict(base, true, &derived), base, &derived, scope);
}

fl_status fl_scope_prefer(fl_host *host, const char *prefer, fl_scope *scope) {
  fl_policy *base = fl_get_policy(host), *derived;
  return enter_derived(host, fl_policy_with_preference(base, prefer, &derived), base, &derived, scope);
}

fl_status fl_scope_allow_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope) {
  fl_policy *base = fl_get_policy(host), *derived;
  return enter_derived(host, fl_policy_with_allowed_vendors(base, vendors, n, &derived), base, &derived, scope);
}

fl_status fl_scope_deny_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope) {
  fl_policy *base = fl_get_policy(host), *derived;
  return enter_derived(host, fl_policy_with_denied_vendors(base, vendors, n, &derived), base, &derived, scope);
}

fl_status fl_scope_op_order(fl_host *host, const char *op, const char *const *tokens, uint32_t n, fl_scope *scope) {
  if (!op)
    return fl_error(FL_EINVAL, "fl_scope_op_order: op is NULL, expected the name of an op");
  if (!fl_find_op(host, op))
    return FL_ENOENT;
  fl_policy *base = fl_get_policy(host), *derived;
  return enter_derived(host, fl_policy_with_op_order(base, op, tokens, n, &derived), base, &derived, scope);
}
