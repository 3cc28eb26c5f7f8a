/*
 * The policy in force in a thread: which it is, where its fields come from, and whose implementations it keeps out.
 * Unless it says otherwise the host's lock is held around a function.
 */
#ifndef FLHOST_CORE_REGISTRY_IN_FORCE_H
#define FLHOST_CORE_REGISTRY_IN_FORCE_H

#include "core/registry/records.h"

/* The thread's innermost scope in the host; NULL: it is in none. No lock is needed. */
const fl_scope *fl_scope_innermost(const fl_host *host);

/* What of a scope's reserved words is in use: its group, a fl_ranks * or NULL, and fl_ranks_group_of its name. */
enum { FL_SCOPE_GROUP, FL_SCOPE_GROUP_NAME };

/* The ranks that share a call of the op, which is ready, in this thread; NULL: none do. No lock is needed. */
const fl_ranks *fl_scope_find_ranks(const fl_op *op);
static inline const fl_ranks *fl_scope_ranks(const fl_op *op) {
  return fl_self.scope && op->schema->over_ranks ? fl_scope_find_ranks(op) : NULL;
}

/* The call, of any size and maybe NULL, with those ranks: itself where there are none, else *shared. */
const fl_call *fl_call_with_ranks(const fl_op *op, const fl_call *call, fl_call *shared);

/* Of that scope, else the host's own. Not retained. */
fl_policy *fl_scope_policy(fl_host *host, bool *scoped);

/* Does a policy deny vendors, or allow only some? */
static inline bool fl_filters_vendors(const fl_policy *policy) {
  return policy->fields.n_deny_vendors || policy->fields.allow_vendors;
}

/* The policy that filters vendors (P4): the one in force, or while a host is created what of it is known. NULL: none
 * does, since dispatch is off or it lets all in. */
fl_policy *fl_vendor_filter(fl_host *host);
/* The same, retained, with the generation of the registry. The lock must not be held. */
fl_policy *fl_vendor_filter_take(fl_host *host, uint32_t *generation);

/* The cleanup of a variable with such a one: whoever is asked under it may throw, or end the thread. */
static inline void fl_filter_release(fl_policy *const *filter) {
  fl_policy_release(*filter);
}

/* Does the filter (NULL: none) keep an implementation out? It is not asked for anything then. No lock is needed. */
static inline bool fl_keeps_out(const fl_policy *filter, const fl_impl_record *impl) {
  return filter && impl->kind == FL_KIND_VENDOR && fl_filters_vendors(filter) &&
         !fl_policy_vendor_allowed(filter, impl->vendor);
}

/* Does the host's policy keep a vendor out, and no scope of this thread let it in? Why goes to the end of `reason`. A
 * scope that denies keeps out no plugin: other threads may want it. */
bool fl_vendor_is_kept_out(const fl_host *host, const char *vendor, fl_text *reason);

/* A vendor that the filter keeps out, if all are that a component's plugin has implementations of, or, where it has
 * none, that of the component's name, a platform's; else NULL. */
const char *fl_component_kept_out(const fl_host *host, const fl_policy *filter, const fl_component_record *component);

/* "vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)". */
void fl_kept_out_reason(const fl_host *host, const fl_policy *filter, bool scoped, const char *vendor, fl_text *reason);

/* Where a field of the policy in force comes from. */
const char *fl_policy_origin(const fl_host *host, fl_setting_id setting, bool scoped);

/* After what is in force changed: loads what was kept out and is so no more. No lock is held. */
static inline void fl_host_let_in(fl_host *host) {
  if (atomic_load(&host->kept_out))
    host->hooks->let_in(host);
}

#endif
