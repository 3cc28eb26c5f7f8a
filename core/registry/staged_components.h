/* Components that a plugin registers, its platforms, communicators, the layers that its ops replace, classes: judged
 * and staged. */
#ifndef FLHOST_CORE_REGISTRY_STAGED_COMPONENTS_H
#define FLHOST_CORE_REGISTRY_STAGED_COMPONENTS_H

#include "core/registry/stage.h"

/* Stages a row. An error says what is wrong with it; *row, which has a value before, gets its name. */
fl_status fl_stage_component(fl_stage *stage, const fl_component *given, fl_row_name *row);

/* What an op's entry says that it replaces (fl_op_def.layers; may be NULL) is a component of the plugin, and goes with
 * it. The op is there, or will be staged. */
fl_status fl_stage_layers(fl_stage *stage, const char *layers, const char *op);

/* Drops those that were staged last, up to `kept`. */
void fl_stage_drop_components(fl_stage *stage, uint32_t kept);

/* FL_EEXIST: the registry got an op for the class, or a communicator of that name, since. The host's lock is held. */
fl_status fl_component_check_again(const fl_stage *stage, const fl_component_record *component);

#endif
