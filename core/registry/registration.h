/*
 * What one plugin registers, staged until it is published as a whole (rule R3).
 */
#ifndef FLHOST_CORE_REGISTRY_REGISTRATION_H
#define FLHOST_CORE_REGISTRY_REGISTRATION_H

#include "core/support.h"

/* What one plugin registers, until it is committed as a whole. */
typedef struct fl_stage fl_stage;

/* Begins. `plugin` is its name, `build_id` what its implementations carry (fl_impl_uuid; "" = unknown), `flags` those
 * of its note. NULL: out of memory. */
fl_stage *fl_stage_begin(fl_host *host, const char *plugin, const char *build_id, uint32_t flags);

/* From now on rows of other ops than those of the list (FL_PLUGIN_OPS) are refused, and so are components but for the
 * platform of FL_PLUGIN_PLATFORM and the communicators of FL_PLUGIN_COMMUNICATORS (NULL: none). All borrowed. */
void fl_stage_limit(fl_stage *stage, const char *ops, const char *platform, const char *communicators);

/* From now on implementations of another kind or vendor than this are refused (FL_PLUGIN_VENDOR). Borrowed. */
void fl_stage_limit_vendor(fl_stage *stage, const char *vendor);

/* The table to hand to register_builtins. */
fl_registry *fl_stage_table(fl_stage *stage);

/* What came of a commit that went well. */
typedef struct fl_committed {
  uint32_t impls; /* implementations that it published */
  fl_text remark; /* what is wrong even so: rows that were refused, or nothing that was registered; "" if nothing is */
} fl_committed;

/* Publishes what was staged, all of it or none. FL_EPLUGIN when a row was refused and the flags do not allow it; the
 * message says which rows and why. FL_ENOMEM: memory was missing for this or for a row. `committed` may be NULL; else
 * it is empty before, and the caller frees its remark. Frees the stage. */
fl_status fl_stage_commit(fl_stage *stage, fl_committed *committed);

/* What plugins were handed, which they may have kept, is no more. */
void fl_registrars_free(fl_host *host);

/* Drops it. `reason` (may be NULL) gets what registry->error() was given, or which rows were refused. */
void fl_stage_abort(fl_stage *stage, fl_text *reason);

#endif
