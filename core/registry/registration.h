/*
 * What one plugin registers, staged until it is published as a whole (rule R3).
 */
#ifndef FLHOST_CORE_REGISTRY_REGISTRATION_H
#define FLHOST_CORE_REGISTRY_REGISTRATION_H

#include <flhost/flhost.h>

/* What one plugin registers, until it is committed as a whole. */
typedef struct fl_stage fl_stage;

/* Begins. `plugin` is its name, `build_id` what its implementations carry (fl_impl_uuid; "" = unknown), `flags` those
 * of its note. NULL: out of memory. */
fl_stage *fl_stage_begin(fl_host *host, const char *plugin, const char *build_id, uint32_t flags);

/* From now on rows of other ops than those of the list (FL_PLUGIN_OPS) are refused, and so are components but for the
 * platform of FL_PLUGIN_PLATFORM (NULL: none). Both borrowed. */
void fl_stage_limit(fl_stage *stage, const char *ops, const char *platform);

/* The table to hand to register_builtins. */
fl_registry *fl_stage_table(fl_stage *stage);

/* Publishes what was staged. FL_EPLUGIN (nothing published) when a row was refused and the flags do not allow it; the
 * message says which rows and why, or what registry->error() was told. With FL_OK it is "", or says what is wrong even
 * so: rows that were refused, or nothing that was registered. *n_impls: implementations published. Frees the stage. */
fl_status fl_stage_commit(fl_stage *stage, uint32_t *n_impls);

/* Drops it. The message that registry->error() was given, if any, is put into the thread's error message. */
void fl_stage_abort(fl_stage *stage);

#endif
