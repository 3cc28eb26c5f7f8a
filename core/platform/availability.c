/* Whether implementations can run here: see availability.h. */
#include "core/platform/availability.h"

#include "core/platform/device.h"

void fl_registry_ask_availability(fl_host *host, const fl_op *op, int32_t device_type) {
  if (fl_thread_join())
    return;
  pthread_mutex_lock(&host->lock);
  uint32_t generation = host->registry_generation;
  pthread_mutex_unlock(&host->lock);

  /* Reading keeps the records; plugins stay mapped. */
  fl_thread *self = &fl_self;
  uint64_t outer = fl_read_begin(self);
  pthread_mutex_lock(&host->availability_lock);
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    fl_impl_record *record = set->impls[i];
    uint32_t asked = atomic_load(&record->asked);
    if (!fl_impl_is_for(record, device_type))
      continue;
    if (asked && (int32_t)(asked - generation) >= 0) /* for a later one, perhaps, by another thread */
      continue;
    const char *reason = NULL;
    if (!record->is_available || record->is_available(record->self, &reason))
      reason = NULL;
    else if (!reason)
      reason = "is_available says no and gives no reason";
    atomic_store(&record->reason, reason);
    atomic_store(&record->asked, generation);
  }
  pthread_mutex_unlock(&host->availability_lock);
  fl_read_end(self, outer);
}

static void ask_all(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    fl_op *op = host->ops[i]; /* an op stays */
    pthread_mutex_unlock(&host->lock);
    fl_registry_ask_availability(host, op, 0);
    fl_architectures_ask_all(host, op);
    pthread_mutex_lock(&host->lock);
  }
  pthread_mutex_unlock(&host->lock);
}

/* In this generation? The host's lock is held. */
static bool all_asked(const fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++)
      if (atomic_load(&set->impls[j]->asked) != host->registry_generation)
        return false;
  }
  return true;
}

void fl_registry_lock_asked(fl_host *host) {
  for (;;) {
    ask_all(host);
    pthread_mutex_lock(&host->lock);
    if (all_asked(host)) /* else some were registered, or are out of date, meanwhile */
      return;
    pthread_mutex_unlock(&host->lock);
  }
}
