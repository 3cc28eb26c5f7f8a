/* Records of implementations: making them, finding them, what was counted of them. */
#ifndef FLHOST_CORE_REGISTRY_IMPLEMENTATIONS_H
#define FLHOST_CORE_REGISTRY_IMPLEMENTATIONS_H

#include "core/registry/records.h"

/* Was its availability asked for in this generation of the registry (R6)? The host's lock is held. */
static inline bool fl_impl_is_asked(const fl_host *host, const fl_impl_record *impl) {
  return atomic_load(&impl->asked) == host->registry_generation;
}

/* The priority of whoever gives none of his own. */
int32_t fl_kind_priority(int32_t kind);

/* Does an implementation declare the device type (0: any)? The caller is reading, or holds the host's lock. */
bool fl_registry_has_impl(const fl_op *op, int32_t device_type);

/* The implementation, NULL if there is none. The caller is reading, or holds the host's lock. */
fl_impl_record *fl_registry_find_impl(const fl_op *op, const char *impl_id);
/* The same, for who looks for very many. The host's lock is held. */
fl_impl_record *fl_registry_find_impl_locked(fl_op *op, const char *impl_id);

/* The id that was meant perhaps, the record's; NULL: none is near. The host's lock is held. */
const char *fl_registry_nearest_impl(const fl_op *op, const char *impl_id);

/* FL_ENOENT with the nearest of the op's. The host's lock is held. */
fl_status fl_registry_no_such_impl(const fl_op *op, const char *impl_id);

/* The provider of that name and build id, known or new; NULL: out of memory. The host's lock is held. */
const fl_provider *fl_registry_provider(fl_host *host, const char *plugin, const char *build_id);

void fl_providers_free(fl_host *host);

/* A record of an implementation whose fields are in order, not published yet. NULL: out of memory. */
fl_impl_record *fl_impl_record_create(const fl_impl *impl, const fl_provider *provider, fl_op *op);
void fl_impl_record_free(void *record);

/* Puts the successor that was made for an op's set, if one was, in its place; what stood there, which calls may be
 * reading, is `successor` then. Or drops it. The host's lock is held. */
void fl_op_exchange_sets(fl_op *op);
void fl_op_give_up_successor(fl_op *op);

/* What is counted of it; NULL: out of memory. */
fl_tally *fl_impl_record_tally(fl_impl_record *record);

/* Counts an event; reads how many there were. */
void fl_impl_record_count(fl_impl_record *record, fl_event event);
uint64_t fl_impl_record_events(const fl_impl_record *record, fl_event event);

#endif
