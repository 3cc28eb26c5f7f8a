/* Snapshots of the registry (rule R5): copies, so that nothing that happens later shows in them. */
#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

struct fl_snapshot {
  fl_strings strings;
  uint32_t n_ops, n_impls;
  struct snapshot_op {
    const char *name;
    uint32_t first, n;
  } * ops;
  fl_impl_info *impls;
};

static const char *snapshot_keep(fl_snapshot *snapshot, const char *string, bool *failed) {
  if (!string)
    return NULL;
  if (fl_strings_add(&snapshot->strings, string))
    return snapshot->strings.items[snapshot->strings.n - 1];
  *failed = true;
  return "";
}

static int compare_ops(const void *a, const void *b) {
  return strcmp(((const struct snapshot_op *)a)->name, ((const struct snapshot_op *)b)->name);
}

/* Why no device of this machine reaches its min_arch; NULL if one does, or if that is not known. The host's lock is
 * held. */
static const char *too_old(fl_snapshot *snapshot, const fl_host *host, const fl_impl_record *impl, bool *failed) {
  fl_text reason = {0};
  for (int32_t type = 1; type < FL_DEVICE_SLOTS; type++)
    if (impl->devices & FL_DEVICE(type)) {
      if (fl_architectures_reaching(host, impl, type)) {
        fl_text_free(&reason);
        return NULL;
      }
      if (!reason.length)
        fl_architectures_reason(host, impl, type, &reason);
    }
  const char *kept = reason.length ? snapshot_keep(snapshot, fl_text_get(&reason), failed) : NULL;
  fl_text_free(&reason);
  return kept;
}

static void snapshot_impl(fl_snapshot *snapshot, const fl_host *host, const fl_impl_record *record, bool *failed) {
  const char *reason = atomic_load(&record->reason); /* static in the plugin */
  const char *lacking = !reason && record->min_arch ? too_old(snapshot, host, record, failed) : NULL;
  snapshot->impls[snapshot->n_impls++] = (fl_impl_info){
      .op_name = snapshot_keep(snapshot, record->op->name, failed),
      .impl_id = snapshot_keep(snapshot, record->impl_id, failed),
      .vendor = snapshot_keep(snapshot, record->vendor, failed),
      .plugin = snapshot_keep(snapshot, record->provider->plugin, failed),
      .min_arch = snapshot_keep(snapshot, record->min_arch, failed),
      .kind = (fl_kind)record->kind,
      .priority = record->priority,
      .flags = record->flags,
      .dtypes = record->dtypes,
      .devices = record->devices,
      .available = !reason && !lacking,
      .reason = lacking ? lacking : reason,
      .has_supports_args = record->supports_args != NULL,
  };
}

/* The host's lock is held. */
static void snapshot_fill(fl_snapshot *snapshot, const fl_host *host, bool *failed) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    snapshot->ops[snapshot->n_ops++] =
        (struct snapshot_op){snapshot_keep(snapshot, host->ops[i]->name, failed), snapshot->n_impls, set ? set->n : 0};
    for (uint32_t j = 0; set && j < set->n; j++)
      snapshot_impl(snapshot, host, set->impls[j], failed);
  }
  qsort(snapshot->ops, snapshot->n_ops, sizeof *snapshot->ops, compare_ops);
}

fl_snapshot *fl_registry_snapshot(fl_host *host) {
  bool failed = false;
  uint32_t n_impls = 0;
  fl_load_deferred(host, NULL);
  fl_snapshot *snapshot = calloc(1, sizeof *snapshot);
  if (!snapshot) {
    fl_error_no_memory();
    return NULL;
  }
  fl_registry_lock_asked(host);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    n_impls += set ? set->n : 0;
  }
  snapshot->ops = calloc(host->n_ops + 1, sizeof *snapshot->ops);
  snapshot->impls = calloc(n_impls + 1, sizeof *snapshot->impls);
  if (snapshot->ops && snapshot->impls)
    snapshot_fill(snapshot, host, &failed);
  else
    failed = true;
  pthread_mutex_unlock(&host->lock);
  if (!failed)
    return snapshot;
  fl_snapshot_release(snapshot);
  fl_error_no_memory();
  return NULL;
}

void fl_snapshot_release(fl_snapshot *snapshot) {
  if (!snapshot)
    return;
  fl_strings_free(&snapshot->strings);
  free(snapshot->ops);
  free(snapshot->impls);
  free(snapshot);
}

uint32_t fl_snapshot_op_count(const fl_snapshot *snapshot) {
  return snapshot->n_ops;
}

const char *fl_snapshot_op_name(const fl_snapshot *snapshot, uint32_t op) {
  return op < snapshot->n_ops ? snapshot->ops[op].name : NULL;
}

uint32_t fl_snapshot_impl_count(const fl_snapshot *snapshot, uint32_t op) {
  return op < snapshot->n_ops ? snapshot->ops[op].n : 0;
}

const fl_impl_info *fl_snapshot_impl(const fl_snapshot *snapshot, uint32_t op, uint32_t impl) {
  return impl < fl_snapshot_impl_count(snapshot, op) ? &snapshot->impls[snapshot->ops[op].first + impl] : NULL;
}
