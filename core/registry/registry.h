/*
 * The registry of one host: ops by name. What is published is an immutable generation; registering or withdrawing
 * publishes the next one.
 */
#ifndef FLHOST_CORE_REGISTRY_REGISTRY_H
#define FLHOST_CORE_REGISTRY_REGISTRY_H

#include "core/registry/records.h"

fl_status fl_registry_init(fl_host *host); /* with the built-in ops */
void fl_registry_free(fl_host *host);

/* The op, ready to be called; NULL if there is none, no message. For one that is not ready yet its entry is parsed and
 * the deferred plugins that list it are loaded. The caller is reading, and holds no lock. */
fl_op *fl_registry_find(fl_host *host, const char *name);

/* The op, ready or not: its schema may not be there. The host's lock is held. */
fl_op *fl_registry_known(const fl_host *host, const char *name);

/* Makes an op ready, whose handle somebody has. No lock is held. */
fl_status fl_registry_look_for(const fl_op *op);
static inline fl_status fl_registry_open(const fl_op *op) {
  bool unready = atomic_load_explicit(&op->path, memory_order_acquire) == FL_PATH_UNREADY;
  return unready ? fl_registry_look_for(op) : FL_OK;
}

/* The same for a caller's op, which may be NULL: FL_ENOENT, that `function` was given none. */
static inline fl_status fl_registry_open_for(const fl_op *op, const char *function) {
  return op ? fl_registry_open(op) : fl_error(FL_ENOENT, "%s: the op is NULL", function);
}

/* Do calls find it? The host's lock is held. */
bool fl_registry_is_ready(const fl_host *host, const char *name);

/* Sees to it that an op has its schema. No lock is held. */
fl_status fl_registry_parse(fl_op *op);

/* FL_ENOENT, with the nearest name. */
fl_status fl_registry_no_such_op(fl_host *host, const char *name);
/* The same with the first words that callers of the peer rely on (S4): to it, an op is what has implementations. */
fl_status fl_registry_no_impl(fl_host *host, const char *name);

/* Makes every op ready: parsed, and all plugins loaded. No lock is held. */
fl_status fl_registry_prepare_all(fl_host *host);

/* An op that is no registry's yet; takes over the schema. NULL: out of memory, and the schema is the caller's still.
 * One that is not added is freed by fl_registry_free_op, as far as it is not built-in. */
fl_op *fl_registry_make_op(fl_schema *schema, const char *plugin);
void fl_registry_free_op(fl_op *op);

/* Room for n more ops. false: out of memory. Then adds them, ready unless a deferred plugin lists them. The host's lock
 * is held all the time. */
bool fl_registry_reserve(fl_host *host, uint32_t n);
void fl_registry_add_op(fl_host *host, fl_op *op);

/* custom_ops: is it enabled, or does it run its reference? The host's lock is held. */
bool fl_custom_op_enabled(const fl_op *op);

#endif
