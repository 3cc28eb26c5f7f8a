/*
 * Selection (rules S1–S4): which implementations of an op may run under a policy, and in which order. A pure function
 * of what is registered, the settings, the policy and the device type; resolving, calling and explaining all use it.
 */
#ifndef FLHOST_CORE_CALL_SELECTION_H
#define FLHOST_CORE_CALL_SELECTION_H

#include "core/registry.h"

/* Why an implementation is not a candidate, in the order of the filters. */
typedef enum fl_rejection {
  FL_ACCEPTED = 0,
  FL_REJECTED_VENDOR, /* deny_vendors or allow_vendors: nobody asked whether it is available */
  FL_REJECTED_LIST,   /* USE_FLAGGEMS or a FlagGems list */
  FL_REJECTED_OPAQUE, /* it takes values, and the call has none */
  FL_REJECTED_UNAVAILABLE,
  FL_REJECTED_DEVICE,
  FL_REJECTED_ARCHITECTURE, /* no device of the type reaches min_arch */
  FL_REJECTED_PART,         /* it runs an op by its parts, and nothing runs one of these there */
  FL_REJECTED_HOST,         /* it runs an op on the CPU, and the policy does not say so, or nothing runs it there */
  FL_REJECTED_ORDER         /* no token of the order matches it */
} fl_rejection;

/* Order that is in force whatever the policy says: dispatch is off, or the op is not among custom_ops. */
typedef enum fl_override { FL_NO_OVERRIDE = 0, FL_DISPATCH_OFF, FL_OP_DISABLED } fl_override;

typedef struct fl_selected {
  fl_impl_record *record;
  fl_rejection rejection;
  uint32_t token;      /* index in the order of the token that matched it */
  uint64_t on_devices; /* a bit for each index of the device type that reaches min_arch */
} fl_selected;

typedef struct fl_selection {
  const fl_op *op;
  const fl_policy *policy;
  int32_t device_type;
  fl_override override;
  bool per_op;  /* the order is the op's own */
  bool unasked; /* availability or architectures were not asked for in this generation: ask, and select again */
  const char *const *order;
  uint32_t n_order;
  uint32_t n, n_accepted; /* accepted ones come first, best first; then the others in the order of registration */
  fl_selected *items;     /* `local`, or malloc'ed when there are more */
  fl_selected local[16];
} fl_selection;

/* Selects. The host's lock is held and availability was asked. FL_ENOMEM; an empty selection is no error here. */
fl_status fl_select(fl_selection *selection, fl_op *op, const fl_policy *policy, int32_t device_type);
void fl_selection_free(fl_selection *selection);

/* Whom to ask what is not known in this generation of the registry. */
typedef enum fl_ask {
  FL_ASK_ALL,     /* all implementations, so that each has its reason; devices by a child process */
  FL_ASK_AHEAD,   /* those for the device type; devices by a child process */
  FL_ASK_FOR_CALL /* the same, and devices by their driver, which is at work in this process */
} fl_ask;

/* Asks, and selects under the policy in force in this thread; *scoped: a scope's. Nothing may be held before. On
 * success the host's lock is held, and the caller unlocks. FL_EINVAL: no such device type. */
fl_status fl_select_locked(fl_op *op, int32_t device_type, fl_ask ask, fl_selection *selection, bool *scoped);

/* The error for an empty selection (S4): FL_ENOIMPL. The host's lock is held. */
fl_status fl_selection_error(const fl_selection *selection);
/* What it says. */
void fl_selection_error_text(const fl_selection *selection, fl_text *text);

/* One line: why this item is where it is, with the setting and its origin. The host's lock is held. */
void fl_selection_reason(const fl_selection *selection, uint32_t item, bool scoped, fl_text *reason);

/* Where the order comes from: "VLLM_FL_PER_OP", "prefer: built-in", "the thread's scope"… The host's lock is held. */
void fl_selection_order_origin(const fl_selection *selection, bool scoped, fl_text *origin);

#endif
