/* Snapshots of the registry (rule R5): copies, so that nothing that happens later shows in them. */
#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

struct fl_snapshot {
  fl_arena *arena;
  uint32_t n_ops, n_impls;
  struct snapshot_op {
    const char *name;
    uint32_t first, n;
  } * ops;
  fl_impl_info *impls;
};

static int compare_ops(const void *a, const void *b) {
  return strcmp(((const struct snapshot_op *)a)->name, ((const struct snapshot_op *)b)->name);
}

/* Why no device of this machine reaches its min_arch; NULL if one does, or if that is not known. The host's lock is
 * held. */
static const char *too_old(fl_arena *arena, const fl_host *host, const fl_impl_record *impl) {
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
  return reason.length ? fl_arena_text(arena, &reason) : NULL;
}

/* Why the policy in force keeps it out, so that it was not asked. The host's lock is held. */
static const char *not_asked(fl_arena *arena, fl_host *host, const fl_impl_record *impl) {
  bool scoped;
  fl_text reason = {0};
  const fl_policy *policy = fl_scope_policy(host, &scoped);
  fl_kept_out_reason(host, policy, scoped, impl->vendor, &reason);
  return fl_arena_text(arena, &reason);
}

static void snapshot_impl(fl_snapshot *snapshot, fl_host *host, const fl_impl_record *record) {
  fl_arena *arena = snapshot->arena;
  const fl_failure *failure = fl_failure_find_locked(record->op, record);
  bool asked = fl_impl_is_asked(host, record);
  const char *reason = asked ? atomic_load(&record->reason) /* static in the plugin */
                             : not_asked(arena, host, record);
  const char *lacking = !reason && record->min_arch ? too_old(arena, host, record) : NULL;
  snapshot->impls[snapshot->n_impls++] = (fl_impl_info){
      .size = sizeof(fl_impl_info),
      .op_name = fl_arena_string(arena, record->op->name),
      .impl_id = fl_arena_string(arena, record->impl_id),
      .vendor = fl_arena_string(arena, record->vendor),
      .plugin = fl_arena_string(arena, record->provider->plugin),
      .min_arch = fl_arena_string(arena, record->min_arch),
      .variant = fl_arena_string(arena, record->variant),
      .prepares = fl_impl_prepares(record),
      .kind = (fl_kind)record->kind,
      .priority = record->priority,
      .flags = record->flags,
      .dtypes = record->dtypes,
      .devices = record->devices,
      .available = !reason && !lacking,
      .reason = lacking ? lacking : reason,
      .has_supports_args = record->supports_args != NULL,
      .asked = asked,
      .barred = failure && failure->barred ? fl_arena_string(arena, failure->reason ? failure->reason : "") : NULL,
  };
}

/* The host's lock is held. */
static void snapshot_fill(fl_snapshot *snapshot, fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    snapshot->ops[snapshot->n_ops++] =
        (struct snapshot_op){fl_arena_string(snapshot->arena, host->ops[i]->name), snapshot->n_impls, set ? set->n : 0};
    for (uint32_t j = 0; set && j < set->n; j++)
      snapshot_impl(snapshot, host, set->impls[j]);
  }
  qsort(snapshot->ops, snapshot->n_ops, sizeof *snapshot->ops, compare_ops);
}

fl_snapshot *fl_registry_snapshot(fl_host *host) {
  uint32_t n_impls = 0;
  fl_arena *arena;
  if (fl_thread_join() || fl_load_deferred(host, NULL))
    return NULL;
  fl_registry_lock_asked(host); /* who is asked may throw: nothing is to be freed yet */
  fl_snapshot *snapshot = fl_arena_create(sizeof *snapshot, &arena);
  if (!snapshot) {
    pthread_mutex_unlock(&host->lock);
    fl_error_no_memory();
    return NULL;
  }
  snapshot->arena = arena;
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    n_impls += set ? set->n : 0;
  }
  snapshot->ops = fl_arena_array(arena, host->n_ops, sizeof *snapshot->ops);
  snapshot->impls = fl_arena_array(arena, n_impls, sizeof *snapshot->impls);
  if (snapshot->ops && snapshot->impls)
    snapshot_fill(snapshot, host);
  pthread_mutex_unlock(&host->lock);
  return fl_arena_finish(snapshot, sizeof *snapshot) ? NULL : snapshot;
}

void fl_snapshot_release(fl_snapshot *snapshot) {
  fl_arena_destroy(snapshot, sizeof *snapshot);
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
