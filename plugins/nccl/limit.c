/*
 * How long a rank waits for others. A communicator that was joined with a limit does not wait in the library: that says
 * ncclInProgress, and is asked until it is done or the time is over. What waits in a stream has an event behind it, by
 * which the watchdog sees that it is not done.
 */
#include "plugins/nccl/rank.h"

#include <sched.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

/* ----------------------------------------------------------------------------------------------------------- events */

/* Events that the driver cannot make are done without. */
static void *create_event(void) {
  char words[GPU_WORDS];
  gpu_event made = NULL;
  if (!gpu_has_part(GPU_EVENTS, nccl_vendor.title, words, sizeof words) ||
      gpu.work.create_event(&made, GPU_EVENT_UNTIMED))
    return NULL;
  return made;
}

static void destroy_event(void *event) {
  gpu.work.destroy_event(event);
}

static bool record_event(void *event, void *stream) {
  return !gpu.work.record_event(event, stream);
}

/* Asking for an event must not end the capture of another thread's stream. */
static bool is_done(void *event) {
  int mode = GPU_CAPTURE_RELAXED;
  bool exchanged = gpu_exchange_capture_mode(&mode);
  gpu_code code = gpu.work.query_event(event);
  if (exchanged)
    gpu_exchange_capture_mode(&mode);
  return code != GPU_NOT_READY;
}

static bool is_captured(void *stream) {
  int status = 0;
  return gpu.call.capturing(stream, &status) || status;
}

void nccl_limit_rank(fl_rank *rank, double timeout) {
  static const work_events events = {create_event, destroy_event, record_event, is_done, is_captured};
  works_limit(&rank->works, &events, timeout);
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
  uint64_t begun = works_now(), now = begun;
  long sleep_ns = 10000;
  while (result == ncclInProgress && rank->polled && !atomic_load(&rank->ended)) {
    if (rank->works.limit && now - begun > rank->works.limit) {
      nccl_end_part(rank, rank->works.last, true);
      break;
    }
    pause_for(now - begun, &sleep_ns);
    ncclResult_t asked = nccl.get_async_error(rank->comm, &result);
    if (asked)
      result = asked;
    now = works_now();
  }
  return result;
}

void nccl_await_works(fl_rank *rank) {
  for (int i = 0; i < WORKS; i++)
    if (atomic_load(&rank->works.items[i].since))
      gpu.work.synchronize_event(rank->works.items[i].event);
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
void nccl_end_part(fl_rank *rank, work_id why, bool has_lock) {
  gpu_scope scope;
  char words[GPU_WORDS];
  work_id none = 0;
  if (!atomic_compare_exchange_strong(&rank->ended, &none, why))
    return;
  bool locked = !has_lock && lock_soon(rank), entered = !gpu_enter(rank->device, &scope, "abort", words, sizeof words);
  nccl.abort(rank->comm);
  if (entered)
    gpu.call.leave(&scope);
  if (locked)
    pthread_mutex_unlock(&rank->lock);
}

fl_status nccl_say_late(const fl_rank *rank, work_id late) {
  bool joining = late == WORK_JOINING;
  const char *becomes = !joining       ? ". This rank's part has ended"
                        : rank->polled ? ""
                                       : ", cannot be told to stop, and is left waiting in a thread";
  return works_say_late(&rank->works, late, rank->me, rank->n, nccl_vendor.title, becomes, rank->message,
                        rank->message_size);
}

fl_status nccl_outcome(const fl_rank *rank, ncclResult_t result, const char *function) {
  work_id ended = atomic_load(&rank->ended);
  if (ended == NCCL_ABORTED)
    return fl_say(rank->message, rank->message_size, FL_ESTATE, "this rank's part was aborted");
  if (ended)
    return nccl_say_late(rank, ended);
  return result ? nccl_failed(result, function, rank->message, rank->message_size) : FL_OK;
}
