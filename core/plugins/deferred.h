/* Plugins that are loaded when one of the ops that they list is first looked for (FL_PLUGIN_OPS). */
#ifndef FLHOST_CORE_PLUGINS_DEFERRED_H
#define FLHOST_CORE_PLUGINS_DEFERRED_H

#include "core/plugins/loader.h"

/*
 * Around everything that loads or withdraws plugins of a host, or makes an op ready; taken before the host's lock. The
 * thread that has it may take it again: a plugin's code, or the engine's log function, may look for an op.
 */
void fl_loading_begin(fl_host *host);
void fl_loading_end(fl_host *host);

/* Loads the deferred plugins that list the op, or all (NULL). No lock is held. What became of each is in its record;
 * only FL_ENOMEM is an error. */
fl_status fl_load_deferred(fl_host *host, const char *op);

/* The same for those that bring the platform (FL_PLUGIN_PLATFORM), or any (NULL). */
fl_status fl_load_deferred_platform(fl_host *host, const char *platform);

/* The rest: the host's lock is held. */

/* Is there a deferred plugin that this thread is not just loading? */
bool fl_has_deferred(const fl_host *host);

/* Does a deferred plugin list the op? */
bool fl_is_deferred(const fl_host *host, const char *op);

/* May a plugin that lists these ops wait until one of them is looked for? */
bool fl_may_defer(const fl_host *host, const char *ops);

/* Adds the ops that deferred plugins list. false: out of memory. */
bool fl_deferred_ops(const fl_host *host, fl_strings *ops);

/* A plugin that lists the op and failed, NULL if there is none. */
const fl_plugin_record *fl_failed_lister(const fl_host *host, const char *op);

#endif
