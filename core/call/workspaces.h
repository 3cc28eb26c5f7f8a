/*
 * Workspaces: memory that an implementation wants for the length of a call. A call that brings none gets the host's,
 * one buffer for each device and stream, on the processor for each thread; calls inside a call have others. They grow,
 * and never shrink. Only bindings with an implementation that asks for some come here.
 */
#ifndef FLHOST_CORE_CALL_WORKSPACES_H
#define FLHOST_CORE_CALL_WORKSPACES_H

#include "core/registry.h"

/* Bytes that an implementation wants for a call, 0 for none. */
size_t fl_workspace_wanted(const fl_impl_record *record, const fl_call *call);

/* Gives the call, which brought none, what the implementation wants; where it cannot be had, nothing, and a warning,
 * once. */
void fl_workspace_bring(const fl_impl_record *record, fl_call *call);

/* Gives the call so many bytes, in place of what it has. */
fl_status fl_workspace_bring_bytes(const fl_op *op, fl_call *call, size_t wanted);

/* It did not take the call: a warning, once, if it had less workspace than it wants. */
void fl_workspace_lacked(const fl_impl_record *record, const fl_call *call);

/* A thread's own, for tensors in the host's memory; by the depth of calls inside calls. */
typedef struct fl_own_workspace {
  void *memory;
  size_t size;
} fl_own_workspace;

typedef struct fl_workspace fl_workspace;

enum { FL_WORKSPACE_PLACES = 8 };

/* Where a thread found a device's. */
typedef struct fl_workspace_place {
  uint64_t host; /* fl_host.number; 0: nothing is here */
  fl_workspace *workspace;
} fl_workspace_place;

/* Of a thread that ends. */
void fl_own_workspaces_free(fl_own_workspace *own, uint32_t n);

/* Frees the host's. Nobody calls any more. */
void fl_workspaces_end(fl_host *host);

#endif
