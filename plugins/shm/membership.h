/* Joining, leaving, ending and dividing a communicator, in the form that fl_communicator has them. */
#ifndef FLHOST_PLUGINS_SHM_MEMBERSHIP_H
#define FLHOST_PLUGINS_SHM_MEMBERSHIP_H

#include "plugins/shm/rank.h"

fl_status shm_join(void *self, const fl_join *join, fl_rank **joined);
void shm_leave(void *self, fl_rank *rank);
void shm_abort(void *self, fl_rank *rank);
fl_status shm_rank_state(void *self, fl_rank *rank);
fl_status shm_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part);

#endif
