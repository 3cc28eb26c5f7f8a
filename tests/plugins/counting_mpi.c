/*
 * Stands before Open MPI's library (FLHOST_MPI), and counts how often its own collectives are called. What else is
 * looked for here is found in the library, with which this one is linked.
 */
#include <mpi.h>
#include <stdatomic.h>

#define API __attribute__((visibility("default")))

extern API atomic_int counted_collectives;
atomic_int counted_collectives;

#define COUNTED(name, parameters, arguments)                                                                           \
  API int MPI_##name parameters {                                                                                      \
    atomic_fetch_add(&counted_collectives, 1);                                                                         \
    return PMPI_##name arguments;                                                                                      \
  }

COUNTED(Allreduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), (s, r, n, t, op, c))
COUNTED(Reduce, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c),
        (s, r, n, t, op, root, c))
COUNTED(Reduce_scatter, (const void *s, void *r, const int n[], MPI_Datatype t, MPI_Op op, MPI_Comm c),
        (s, r, n, t, op, c))
COUNTED(Reduce_scatter_block, (const void *s, void *r, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
        (s, r, n, t, op, c))
COUNTED(Bcast, (void *b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
COUNTED(Allgather, (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, MPI_Comm c),
        (s, n, t, r, m, u, c))
COUNTED(Allgatherv,
        (const void *s, int n, MPI_Datatype t, void *r, const int m[], const int d[], MPI_Datatype u, MPI_Comm c),
        (s, n, t, r, m, d, u, c))
COUNTED(Gather, (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, int root, MPI_Comm c),
        (s, n, t, r, m, u, root, c))
COUNTED(Scatter, (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, int root, MPI_Comm c),
        (s, n, t, r, m, u, root, c))
COUNTED(Alltoall, (const void *s, int n, MPI_Datatype t, void *r, int m, MPI_Datatype u, MPI_Comm c),
        (s, n, t, r, m, u, c))
COUNTED(Alltoallv,
        (const void *s, const int n[], const int d[], MPI_Datatype t, void *r, const int m[], const int e[],
         MPI_Datatype u, MPI_Comm c),
        (s, n, d, t, r, m, e, u, c))
COUNTED(Barrier, (MPI_Comm c), (c))
