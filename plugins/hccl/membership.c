/* How a rank comes to its communicator, and leaves it. The library takes the thread's device for the rank's. */
#include "plugins/hccl/rank.h"
#include "plugins/ranks/attempt.h"

#include <stdlib.h>
#include <string.h>

enum { SPARE_SIZE = 64 };

static fl_status open_all(char *message, size_t message_size) {
  const char *reason;
  return ascend_acl_open(&reason) && hccl_open(&reason) ? FL_OK
                                                        : fl_say(message, message_size, FL_EDEVICE, "%s", reason);
}

/* The id says where this process can be met, by the device's network, too: the thread's, or the first. */
fl_status hccl_make_id(void *self, void *id, char *message, size_t message_size) {
  int32_t device = 0;
  ascend_guard guard;
  (void)self;
  fl_status status = open_all(message, message_size);
  if (!status)
    status = ascend_start(message, message_size);
  if (status)
    return status;
  if (acl.aclrtGetDevice(&device))
    device = 0;
  status = ascend_enter(device, &guard, message, message_size);
  if (status)
    return status;
  status = hccl_status(hccl.get_root_info(id), "HcclGetRootInfo", message, message_size);
  ascend_leave(&guard);
  return status;
}

static fl_status acl_status(aclError code, const char *function, const fl_join *join) {
  if (!code)
    return FL_OK;
  ascend_describe(join->message, join->message_size, function, code);
  return ascend_code_of(code).status == FL_ENOMEM ? FL_ENOMEM : FL_EDEVICE;
}

/* With the device entered. */
static void give_back(fl_rank *rank) {
  if (rank->stream)
    acl.aclrtDestroyStream(rank->stream);
  if (rank->spare)
    acl.aclrtFree(rank->spare);
  works_free(&rank->works);
}

/* What the library is told and says, where waiting for it has to be given up: its words are the thread's. */
typedef struct joining {
  aclrtContext context; /* of the rank's thread, and with it the device */
  int me, n;
  HcclRootInfo id;
  HcclComm comm;
  fl_status status;
  char words[512];
} joining;

static void join_here(void *of) {
  joining *j = of;
  aclError code = acl.aclrtSetCurrentContext(j->context);
  if (code) {
    ascend_describe(j->words, sizeof j->words, "aclrtSetCurrentContext", code);
    j->status = FL_EDEVICE;
  } else {
    j->status = hccl_status(hccl.init_root_info((uint32_t)j->n, &j->id, (uint32_t)j->me, &j->comm),
                            "HcclCommInitRootInfo", j->words, sizeof j->words);
  }
}

static void destroy_joined(void *of) {
  const joining *j = of;
  if (!j->status)
    hccl.destroy(j->comm);
}

static fl_status come_together(fl_rank *rank, const fl_join *join) {
  joining j = {.me = rank->me, .n = rank->n};
  memcpy(&j.id, join->id, sizeof j.id);
  fl_status status = hccl_failed_in(rank, "aclrtGetCurrentContext", acl.aclrtGetCurrentContext(&j.context));
  if (status)
    return status;
  works_number(&rank->works, WORK_JOINING);
  attempt_end end = attempt_within(rank->works.limit, &j, sizeof j, join_here, destroy_joined);
  rank->comm = j.comm;
  if (end == ATTEMPT_LATE)
    return works_say_late(&rank->works, rank->works.last, rank->me, rank->n, "HCCL",
                          ", cannot be told to stop, and is left waiting in a thread", join->message,
                          join->message_size);
  if (end == ATTEMPT_NO_THREAD)
    return fl_say(join->message, join->message_size, FL_ENOMEM, "there can be no thread that joins within the limit");
  return j.status ? fl_say(join->message, join->message_size, j.status, "%s", j.words) : FL_OK;
}

/* What can fail on one rank alone comes before what all do together. */
static fl_status begin(fl_rank *rank, const fl_join *join) {
  hccl_limit_rank(rank, join->timeout);
  fl_status status =
      acl_status(acl.aclrtMalloc(&rank->spare, SPARE_SIZE, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc", join);
  if (!status)
    status = acl_status(acl.aclrtCreateStream(&rank->stream), "aclrtCreateStream", join);
  if (!status)
    status = come_together(rank, join);
  if (status)
    give_back(rank);
  return status == FL_ENOTSUP ? FL_EDEVICE : status;
}

fl_status hccl_join(void *self, const fl_join *join, fl_rank **joined) {
  ascend_guard guard;
  (void)self;
  *joined = NULL;
  fl_status status = open_all(join->message, join->message_size);
  if (status)
    return status;
  fl_rank *rank = calloc(1, sizeof *rank);
  if (!rank)
    return fl_say(join->message, join->message_size, FL_ENOMEM, "no memory for rank %d", (int)join->rank);
  rank->device = join->device;
  rank->me = join->rank;
  rank->n = join->ranks;
  rank->message = join->message;
  rank->message_size = join->message_size;
  status = ascend_enter(join->device, &guard, join->message, join->message_size);
  if (!status) {
    status = begin(rank, join);
    ascend_leave(&guard);
  }
  if (status)
    free(rank);
  else
    *joined = rank;
  return status;
}

/* The library would end under what is on streams, whose memory others may still write to. After an error that may be
 * for ever: what is not done then is left to the process, with all that it uses. */
void hccl_leave(void *self, fl_rank *rank) {
  ascend_guard guard;
  (void)self;
  if (!ascend_enter(rank->device, &guard, rank->message, rank->message_size)) {
    if (hccl_await_works(rank)) {
      if (!rank->failed)
        acl.aclrtSynchronizeDevice();
      hccl.destroy(rank->comm);
      give_back(rank);
    }
    ascend_leave(&guard);
  }
  free(rank);
}

static fl_status find_late(fl_rank *rank) {
  ascend_guard guard;
  fl_status status = ascend_enter(rank->device, &guard, rank->message, rank->message_size);
  if (status)
    return hccl_failed(rank, FL_EDEVICE);
  status = hccl_check_late(rank);
  ascend_leave(&guard);
  return status;
}

fl_status hccl_state(void *self, fl_rank *rank) {
  HcclResult found = HCCL_SUCCESS;
  (void)self;
  fl_status status = rank->works.limit ? find_late(rank) : FL_OK;
  if (status || !hccl.get_async_error)
    return status;
  status =
      hccl_status(hccl.get_async_error(rank->comm, &found), "HcclGetCommAsyncError", rank->message, rank->message_size);
  if (status || !found)
    return status;
  rank->failed = true;
  return hccl_status(found, "work that was queued before", rank->message, rank->message_size);
}
