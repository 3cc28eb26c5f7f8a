/* Implementations that failed: see failures.h. */
#include "core/registry/failures.h"

#include "core/support.h"

#include <stdlib.h>

fl_failure *fl_failure_find_locked(const fl_op *op, const fl_impl_record *record) {
  fl_failure *failure = op->failures;
  while (failure && failure->impl != record)
    failure = failure->next;
  return failure;
}

bool fl_failure_skips(const fl_failure *failure, double now) {
  return failure && (!failure->retry_at || !fl_is_due(failure->retry_at, failure->backoff, now));
}

fl_failure *fl_failure_add_locked(fl_op *op, fl_impl_record *record) {
  fl_failure *failure = calloc(1, sizeof *failure), **link = &op->failures;
  if (!failure)
    return NULL;
  failure->impl = record;
  while (*link)
    link = &(*link)->next;
  return *link = failure;
}

void fl_failure_forget_locked(fl_op *op, const fl_impl_record *record) {
  for (fl_failure **link = &op->failures; *link; link = &(*link)->next)
    if ((*link)->impl == record) {
      fl_failure *failure = *link;
      fl_tally *tally = atomic_load_explicit(&failure->impl->tally, memory_order_acquire);
      *link = failure->next;
      if (failure->barred && tally)
        atomic_store_explicit(&tally->checked, 0, memory_order_relaxed);
      free(failure->reason);
      free(failure);
      return;
    }
}

void fl_failures_free_locked(fl_op *op) {
  while (op->failures)
    fl_failure_forget_locked(op, op->failures->impl);
}

void fl_failures_clear_locked(fl_op *op) {
  for (fl_failure *failure = op->failures, *next; failure; failure = next) {
    next = failure->next;
    if (!failure->barred)
      fl_failure_forget_locked(op, failure->impl);
  }
}
