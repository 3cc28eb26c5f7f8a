/*
 * flhost/scope.h: a policy for one thread and a while.
 */
#ifndef FLHOST_SCOPE_H
#define FLHOST_SCOPE_H

#include <flhost/policy.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A policy for this thread only, until the scope is left. Storage is the caller's; scopes nest and must be left in
 * reverse order, by the thread that entered them.
 *
 *     fl_scope scope;
 *     if (fl_scope_prefer(host, "reference", &scope)) …;
 *     … calls …
 *     fl_scope_leave(&scope);
 */
typedef struct fl_scope {
  fl_host *host; /* this and the rest are the host's own */
  fl_policy *policy;
  struct fl_scope *outer;
  void *view;
  uint64_t thread_id;
  uint64_t reserved[11];
} fl_scope;

/* FL_EINVAL: `policy` is NULL, or a word that is none, and the nearest; FL_ESTATE: the host is frozen. The scope is
 * then not entered, and not to be left. */
FL_API fl_status fl_scope_enter(fl_host *host, fl_policy *policy, fl_scope *scope);
/* Like fl_policy_with_…, derived from the policy in force in this thread. */
FL_API fl_status fl_scope_strict(fl_host *host, fl_scope *scope);
FL_API fl_status fl_scope_prefer(fl_host *host, const char *prefer, fl_scope *scope);
FL_API fl_status fl_scope_allow_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope);
FL_API fl_status fl_scope_deny_vendors(fl_host *host, const char *const *vendors, uint32_t n, fl_scope *scope);
/* FL_ENOENT: the host knows no such op. */
FL_API fl_status fl_scope_op_order(fl_host *host, const char *op, const char *const *tokens, uint32_t n,
                                   fl_scope *scope);
/* FL_ESTATE: not this thread's innermost scope. */
FL_API fl_status fl_scope_leave(fl_scope *scope);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_SCOPE_H */
