/* MPI's own collectives, where they may be used. */
#ifndef FLHOST_PLUGINS_MPI_OWN_H
#define FLHOST_PLUGINS_MPI_OWN_H

#include "plugins/mpi/rank.h"

/* Makes it by MPI's own collective: true, and how it went in *status. False: not this one, on any rank, and nothing was
 * done. The rank was entered. */
bool mpi_own(fl_rank *rank, const fl_collective *c, fl_status *status);

#endif
