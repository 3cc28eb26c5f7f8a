/* Open MPI's library: found, opened and initialised when ranks join, and not before. */
#ifndef FLHOST_PLUGINS_MPI_LIBRARY_H
#define FLHOST_PLUGINS_MPI_LIBRARY_H

#include <flhost/communicator.h>
#include <mpi.h>

/* What is called of it. The names that mpi.h has for objects (MPI_BYTE) stand for symbols of the library, so that these
 * are looked up, too: linking fails where one is named elsewhere. */
#define MPI_FUNCTIONS(X)                                                                                               \
  X(Initialized)                                                                                                       \
  X(Finalized)                                                                                                         \
  X(Init_thread)                                                                                                       \
  X(Finalize)                                                                                                          \
  X(Query_thread)                                                                                                      \
  X(Is_thread_main)                                                                                                    \
  X(Comm_rank)                                                                                                         \
  X(Comm_size)                                                                                                         \
  X(Comm_idup)                                                                                                         \
  X(Comm_group)                                                                                                        \
  X(Comm_create_group)                                                                                                 \
  X(Comm_free)                                                                                                         \
  X(Comm_set_errhandler)                                                                                               \
  X(Group_incl)                                                                                                        \
  X(Group_free)                                                                                                        \
  X(Isend)                                                                                                             \
  X(Irecv)                                                                                                             \
  X(Recv)                                                                                                              \
  X(Iprobe)                                                                                                            \
  X(Testsome)                                                                                                          \
  X(Cancel)                                                                                                            \
  X(Request_free)                                                                                                      \
  X(Get_count)                                                                                                         \
  X(Error_string)

typedef struct mpi_library {
#define MPI_FUNCTION(name) __typeof__(MPI_##name) *name;
  MPI_FUNCTIONS(MPI_FUNCTION)
#undef MPI_FUNCTION
  MPI_Comm world;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
  int level; /* of threads, as MPI granted it */
} mpi_library;

/* Is the library there, and are there other processes, or could be? Neither opens nor initialises it. */
bool mpi_is_available(void *self, const char **reason);

/* Opens and initialises it, once, for a group of `ranks`; to initialise it waits, without a limit of time, for all
 * processes that mpirun started. From any thread. FL_EINVAL: there are not so many ranks; FL_ESTATE: not here any more,
 * or not in this thread; FL_EDEVICE: it is not there, or fails. */
fl_status mpi_start(int32_t ranks, const mpi_library **mpi, char *message, size_t message_size);

/* From here on ranks wait for others in vain: the process does not end MPI in order, since that would wait, too. */
void mpi_leave_unfinished(void);

/* May this thread call MPI? FL_ESTATE, with a message: not after it was finalised, and not at the level of threads that
 * the engine asked for. */
fl_status mpi_check_use(const mpi_library *mpi, char *message, size_t message_size);

#endif
