/* Records of implementations: see implementations.h. */
#include "core/registry/implementations.h"

#include "core/support.h"

#include <stdlib.h>
#include <string.h>

const fl_provider *fl_registry_provider(fl_host *host, const char *plugin, const char *build_id) {
  for (const fl_provider *known = host->providers; known; known = known->next)
    if (!strcmp(known->plugin, plugin) && !strcmp(known->build_id, build_id))
      return known;
  size_t length = strlen(plugin) + 1;
  fl_provider *provider = malloc(sizeof *provider + length + strlen(build_id) + 1);
  if (!provider)
    return NULL;
  memcpy(provider->plugin, plugin, length);
  provider->build_id = strcpy(provider->plugin + length, build_id);
  provider->next = host->providers;
  host->providers = provider;
  return provider;
}

int32_t fl_kind_priority(int32_t kind) {
  static const int32_t by_kind[] = {0, FL_PRIORITY_DEFAULT, FL_PRIORITY_VENDOR, FL_PRIORITY_REFERENCE};
  return by_kind[kind];
}

static int32_t priority_of(const fl_impl *impl) {
  return impl->priority || impl->flags & FL_IMPL_PRIORITY_ZERO ? impl->priority : fl_kind_priority(impl->kind);
}

/* Puts a string behind others; NULL and "" are none. */
static const char *put(char **at, const char *text) {
  if (!text || !*text)
    return NULL;
  char *start = *at;
  *at = stpcpy(start, text) + 1;
  return start;
}

/* At so many bytes of the record, behind the strings. */
static fl_impl_extra *put_extra(fl_impl_record *record, size_t at, const fl_impl *impl) {
  fl_impl_extra *extra = (void *)((char *)record + at);
  *extra = (fl_impl_extra){impl->workspace_size, impl->prepares, impl->prepared_size, impl->prepare, false};
  return extra;
}

fl_impl_record *fl_impl_record_create(const fl_impl *impl, const fl_provider *provider, fl_op *op) {
  const char *vendor = impl->vendor ? impl->vendor : "", *min_arch = impl->min_arch ? impl->min_arch : "";
  const char *variant = impl->variant ? impl->variant : "";
  size_t text = strlen(impl->impl_id) + strlen(vendor) + strlen(min_arch) + strlen(variant) + 4;
  size_t size = offsetof(fl_impl_record, impl_id) + text, align = _Alignof(fl_impl_extra);
  bool has_extra = impl->workspace_size || impl->prepares;
  if (has_extra)
    size = (size + align - 1) / align * align;
  fl_impl_record *record = calloc(1, size + (has_extra ? sizeof(fl_impl_extra) : 0));
  if (!record)
    return NULL;
  char *at = record->impl_id;
  put(&at, impl->impl_id);
  record->vendor = put(&at, vendor);
  record->min_arch = put(&at, min_arch);
  record->variant = put(&at, variant);
  record->fn = impl->fn;
  record->self = impl->self;
  record->is_available = impl->is_available;
  record->supports_args = impl->supports_args;
  record->extra = has_extra ? put_extra(record, size, impl) : NULL;
  record->op = op;
  record->provider = provider;
  atomic_init(&record->devices, impl->devices);
  record->dtypes = impl->dtypes;
  record->flags = impl->flags;
  record->priority = priority_of(impl);
  record->kind = (uint8_t)impl->kind;
  record->count = UINT32_MAX;
  atomic_init(&record->reason, "is_available was not asked yet");
  return record;
}

fl_tally *fl_impl_record_tally(fl_impl_record *record) {
  fl_tally *tally = atomic_load_explicit(&record->tally, memory_order_acquire), *made;
  if (tally || !(made = calloc(1, sizeof *made)))
    return tally;
  if (atomic_compare_exchange_strong(&record->tally, &tally, made))
    return made;
  free(made);
  return tally;
}

void fl_impl_record_count(fl_impl_record *record, fl_event event) {
  fl_tally *tally = fl_impl_record_tally(record);
  if (tally) /* else out of memory: this one is not counted */
    atomic_fetch_add_explicit(&tally->events[event], 1, memory_order_relaxed);
}

uint64_t fl_impl_record_events(const fl_impl_record *record, fl_event event) {
  const fl_tally *tally = atomic_load_explicit(&record->tally, memory_order_acquire);
  return tally ? atomic_load_explicit(&tally->events[event], memory_order_relaxed) : 0;
}

void fl_impl_record_free(void *memory) {
  fl_impl_record *record = memory;
  if (!record)
    return;
  if (record->count != UINT32_MAX)
    fl_count_release(record->count);
  free(atomic_load_explicit(&record->tally, memory_order_relaxed));
  free(record);
}

void fl_providers_free(fl_host *host) {
  while (host->providers) {
    fl_provider *next = host->providers->next;
    free(host->providers);
    host->providers = next;
  }
}

fl_impl_record *fl_registry_find_impl(const fl_op *op, const char *impl_id) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (!strcmp(set->impls[i]->impl_id, impl_id))
      return set->impls[i];
  return NULL;
}

static int compare_ids(const void *a, const void *b) {
  return strcmp((*(fl_impl_record *const *)a)->impl_id, (*(fl_impl_record *const *)b)->impl_id);
}

static int compare_with_id(const void *id, const void *record) {
  return strcmp(id, (*(fl_impl_record *const *)record)->impl_id);
}

/* Sorting pays when about as many ids are looked for as comparing all with one takes. Where there is no memory for it
 * that is done. */
fl_impl_record *fl_registry_find_impl_locked(fl_op *op, const char *impl_id) {
  enum { FEW = 16 };
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  if (!set || ++op->looked_for <= FEW)
    return fl_registry_find_impl(op, impl_id);
  if (!op->by_id && (op->by_id = malloc((set->n + !set->n) * sizeof *op->by_id))) {
    memcpy(op->by_id, set->impls, set->n * sizeof *op->by_id);
    qsort(op->by_id, set->n, sizeof *op->by_id, compare_ids);
  }
  if (!op->by_id)
    return fl_registry_find_impl(op, impl_id);
  fl_impl_record **found = bsearch(impl_id, op->by_id, set->n, sizeof *op->by_id, compare_with_id);
  return found ? *found : NULL;
}

bool fl_registry_has_impl(const fl_op *op, int32_t device_type) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (fl_impl_is_for(set->impls[i], device_type))
      return true;
  return false;
}

const char *fl_registry_nearest_impl(const fl_op *op, const char *impl_id) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  const char **ids = set ? malloc(set->n * sizeof *ids) : NULL;
  for (uint32_t i = 0; ids && i < set->n; i++)
    ids[i] = set->impls[i]->impl_id;
  const char *nearest = ids ? fl_nearest_word(impl_id, ids, set->n) : NULL;
  free(ids);
  return nearest;
}

fl_status fl_registry_no_such_impl(const fl_op *op, const char *impl_id) {
  return fl_error(FL_ENOENT, "op '%s' has no implementation '%s'%s", op->name, impl_id,
                  fl_suggest(fl_registry_nearest_impl(op, impl_id)).text);
}

void fl_op_exchange_sets(fl_op *op) {
  fl_impl_set *old = atomic_load_explicit(&op->impls, memory_order_relaxed);
  if (op->successor) {
    atomic_store_explicit(&op->impls, op->successor, memory_order_release);
    free(op->by_id);
    op->by_id = NULL;
    op->looked_for = 0;
  }
  op->successor = op->successor ? old : NULL;
}

void fl_op_give_up_successor(fl_op *op) {
  free(op->successor);
  op->successor = NULL;
}
