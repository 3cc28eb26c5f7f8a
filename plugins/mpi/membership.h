/* Joining, leaving, ending and dividing a communicator, in the form that fl_communicator has them. */
#ifndef FLHOST_PLUGINS_MPI_MEMBERSHIP_H
#define FLHOST_PLUGINS_MPI_MEMBERSHIP_H

#include "plugins/mpi/rank.h"

typedef struct mpi_id {
  unsigned char bytes[16];
} mpi_id;

fl_status mpi_make_id(void *self, void *id, char *message, size_t message_size);
fl_status mpi_join(void *self, const fl_join *join, fl_rank **joined);
void mpi_leave(void *self, fl_rank *rank);
void mpi_abort(void *self, fl_rank *rank);
fl_status mpi_rank_state(void *self, fl_rank *rank);
fl_status mpi_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part);

#endif
