/*
 * How ranks find each other. All of MPI's world join at the same time, each some group: every process tells every other
 * one the id of its group and its number there, on a copy of MPI_COMM_WORLD that is the plugin's own ("home"), so that
 * an engine's messages are not in the way. Those that said the same id are a group. Parts of a group are made alike.
 * Each waits with a time limit; MPI itself is only asked for a communicator when all of its ranks are there.
 */
#include "plugins/mpi/membership.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Tags of messages, beside those of collectives. */
enum { JOINING = 1001, SPLITTING = 1002 };

fl_status mpi_make_id(void *self, void *id, char *message, size_t message_size) {
  (void)self;
  if (getrandom(id, sizeof(mpi_id), 0) != (ssize_t)sizeof(mpi_id))
    return fl_say(message, message_size, FL_EDEVICE, "the kernel gives no random numbers for an id");
  return FL_OK;
}

/* What each rank gives, in their order, in the scratch; NULL: the rank is broken, or not to be used. */
static void *tell_all(fl_rank *rank, int calling, const void *mine, size_t bytes) {
  fl_status status = mpi_enter(rank, calling);
  char *all = status ? NULL : mpi_scratch(rank, (size_t)rank->n * bytes);
  if (!all)
    return NULL;
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me)
      mpi_receive(rank, peer, all + (size_t)peer * bytes, bytes);
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me)
      mpi_send(rank, peer, mine, bytes);
  memcpy(all + (size_t)rank->me * bytes, mine, bytes);
  return mpi_wait(rank) ? NULL : all;
}

/* A communicator of ranks of `from`, in the order of `members`; all of them are here. `endless`: none has a limit of
 * time, of which all have to know: one that uses MPI's own collective and one that does not would wait for ever. */
static fl_status make_comm(fl_rank *from, const int *members, int n, bool endless, const fl_join *join,
                           fl_rank **made) {
  const mpi_library *mpi = from->mpi;
  MPI_Group all, some;
  MPI_Comm comm;
  int code = mpi->Comm_group(from->comm, &all);
  if (!code && !(code = mpi->Group_incl(all, n, members, &some))) {
    code = mpi->Comm_create_group(from->comm, some, JOINING, &comm);
    mpi->Group_free(&some);
  }
  mpi->Group_free(&all);
  if (code)
    return fl_say(join->message, join->message_size, FL_EDEVICE, "MPI makes no communicator of %d ranks: error %d", n,
                  code);
  mpi->Comm_set_errhandler(comm, mpi->errors_return);
  *made = mpi_rank_make(mpi, comm, join);
  if (*made) {
    (*made)->endless = endless;
    return FL_OK;
  }
  mpi->Comm_free(&comm);
  return fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for rank %d", (int)join->rank);
}

/* --------------------------------------------------------------------------------------------------------- joining */

/* What each process of MPI's world says. */
typedef struct wish {
  mpi_id id;
  int32_t rank, ranks;
  int32_t is_limited; /* it waits only so long */
} wish;

static pthread_mutex_t home_lock = PTHREAD_MUTEX_INITIALIZER;
static fl_rank *home; /* this process's part of a copy of MPI's world */

/* The lock is held. The copy has a message, a name and a time limit of its own each time. */
static fl_status go_home(const mpi_library *mpi, const fl_join *join) {
  fl_join world = *join;
  if (!home) {
    mpi->Comm_rank(mpi->world, &world.rank);
    mpi->Comm_size(mpi->world, &world.ranks);
    if (!(home = mpi_rank_make(mpi, mpi->world, &world)))
      return fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for MPI's world");
    home->hint = " (ranks of MPI's world, all of which join at the same time)";
    home->calling = JOINING;
    mpi_copy(home, mpi->world);
  }
  home->name = join->name;
  home->timeout = join->timeout;
  home->message = join->message;
  home->message_size = join->message_size;
  fl_status status = mpi_wait(home);
  if (!status && home->no_comm)
    mpi->Comm_set_errhandler(home->comm, mpi->errors_return);
  home->no_comm = home->no_comm && status;
  return status;
}

/* Whose number in the group is what: members[i] is rank i's in MPI's world. All that have the id come to the same end.
 */
static fl_status find_members(const wish *all, int world, const fl_join *join, int *members) {
  int found = 0;
  for (int i = 0; i < join->ranks; i++)
    members[i] = -1;
  for (int i = 0; i < world; i++) {
    if (memcmp(&all[i].id, join->id, sizeof(mpi_id)) != 0)
      continue;
    if (all[i].ranks != join->ranks || all[i].rank < 0 || all[i].rank >= join->ranks)
      return fl_say(join->message, join->message_size, FL_EINVAL,
                    "rank %d was told of %d ranks, and rank %d of MPI's world, which has the same id, of %d",
                    (int)join->rank, (int)join->ranks, i, (int)all[i].ranks);
    int *member = &members[all[i].rank];
    if (*member >= 0)
      return fl_say(join->message, join->message_size, FL_EINVAL, "ranks %d and %d of MPI's world are both rank %d",
                    *member, i, (int)all[i].rank);
    *member = i;
    found++;
  }
  if (found != join->ranks)
    return fl_say(
        join->message, join->message_size, FL_EINVAL,
        "%d of MPI's %d ranks have this id, the group is of %d; all join at the same time, those of one group "
        "with one id, or are divided by a split of a group of all",
        found, world, (int)join->ranks);
  return FL_OK;
}

static bool are_endless(const wish *all, const int *members, int n) {
  for (int i = 0; i < n; i++)
    if (all[members[i]].is_limited)
      return false;
  return true;
}

static fl_status join_at_home(const fl_join *join, fl_rank **joined) {
  wish mine = {.rank = join->rank, .ranks = join->ranks, .is_limited = join->timeout > 0};
  memcpy(&mine.id, join->id, sizeof mine.id);
  /* Whoever has no memory takes part all the same: others join other groups. */
  int *members = calloc((size_t)join->ranks, sizeof *members);
  const wish *all = tell_all(home, JOINING, &mine, sizeof mine);
  fl_status status = FL_EDEVICE;
  if (!members)
    status = fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for %d ranks", (int)join->ranks);
  else if (all && !(status = find_members(all, home->n, join, members)))
    status = make_comm(home, members, join->ranks, are_endless(all, members, join->ranks), join, joined);
  free(members);
  return status;
}

fl_status mpi_join(void *self, const fl_join *join, fl_rank **joined) {
  (void)self;
  *joined = NULL;
  const mpi_library *mpi;
  fl_status status = mpi_start(join->ranks, &mpi, join->message, join->message_size);
  if (status)
    return status;
  pthread_mutex_lock(&home_lock);
  status = go_home(mpi, join);
  if (!status)
    status = join_at_home(join, joined);
  pthread_mutex_unlock(&home_lock);
  return status;
}

/* ---------------------------------------------------------------------------------------------------------- leaving */

/* A broken communicator is left as it is: to free it may wait for others. */
void mpi_leave(void *self, fl_rank *rank) {
  (void)self;
  if (mpi_check_use(rank->mpi, NULL, 0) == FL_OK && mpi_state(rank) == FL_OK)
    rank->mpi->Comm_free(&rank->comm);
  mpi_rank_free(rank);
}

/* Who waits sees it, and tells the others; else whoever comes next does, or `leave`. */
void mpi_abort(void *self, fl_rank *rank) {
  (void)self;
  atomic_store(&rank->aborted, true);
}

fl_status mpi_rank_state(void *self, fl_rank *rank) {
  (void)self;
  fl_status status = mpi_check_use(rank->mpi, rank->message, rank->message_size);
  return status ? status : mpi_state(rank);
}

/* ---------------------------------------------------------------------------------------------------------- split */

typedef struct place {
  int32_t color, key, rank;
  int32_t is_limited;
} place;

static int compare(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->key != y->key)
    return x->key < y->key ? -1 : 1;
  return x->rank < y->rank ? -1 : x->rank > y->rank;
}

fl_status mpi_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *asked, fl_rank **part) {
  const place mine = {color, key, rank->me, asked->timeout > 0};
  fl_join join = *asked;
  fl_status status = FL_OK;
  bool endless = true;
  int n = 0;
  (void)self;
  *part = NULL;
  int *members = calloc((size_t)rank->n, sizeof *members);
  place *all = tell_all(rank, SPLITTING, &mine, sizeof mine);
  if (!all) {
    status = rank->broken ? rank->broken : FL_ESTATE;
    if (join.message != rank->message)
      fl_say(join.message, join.message_size, status, "%s", rank->message);
    goto out;
  }
  if (!members) {
    status = fl_say(join.message, join.message_size, FL_ENOMEM, "no memory to split %d ranks", rank->n);
    goto out;
  }
  qsort(all, (size_t)rank->n, sizeof *all, compare);
  for (int i = 0; i < rank->n; i++)
    if (all[i].color == color) {
      join.rank = all[i].rank == rank->me ? n : join.rank;
      members[n++] = all[i].rank;
      endless = endless && !all[i].is_limited;
    }
  join.ranks = n;
  if (color >= 0)
    status = make_comm(rank, members, n, endless, &join, part);
out:
  free(members);
  return status;
}
