/* A frozen host: who changes what resolving depends on asks here first. Freezing itself is in capture/. */
#ifndef FLHOST_CORE_REGISTRY_FROZEN_H
#define FLHOST_CORE_REGISTRY_FROZEN_H

#include "core/registry/records.h"

/*
 * To be asked before anything changes that resolving depends on: the registry, the policy, the settings, failures.
 * FL_ESTATE when the host is frozen; the message says that `what` ("setting the global policy") is refused, who froze
 * the host, and how to thaw it. The host's lock is held until the change is made; the other one takes it itself, for
 * refusing early what is refused again later.
 */
fl_status fl_refuse_frozen(fl_host *host, const char *what);
fl_status fl_refuse_frozen_unlocked(fl_host *host, const char *what);

/* Adds who froze the host, and what ends that. The host's lock is held. */
void fl_freeze_state(const fl_host *host, fl_text *text);

/* An implementation failed: true if the call must end with that, since the host is frozen; the message then says so
 * after `reason`, which may lie in the thread's message. Nothing is held. */
bool fl_keeps_frozen(fl_host *host, const char *op, const char *impl_id, const char *reason, fl_status status);

/* Adds "'a', 'b'", those who froze the host. The host's lock is held. */
void fl_frozen_by(const fl_host *host, fl_text *text);

#endif
