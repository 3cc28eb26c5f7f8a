/*
 * How a rank waits: for messages that were posted, until a time limit, an error, an abort, or word from another rank
 * that it is in vain. Where there is a time limit, messages between two ranks are what all collectives are made of, and
 * not MPI's own collectives (own.c), which cannot be given up: a receive can be cancelled, so that nothing is written
 * into a buffer whose owner has gone on; and it says which rank did not come.
 *
 * What cannot be had: a send that another rank found, and has not read yet, reads its buffer later all the same.
 */
#include "plugins/mpi/rank.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  PIECE = 1 << 30,  /* of a message: MPI counts in int */
  NOTICE = 1000,    /* tag of the message that says that a rank is broken */
  SPINS = 64,       /* looks before others are let run, */
  YIELDS = 400,     /* and before it sleeps, */
  SLEEP_LEAST = 20, /* so many µs, then twice as long, */
  SLEEP_MOST = 1000
};
static const double CANCELLING = 1; /* seconds that a message which is on its way is given */

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static fl_rank *kept;

fl_rank *mpi_rank_make(const mpi_library *mpi, MPI_Comm comm, const fl_join *join) {
  fl_rank *rank = calloc(1, sizeof *rank);
  if (!rank)
    return NULL;
  rank->operands = calloc((size_t)join->ranks, sizeof *rank->operands);
  rank->numbers = calloc((size_t)join->ranks * 4, sizeof *rank->numbers);
  if (!rank->operands || !rank->numbers) {
    mpi_rank_free(rank);
    return NULL;
  }
  rank->mpi = mpi;
  rank->comm = comm;
  rank->me = join->rank;
  rank->n = join->ranks;
  rank->name = join->name;
  rank->hint = "";
  rank->timeout = join->timeout;
  rank->message = join->message;
  rank->message_size = join->message_size;
  return rank;
}

void mpi_rank_free(fl_rank *rank) {
  if (rank->broken) {
    rank->message = NULL;
    pthread_mutex_lock(&kept_lock);
    rank->next = kept;
    kept = rank;
    pthread_mutex_unlock(&kept_lock);
    return;
  }
  free(rank->of);
  free(rank->requests);
  free(rank->statuses);
  free(rank->finished);
  free(rank->scratch);
  free(rank->operands);
  free(rank->numbers);
  free(rank);
}

void *mpi_scratch(fl_rank *rank, size_t bytes) {
  if (bytes > rank->scratch_bytes) {
    free(rank->scratch);
    rank->scratch = malloc(bytes);
    rank->scratch_bytes = rank->scratch ? bytes : 0;
    if (!rank->scratch)
      mpi_break(rank, FL_ENOMEM, "no memory for %zu bytes of other ranks", bytes);
  }
  return rank->scratch;
}

/* ----------------------------------------------------------------------------------------------------------- errors */

static fl_status say_broken(fl_rank *rank) {
  return fl_say(rank->message, rank->message_size, rank->broken, "%s", rank->text);
}

static const char *calling_name(const fl_rank *rank) {
  const char *name = fl_collective_kind_name(rank->calling);
  return name ? name : "joining";
}

/* A text that fits is copied by MPI at once; the rank's memory is kept all the same. */
static void tell_others(fl_rank *rank) {
  const mpi_library *mpi = rank->mpi;
  for (int peer = 0; peer < rank->n && !rank->no_comm; peer++) {
    MPI_Request request;
    if (peer != rank->me && !mpi->Isend(rank->text, MPI_TEXT, mpi->byte, peer, NOTICE, rank->comm, &request))
      mpi->Request_free(&request);
  }
}

/* Takes done messages out of those that are waited for. -1: all went well; else the message that did not. */
static int look(fl_rank *rank, int *left, int *error) {
  int n = 0, wrong = -1;
  *error = rank->mpi->Testsome(rank->posted, rank->requests, &n, rank->finished, rank->statuses);
  for (int i = 0; n != MPI_UNDEFINED && i < n; i++) {
    mpi_message *m = &rank->of[rank->finished[i]];
    int bytes = m->bytes, code = *error == MPI_ERR_IN_STATUS ? rank->statuses[i].MPI_ERROR : MPI_SUCCESS;
    m->done = true;
    --*left;
    if (code == MPI_ERR_PENDING)
      continue;
    if (!code && m->direction == MPI_RECEIVES)
      rank->mpi->Get_count(&rank->statuses[i], rank->mpi->byte, &bytes);
    if (code || bytes != m->bytes) {
      wrong = rank->finished[i];
      *error = code;
      m->bytes = bytes;
    }
  }
  return wrong;
}

/* Nothing is received any more into memory that is not the rank's own, but for what is on its way by then. */
static void cancel(fl_rank *rank) {
  int left = 0, error;
  double start = seconds();
  for (int i = 0; i < rank->posted; i++)
    if (!rank->of[i].done && rank->of[i].direction == MPI_RECEIVES) {
      rank->mpi->Cancel(&rank->requests[i]);
      left++;
    }
  while (left > 0 && seconds() - start < CANCELLING) {
    int before = left, all = rank->posted;
    look(rank, &all, &error);
    left = 0;
    for (int i = 0; i < rank->posted; i++)
      left += !rank->of[i].done && rank->of[i].direction == MPI_RECEIVES;
    if (left == before)
      sched_yield();
  }
  rank->posted = 0;
}

fl_status mpi_break(fl_rank *rank, fl_status status, const char *format, ...) {
  va_list arguments;
  if (rank->broken)
    return say_broken(rank);
  rank->broken = status;
  va_start(arguments, format);
  vsnprintf(rank->text, sizeof rank->text, format, arguments);
  va_end(arguments);
  mpi_leave_unfinished();
  tell_others(rank);
  cancel(rank);
  return say_broken(rank);
}

fl_status mpi_failed(fl_rank *rank, int code, const char *what, int peer) {
  char words[MPI_MAX_ERROR_STRING] = "?";
  int length;
  rank->mpi->Error_string(code, words, &length);
  return mpi_break(rank, FL_EDEVICE, "%s %d: %s", what, peer, words);
}

/* Did another rank say that it goes on no more? */
static fl_status listen(fl_rank *rank) {
  const mpi_library *mpi = rank->mpi;
  MPI_Status status;
  int there = 0;
  char text[MPI_TEXT];
  if (rank->no_comm || mpi->Iprobe(MPI_ANY_SOURCE, NOTICE, rank->comm, &there, &status) || !there)
    return FL_OK;
  if (mpi->Recv(text, MPI_TEXT, mpi->byte, status.MPI_SOURCE, NOTICE, rank->comm, MPI_STATUS_IGNORE))
    return FL_OK;
  text[MPI_TEXT - 1] = 0;
  rank->broken = FL_EDEVICE;
  snprintf(rank->text, sizeof rank->text, "broken by rank %d: %.*s", status.MPI_SOURCE, MPI_TEXT - 40, text);
  mpi_leave_unfinished();
  cancel(rank);
  return say_broken(rank);
}

fl_status mpi_state(fl_rank *rank) {
  if (!rank->broken && atomic_load(&rank->aborted))
    return mpi_break(rank, FL_EDEVICE, "rank %d was aborted", rank->me);
  return rank->broken ? say_broken(rank) : listen(rank);
}

fl_status mpi_enter(fl_rank *rank, int calling) {
  fl_status status = mpi_check_use(rank->mpi, rank->message, rank->message_size);
  if (status)
    return status;
  rank->calling = calling;
  rank->posted = 0;
  return mpi_state(rank);
}

/* ---------------------------------------------------------------------------------------------------------- posting */

/* What is there stays where memory is short. */
static void *wider(void *old, size_t bytes, bool *good) {
  void *made = realloc(old, bytes);
  if (made)
    return made;
  *good = false;
  return old;
}

static bool grow(fl_rank *rank) {
  const size_t room = rank->room ? 2 * (size_t)rank->room : 64;
  bool good = true;
  rank->of = wider(rank->of, room * sizeof *rank->of, &good);
  rank->requests = wider(rank->requests, room * sizeof *rank->requests, &good);
  rank->statuses = wider(rank->statuses, room * sizeof *rank->statuses, &good);
  rank->finished = wider(rank->finished, room * sizeof *rank->finished, &good);
  if (good)
    rank->room = (int)room;
  else
    mpi_break(rank, FL_ENOMEM, "no memory for %zu messages", room);
  return good;
}

static void post(fl_rank *rank, mpi_direction direction, int peer, void *memory, int bytes) {
  const mpi_library *mpi = rank->mpi;
  int tag = rank->calling == FL_RECV ? FL_SEND : rank->calling;
  if (rank->broken || (rank->posted == rank->room && !grow(rank)))
    return;
  MPI_Request *request = &rank->requests[rank->posted];
  int code = direction == MPI_SENDS ? mpi->Isend(memory, bytes, mpi->byte, peer, tag, rank->comm, request)
                                    : mpi->Irecv(memory, bytes, mpi->byte, peer, tag, rank->comm, request);
  if (code)
    mpi_failed(rank, code, direction == MPI_SENDS ? "sending to rank" : "receiving from rank", peer);
  else
    rank->of[rank->posted++] = (mpi_message){.peer = peer, .bytes = bytes, .direction = direction};
}

static void post_pieces(fl_rank *rank, mpi_direction direction, int peer, char *memory, size_t bytes) {
  for (; bytes > PIECE; bytes -= PIECE, memory += PIECE)
    post(rank, direction, peer, memory, PIECE);
  post(rank, direction, peer, memory, (int)bytes);
}

void mpi_send(fl_rank *rank, int peer, const void *memory, size_t bytes) {
  post_pieces(rank, MPI_SENDS, peer, (char *)(uintptr_t)memory, bytes);
}

void mpi_receive(fl_rank *rank, int peer, void *memory, size_t bytes) {
  post_pieces(rank, MPI_RECEIVES, peer, memory, bytes);
}

void mpi_copy(fl_rank *rank, MPI_Comm from) {
  rank->no_comm = true;
  if (!rank->room && !grow(rank))
    return;
  int code = rank->mpi->Comm_idup(from, &rank->comm, &rank->requests[0]);
  if (code) {
    mpi_failed(rank, code, "copying MPI's world in rank", rank->me);
    return;
  }
  rank->of[0] = (mpi_message){.peer = -1, .direction = MPI_NEITHER};
  rank->posted = 1;
}

/* ---------------------------------------------------------------------------------------------------------- waiting */

static bool is_awaited(const fl_rank *rank, int peer, mpi_direction direction) {
  for (int i = 0; i < rank->posted; i++)
    if (!rank->of[i].done && rank->of[i].direction == direction && rank->of[i].peer == peer)
      return true;
  return false;
}

/* The ranks from which nothing came; where that is none, those that took nothing. */
static fl_status late(fl_rank *rank) {
  char who[160] = "";
  int missing = 0;
  for (int pass = 0; pass < 2 && !missing; pass++)
    for (int peer = 0; peer < rank->n; peer++)
      if (is_awaited(rank, peer, pass ? MPI_SENDS : MPI_RECEIVES)) {
        size_t length = strlen(who);
        if (length + 16 < sizeof who)
          snprintf(who + length, sizeof who - length, "%s%d", missing ? ", " : "", peer);
        else if (who[length - 1] != '.')
          strcpy(who + length, "...");
        missing++;
      }
  if (!missing)
    return mpi_break(rank, FL_EDEVICE,
                     "not all ranks of MPI's world came within %g s; MPI does not say who is missing%s", rank->timeout,
                     rank->hint);
  return mpi_break(rank, FL_EDEVICE, "%s: rank%s %s did not come within %g s%s", calling_name(rank),
                   missing == 1 ? "" : "s", who, rank->timeout, rank->hint);
}

static fl_status wrong_message(fl_rank *rank, int i, int error) {
  const mpi_message *m = &rank->of[i];
  if (error)
    return mpi_failed(rank, error, m->direction == MPI_SENDS ? "sending to rank" : "receiving from rank", m->peer);
  return mpi_break(rank, FL_EDEVICE, "rank %d sends %d bytes to rank %d, which expects more", m->peer, m->bytes,
                   rank->me);
}

fl_status mpi_wait(fl_rank *rank) {
  int left = rank->posted, error = MPI_SUCCESS;
  double start = 0;
  long pause = SLEEP_LEAST;
  for (int round = 0; left > 0 && !rank->broken; round++) {
    int before = left, wrong = look(rank, &left, &error);
    if (wrong >= 0)
      return wrong_message(rank, wrong, error);
    if (error && error != MPI_ERR_IN_STATUS)
      return mpi_failed(rank, error, "waiting in rank", rank->me);
    if (left < before)
      round = 0;
    if (!left || round < SPINS)
      continue;
    if (round < YIELDS) {
      sched_yield();
    } else {
      struct timespec sleep = {.tv_nsec = pause * 1000};
      nanosleep(&sleep, NULL);
      pause = pause * 2 < SLEEP_MOST ? pause * 2 : SLEEP_MOST;
    }
    if (round % SPINS && round < YIELDS)
      continue;
    double now = seconds();
    start = start > 0 ? start : now;
    if (mpi_state(rank))
      break;
    if (rank->timeout > 0 && now - start >= rank->timeout)
      return late(rank);
  }
  rank->posted = 0;
  return rank->broken ? say_broken(rank) : FL_OK;
}
