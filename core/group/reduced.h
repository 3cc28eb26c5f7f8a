/* Reductions on the processor, for element types and reductions that a communicator does not know. */
#ifndef FLHOST_CORE_GROUP_REDUCED_H
#define FLHOST_CORE_GROUP_REDUCED_H

#include "core/group/collective.h"

/* Of all ranks' elements, which are gathered. */
fl_status fl_collective_reduce_here(fl_group *group, const fl_collective *collective);

/* Sums to means, in place, on the group's device. */
fl_status fl_collective_divide(fl_group *group, void *elements, int64_t count, DLDataType dtype, void *stream);

#endif
