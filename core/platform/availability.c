/* Whether implementations can run here: see availability.h. */
#include "core/platform/availability.h"

#include "core/platform/device.h"

/* What was said, for as long as the host lives: calls read it without a lock. */
static const char *lasting(fl_host *host, fl_said *said) {
  const char *text = fl_said_shown(said, "is_available says no and gives no reason");
  if (text != said->room)
    return text;
  pthread_mutex_lock(&host->lock);
  const char *kept = fl_strings_keep(&host->reasons, text);
  pthread_mutex_unlock(&host->lock);
  return kept ? kept : "is_available says no, and no memory is left to say why";
}

/* The turn of whoever asks, and whom: for when the answer does not come. */
typedef struct asking {
  fl_host *host;
  fl_impl_record *record; /* whose function runs; NULL: nobody's */
  uint32_t generation;
} asking;

static void answered(fl_impl_record *record, const char *reason, uint32_t generation) {
  atomic_store(&record->reason, reason);
  atomic_store(&record->asked, generation);
}

/* An exception or the end of the thread has left it: that is no yes, and the lock is somebody else's to take. */
static void asking_ends(asking *a) {
  static const char why[] = "is_available did not return: an exception, or the thread's end, left it";
  if (a->record)
    answered(a->record, why, a->generation);
  pthread_mutex_unlock(&a->host->availability_lock);
  if (a->record)
    fl_log_line(&a->host->log, FL_LOG_ERROR, "Implementation '%s' of op '%s' is not available: %s", a->record->impl_id,
                a->record->op->name, why);
}

/* Its own answer. */
static void ask(asking *a, fl_impl_record *record) {
  fl_said said;
  if (!record->is_available) {
    answered(record, NULL, a->generation);
    return;
  }
  a->record = record;
  bool available = record->is_available(record->self, fl_said_room(&said));
  a->record = NULL;
  answered(record, available ? NULL : lasting(a->host, &said), a->generation);
}

void fl_registry_ask_availability(fl_host *host, const fl_op *op, const fl_policy *filter, uint32_t generation,
                                  int32_t device_type) {
  if (fl_thread_join())
    return;
  /* Reading keeps the records; plugins stay mapped. */
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  pthread_mutex_lock(&host->availability_lock);
  __attribute__((cleanup(asking_ends))) asking a = {.host = host, .generation = generation};
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    fl_impl_record *record = set->impls[i];
    uint32_t asked = atomic_load(&record->asked);
    if (asked && (int32_t)(asked - generation) >= 0) /* for a later one, perhaps, by another thread */
      continue;
    if (fl_impl_is_for(record, device_type) && !fl_keeps_out(filter, record))
      ask(&a, record);
  }
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

static void ask_all_let_in(fl_host *host) {
  uint32_t generation;
  __attribute__((cleanup(fl_filter_release))) fl_policy *filter = fl_vendor_filter_take(host, &generation);
  fl_registry_ask_all(host, filter);
}

void fl_registry_lock_asked(fl_host *host) {
  for (;;) {
    ask_all_let_in(host);
    pthread_mutex_lock(&host->lock);
    if (fl_registry_is_asked(host, fl_vendor_filter(host)))
      return; /* else some were registered, or are out of date, or are let in, meanwhile */
    pthread_mutex_unlock(&host->lock);
  }
}
