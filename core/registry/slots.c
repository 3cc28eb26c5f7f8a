/* What stands in slots, and what takes it out: see slots.h. */
#include "core/registry/slots.h"

#include <stdlib.h>

void fl_slots_init(fl_slots *slots, const fl_op *op) {
  for (int i = 0; i < FL_SLOTS; i++)
    atomic_init(&slots->by_device[i], &op->unbound);
}

static bool is_in(const fl_bound *bound, const fl_slots *slots) {
  return bound->place >= slots->by_device && bound->place < slots->by_device + FL_SLOTS;
}

void fl_unbind(fl_op *op, const fl_slots *slots, const fl_impl_record *record) {
  for (fl_bound **link = &op->bindings; *link;) {
    fl_bound *bound = *link;
    if ((slots && !is_in(bound, slots)) || (record && bound->first == record)) {
      link = &bound->next;
      continue;
    }
    *link = bound->next;
    atomic_store_explicit(bound->place, &op->unbound, memory_order_release);
    bound->place = NULL;
    fl_retire(&op->host->retired, bound, free);
  }
}

void fl_slot_bind(fl_op *op, fl_bound *bound, _Atomic(const fl_target *) *slot) {
  bound->place = slot;
  bound->next = op->bindings;
  op->bindings = bound;
  if (!op->is_bound) {
    op->is_bound = true;
    op->next_bound = op->host->bound;
    op->host->bound = op;
  }
  atomic_store_explicit(slot, &bound->target, memory_order_release);
}

void fl_registry_advance(fl_host *host) {
  host->registry_generation++;
  host->registry_generation += !host->registry_generation; /* 0 is never */
  fl_host_advance(host);
}

void fl_host_advance(fl_host *host) {
  host->epoch++;
  while (host->bound) {
    fl_op *op = host->bound;
    host->bound = op->next_bound;
    op->is_bound = false;
    fl_unbind(op, NULL, NULL);
  }
}

void fl_host_bound_memory(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  bool is_long = fl_retired_is_long(&host->retired);
  pthread_mutex_unlock(&host->lock);
  if (!is_long || fl_is_reading(&fl_self) || fl_synchronize(1, NULL, NULL))
    return;
  pthread_mutex_lock(&host->lock); /* a call lasts, for ever perhaps */
  fl_retired_bear(&host->retired);
  pthread_mutex_unlock(&host->lock);
}
