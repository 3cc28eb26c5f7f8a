/* Communicators that plugins brought: which there are, whether they are available, and which one a group gets. */
#ifndef FLHOST_CORE_GROUP_COMMUNICATORS_H
#define FLHOST_CORE_GROUP_COMMUNICATORS_H

#include "core/registry.h"

#include <flhost/group.h>

/* One that a group may be made with; a copy, so that it stays good when its plugin is withdrawn. */
typedef struct fl_communicator_choice {
  fl_communicator functions; /* its `vendor` is not to be used */
  void *self;
  char name[FL_NAME_MAX + 1];
} fl_communicator_choice;

/* The best for a device type; or, with a name, that one, if it is allowed and available: fl_group_make_id and
 * fl_group_create say which errors. No lock is held. */
fl_status fl_communicator_choose(fl_host *host, int32_t device_type, const char *name, fl_communicator_choice *choice);

/* What it has for a kind; NULL: nothing. */
fl_collective_fn fl_communicator_function(const fl_communicator *communicator, int32_t kind);

#endif
