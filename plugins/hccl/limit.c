/*
 * How long a rank's work may take. What waits in a stream has an event behind it, by which the next call and the
 * group's state see that it is not done in time. Nothing can end it: the library has no abort.
 */
#include "plugins/hccl/rank.h"

#include <time.h>

enum { NS_PER_MS = 1000000 };

/* ---------------------------------------------------------------------------------------------------------- events */

/* A runtime without them is done without. */
static void *create_event(void) {
  aclrtEvent made = NULL;
  if (!acl.aclrtDestroyEvent || !acl.aclrtRecordEvent || !acl.aclrtQueryEventStatus ||
      !acl.aclrtCreateEventExWithFlag || acl.aclrtCreateEventExWithFlag(&made, ACL_EVENT_SYNC))
    return NULL;
  return made;
}

static void destroy_event(void *event) {
  acl.aclrtDestroyEvent(event);
}

static bool record_event(void *event, void *stream) {
  return !acl.aclrtRecordEvent(event, stream);
}

/* No capture forbids it: those are copies and filling memory. */
static bool is_done(void *event) {
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  return acl.aclrtQueryEventStatus(event, &status) || status != ACL_EVENT_RECORDED_STATUS_NOT_READY;
}

void hccl_limit_rank(fl_rank *rank, double timeout) {
  static const work_events events = {create_event, destroy_event, record_event, is_done, ascend_is_captured};
  works_limit(&rank->works, &events, timeout);
}

/* ------------------------------------------------------------------------------------------------------------ late */

fl_status hccl_failed(fl_rank *rank, fl_status status) {
  rank->failed = rank->failed || (status && status != FL_ENOTSUP);
  return status;
}

fl_status hccl_failed_in(fl_rank *rank, const char *function, aclError code) {
  if (!code)
    return FL_OK;
  ascend_describe(rank->message, rank->message_size, function, code);
  return hccl_failed(rank, FL_EDEVICE);
}

static fl_status say_late(fl_rank *rank) {
  return hccl_failed(rank,
                     works_say_late(&rank->works, rank->late, rank->me, rank->n, "HCCL",
                                    " and cannot end it. It is left in its stream", rank->message, rank->message_size));
}

fl_status hccl_check_late(fl_rank *rank) {
  uint64_t next = UINT64_MAX;
  if (!rank->late && rank->works.limit)
    rank->late = works_find_late(&rank->works, works_now(), &next);
  return rank->late ? say_late(rank) : FL_OK;
}

/* What is left of the limit, in whole milliseconds, one at least. */
static int32_t time_left(const fl_rank *rank) {
  uint64_t until = rank->works.since + rank->works.limit, now = works_now();
  uint64_t left = until > now ? (until - now) / NS_PER_MS + 1 : 1;
  return left < INT32_MAX ? (int32_t)left : INT32_MAX;
}

fl_status hccl_wait_for(fl_rank *rank, aclrtStream stream) {
  if (!rank->works.limit || !acl.aclrtSynchronizeStreamWithTimeout)
    return hccl_failed_in(rank, "aclrtSynchronizeStream", acl.aclrtSynchronizeStream(stream));
  aclError code = acl.aclrtSynchronizeStreamWithTimeout(stream, time_left(rank));
  if (code != ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)
    return hccl_failed_in(rank, "aclrtSynchronizeStreamWithTimeout", code);
  rank->late = rank->works.last;
  return say_late(rank);
}

bool hccl_await_works(fl_rank *rank) {
  while (works_are_pending(&rank->works)) {
    if (rank->failed || hccl_check_late(rank))
      return false;
    nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
  }
  return true;
}
