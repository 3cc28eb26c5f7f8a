/*
 * flhost/freeze.h: freezing what calls run, for a graph capture or an ahead-of-time compilation.
 */
#ifndef FLHOST_FREEZE_H
#define FLHOST_FREEZE_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Resolves, under the policy in force in this thread, every op that has an implementation for a device type (kDLCPU…),
 * so that no call has to; an op without tensors, too, since its calls are for any device. Counts as an op's first use
 * in the log. `n_resolved` gets the number of ops that are ready, `n_without` of those of which no implementation may
 * run (fl_explain says why), which is no error; either may be NULL. FL_EINVAL: no such device type; FL_ENOMEM.
 */
FL_API fl_status fl_warm_up(fl_host *host, int32_t device_type, uint32_t *n_resolved, uint32_t *n_without);

/*
 * Freezes what calls run, for a graph capture or an ahead-of-time compilation. `who` (up to FL_NAME_MAX bytes) is named
 * in what is refused until fl_thaw with the same name. Freezes nest and may overlap: the host stays frozen while one is
 * left. In a frozen host
 *   - registering, loading, discovering and withdrawing plugins, setting or resetting the global policy, entering a
 *     scope and fl_op_enforce_enable return FL_ESTATE; fl_bump_policy_epoch and fl_clear_failed_impls do nothing and
 *     log a warning. Each names what was refused, who froze the host and how to thaw it;
 *   - a scope that was entered before stays in force in its thread, and may be left;
 *   - what is bound stays bound. What is not is resolved by its first call, to what it would have been resolved to at
 *     the freeze: all availability is asked before, and an implementation that failed and was not due to be tried again
 *     stays out;
 *   - an implementation that fails is not replaced: its status comes back, with its message and who froze the host, and
 *     is not remembered. Candidates whose supports_args says no are passed over as ever;
 *   - a forked child is frozen, too.
 *
 * A call that is running meanwhile may still fall back, and changes nothing for later ones. FL_EINVAL: `who` is NULL,
 * empty or too long.
 */
FL_API fl_status fl_freeze(fl_host *host, const char *who);

/* Ends one freeze of that name. When it was the last: implementations that failed before the freeze wait for their
 * back-off from now on. FL_ESTATE: `who` has not frozen the host; the message says who has. */
FL_API fl_status fl_thaw(fl_host *host, const char *who);

/* Is the host frozen? `who` (may be NULL) gets the names in quotes, in the order of freezing, separated by ", "; cut
 * off at `size` bytes; "" if it is not. */
FL_API bool fl_is_frozen(fl_host *host, char *who, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_FREEZE_H */
