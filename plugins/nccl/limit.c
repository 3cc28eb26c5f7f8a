/*
 * How long a rank waits for others. A communicator that was joined with a limit does not wait in the library: that says
 * ncclInProgress, and is asked until it is done or the time is over. What waits in a stream has an event behind it, by
 * which the watchdog sees that it is not done.
 */
#include "plugins/nccl/rank.h"

#include <sched.h>
#include <time.h>

enum { KIND_BITS = 8 };
#define NS_PER_S UINT64_C(1000000000)

uint64_t nccl_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* Events that the driver cannot make are done without. */
void nccl_limit_rank(fl_rank *rank, double timeout) {
  const double most = 1e9; /* seconds, of what nanoseconds can count */
  char words[GPU_WORDS];
  rank->timeout = timeout;
  rank->limit = (uint64_t)((timeout < most ? timeout : most) * (double)NS_PER_S);
  if (timeout > 0 && !rank->limit)
    rank->limit = 1;
  if (rank->limit && gpu_has_part(GPU_EVENTS, nccl_vendor.title, words, sizeof words))
    for (int i = 0; i < NCCL_WORKS; i++)
      if (gpu.work.create_event(&rank->works[i].event, GPU_EVENT_UNTIMED))
        rank->works[i].event = NULL;
}

void nccl_free_works(fl_rank *rank) {
  for (int i = 0; i < NCCL_WORKS; i++)
    if (rank->works[i].event)
      gpu.work.destroy_event(rank->works[i].event);
}

/* ---------------------------------------------------------------------------------------------------------- streams */

/* Asking for an event must not end the capture of another thread's stream. */
static bool is_done(const nccl_work *work) {
  int mode = GPU_CAPTURE_RELAXED;
  bool exchanged = gpu_exchange_capture_mode(&mode);
  gpu_code code = gpu.work.query_event(work->event);
  if (exchanged)
    gpu_exchange_capture_mode(&mode);
  return code != GPU_NOT_READY;
}

static bool is_captured(void *stream) {
  int status = 0;
  return gpu.call.capturing(stream, &status) || status;
}

/* The place of the oldest work, once that is done; before, that of the newest: a communicator's works are done one
 * after the other, so that an end of the later one says the same of both. */
static nccl_work *find_place(fl_rank *rank) {
  nccl_work *oldest = &rank->works[rank->place % NCCL_WORKS];
  if (atomic_load(&oldest->since) && !is_done(oldest))
    return &rank->works[(rank->place + NCCL_WORKS - 1) % NCCL_WORKS];
  rank->place++;
  return oldest;
}

void nccl_begin_waiting(fl_rank *rank, int kind) {
  uint64_t number = (rank->work >> KIND_BITS) + (kind != NCCL_JOINING);
  rank->work = number << KIND_BITS | (uint64_t)kind;
}

nccl_work *nccl_begin_work(fl_rank *rank, int kind, void *stream) {
  nccl_begin_waiting(rank, kind);
  if (!rank->limit || is_captured(stream))
    return NULL;
  nccl_work *work = find_place(rank);
  atomic_store(&work->since, 0);
  atomic_store(&work->recorded, false);
  atomic_store(&work->id, rank->work);
  atomic_store(&work->since, nccl_now());
  return work;
}

void nccl_record_work(nccl_work *work, void *stream, bool asked) {
  if (!work)
    return;
  if (asked && work->event && !gpu.work.record_event(work->event, stream))
    atomic_store(&work->recorded, true);
  else
    atomic_store(&work->since, 0);
}

nccl_work_id nccl_find_late(fl_rank *rank, uint64_t now, uint64_t *next) {
  if (now + rank->limit < *next)
    *next = now + rank->limit; /* of what begins from now on */
  for (int i = 0; i < NCCL_WORKS && !atomic_load(&rank->ended); i++) {
    nccl_work *work = &rank->works[i];
    uint64_t since = atomic_load(&work->since);
    nccl_work_id id = atomic_load(&work->id);
    if (!since)
      continue;
    if (since + rank->limit > now) {
      if (since + rank->limit < *next)
        *next = since + rank->limit;
    } else if (atomic_load(&work->recorded) && is_done(work)) {
      atomic_compare_exchange_strong(&work->since, &since, 0);
    } else if (atomic_load(&work->since) == since) {
      return id;
    }
  }
  return 0;
}

/* ---------------------------------------------------------------------------------------------------------- waiting */

/* At first by turns, as what is done by the library's own thread takes microseconds; then it sleeps, longer each time.
 */
static void pause_for(uint64_t waited, long *sleep_ns) {
  enum { TURNS_NS = 200000, LONGEST_NS = 1000000 };
  if (waited < TURNS_NS) {
    sched_yield();
    return;
  }
  nanosleep(&(struct timespec){.tv_nsec = *sleep_ns}, NULL);
  *sleep_ns = *sleep_ns * 2 < LONGEST_NS ? *sleep_ns * 2 : LONGEST_NS;
}

ncclResult_t nccl_await(fl_rank *rank, ncclResult_t result) {
  uint64_t begun = nccl_now(), now = begun;
  long sleep_ns = 10000;
  while (result == ncclInProgress && rank->polled && !atomic_load(&rank->ended)) {
    if (rank->limit && now - begun > rank->limit) {
      nccl_end_part(rank, rank->work, true);
      break;
    }
    pause_for(now - begun, &sleep_ns);
    ncclResult_t asked = nccl.get_async_error(rank->comm, &result);
    if (asked)
      result = asked;
    now = nccl_now();
  }
  return result;
}

void nccl_await_works(fl_rank *rank) {
  for (int i = 0; i < NCCL_WORKS; i++)
    if (atomic_load(&rank->works[i].since))
      gpu.work.synchronize_event(rank->works[i].event);
}

/* -------------------------------------------------------------------------------------------------------------- end */

/* A thread that asks until it is done comes back when it finds the reason, however long it is kept from running; one
 * that waits inside the library, perhaps for ever, does not: then the library has to cope. */
static bool lock_soon(fl_rank *rank) {
  enum { PATIENCE_S = 5, BRIEFLY_NS = 100000000 };
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  uint64_t nanoseconds = (uint64_t)until.tv_nsec + (rank->polled ? PATIENCE_S * NS_PER_S : BRIEFLY_NS);
  until.tv_sec += (time_t)(nanoseconds / NS_PER_S);
  until.tv_nsec = (long)(nanoseconds % NS_PER_S);
  return !pthread_mutex_timedlock(&rank->lock, &until);
}

/* The reason is there before: the rank's thread finds it, whatever the library says to it. */
void nccl_end_part(fl_rank *rank, nccl_work_id why, bool has_lock) {
  gpu_scope scope;
  char words[GPU_WORDS];
  nccl_work_id none = 0;
  if (!atomic_compare_exchange_strong(&rank->ended, &none, why))
    return;
  bool locked = !has_lock && lock_soon(rank), entered = !gpu_enter(rank->device, &scope, "abort", words, sizeof words);
  nccl.abort(rank->comm);
  if (entered)
    gpu.call.leave(&scope);
  if (locked)
    pthread_mutex_unlock(&rank->lock);
}

static const char *const kinds[NCCL_WORK_KINDS] = {
    [FL_ALL_REDUCE] = "all_reduce",
    [FL_REDUCE] = "reduce",
    [FL_BROADCAST] = "broadcast",
    [FL_ALL_GATHER] = "all_gather",
    [FL_ALL_GATHER_V] = "all_gather_v",
    [FL_REDUCE_SCATTER] = "reduce_scatter",
    [FL_REDUCE_SCATTER_V] = "reduce_scatter_v",
    [FL_GATHER] = "gather",
    [FL_SCATTER] = "scatter",
    [FL_ALL_TO_ALL] = "all_to_all",
    [FL_ALL_TO_ALL_V] = "all_to_all_v",
    [FL_SEND] = "send",
    [FL_RECV] = "recv",
    [NCCL_BATCH] = "batch",
    [NCCL_SPLITTING] = "splitting",
    [NCCL_LEAVING] = "leaving",
};

static fl_status say_late(const fl_rank *rank, nccl_work_id late) {
  int kind = (int)(late & ((1u << KIND_BITS) - 1));
  if (kind == NCCL_JOINING)
    return fl_say(rank->message, rank->message_size, FL_EDEVICE,
                  "rank %d waited %g seconds, and not all of the %d ranks have come; %s does not say which is missing",
                  rank->me, rank->timeout, rank->n, nccl_vendor.title);
  return fl_say(rank->message, rank->message_size, FL_EDEVICE,
                "%s, number %llu of this rank's, was not done after %g seconds: another rank has not come to it, has "
                "ended or hangs; %s does not say which. This rank's part has ended",
                kinds[kind], (unsigned long long)(late >> KIND_BITS), rank->timeout, nccl_vendor.title);
}

fl_status nccl_outcome(const fl_rank *rank, ncclResult_t result, const char *function) {
  nccl_work_id ended = atomic_load(&rank->ended);
  if (ended == NCCL_ABORTED)
    return fl_say(rank->message, rank->message_size, FL_ESTATE, "this rank's part was aborted");
  if (ended)
    return say_late(rank, ended);
  return result ? nccl_failed(result, function, rank->message, rank->message_size) : FL_OK;
}
