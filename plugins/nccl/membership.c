/* How a rank comes to its communicator, and leaves it. */
#include "plugins/nccl/rank.h"
#include "plugins/ranks/attempt.h"

fl_status nccl_failed(ncclResult_t result, const char *function, char *message, size_t message_size) {
  char words[256];
  fl_status status = nccl_words(result, words, sizeof words);
  return fl_say(message, message_size, status, "%s%s: %s", nccl_vendor.prefix, function, words);
}

fl_status nccl_make_id(void *self, void *id, char *message, size_t message_size) {
  const char *reason;
  (void)self;
  if (!nccl_open(&reason))
    return fl_say(message, message_size, FL_EDEVICE, "%s", reason);
  ncclResult_t result = nccl.make_id(id);
  return result ? nccl_failed(result, "GetUniqueId", message, message_size) : FL_OK;
}

static fl_rank *make(const fl_join *join, gpu_device *device) {
  fl_rank *rank = calloc(1, sizeof *rank);
  if (!rank) {
    fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for rank %d", (int)join->rank);
    return NULL;
  }
  rank->device = device;
  rank->me = join->rank;
  rank->n = join->ranks;
  rank->message = join->message;
  rank->message_size = join->message_size;
  pthread_mutex_init(&rank->lock, NULL);
  return rank;
}

/* `entered`: on the rank's device; else that is lost, with what it had. */
static void release(fl_rank *rank, bool entered) {
  if (!rank)
    return;
  if (entered)
    works_free(&rank->works);
  pthread_mutex_destroy(&rank->lock);
  free(rank);
}

/* What a library that only waits is told and says, where that has to be given up: its words are the thread's. */
typedef struct joining {
  gpu_device *device;
  int me, n;
  char id[FL_COMMUNICATOR_ID_MAX];
  ncclComm_t comm;
  fl_status status;
  char words[512];
} joining;

static void join_here(void *of) {
  joining *j = of;
  gpu_scope scope;
  j->status = gpu_enter(j->device, &scope, "joining", j->words, sizeof j->words);
  if (j->status)
    return;
  ncclResult_t result = nccl.init_rank(&j->comm, j->n, j->id, j->me);
  if (result)
    j->status = nccl_failed(result, "CommInitRank", j->words, sizeof j->words);
  gpu.call.leave(&scope);
}

static void abort_joined(void *of) {
  joining *j = of;
  gpu_scope scope;
  if (j->status || gpu_enter(j->device, &scope, "joining", j->words, sizeof j->words))
    return;
  nccl.abort(j->comm);
  gpu.call.leave(&scope);
}

static fl_status join_waiting(fl_rank *rank, const fl_join *join) {
  joining j = {.device = rank->device, .me = rank->me, .n = rank->n};
  memcpy(j.id, join->id, nccl_vendor.id_size);
  attempt_end end = attempt_within(rank->works.limit, &j, sizeof j, join_here, abort_joined);
  rank->comm = j.comm;
  if (end == ATTEMPT_LATE)
    return nccl_say_late(rank, rank->works.last);
  if (end == ATTEMPT_NO_THREAD)
    return fl_say(join->message, join->message_size, FL_ENOMEM, "there can be no thread that joins within the limit");
  return j.status ? fl_say(join->message, join->message_size, j.status, "%s", j.words) : FL_OK;
}

static fl_status join_asking(fl_rank *rank, const fl_join *join) {
  return nccl_outcome(rank, nccl_await(rank, nccl.begin_rank(&rank->comm, rank->n, join->id, rank->me)),
                      "CommInitRankConfig");
}

/* The library takes the thread's device for the rank's. One that was made and did not come together is aborted. */
static fl_status come_together(fl_rank *rank, const fl_join *join) {
  nccl_limit_rank(rank, join->timeout);
  if (!nccl_watch(rank))
    return fl_say(join->message, join->message_size, FL_ENOMEM, "there can be no thread that watches the time limit");
  rank->polled = rank->works.limit && nccl.begin_rank;
  works_number(&rank->works, WORK_JOINING);
  fl_status status = rank->polled ? join_asking(rank, join) : join_waiting(rank, join);
  if (!status)
    return FL_OK;
  if (rank->polled && rank->comm)
    nccl_end_part(rank, NCCL_ABORTED, true);
  nccl_unwatch(rank);
  return status;
}

fl_status nccl_join(void *self, const fl_join *join, fl_rank **joined) {
  const char *reason;
  fl_status status;
  gpu_scope scope;
  (void)self;
  *joined = NULL;
  if (!nccl_open(&reason))
    return fl_say(join->message, join->message_size, FL_EDEVICE, "%s", reason);
  gpu_device *device = gpu_find_device(join->device, &status, join->message, join->message_size);
  if (!device)
    return status;
  status = gpu_enter(device, &scope, "joining", join->message, join->message_size);
  if (status)
    return status;
  fl_rank *rank = make(join, device);
  status = rank ? come_together(rank, join) : FL_ENOMEM;
  if (status)
    release(rank, true);
  else
    *joined = rank;
  gpu.call.leave(&scope);
  return status;
}

fl_status nccl_enter(fl_rank *rank, gpu_scope *scope) {
  fl_status status = nccl_outcome(rank, ncclSuccess, NULL);
  if (!status)
    status = gpu_enter(rank->device, scope, nccl_vendor.title, rank->message, rank->message_size);
  if (status)
    return status;
  pthread_mutex_lock(&rank->lock);
  status = nccl_outcome(rank, ncclSuccess, NULL);
  if (status)
    nccl_exit(rank, scope);
  return status;
}

void nccl_exit(fl_rank *rank, const gpu_scope *scope) {
  pthread_mutex_unlock(&rank->lock);
  gpu.call.leave(scope);
}

/* Has the library nothing to complain of? With the lock. */
static bool is_well(fl_rank *rank) {
  ncclResult_t found = ncclSuccess;
  return !atomic_load(&rank->ended) && !nccl.get_async_error(rank->comm, &found) &&
         (found == ncclSuccess || found == ncclInProgress);
}

/* An end in order waits for the others and for what is on streams, which after an error may be for ever. */
static void end(fl_rank *rank) {
  works_number(&rank->works, WORK_LEAVING);
  if (is_well(rank) && (!nccl.finalize || !nccl_await(rank, nccl.finalize(rank->comm))))
    nccl.destroy(rank->comm);
  else
    nccl_end_part(rank, NCCL_ABORTED, true);
}

static void end_in_order(fl_rank *rank) {
  pthread_mutex_lock(&rank->lock);
  bool well = is_well(rank);
  pthread_mutex_unlock(&rank->lock);
  if (well)
    nccl_await_works(rank);
  nccl_unwatch(rank); /* from here on nobody else ends it */
  pthread_mutex_lock(&rank->lock);
  end(rank);
  pthread_mutex_unlock(&rank->lock);
}

void nccl_leave(void *self, fl_rank *rank) {
  gpu_scope scope;
  char words[GPU_WORDS];
  (void)self;
  bool entered = !gpu_enter(rank->device, &scope, "leaving", words, sizeof words);
  if (entered)
    end_in_order(rank);
  else
    nccl_unwatch(rank);
  if (entered && rank->split)
    nccl.abort(rank->split);
  if (nccl.free_streams)
    nccl.free_streams(rank->streams);
  release(rank, entered);
  if (entered)
    gpu.call.leave(&scope);
}

void nccl_abort(void *self, fl_rank *rank) {
  (void)self;
  nccl_end_part(rank, NCCL_ABORTED, false);
}

/* While the rank's thread is in the library that will say what there is to say. */
fl_status nccl_state(void *self, fl_rank *rank) {
  char words[256];
  ncclResult_t found = ncclSuccess;
  (void)self;
  if (pthread_mutex_trylock(&rank->lock))
    return nccl_outcome(rank, ncclSuccess, NULL);
  bool ended = atomic_load(&rank->ended);
  ncclResult_t result = ended ? ncclSuccess : nccl.get_async_error(rank->comm, &found);
  pthread_mutex_unlock(&rank->lock);
  if (ended || result)
    return nccl_outcome(rank, result, "CommGetAsyncError");
  if (found == ncclSuccess || found == ncclInProgress)
    return FL_OK;
  fl_status status = nccl_words(found, words, sizeof words);
  return fl_say(rank->message, rank->message_size, status, "work that was queued before: %s", words);
}

/* Until the library is done with what it began without saying so. */
static ncclResult_t await_begun(fl_rank *rank) {
  ncclResult_t begun = ncclSuccess, asked = nccl.get_async_error(rank->comm, &begun);
  return nccl_await(rank, asked ? asked : begun);
}

/* The part is there once the library is done with the group; then the part's ranks come together. The function says
 * success while the library is still at it: that the group tells. */
static ncclResult_t split(fl_rank *rank, int color, int key, fl_rank *made) {
  works_number(&rank->works, WORK_SPLITTING);
  ncclResult_t result = nccl.split(rank->comm, made ? color : NCCL_SPLIT_NOCOLOR, key, &rank->split, NULL);
  result = result || !rank->polled ? nccl_await(rank, result) : await_begun(rank);
  if (result || !made)
    return result;
  if (!rank->split)
    return ncclInternalError;
  made->comm = rank->split;
  rank->split = NULL;
  made->polled = rank->polled;
  works_number(&made->works, WORK_JOINING);
  return await_begun(made);
}

/* What came of it, in the words of whom it came to; `made` may be NULL. */
static fl_status split_outcome(const fl_rank *rank, const fl_rank *made, ncclResult_t result, const fl_join *join) {
  const fl_rank *of = made && !atomic_load(&rank->ended) ? made : rank;
  fl_status status = nccl_outcome(of, result, "CommSplit");
  if (status && of->message != join->message)
    fl_say(join->message, join->message_size, status, "%s", of->message);
  return status;
}

/* All ranks call it, so that one that is in no part, or cannot be, takes part all the same. */
fl_status nccl_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part) {
  gpu_scope scope;
  bool elsewhere = color >= 0 && join->device != rank->device->ordinal;
  (void)self;
  *part = NULL;
  if (nccl_enter(rank, &scope))
    return split_outcome(rank, NULL, ncclSuccess, join);
  fl_rank *made = color >= 0 && !elsewhere ? make(join, rank->device) : NULL;
  if (made)
    nccl_limit_rank(made, join->timeout);
  fl_status status = split_outcome(rank, made, split(rank, color, key, made), join);
  if (!status && elsewhere)
    status = fl_say(join->message, join->message_size, FL_EINVAL,
                    "a part of a group is on the group's device, %d, expected that or none, not %d",
                    rank->device->ordinal, (int)join->device);
  else if (!status && ((color >= 0 && !made) || (made && !nccl_watch(made))))
    status = fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for a part of the group");
  if (status && made && made->comm)
    nccl_end_part(made, NCCL_ABORTED, true);
  if (status)
    release(made, true);
  else
    *part = made;
  nccl_exit(rank, &scope);
  return status;
}
