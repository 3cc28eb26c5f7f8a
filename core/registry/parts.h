/*
 * Ops that say what they are made of (fl_op_def.parts), and the devices for which all their parts have implementations:
 * for these the op has one implementation more, the host's own, which runs it by its parts (core/call/parts.h). It
 * comes and goes as theirs do.
 */
#ifndef FLHOST_CORE_REGISTRY_PARTS_H
#define FLHOST_CORE_REGISTRY_PARTS_H

#include "core/registry/records.h"

/* Parts may have parts, and those of plugins' ops may go round in a circle: so deep whoever follows them goes. */
enum { FL_PARTS_DEPTH_MAX = 8 };

/* Makes the record of that implementation for an op that has parts and that nobody knows yet. false: out of memory. The
 * host's lock is held, as in all that follows. */
bool fl_parts_create(fl_host *host, fl_op *op);

/* The op's text of them. */
static inline const char *fl_parts_text(const fl_op *op) {
  return op->def ? op->def->parts : op->schema->parts;
}

/* The op of the first of an op's parts from *at on in that text, and behind it. false: none is left; *part is NULL
 * where there is no such op. */
bool fl_parts_next(fl_host *host, const char **at, fl_op **part);

/* The op is the registry's now. */
void fl_parts_add_op(fl_host *host, fl_op *op);

/* Is the record in the op's successor, or, where there is none, in its set? */
bool fl_parts_listed(const fl_op *op);

/* Finds the devices, op->parts_devices, as they will be: with the successors of ops' sets where such are made, and with
 * ops that are not the registry's yet. */
void fl_parts_find_devices(fl_host *host, fl_op *const *new_ops, uint32_t n_new_ops);

/* Puts them into the op's record: before its set is published. */
static inline void fl_parts_set_devices(fl_op *op) {
  atomic_store_explicit(&op->parts->devices, op->parts_devices, memory_order_relaxed);
}

#endif
