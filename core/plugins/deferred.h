/* Plugins that are loaded when one of the ops that they list is first looked for (FL_PLUGIN_OPS). */
#ifndef FLHOST_CORE_PLUGINS_DEFERRED_H
#define FLHOST_CORE_PLUGINS_DEFERRED_H

#include "core/registry.h"

/* fl_host_hooks.load_deferred, load_deferred_platform. */
fl_status fl_load_deferred(fl_host *host, const char *op);
fl_status fl_load_deferred_platform(fl_host *host, const char *platform);

/* The same for those that bring communicators. */
fl_status fl_load_deferred_communicators(fl_host *host);

/* fl_host_hooks.let_in. */
void fl_let_in(fl_host *host);

/* The rest: the host's lock is held. */

/* Is there a deferred plugin that this thread is not just loading? */
bool fl_has_deferred(const fl_host *host);

/* May a plugin that lists these ops wait until one of them is looked for? */
bool fl_may_defer(const fl_host *host, const char *ops);

#endif
