/* One rank's part of a communicator, and the messages that it is waiting for. */
#ifndef FLHOST_PLUGINS_MPI_RANK_H
#define FLHOST_PLUGINS_MPI_RANK_H

#include "plugins/mpi/library.h"

#include <stdatomic.h>

enum { MPI_TEXT = 320 }; /* of an error, with its end: one small message */

typedef enum mpi_direction { MPI_SENDS, MPI_RECEIVES, MPI_NEITHER } mpi_direction;

/* A message that was posted. */
typedef struct mpi_message {
  int peer; /* -1: all */
  int bytes;
  mpi_direction direction;
  bool done;
} mpi_message;

struct fl_rank {
  const mpi_library *mpi;
  MPI_Comm comm;
  int me, n;
  const char *name, *hint; /* of the group; what is said behind the names of ranks that did not come */
  double timeout;
  char *message;
  size_t message_size;
  int calling;     /* fl_collective_kind, and the tag of its messages */
  mpi_message *of; /* of each request */
  MPI_Request *requests;
  MPI_Status *statuses;
  int *finished; /* room for MPI_Testsome */
  int posted, room;
  void *scratch;
  size_t scratch_bytes;
  const void **operands; /* n */
  int *numbers;          /* 4 n: counts and places, as MPI's own collectives want them */
  bool endless;          /* no rank has a limit of time: MPI's own collectives may be used */
  fl_status broken;      /* by what, once something went wrong */
  char text[MPI_TEXT];
  bool no_comm; /* `comm` is being made: nobody can be told anything */
  atomic_bool aborted;
  fl_rank *next; /* of those that are kept: see mpi_rank_free */
};

/* `comm` becomes the rank's. NULL: no memory, and it does not. Message, name and timeout are the join's. */
fl_rank *mpi_rank_make(const mpi_library *mpi, MPI_Comm comm, const fl_join *join);

/* What was left waiting may still use a broken rank's memory: that is kept for the life of the process. */
void mpi_rank_free(fl_rank *rank);

/* Before each collective: is there a rank to make it with, in this thread? */
fl_status mpi_enter(fl_rank *rank, int calling);

/* Posts a message to or from another rank; nothing is a message, too. What goes wrong mpi_wait says. Receives go before
 * sends. */
void mpi_send(fl_rank *rank, int peer, const void *memory, size_t bytes);
void mpi_receive(fl_rank *rank, int peer, void *memory, size_t bytes);

/* Begins to make `comm` as a copy of another communicator, all of whose ranks do; mpi_wait ends it. */
void mpi_copy(fl_rank *rank, MPI_Comm from);

/* Until all that was posted is done. FL_EDEVICE: not within the time limit, or the rank is broken. */
fl_status mpi_wait(fl_rank *rank);

/* The rank is of no use any more, which the others are told. */
FL_PRINTF(3, 4) fl_status mpi_break(fl_rank *rank, fl_status status, const char *format, ...);

/* Breaks it by the error that a function of MPI returned. */
fl_status mpi_failed(fl_rank *rank, int code, const char *what, int peer);

/* FL_OK, or what broke it. */
fl_status mpi_state(fl_rank *rank);

/* At least so many bytes for what is received; NULL: the rank is broken for want of memory. */
void *mpi_scratch(fl_rank *rank, size_t bytes);

#endif
