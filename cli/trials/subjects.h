/* What `flhost verify` and `flhost bench` look at: operators and implementations that are asked for, one by one. */
#ifndef FLHOST_CLI_TRIALS_SUBJECTS_H
#define FLHOST_CLI_TRIALS_SUBJECTS_H

#include <flhost/flhost.h>

/* Is the op among the n that are named? None named: all are. */
bool cli_is_selected(const char *name, int n, char **ops);

/* --impl must name an implementation of one of these ops; NULL is fine. The exit status. */
int cli_check_impl(const fl_snapshot *snapshot, const char *impl, int n, char **ops);

/* A policy under which only this implementation of the op may run, and what it returns is returned. Vendors that the
 * host's policy keeps out stay out. false: out of memory. */
bool cli_create_policy(fl_host *host, const char *op, const char *impl_id, fl_policy **policy);

/* Why an implementation that is not available is not tried; malloc'ed, NULL: out of memory. */
char *cli_unavailable_reason(const fl_impl_info *info);

/* Why the host did not call an implementation: the part of its message that says so, on one line; malloc'ed. */
char *cli_skip_reason(const char *message);

/* Has the op a tensor among its arguments? */
bool cli_has_tensors(const fl_op *op);

/* "[#######               ] 7 of 50 rms_norm" on a terminal; with no op the line is wiped. */
void cli_show_progress(uint32_t done, uint32_t all, const char *op);

#endif
