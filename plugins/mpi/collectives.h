/* Collectives, in the form that fl_communicator has them. */
#ifndef FLHOST_PLUGINS_MPI_COLLECTIVES_H
#define FLHOST_PLUGINS_MPI_COLLECTIVES_H

#include "plugins/mpi/rank.h"

fl_status mpi_all_reduce(void *self, fl_rank *rank, const fl_collective *c);     /* and reduce */
fl_status mpi_reduce_scatter(void *self, fl_rank *rank, const fl_collective *c); /* and reduce_scatter_v */
fl_status mpi_broadcast(void *self, fl_rank *rank, const fl_collective *c);
fl_status mpi_move(void *self, fl_rank *rank, const fl_collective *c); /* all that gathers, scatters and exchanges */
fl_status mpi_one(void *self, fl_rank *rank, const fl_collective *c);  /* send, recv */
fl_status mpi_barrier(void *self, fl_rank *rank, const fl_collective *c);
fl_status mpi_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);

#endif
