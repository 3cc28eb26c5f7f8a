/* Policies: immutable values that say which implementations may run and in which order (rules T and P of the manual).
 */
#ifndef FLHOST_CORE_SETTINGS_POLICY_H
#define FLHOST_CORE_SETTINGS_POLICY_H

#include <flhost/flhost.h>
#include <stdatomic.h>

struct fl_policy { /* made by fl_arena_create */
  _Atomic uint32_t references;
  fl_policy_fields fields; /* owned; per_op sorted by op, vendor sets sorted */
  const char *fingerprint;
  uint64_t hash; /* equal policies have equal hashes */
};

/* Tokens to try for an op: its per-op order when that is not empty (*per_op is set), else the default order. */
const char *const *fl_policy_order(const fl_policy *policy, const char *op, uint32_t *n, bool *per_op);

/* May impls of this vendor be used? deny wins over allow. */
bool fl_policy_vendor_allowed(const fl_policy *policy, const char *vendor);

/* Does an impl match a token? T1: exact, case-sensitive. */
bool fl_token_matches(const char *token, fl_kind kind, const char *vendor, const char *impl_id);

/* The implementation that runs a fused op by its parts (fl_op_def.parts), and the token that names it alone. */
#define FL_PARTS_IMPL  "reference.parts"
#define FL_TOKEN_PARTS "unfused"

/* The implementation that runs an op on the CPU for tensors on a device (fl_policy_fields.host_fallback). */
#define FL_HOST_IMPL "reference.host"

/* What a token may be, for messages. */
#define FL_TOKEN_FORMS "flagos, vendor, vendor:NAME, reference, native, unfused or impl:ID"

/* Is it a token at all (T2)? */
bool fl_token_valid(const char *token);

/* What one that is none may have been meant to be, NULL if nothing is near: the token without white space in it, a
 * kind, or a form (vendor:NAME). In static memory or in `room`. */
enum { FL_TOKEN_ROOM = FL_NAME_MAX + 16 };
const char *fl_token_nearest(const char *token, char room[FL_TOKEN_ROOM]);

/* A policy whose tokens are taken as they are (VLLM_FL_CHECK=warn: unknown tokens match nothing). */
fl_status fl_policy_create_unchecked(const fl_policy_fields *fields, fl_policy **policy);

/* "flagos", "vendor", "reference". */
const char *fl_kind_name(fl_kind kind);

#endif
