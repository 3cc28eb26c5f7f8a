/*
 * Loading as the registry sees it: the lock around it, and which ops wait for a plugin that lists them. The loading
 * itself is in plugins/.
 */
#ifndef FLHOST_CORE_REGISTRY_LOADING_H
#define FLHOST_CORE_REGISTRY_LOADING_H

#include "core/registry/records.h"

/*
 * Around everything that loads or withdraws plugins of a host, or makes an op ready; taken before the host's lock. The
 * thread that has it may take it again: a plugin's code, or the engine's log function, may look for an op.
 */
void fl_loading_begin(fl_host *host);
void fl_loading_end(fl_host *host);

/* The thread that has it is about to end, or leaves all that it was doing: the lock is free, however often it took it.
 */
void fl_loading_abandon(fl_host *host);

/* Does the plugin's FL_PLUGIN_OPS list the op? One that could not be read yet may. */
bool fl_plugin_lists(const fl_plugin_record *record, const char *op);

/* The rest: the host's lock is held. */

/* Does a deferred plugin list the op? */
bool fl_is_deferred(const fl_host *host, const char *op);

/* Does a plugin that is kept out list the op, or have no list? NULL: none does. */
const fl_plugin_record *fl_kept_out_lister(const fl_host *host, const char *op);

/* Is it a plugin that was found, and of which the op has nothing, though it lists the op, or has no list? */
bool fl_is_missing(const fl_plugin_record *record, const fl_op *op);

/* Adds the ops that deferred plugins list. false: out of memory. */
bool fl_deferred_ops(const fl_host *host, fl_strings *ops);

/* A plugin that lists the op and failed, for good or so far; NULL if there is none. */
const fl_plugin_record *fl_failed_lister(const fl_host *host, const char *op);

/* Is there one that failed so far, to be tried again when somebody looks for the op? */
bool fl_is_tried_again(const fl_host *host, const char *op);

#endif
