/* What the files of the stand-in's runtime share: codes, the start of a function, memory that work uses. */
#ifndef FLHOST_STAND_IN_RUNTIME_H
#define FLHOST_STAND_IN_RUNTIME_H

#include "tests/drivers/ascend/stand_in.h"

enum {
  INVALID = 100000,
  NOT_INITIALISED = 100001,
  REPEATED = 100002,
  INVALID_PARAMETER = 107000,
  INVALID_DEVICE = 107001,
  NO_CONTEXT = 107002,
  NO_TIME = 107006,
  CAPTURE_DEPENDENCY = 107024,
  NOT_JOINED = 107025,
  STREAM_CAPTURED = 107027,
  EVENT_CAPTURED = 107028,
  NOT_CAPTURED = 107029,
  NOT_WHILE_CAPTURED = 107030,
  OTHER_STREAM = 107036,
  GRAPH_RUNS = 107037,
  OTHER_THREAD = 107038,
  NOT_ASYNCHRONOUS = 107041,
  NO_MEMORY = 207001,
  NOT_COMPLETE = 507006,
  WAITED_TOO_LONG = 507046,
  CAPTURE_INVALIDATED = 507903
};
enum { MAX_DEVICES = 16 };

#define ORDERED()                                                                                                      \
  do {                                                                                                                 \
    int ordered_ = stand_in_ordered(__func__);                                                                         \
    if (ordered_)                                                                                                      \
      return ordered_;                                                                                                 \
  } while (0)
#define NEEDS_CONTEXT()                                                                                                \
  do {                                                                                                                 \
    ORDERED();                                                                                                         \
    if (!stand_in_has_context())                                                                                       \
      return NO_CONTEXT;                                                                                               \
  } while (0)

/* The thread's device, or -1. */
int stand_in_current(void);

/* Is it all inside one block of aclrtMallocHost? */
int stand_in_is_pinned(const void *memory, size_t size);

/* A piece of memory that is about to be freed: a violation if work needs it that waits. With the lock. */
void stand_in_check_free(const char *memory, size_t size);

/* Is there work on the device that waits? With the lock. */
int stand_in_is_busy(int device);

/* With the setting `capture` all streams are captured; nothing of this may be called then. */
void stand_in_check_capture(const char *function);

#endif
