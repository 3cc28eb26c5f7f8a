/* How a rank comes to its communicator, and leaves it. */
#include "plugins/nccl/rank.h"

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
  return rank;
}

/* The library takes the thread's device for the rank's. */
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
  fl_rank *rank = make(join, device);
  if (!rank)
    return FL_ENOMEM;
  status = gpu_enter(device, &scope, "joining", join->message, join->message_size);
  if (!status) {
    ncclResult_t result = nccl.init_rank(&rank->comm, join->ranks, join->id, join->rank);
    if (result)
      status = nccl_failed(result, "CommInitRank", join->message, join->message_size);
    gpu.call.leave(&scope);
  }
  if (status)
    free(rank);
  else
    *joined = rank;
  return status;
}

fl_status nccl_enter(fl_rank *rank, gpu_scope *scope) {
  if (atomic_load(&rank->aborted))
    return fl_say(rank->message, rank->message_size, FL_ESTATE, "this rank's part was aborted");
  return gpu_enter(rank->device, scope, nccl_vendor.title, rank->message, rank->message_size);
}

/* An end in order waits for the others and for what is on streams, which after an error may be for ever. */
static void end(fl_rank *rank) {
  ncclResult_t found = ncclSuccess;
  bool good = !nccl.get_async_error(rank->comm, &found) && (found == ncclSuccess || found == ncclInProgress);
  if (!good || nccl.finish(rank->comm))
    nccl.abort(rank->comm);
}

void nccl_leave(void *self, fl_rank *rank) {
  gpu_scope scope;
  (void)self;
  if (!nccl_enter(rank, &scope)) {
    end(rank);
    gpu.call.leave(&scope);
  }
  if (nccl.free_streams)
    nccl.free_streams(rank->streams);
  free(rank);
}

/* The library's part is gone then: a thread that waits in it comes back, one that comes later finds the flag. */
void nccl_abort(void *self, fl_rank *rank) {
  gpu_scope scope;
  char words[GPU_WORDS];
  (void)self;
  if (atomic_exchange(&rank->aborted, true))
    return;
  bool entered = !gpu_enter(rank->device, &scope, "abort", words, sizeof words);
  nccl.abort(rank->comm);
  if (entered)
    gpu.call.leave(&scope);
}

fl_status nccl_state(void *self, fl_rank *rank) {
  char words[256];
  ncclResult_t found = ncclSuccess;
  (void)self;
  if (atomic_load(&rank->aborted))
    return fl_say(rank->message, rank->message_size, FL_ESTATE, "this rank's part was aborted");
  ncclResult_t result = nccl.get_async_error(rank->comm, &found);
  if (result)
    return nccl_failed(result, "CommGetAsyncError", rank->message, rank->message_size);
  if (found == ncclSuccess || found == ncclInProgress)
    return FL_OK;
  fl_status status = nccl_words(found, words, sizeof words);
  return fl_say(rank->message, rank->message_size, status, "work that was queued before: %s", words);
}

/* All ranks call it, so that one that is in no part, or cannot be, takes part all the same. */
fl_status nccl_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part) {
  gpu_scope scope;
  bool elsewhere = color >= 0 && join->device != rank->device->ordinal;
  (void)self;
  *part = NULL;
  fl_status status = nccl_enter(rank, &scope);
  if (status)
    return status;
  fl_rank *made = color >= 0 && !elsewhere ? make(join, rank->device) : NULL;
  ncclComm_t comm = NULL;
  ncclResult_t result = nccl.split(rank->comm, made ? color : NCCL_SPLIT_NOCOLOR, key, &comm, NULL);
  if (result)
    status = nccl_failed(result, "CommSplit", join->message, join->message_size);
  else if (elsewhere)
    status = fl_say(join->message, join->message_size, FL_EINVAL,
                    "a part of a group is on the group's device, %d, expected that or none, not %d",
                    rank->device->ordinal, (int)join->device);
  else if (color >= 0 && !made)
    status = FL_ENOMEM;
  gpu.call.leave(&scope);
  if (!status && made) {
    made->comm = comm;
    *part = made;
  } else {
    free(made);
  }
  return status;
}
