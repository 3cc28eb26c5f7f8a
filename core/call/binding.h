/* Bindings: what was resolved for an op, a policy and a device type, made on the first call and cached (rule S5). */
#ifndef FLHOST_CORE_CALL_BINDING_H
#define FLHOST_CORE_CALL_BINDING_H

#include "core/call/selection.h"
#include "core/registry.h"

/* One implementation that a binding may call. */
typedef struct fl_candidate {
  fl_impl_record *record;
  uint32_t dtypes;     /* element types that it takes; 0 = all that the schema lets through */
  bool on_probation;   /* it failed before and its back-off is over */
  bool barred;         /* strict mode alone: it was found wrong, and no other may take its place */
  _Atomic bool noted;  /* F1 was logged for it under this binding */
  uint64_t on_devices; /* a bit for each index of the device type that reaches min_arch */
} fl_candidate;

/* What was resolved for one op, policy and device type: S5. Immutable, but for what is said to be guarded. */
typedef struct fl_binding {
  fl_bound bound; /* first: what the slot points to */
  /* What takes its place once the use of the first candidate was logged; fn NULL: it stays. */
  fl_target noted;
  fl_kernel_fn fn; /* of the first candidate */
  void *self;
  uint32_t count;
  struct fl_op *op;
  double retry_at; /* when a failed implementation that was left out may be tried again; 0 = none is left out */
  double made_at;  /* where something failed: when that was looked at */
  bool strict, preserve_inputs, statistics;
  bool synchronous; /* waits for the device after each implementation */
  bool brings;      /* workspaces: one of the candidates asks for some */
  bool watched;     /* calls of the first candidate are, or were when this was made (guard/watch.h) */
  uint32_t n;
  fl_candidate candidates[];
} fl_binding;

/* What the op has bound under the policy in force in this thread, resolved and published if need be: for a call, or
 * before any is made (`ask`), whereupon an op's first use is noted. The thread is reading, and must go on until it is
 * done with the target. NULL with the error message and *status when there is nothing to call. */
const fl_target *fl_bind(fl_op *op, uint32_t device_type, fl_ask ask, fl_status *status);

/* The use of a binding's first candidate was logged. */
void fl_binding_noted(fl_binding *binding);

/* S4: adds a line for each implementation that is not among a binding's candidates for tensors on the device type: why
 * it is not. `failed` gets the ids of those that would be, had they not failed before. Takes the host's lock. */
void fl_add_left_out(const fl_binding *binding, uint32_t device_type, fl_text *failed, fl_text *text);
/* Does it take every call that the op's schema lets through (S3: the search ends with it)? */
bool fl_takes_all(const fl_impl_record *record);

/* Resolves, and calls what was found: what a slot has where nothing is bound. `self` is the op. */
fl_status fl_run_unbound(void *self, fl_call *call);

#endif
