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
  X(Error_string)                                                                                                      \
  X(Allreduce)                                                                                                         \
  X(Reduce)                                                                                                            \
  X(Reduce_scatter)                                                                                                    \
  X(Reduce_scatter_block)                                                                                              \
  X(Bcast)                                                                                                             \
  X(Allgather)                                                                                                         \
  X(Allgatherv)                                                                                                        \
  X(Gather)                                                                                                            \
  X(Scatter)                                                                                                           \
  X(Alltoall)                                                                                                          \
  X(Alltoallv)                                                                                                         \
  X(Barrier)

/* Objects of the library: as what they are used, what they are called here, and their symbols. */
#define MPI_OBJECTS(X)                                                                                                 \
  X(MPI_Comm, world, "ompi_mpi_comm_world")                                                                            \
  X(MPI_Errhandler, errors_return, "ompi_mpi_errors_return")                                                           \
  X(MPI_Datatype, byte, "ompi_mpi_byte")                                                                               \
  X(MPI_Datatype, float32, "ompi_mpi_float")                                                                           \
  X(MPI_Datatype, float64, "ompi_mpi_double")                                                                          \
  X(MPI_Datatype, int8, "ompi_mpi_int8_t")                                                                             \
  X(MPI_Datatype, int32, "ompi_mpi_int32_t")                                                                           \
  X(MPI_Datatype, int64, "ompi_mpi_int64_t")                                                                           \
  X(MPI_Datatype, uint8, "ompi_mpi_uint8_t")                                                                           \
  X(MPI_Datatype, uint16, "ompi_mpi_uint16_t")                                                                         \
  X(MPI_Datatype, uint32, "ompi_mpi_uint32_t")                                                                         \
  X(MPI_Datatype, uint64, "ompi_mpi_uint64_t")                                                                         \
  X(MPI_Op, sum, "ompi_mpi_op_sum")                                                                                    \
  X(MPI_Op, prod, "ompi_mpi_op_prod")                                                                                  \
  X(MPI_Op, max, "ompi_mpi_op_max")                                                                                    \
  X(MPI_Op, min, "ompi_mpi_op_min")                                                                                    \
  X(MPI_Op, logical_or, "ompi_mpi_op_lor")                                                                             \
  X(MPI_Op, logical_and, "ompi_mpi_op_land")

typedef struct mpi_library {
#define MPI_FUNCTION(name) __typeof__(MPI_##name) *name;
  MPI_FUNCTIONS(MPI_FUNCTION)
#undef MPI_FUNCTION
#define MPI_OBJECT(type, name, symbol) type name;
  MPI_OBJECTS(MPI_OBJECT)
#undef MPI_OBJECT
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
