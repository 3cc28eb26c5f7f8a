/* How a rank takes its seat among the others, and gives it up. */
#include "plugins/shm/membership.h"

#include "plugins/shm/collectives.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Looks of a rank at what it waits for, before it lets others run: only where each may have a processor. */
enum { SPINS = 128 };

static int spins_of(int ranks) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask))
    return 0;
  return CPU_COUNT(&mask) >= ranks ? SPINS : 0;
}

static bool is_missing(fl_rank *rank, shm_wait *wait, int peer) {
  (void)wait;
  return atomic_load(&rank->seats[peer].state) < SHM_PRESENT;
}

static bool all_are_there(fl_rank *rank, shm_wait *wait) {
  while (wait->first < rank->n && !is_missing(rank, wait, wait->first))
    wait->first++;
  return wait->first == rank->n;
}

static fl_rank *make(const fl_join *join, shm_segment *segment) {
  const int n = join->ranks;
  fl_rank *rank = calloc(1, sizeof *rank + 2 * (size_t)n * sizeof *rank->lanes);
  if (!rank)
    return NULL;
  unsigned char *memory = (unsigned char *)segment->head;
  rank->segment = segment;
  rank->head = segment->head;
  rank->seats = (shm_seat *)(memory + SHM_HEAD_BYTES);
  rank->boxes = memory + shm_boxes_at(n);
  rank->channels = memory + shm_channels_at(n);
  rank->me = join->rank;
  rank->n = n;
  rank->forks = shm_forks();
  rank->spins = spins_of(n);
  rank->calling = "joining";
  rank->name = join->name;
  rank->timeout = join->timeout;
  rank->message = join->message;
  rank->message_size = join->message_size;
  rank->out = rank->lanes;
  rank->in = rank->lanes + n;
  return rank;
}

static fl_status sit_down(fl_rank *rank) {
  const shm_process self = shm_process_self();
  shm_seat *seat = &rank->seats[rank->me];
  uint32_t state = SHM_EMPTY;
  if (!atomic_compare_exchange_strong(&seat->state, &state, SHM_TAKEN))
    return fl_say(rank->message, rank->message_size, FL_EINVAL, "group '%s': there is a rank %d already%s", rank->name,
                  rank->me, state >= SHM_PRESENT && seat->process.pid == self.pid ? ", in this process" : "");
  seat->process = self;
  atomic_store(&seat->state, SHM_PRESENT);
  shm_ring_all(rank);
  return FL_OK;
}

static void get_up(fl_rank *rank) {
  atomic_store(&rank->seats[rank->me].state, SHM_LEFT);
  shm_ring_all(rank);
}

static bool are_threads(const fl_rank *rank) {
  const shm_process *mine = &rank->seats[rank->me].process;
  for (int peer = 0; peer < rank->n; peer++) {
    const shm_process *process = &rank->seats[peer].process;
    if (process->pid != mine->pid || process->start != mine->start)
      return false;
  }
  return true;
}

fl_status shm_join(void *self, const fl_join *join, fl_rank **joined) {
  shm_wait wait = {.is_over = all_are_there, .awaits = is_missing};
  shm_segment *segment;
  (void)self;
  *joined = NULL;
  if (join->ranks < 1 || join->ranks > SHM_MOST_RANKS || join->rank < 0 || join->rank >= join->ranks)
    return fl_say(join->message, join->message_size, FL_EINVAL, "group '%s': rank %d of %d; shm has up to %d ranks",
                  join->name, (int)join->rank, (int)join->ranks, SHM_MOST_RANKS);
  fl_status status = shm_segment_open(join, &segment);
  if (status)
    return status;
  fl_rank *rank = make(join, segment);
  if (!rank) {
    shm_segment_close(segment);
    return fl_say(join->message, join->message_size, FL_ENOMEM, "group '%s': no memory for rank %d", join->name,
                  (int)join->rank);
  }
  status = shm_state(rank);
  if (!status && !(status = sit_down(rank))) {
    status = all_are_there(rank, &wait) ? FL_OK : shm_wait_for(rank, &wait);
    if (status)
      get_up(rank);
  }
  if (status) {
    free(rank);
    shm_segment_close(segment);
    return status;
  }
  atomic_store(&rank->head->has_met, 1);
  rank->threads = are_threads(rank);
  shm_sweep();
  *joined = rank;
  return FL_OK;
}

void shm_leave(void *self, fl_rank *rank) {
  (void)self;
  if (shm_is_ours(rank)) {
    get_up(rank);
    shm_segment_close(rank->segment);
  }
  free(rank);
}

void shm_abort(void *self, fl_rank *rank) {
  (void)self;
  if (shm_is_ours(rank))
    shm_break_from_outside(rank, FL_EDEVICE, "rank %d was aborted", rank->me);
}

fl_status shm_rank_state(void *self, fl_rank *rank) {
  (void)self;
  if (!shm_is_ours(rank))
    return FL_ESTATE;
  rank->calling = "the state";
  return shm_state(rank);
}

/* ----------------------------------------------------------------------------------------------------------- split */

/* What each tells the others: first where it belongs, then, the lowest of each color, the id of their own. */
typedef struct place {
  int32_t color, key;
} place;

typedef struct invitation {
  int32_t status;
  shm_id id;
  char message[256];
} invitation;

static fl_status tell_all(void *self, fl_rank *rank, const void *mine, void *all, size_t bytes) {
  fl_collective c = {.size = sizeof c, .kind = FL_ALL_GATHER, .send = mine, .recv = all, .count = (int64_t)bytes};
  c.dtype = (DLDataType){.code = kDLUInt, .bits = 8, .lanes = 1};
  return shm_share(self, rank, &c);
}

/* Is rank `a` before rank `b` in their part? */
static bool is_before(const place *places, int a, int b) {
  return places[a].key == places[b].key ? a < b : places[a].key < places[b].key;
}

fl_status shm_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *asked, fl_rank **part) {
  const place mine = {color, key};
  invitation own = {.status = FL_OK};
  fl_status status = FL_ENOMEM;
  int lowest = -1;
  *part = NULL;
  if (!shm_is_ours(rank))
    return fl_say(asked->message, asked->message_size, FL_ESTATE,
                  "group '%s': a process that was forked has no part in its parent's group", rank->name);
  fl_join join = {.size = sizeof join,
                  .device = asked->device,
                  .name = asked->name,
                  .timeout = asked->timeout,
                  .message = asked->message,
                  .message_size = asked->message_size};
  place *places = calloc((size_t)rank->n, sizeof *places);
  invitation *invitations = calloc((size_t)rank->n, sizeof *invitations);
  if (!places || !invitations) {
    fl_say(join.message, join.message_size, status, "group '%s': no memory to split it", rank->name);
    goto out;
  }
  status = tell_all(self, rank, &mine, places, sizeof mine);
  for (int peer = 0; peer < rank->n && !status; peer++)
    if (color >= 0 && places[peer].color == color) {
      lowest = lowest < 0 ? peer : lowest;
      join.ranks++;
      join.rank += is_before(places, peer, rank->me);
    }
  if (!status && lowest == rank->me)
    own.status = shm_make_id(self, &own.id, own.message, sizeof own.message);
  if (!status)
    status = tell_all(self, rank, &own, invitations, sizeof own);
  if (status) {
    if (join.message != rank->message)
      fl_say(join.message, join.message_size, status, "%s", rank->message ? rank->message : "");
    goto out;
  }
  if (lowest < 0)
    goto out;
  const invitation *taken = &invitations[lowest];
  join.id = &taken->id;
  status = taken->status ? fl_say(join.message, join.message_size, taken->status, "%s", taken->message)
                         : shm_join(self, &join, part);
out:
  free(places);
  free(invitations);
  return status;
}
