/* Ranks that meet, and what they make together: see world.h. One lock guards all of it. */
#include "tests/drivers/nccl/world.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct nccl_world {
  ncclUniqueId id;
  nccl_world *next;
  int ranks, came, left;
  ncclComm_t comms[MOST_RANKS];
  ncclResult_t broken;
  nccl_op *collectives[MOST_RANKS]; /* that each rank has come to, in order */
  nccl_op *messages[MOST_RANKS];    /* and its sends and receives that nobody has met */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static nccl_world *worlds;
static uint64_t number;
static int comms;

enum { POLLS = 1 };

/* ---------------------------------------------------------------------------------------------------------- joining */

static nccl_world *add_world(int ranks) {
  nccl_world *world = calloc(1, sizeof *world);
  if (!world)
    abort();
  number++;
  memcpy(world->id.internal, "stand-in", 8);
  memcpy(world->id.internal + NCCL_UNIQUE_ID_BYTES - sizeof number, &number, sizeof number);
  world->ranks = ranks;
  world->next = worlds;
  worlds = world;
  return world;
}

void world_new(ncclUniqueId *id) {
  pthread_mutex_lock(&lock);
  *id = add_world(0)->id;
  pthread_mutex_unlock(&lock);
}

nccl_world *world_find(const ncclUniqueId *id) {
  pthread_mutex_lock(&lock);
  nccl_world *world = worlds;
  while (world && memcmp(&world->id, id, sizeof *id) != 0)
    world = world->next;
  pthread_mutex_unlock(&lock);
  return world;
}

static ncclComm_t add_comm(nccl_world *world, int rank, int device) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  if (!comm)
    abort();
  comm->world = world;
  comm->rank = rank;
  comm->device = device;
  world->comms[rank] = comm;
  world->came++;
  comms++;
  return comm;
}

/* A device is one rank's. */
static void judge(nccl_world *world) {
  for (int i = 0; i < world->ranks; i++)
    for (int j = 0; j < i; j++)
      if (world->comms[i]->device == world->comms[j]->device)
        world->broken = ncclInvalidUsage;
}

static void free_pending(ncclComm_t comm) {
  nccl_op *next;
  for (nccl_op *op = comm->pending; op; op = next) {
    next = op->next_pending;
    free(op);
  }
  comm->pending = NULL;
}

/* The last lets go of the world. */
static void leave_locked(ncclComm_t comm) {
  nccl_world *world = comm->world, **place = &worlds;
  free_pending(comm);
  comm->left = true;
  comms--;
  if (!comm->tasks)
    free(comm);
  if (++world->left < world->ranks)
    return;
  while (*place != world)
    place = &(*place)->next;
  *place = world->next;
  free(world);
}

/* Until all have come. With the lock held. */
static ncclResult_t meet(ncclComm_t comm, ncclComm_t *made) {
  nccl_world *world = comm->world;
  while (world->came < world->ranks)
    pthread_cond_wait(&changed, &lock);
  ncclResult_t result = world->broken;
  if (result)
    leave_locked(comm);
  else
    *made = comm;
  return result;
}

static ncclResult_t meet_in_background(ncclComm_t comm, ncclComm_t *made) {
  comm->background = comm->busy = comm->joining = true;
  comm->polls = POLLS;
  *made = comm;
  return ncclInProgress;
}

ncclResult_t world_join(nccl_world *world, int rank, int ranks, int device, bool background, ncclComm_t *made) {
  pthread_mutex_lock(&lock);
  world->ranks = world->ranks ? world->ranks : ranks;
  ncclResult_t result = world->ranks != ranks || world->comms[rank] ? ncclInvalidUsage : world->broken;
  if (!result) {
    ncclComm_t comm = add_comm(world, rank, device);
    if (world->came == ranks) {
      judge(world);
      pthread_cond_broadcast(&changed);
    }
    result = background ? meet_in_background(comm, made) : meet(comm, made);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int world_ranks(const nccl_world *world) {
  return world->ranks;
}

int world_comms(void) {
  pthread_mutex_lock(&lock);
  int n = comms;
  pthread_mutex_unlock(&lock);
  return n;
}

/* -------------------------------------------------------------------------------------------------------- computing */

static void *scratch(const void *from, size_t size) {
  void *made = malloc(size ? size : 1);
  if (!made)
    abort();
  memcpy(made, from, size);
  return made;
}

static char *part(const void *buffer, int i, size_t size) {
  return (char *)(uintptr_t)buffer + (size_t)i * size;
}

/* What all ranks sent, `count` elements. */
static void *reduced(nccl_op *const *ops, int n, size_t count) {
  size_t size = count * type_size(ops[0]->type);
  ncclRedOp_t op = ops[0]->op;
  void *all = scratch(ops[0]->send, size);
  for (int i = 1; i < n; i++)
    reduce_into(ops[0]->type, op, all, ops[i]->send, count);
  if (op == ncclAvg)
    divide_by(ops[0]->type, all, count, n);
  return all;
}

static void run_reduction(nccl_op *const *ops, int n) {
  bool scatters = ops[0]->kind == KIND_REDUCE_SCATTER;
  size_t size = ops[0]->count * type_size(ops[0]->type);
  void *all = reduced(ops, n, ops[0]->count * (scatters ? (size_t)n : 1));
  for (int i = 0; i < n; i++)
    if (ops[0]->kind != KIND_REDUCE || i == ops[0]->root)
      memcpy(ops[i]->recv, part(all, scatters ? i : 0, size), size);
  free(all);
}

static void run_gather(nccl_op *const *ops, int n) {
  size_t size = ops[0]->count * type_size(ops[0]->type);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      memmove(part(ops[i]->recv, j, size), ops[j]->send, size);
}

static void run_broadcast(nccl_op *const *ops, int n) {
  const nccl_op *root = ops[ops[0]->root];
  for (int i = 0; i < n; i++)
    memmove(ops[i]->recv, root->send, root->count * type_size(root->type));
}

/* Before whom a rank comes in its part. */
static bool is_before(const nccl_op *a, const nccl_op *b) {
  return a->key < b->key || (a->key == b->key && a->comm->rank < b->comm->rank);
}

static void run_split(nccl_op *const *ops, int n) {
  for (int i = 0; i < n; i++) {
    nccl_world *world = NULL;
    int ranks = 0;
    for (int j = 0; j < n && ops[i]->color != NCCL_SPLIT_NOCOLOR; j++) {
      ranks += ops[j]->color == ops[i]->color;
      if (j < i && ops[j]->color == ops[i]->color && !world)
        world = ops[j]->made->world;
    }
    if (!ranks)
      continue;
    int rank = 0;
    for (int j = 0; j < n; j++)
      rank += ops[j]->color == ops[i]->color && is_before(ops[j], ops[i]);
    ops[i]->made = add_comm(world ? world : add_world(ranks), rank, ops[i]->comm->device);
    ops[i]->made->background = ops[i]->made->busy = ops[i]->comm->background;
    ops[i]->made->polls = POLLS;
  }
}

static bool are_alike(nccl_op *const *ops, int n) {
  for (int i = 1; i < n; i++)
    if (ops[i]->kind != ops[0]->kind || ops[i]->count != ops[0]->count || ops[i]->type != ops[0]->type ||
        ops[i]->op != ops[0]->op || ops[i]->root != ops[0]->root)
      return false;
  return true;
}

/* ---------------------------------------------------------------------------------------------------------- meeting */

static void append(nccl_op **list, nccl_op *op) {
  while (*list)
    list = &(*list)->next;
  op->next = NULL;
  *list = op;
}

/* The next collective, once all ranks have come to it. The real library would wait for ever where they differ. */
static void meet_all(nccl_world *world) {
  static void (*const runs[KINDS])(nccl_op *const *, int) = {
      [KIND_ALL_REDUCE] = run_reduction, [KIND_REDUCE] = run_reduction,         [KIND_BROADCAST] = run_broadcast,
      [KIND_ALL_GATHER] = run_gather,    [KIND_REDUCE_SCATTER] = run_reduction, [KIND_SPLIT] = run_split};
  nccl_op *ops[MOST_RANKS];
  for (int i = 0; i < world->ranks; i++)
    if (!(ops[i] = world->collectives[i]))
      return;
  if (!are_alike(ops, world->ranks))
    world->broken = ncclInternalError;
  else
    runs[ops[0]->kind](ops, world->ranks);
  for (int i = 0; i < world->ranks; i++) {
    world->collectives[i] = ops[i]->next;
    ops[i]->result = world->broken;
    ops[i]->done = true;
  }
}

/* The first message of the peer's that goes with it, taken out. */
static nccl_op *take_partner(const nccl_op *op) {
  nccl_op **place = &op->comm->world->messages[op->root];
  nccl_kind wanted = op->kind == KIND_SEND ? KIND_RECV : KIND_SEND;
  while (*place && ((*place)->kind != wanted || (*place)->root != op->comm->rank))
    place = &(*place)->next;
  nccl_op *found = *place;
  if (found)
    *place = found->next;
  return found;
}

static void meet_one(nccl_op *op) {
  nccl_world *world = op->comm->world;
  nccl_op *partner = take_partner(op);
  if (!partner) {
    append(&world->messages[op->comm->rank], op);
    return;
  }
  const nccl_op *send = op->kind == KIND_SEND ? op : partner, *recv = op->kind == KIND_RECV ? op : partner;
  if (send->count != recv->count || send->type != recv->type)
    world->broken = ncclInternalError;
  else
    memmove(recv->recv, send->send, send->count * type_size(send->type));
  op->result = partner->result = world->broken;
  op->done = partner->done = true;
}

static ncclResult_t error_of(ncclComm_t comm) {
  return comm->aborted ? ncclInternalError : comm->world->broken;
}

static ncclResult_t wait_for(const nccl_op *op) {
  ncclComm_t comm = op->comm;
  comm->users++;
  while (!op->done && !error_of(comm))
    pthread_cond_wait(&changed, &lock);
  ncclResult_t result = op->done ? op->result : error_of(comm);
  comm->users--;
  pthread_cond_broadcast(&changed);
  return result;
}

/* What is broken stays so, and its lists are not looked at any more: what they hold may be gone. */
enum { MOST = 256 };
static int begin_all(nccl_op *first, nccl_op *ops[MOST]) {
  nccl_op *next;
  int n = 0;
  for (nccl_op *op = first; op && n < MOST; op = next) {
    next = op->next;
    ops[n++] = op;
    if (error_of(op->comm))
      continue;
    if (op->kind == KIND_SEND || op->kind == KIND_RECV) {
      meet_one(op);
    } else {
      append(&op->comm->world->collectives[op->comm->rank], op);
      meet_all(op->comm->world);
    }
  }
  pthread_cond_broadcast(&changed);
  return n;
}

static ncclResult_t make_locked(nccl_op *first) {
  ncclResult_t result = ncclSuccess;
  nccl_op *ops[MOST];
  int n = begin_all(first, ops);
  for (int i = 0; i < n; i++) {
    ncclResult_t of_one = wait_for(ops[i]);
    result = result ? result : of_one;
    if (ops[i]->to)
      *ops[i]->to = ops[i]->made;
  }
  return result;
}

ncclResult_t world_make(nccl_op *first) {
  pthread_mutex_lock(&lock);
  ncclResult_t result = make_locked(first);
  pthread_mutex_unlock(&lock);
  return result;
}

/* ------------------------------------------------------------------------------------------------------ background */

void world_begin(ncclComm_t comm, nccl_op *first) {
  nccl_op *ops[MOST];
  pthread_mutex_lock(&lock);
  int n = begin_all(first, ops);
  for (int i = 0; i < n; i++) {
    ops[i]->next_pending = comm->pending;
    comm->pending = ops[i];
  }
  comm->busy = true;
  comm->polls = POLLS;
  pthread_mutex_unlock(&lock);
}

static bool is_over(ncclComm_t comm) {
  bool over = !comm->joining || comm->world->came == comm->world->ranks;
  for (const nccl_op *op = comm->pending; op && over; op = op->next_pending)
    over = op->done;
  return over && comm->polls-- <= 0;
}

static ncclResult_t take_results(ncclComm_t comm) {
  ncclResult_t result = ncclSuccess;
  for (const nccl_op *op = comm->pending; op; op = op->next_pending) {
    result = result ? result : op->result;
    if (op->to)
      *op->to = op->made;
  }
  free_pending(comm);
  comm->busy = comm->joining = false;
  return result;
}

ncclResult_t world_poll(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  ncclResult_t result = error_of(comm);
  if (!result && comm->busy)
    result = is_over(comm) ? take_results(comm) : ncclInProgress;
  pthread_mutex_unlock(&lock);
  return result;
}

bool world_is_busy(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  bool busy = comm->busy && !error_of(comm);
  pthread_mutex_unlock(&lock);
  return busy;
}

/* --------------------------------------------------------------------------------------------------------- streams */

void world_hold(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  comm->tasks++;
  pthread_mutex_unlock(&lock);
}

void world_make_held(nccl_op *op) {
  ncclComm_t comm = op->comm;
  pthread_mutex_lock(&lock);
  if (!comm->left)
    make_locked(op);
  if (!--comm->tasks && comm->left)
    free(comm);
  pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------------------------------------------------------- end */

void world_leave(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  leave_locked(comm);
  pthread_mutex_unlock(&lock);
}

void world_abort(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  comm->aborted = true;
  if (!comm->world->broken)
    comm->world->broken = ncclRemoteError;
  pthread_cond_broadcast(&changed);
  while (comm->users)
    pthread_cond_wait(&changed, &lock);
  leave_locked(comm);
  pthread_mutex_unlock(&lock);
}

ncclResult_t world_error(ncclComm_t comm) {
  pthread_mutex_lock(&lock);
  ncclResult_t result = error_of(comm);
  pthread_mutex_unlock(&lock);
  return result;
}
