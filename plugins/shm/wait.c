/*
 * Waiting without locks. Who waits says that it sleeps and looks again; who changes something looks afterwards whether
 * anybody sleeps. All four accesses are sequentially consistent, so that one of the two sees the other: no wake-up is
 * lost. Sleep is in slices, between which a rank looks whether those it waits for still run.
 */
#include "plugins/shm/rank.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLICE 0.1 /* seconds */

/* Before a rank sleeps it looks rank->spins times, so often, some 50 microseconds in all where each rank has a
 * processor. In between it lets others run: whom it waits for may be on the same one. */
enum { ROUNDS = 16 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb" ::: "memory");
#endif
}

static void ring(shm_bell *bell) {
  atomic_fetch_add(&bell->rings, 1);
  syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void shm_ring(fl_rank *rank, int peer) {
  shm_bell *bell = &rank->seats[peer].bell;
  if (atomic_load(&bell->sleeps))
    ring(bell);
}

void shm_ring_all(fl_rank *rank) {
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me)
      shm_ring(rank, peer);
}

/* Whoever breaks writes the words at once, unless it is killed; but it may have to wait for a processor. */
static void wait_for_words(const shm_head *head) {
  enum { YIELDS = 1000, SLEEPS = 3000, SLEEP_NS = 1000000 };
  for (int i = 0; i < YIELDS + SLEEPS && atomic_load(&head->broken) == SHM_BREAKING; i++)
    if (i < YIELDS)
      sched_yield();
    else
      nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

static fl_status say_broken(fl_rank *rank) {
  shm_head *head = rank->head;
  fl_status status = FL_EDEVICE;
  wait_for_words(head);
  if (atomic_load(&head->broken) != SHM_BROKEN)
    return fl_say(rank->message, rank->message_size, status,
                  "%s of group '%s': a rank ended while it reported an error", rank->calling, rank->name);
  status = head->status;
  if (head->breaker == rank->me)
    return fl_say(rank->message, rank->message_size, status, "%s of group '%s': %s", rank->calling, rank->name,
                  head->text);
  return fl_say(rank->message, rank->message_size, status, "%s of group '%s': broken by rank %d: %s", rank->calling,
                rank->name, (int)head->breaker, head->text);
}

/* Nobody uses this rank's buffers any more when it returns: they see first that it is broken. */
static fl_status give_up(fl_rank *rank) {
  fl_status status = say_broken(rank);
  for (int peer = 0; rank->threads && peer < rank->n; peer++)
    while (peer != rank->me && atomic_load(&rank->seats[peer].touches))
      sched_yield();
  return status;
}

fl_status shm_state(fl_rank *rank) {
  return atomic_load(&rank->head->broken) == SHM_WHOLE ? FL_OK : give_up(rank);
}

static void tell(fl_rank *rank, fl_status status, const char *format, va_list arguments) {
  shm_head *head = rank->head;
  uint32_t whole = SHM_WHOLE;
  if (!atomic_compare_exchange_strong(&head->broken, &whole, SHM_BREAKING))
    return;
  vsnprintf(head->text, sizeof head->text, format, arguments);
  head->breaker = rank->me;
  head->status = status;
  atomic_store(&head->broken, SHM_BROKEN);
  for (int peer = 0; peer < rank->n; peer++)
    ring(&rank->seats[peer].bell);
}

fl_status shm_break(fl_rank *rank, fl_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  tell(rank, status, format, arguments);
  va_end(arguments);
  return give_up(rank);
}

void shm_break_from_outside(fl_rank *rank, fl_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  tell(rank, status, format, arguments);
  va_end(arguments);
}

bool shm_touch(fl_rank *rank) {
  atomic_store(&rank->seats[rank->me].touches, 1);
  if (atomic_load(&rank->head->broken) == SHM_WHOLE)
    return true;
  shm_touched(rank);
  return false;
}

void shm_touched(fl_rank *rank) {
  atomic_store(&rank->seats[rank->me].touches, 0);
}

/* Has one that is waited for left? What it did before counts. */
static fl_status look_who_left(fl_rank *rank, shm_wait *wait) {
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me && atomic_load(&rank->seats[peer].state) == SHM_LEFT && wait->awaits(rank, wait, peer))
      return shm_break(rank, FL_EDEVICE, "rank %d left the group", peer);
  return FL_OK;
}

static fl_status look_who_runs(fl_rank *rank, shm_wait *wait) {
  for (int peer = 0; peer < rank->n; peer++) {
    shm_seat *seat = &rank->seats[peer];
    if (peer == rank->me || atomic_load(&seat->state) < SHM_PRESENT || !wait->awaits(rank, wait, peer) ||
        seat->process.pid == rank->seats[rank->me].process.pid || shm_process_runs(&seat->process))
      continue;
    if (wait->awaits(rank, wait, peer))
      return shm_break(rank, FL_EDEVICE, "rank %d (process %d) ended", peer, (int)seat->process.pid);
  }
  /* Who has not joined yet finds the memory by the process that made it. */
  if (!atomic_load(&rank->head->has_met) && !shm_process_runs(&rank->head->maker) && !wait->is_over(rank, wait) &&
      !atomic_load(&rank->head->has_met))
    return shm_break(rank, FL_EDEVICE, "process %d, which made the id, ended before all ranks had joined",
                     (int)rank->head->maker.pid);
  return FL_OK;
}

static fl_status late(fl_rank *rank, shm_wait *wait) {
  char who[200] = "";
  size_t length = 0;
  int missing = 0;
  for (int peer = 0; peer < rank->n; peer++)
    if (peer != rank->me && wait->awaits(rank, wait, peer)) {
      if (length + 16 < sizeof who)
        length += (size_t)snprintf(who + length, sizeof who - length, "%s%d", missing ? ", " : "", peer);
      else if (length + 4 < sizeof who)
        length += (size_t)snprintf(who + length, sizeof who - length, "...");
      missing++;
    }
  if (wait->is_over(rank, wait))
    return FL_OK;
  return shm_break(rank, FL_EDEVICE, "rank%s %s did not come within %g s", missing == 1 ? "" : "s", who, rank->timeout);
}

fl_status shm_wait_for(fl_rank *rank, shm_wait *wait) {
  shm_bell *bell = &rank->seats[rank->me].bell;
  fl_status status = FL_OK;
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < rank->spins; i++) {
      if (wait->is_over(rank, wait))
        return FL_OK;
      relax();
    }
    if (wait->is_over(rank, wait))
      return FL_OK;
    if (atomic_load_explicit(&rank->head->broken, memory_order_relaxed))
      return shm_state(rank);
    sched_yield();
  }
  double start = seconds(), looked = start;
  while (!status) {
    uint32_t rings = atomic_load(&bell->rings);
    atomic_store(&bell->sleeps, 1);
    bool over = wait->is_over(rank, wait);
    if (!over && atomic_load(&rank->head->broken) == SHM_WHOLE && !(status = look_who_left(rank, wait))) {
      double slice = rank->timeout > 0 && rank->timeout < SLICE ? rank->timeout : SLICE;
      struct timespec sleep = {.tv_nsec = (long)(slice * 1e9) % 1000000000};
      syscall(SYS_futex, &bell->rings, FUTEX_WAIT, rings, &sleep, NULL, 0);
    }
    atomic_store(&bell->sleeps, 0);
    if (over || wait->is_over(rank, wait))
      return FL_OK;
    double now = seconds();
    if (!status)
      status = shm_state(rank);
    if (!status && now - looked >= SLICE) {
      looked = now;
      status = look_who_runs(rank, wait);
    }
    if (!status && rank->timeout > 0 && now - start >= rank->timeout)
      status = late(rank, wait);
  }
  return status;
}

static bool has_not_met(fl_rank *rank, shm_wait *wait, int peer) {
  (void)wait;
  return atomic_load(&rank->seats[peer].met) < rank->meeting;
}

static bool all_have_met(fl_rank *rank, shm_wait *wait) {
  while (wait->first < rank->n && !has_not_met(rank, wait, wait->first))
    wait->first++;
  return wait->first == rank->n;
}

fl_status shm_meet(fl_rank *rank) {
  shm_wait wait = {.is_over = all_have_met, .awaits = has_not_met};
  rank->meeting++;
  atomic_store(&rank->seats[rank->me].met, rank->meeting);
  shm_ring_all(rank);
  return all_have_met(rank, &wait) ? FL_OK : shm_wait_for(rank, &wait);
}
