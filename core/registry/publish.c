/*
 * All that needs memory is made before the first thing is published, so that nothing can go wrong half-way: room for
 * ops and components, and for each op that gets implementations the set that will succeed its own.
 */
#include "core/registry/publish.h"

#include "core/registry/implementations.h"
#include "core/registry/parts.h"
#include "core/registry/registry.h"
#include "core/registry/slots.h"
#include "core/registry/staged_components.h"
#include "core/registry/staged_ops.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* What came first since the rows were staged. */
static fl_status check_again(const fl_stage *stage) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < stage->n_new_ops && !status; i++)
    status = fl_check_same_op(fl_registry_known(stage->host, stage->new_ops[i]->name), stage->new_ops[i]->schema);
  for (uint32_t i = 0; i < stage->n_impls && !status; i++) {
    fl_impl_record *record = stage->impls[i];
    fl_op *known = fl_registry_known(stage->host, record->op->name);
    record->op = known ? known : record->op;
    status = fl_check_free_id(stage, record->op, record->impl_id);
  }
  for (uint32_t i = 0; i < stage->n_components && !status; i++)
    status = fl_component_check_again(stage, &stage->components[i]);
  return status;
}

/* Adds a record to the set that will succeed its op's. Room is a power of two, so that it need not be noted. */
static bool add_successor(fl_op *op, fl_impl_record *record) {
  const fl_impl_set *now = atomic_load_explicit(&op->impls, memory_order_relaxed);
  fl_impl_set *set = op->successor;
  uint32_t n = set ? set->n : now ? now->n : 0, room = 1;
  if (!set || !(n & (n - 1))) {
    while (room <= n)
      room *= 2;
    set = realloc(set, sizeof *set + room * sizeof set->impls[0]);
    if (!set)
      return false;
    if (!op->successor && n)
      memcpy(set->impls, now->impls, n * sizeof set->impls[0]);
    op->successor = set;
  }
  set->impls[n] = record;
  set->n = n + 1;
  return true;
}

/* Goes through the host's ops that have parts, then through the staged ones. */
typedef struct parts_walk {
  fl_op *next;
  uint32_t i;
} parts_walk;

static fl_op *next_with_parts(const fl_stage *stage, parts_walk *walk) {
  fl_op *op = walk->next;
  if (op)
    walk->next = op->next_with_parts;
  while (!op && walk->i < stage->n_new_ops) {
    fl_op *staged = stage->new_ops[walk->i++];
    op = staged && staged->parts ? staged : NULL;
  }
  return op;
}

/* Is something staged that an op may be run by? */
static bool touches_parts(const fl_stage *stage) {
  bool touches = stage->n_new_ops;
  for (uint32_t i = 0; i < stage->n_impls && !touches; i++)
    touches = stage->impls[i]->op->is_part;
  return touches;
}

/* Ops whose parts all have implementations now get the one that runs them. */
static bool prepare_parts(const fl_stage *stage) {
  parts_walk walk = {stage->host->with_parts, 0};
  bool done = true;
  fl_parts_find_devices(stage->host, stage->new_ops, stage->n_new_ops);
  for (fl_op *op; done && (op = next_with_parts(stage, &walk));)
    done = !op->parts_devices || fl_parts_listed(op) || add_successor(op, op->parts);
  return done;
}

/* Whatever needs memory. */
static bool prepare(const fl_stage *stage) {
  fl_host *host = stage->host;
  bool done = !stage->n_new_ops || fl_registry_reserve(host, stage->n_new_ops);
  for (uint32_t i = 0; i < stage->n_components && done; i++)
    done = fl_array_grow(&host->components, host->n_components + i, sizeof *host->components);
  for (uint32_t i = 0; i < stage->n_impls && done; i++)
    done = add_successor(stage->impls[i]->op, stage->impls[i]);
  return done && (!touches_parts(stage) || prepare_parts(stage));
}

static void give_up(const fl_stage *stage) {
  parts_walk walk = {stage->host->with_parts, 0};
  for (uint32_t i = 0; i < stage->n_impls; i++)
    fl_op_give_up_successor(stage->impls[i]->op);
  for (fl_op *op; (op = next_with_parts(stage, &walk));)
    fl_op_give_up_successor(op);
}

/* What stood there goes when nobody can be reading it. */
static void publish_set(fl_host *host, fl_op *op) {
  if (!op->successor)
    return; /* it was published by an earlier row of the op */
  fl_op_exchange_sets(op);
  fl_retire(&host->retired, op->successor, free);
  op->successor = NULL;
}

fl_status fl_stage_publish(fl_stage *stage) {
  fl_host *host = stage->host;
  fl_status status = check_again(stage);
  if (!status && !prepare(stage))
    status = fl_error_no_memory();
  if (status) {
    give_up(stage);
    return status;
  }
  parts_walk walk = {host->with_parts, 0};
  for (fl_op *op; (op = next_with_parts(stage, &walk));) {
    fl_parts_set_devices(op);
    publish_set(host, op);
  }
  for (uint32_t i = 0; i < stage->n_new_ops; i++)
    if (!fl_registry_known(host, stage->new_ops[i]->name)) {
      fl_registry_add_op(host, stage->new_ops[i]);
      stage->new_ops[i] = NULL;
    }
  for (uint32_t i = 0; i < stage->n_impls; i++)
    publish_set(host, stage->impls[i]->op);
  for (uint32_t i = 0; i < stage->n_components; i++) {
    host->components[host->n_components] = stage->components[i];
    host->components[host->n_components++].asking = &host->availability_lock;
  }
  stage->n_impls = stage->n_components = 0; /* the registry's */
  fl_registry_advance(host);
  return FL_OK;
}

fl_status fl_host_fallback_publish(fl_op *op) {
  fl_host *host = op->host;
  if (op->host_fallback)
    return FL_OK;
  fl_impl impl = *host->hooks->host_fallback;
  impl.self = op;
  const fl_provider *provider = fl_registry_provider(host, FL_PROVIDER_HOST, fl_version());
  fl_impl_record *record = provider ? fl_impl_record_create(&impl, provider, op) : NULL;
  if (record)
    record->count = fl_count_new(); /* its calls always are counted */
  if (!record || record->count == UINT32_MAX || !add_successor(op, record)) {
    fl_impl_record_free(record);
    return fl_error_no_memory();
  }
  publish_set(host, op);
  op->host_fallback = record;
  return FL_OK;
}
