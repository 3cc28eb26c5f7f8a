/* Whether implementations can run here: see availability.h. */
#include "core/platform/availability.h"

#include "core/platform/device.h"

/* What was said, for as long as the host lives: calls read it without a lock. */
static const char *lasting(fl_host *host, fl_said *said) {
  const char *text = fl_said_shown(said, "is_available says no and gives no reason");
  if (text != said->room)
    return text;
  const char *kept = NULL;
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->reasons.n && !kept; i++)
    kept = strcmp(host->reasons.items[i], text) ? NULL : host->reasons.items[i];
  if (!kept)
    kept = fl_strings_add(&host->reasons, text) ? host->reasons.items[host->reasons.n - 1]
                                                : "is_available says no, and no memory is left to say why";
  pthread_mutex_unlock(&host->lock);
  return kept;
}

void fl_registry_ask_availability(fl_host *host, const fl_op *op, const fl_policy *filter, uint32_t generation,
                                  int32_t device_type) {
  if (fl_thread_join())
    return;
  /* Reading keeps the records; plugins stay mapped. */
  fl_thread *self = &fl_self;
  uint64_t outer = fl_read_begin(self);
  pthread_mutex_lock(&host->availability_lock);
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    fl_impl_record *record = set->impls[i];
    uint32_t asked = atomic_load(&record->asked);
    if (asked && (int32_t)(asked - generation) >= 0) /* for a later one, perhaps, by another thread */
      continue;
    if (!fl_impl_is_for(record, device_type) || fl_keeps_out(filter, record))
      continue;
    fl_said said;
    bool available = !record->is_available || record->is_available(record->self, fl_said_room(&said));
    atomic_store(&record->reason, available ? NULL : lasting(host, &said));
    atomic_store(&record->asked, generation);
  }
  pthread_mutex_unlock(&host->availability_lock);
  fl_read_end(self, outer);
}

void fl_registry_ask_all(fl_host *host, const fl_policy *filter) {
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    fl_op *op = host->ops[i]; /* an op stays */
    uint32_t generation = host->registry_generation;
    pthread_mutex_unlock(&host->lock);
    fl_registry_ask_availability(host, op, filter, generation, 0);
    fl_architectures_ask_all(host, op, filter);
    pthread_mutex_lock(&host->lock);
  }
  pthread_mutex_unlock(&host->lock);
}

bool fl_registry_is_asked(const fl_host *host, const fl_policy *filter) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++)
      if (!fl_impl_is_asked(host, set->impls[j]) && !fl_keeps_out(filter, set->impls[j]))
        return false;
  }
  return true;
}

void fl_registry_lock_asked(fl_host *host) {
  for (;;) {
    uint32_t generation;
    fl_policy *filter = fl_vendor_filter_take(host, &generation);
    fl_registry_ask_all(host, filter);
    fl_policy_release(filter);
    pthread_mutex_lock(&host->lock);
    if (fl_registry_is_asked(host, fl_vendor_filter(host)))
      return; /* else some were registered, or are out of date, or are let in, meanwhile */
    pthread_mutex_unlock(&host->lock);
  }
}
