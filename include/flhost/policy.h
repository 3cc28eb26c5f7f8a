/*
 * flhost/policy.h: which implementations may run, in which order.
 */
#ifndef FLHOST_POLICY_H
#define FLHOST_POLICY_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Which implementations may run, in which order. Immutable and counted: fl_policy_retain/release; a function that gives
 * out a `fl_policy **` gives out a count that the caller releases.
 */
typedef struct fl_policy fl_policy;

/* The tokens to try for one op, in order: flagos, vendor, vendor:NAME, reference, impl:ID; native, which is another
 * word for reference; unfused, the implementation `reference.parts`, which runs a fused op by its parts (fl_op_parts).
 */
typedef struct fl_op_order {
  const char *op;
  const char *const *tokens;
  uint32_t n_tokens;
} fl_op_order;

/* What a policy is made of; a zero or NULL field stands for the default. */
typedef struct fl_policy_fields {
  uint32_t size;        /* sizeof(fl_policy_fields) of who made it */
  const char *prefer;   /* "flagos", "vendor" or "reference"; NULL = flagos */
  bool strict;          /* fail at once, never fall back */
  bool preserve_inputs; /* keep a copy of what an in-place call overwrites, so that a fallback can start from it */
  const fl_op_order *per_op;
  uint32_t n_per_op, per_op_size; /* per_op_size: sizeof(fl_op_order) */
  const char *const *deny_vendors;
  uint32_t n_deny_vendors;
  const char *const *allow_vendors; /* NULL: all vendors; not NULL and n 0: none */
  uint32_t n_allow_vendors;
  /* Not 0: a call that nothing in the order runs on the device of its tensors runs on the CPU. What it reads is copied
   * there, what it writes is copied back, and the stream is waited for; not while a graph is captured. (As wide as it
   * is so that it lies behind what older forms of the struct had.) */
  uint64_t host_fallback;
} fl_policy_fields;

/* Order i of the fields' per_op; NULL: there are fewer. */
static inline const fl_op_order *fl_order_at(const fl_policy_fields *fields, uint32_t i) {
  return (const fl_op_order *)fl_item_at(fields->per_op, fields->n_per_op, fields->per_op_size, i);
}

/* Makes a policy of its fields, which are copied. FL_EINVAL: an unknown `prefer` or token, and the message names the
 * nearest valid one; a name of an op or a vendor that is empty or has white space around it. */
FL_API fl_status fl_policy_create(const fl_policy_fields *fields, fl_policy **policy);

/* From a YAML file of the form that VLLM_FL_CONFIG takes. FL_ECONFIG with file, line and column; with
 * VLLM_FL_CHECK=warn in the environment what is invalid is left out and said on standard error. No other variable says
 * what is in it. */
FL_API fl_status fl_policy_from_config(const char *path, fl_policy **policy);

/* One count more, and one less; the last frees the policy. NULL is ignored. */
FL_API fl_policy *fl_policy_retain(fl_policy *policy);
FL_API void fl_policy_release(fl_policy *policy);

/* The fields, valid as long as the policy. per_op is sorted by op, the vendor sets by name. */
FL_API const fl_policy_fields *fl_policy_get_fields(const fl_policy *policy);

/* Equal fields make equal policies. */
FL_API bool fl_policy_equal(const fl_policy *a, const fl_policy *b);

/* "prefer=flagos;st=0;allow=a,b;deny=c;per=op=x|y", the form of the dispatcher that flhost replaces. */
FL_API const char *fl_policy_fingerprint(const fl_policy *policy);

/* Derived policies. */
FL_API fl_status fl_policy_with_strict(const fl_policy *policy, bool strict, fl_policy **derived);
FL_API fl_status fl_policy_with_preference(const fl_policy *policy, const char *prefer, fl_policy **derived);
/* Replaces the set of allowed vendors; n 0 lifts the restriction. */
FL_API fl_status fl_policy_with_allowed_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                                fl_policy **derived);
/* Adds to the set of denied vendors. */
FL_API fl_status fl_policy_with_denied_vendors(const fl_policy *policy, const char *const *vendors, uint32_t n,
                                               fl_policy **derived);

/* Replaces the order of one op; n 0 takes it away. FL_EINVAL: an unknown token. */
FL_API fl_status fl_policy_with_op_order(const fl_policy *policy, const char *op, const char *const *tokens, uint32_t n,
                                         fl_policy **derived);

/* The policy in force in this thread: the innermost scope's, else the host's. The caller releases it. To hand a
 * thread's policy to another thread, take it here and enter a scope with it there. */
FL_API fl_policy *fl_get_policy(fl_host *host);

/* In force for every thread's next call outside scopes; the host keeps a count of its own. FL_EINVAL: `policy` is NULL;
 * FL_ESTATE: the host is frozen. */
FL_API fl_status fl_set_global_policy(fl_host *host, fl_policy *policy);

/* Rereads environment and files. FL_ECONFIG: an invalid setting; the old policy stays. FL_ESTATE: the host is frozen.
 */
FL_API fl_status fl_reset_global_policy(fl_host *host);

/* Forgets failures, and everything resolved; availability is asked again. */
FL_API void fl_bump_policy_epoch(fl_host *host);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_POLICY_H */
