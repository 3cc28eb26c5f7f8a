/* Calls that are left otherwise: see leaving.h. */
#include "core/call/leaving.h"

#include "core/call/checked_forms.h"
#include "core/call/failures.h"
#include "core/call/fallback.h"
#include "core/support.h"

#include <stdlib.h>

/* What the target runs, or was to run first. */
static fl_impl_record *running_of(fl_thread *self, const fl_target *target) {
  const fl_impl_record *running = atomic_load_explicit(&self->running, memory_order_relaxed);
  return running ? (fl_impl_record *)(uintptr_t)running : target->binding->candidates[0].record;
}

static void blame(fl_thread *self, const fl_target *target, const char *how) {
  if (!target || !target->binding)
    return; /* it was being resolved */
  fl_impl_record *record = running_of(self, target);
  fl_op *op = target->binding->op;
  fl_impl_record_count(record, FL_EVENT_FAILURE);
  fl_probe_failure(op->name, record->impl_id, FL_EINTERNAL, how);
  fl_log_line(&op->host->log, FL_LOG_WARNING, "Implementation '%s' failed for op '%s': %s", record->impl_id, op->name,
              how);
  if (!target->binding->strict)
    fl_remember_failure(op, record, how, false);
}

void fl_left_early(const fl_target *target) {
  fl_self.settled = false;
  blame(&fl_self, target, "it did not return: an exception, or the thread's end, left it");
}

void fl_ends_inside(fl_thread *self) {
  blame(self, atomic_load_explicit(&self->target, memory_order_relaxed), "it did not return before its thread ended");
}

/* ------------------------------------------------------------------------------------------------ the end of a host */

static bool is_of_binding(const fl_target *target, const fl_binding *binding) {
  return target == &binding->bound.target || target == &binding->noted;
}

/* Told by its address alone: it may be of a host that is gone. */
static bool is_of_host(const fl_target *target, const fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    if (target == &host->ops[i]->unbound)
      return true;
    for (const fl_bound *bound = host->ops[i]->bindings; bound; bound = bound->next)
      if (is_of_binding(target, (const fl_binding *)bound))
        return true;
  }
  for (uint32_t i = 0; i < host->retired.n; i++)
    if (host->retired.items[i].release == free && is_of_binding(target, host->retired.items[i].memory))
      return true;
  return false;
}

static void let_go(fl_thread *thread, void *host) {
  const fl_target *target = atomic_load_explicit(&thread->target, memory_order_relaxed);
  if (!fl_is_reading(thread) || !target || !is_of_host(target, host))
    return;
  atomic_store_explicit(&thread->target, NULL, memory_order_relaxed);
  atomic_store_explicit(&thread->running, NULL, memory_order_relaxed);
  if (thread != &fl_self)
    return;
  ((fl_checked_forms *)thread->kept)->nesting.n = 0;
  fl_read_end(thread, atomic_load_explicit(&thread->state, memory_order_relaxed) & (FL_PERIOD - 1));
}

void fl_calls_end(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  fl_threads_each(let_go, host);
  pthread_mutex_unlock(&host->lock);
}
