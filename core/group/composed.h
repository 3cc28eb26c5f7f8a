/* Collectives that a communicator lacks, made of those that it has. What is wrong was found before. */
#ifndef FLHOST_CORE_GROUP_COMPOSED_H
#define FLHOST_CORE_GROUP_COMPOSED_H

#include "core/group/collective.h"

fl_status fl_collective_compose(fl_group *group, const fl_collective *collective);
fl_status fl_collective_compose_batch(fl_group *group, const fl_collective *collectives, uint32_t n);

#endif
