/* Policies of a host and its threads' scopes, with what was resolved under them. */
#ifndef FLHOST_CORE_CALL_SCOPE_H
#define FLHOST_CORE_CALL_SCOPE_H

#include "core/registry.h"

/* A policy in a host, with the bindings that were resolved under it. Lives in fl_host.views, the one that was entered
 * last first. */
typedef struct fl_view {
  fl_policy *policy;
  bool grouped;   /* ranks share calls */
  uint32_t users; /* scopes that hold it; guarded by the host's lock */
  struct fl_view *next;
  _Atomic(struct fl_view_table *) table;
} fl_view;

typedef struct fl_view_table {
  uint32_t n;
  _Atomic(fl_slots *) ops[]; /* by fl_op.index */
} fl_view_table;

/* Makes the slots of an op in a view, and grows its table. NULL: out of memory. */
fl_slots *fl_view_add_slots(fl_view *view, fl_op *op);

/* The slots of an op in a view. The thread is reading. */
static inline fl_slots *fl_view_slots(fl_view *view, fl_op *op) {
  const fl_view_table *table = atomic_load_explicit(&view->table, memory_order_acquire);
  fl_slots *slots =
      table && op->index < table->n ? atomic_load_explicit(&table->ops[op->index], memory_order_acquire) : NULL;
  return slots ? slots : fl_view_add_slots(view, op);
}

/* The slots of an op under the thread's innermost scope for the op's host; its own when there is none. */
fl_slots *fl_scope_slots(fl_op *op);
/* A policy, retained, that is in force in some thread and lets in an implementation that was not asked whether it is
 * available. NULL: there is none, or no policy keeps anybody out. The host's lock is held. */
fl_policy *fl_scope_unasked(fl_host *host);
/* Do ranks share calls of the host's ops in this thread? */
bool fl_scope_is_grouped(const fl_host *host);
/* fl_scope_enter with ranks that share calls, which outlive the scope. NULL: nobody more than outside of it. */
fl_status fl_scope_enter_ranks(fl_host *host, fl_policy *policy, const fl_ranks *group, fl_scope *scope);
void fl_views_free(fl_host *host);
/* In the child of a fork, where only this thread's scopes are left; the host's lock is held. */
void fl_views_after_fork(fl_host *host);

#endif
