/*
 * What tests ask of the ACL stand-in. They look these functions up in the library that the plugin has opened:
 * stand_in_open() does. None of this is part of the vendor's interface.
 */
#ifndef FLHOST_STAND_IN_CONTROL_H
#define FLHOST_STAND_IN_CONTROL_H

#include <stdint.h>

/*
 * Sets how it behaves:
 *   soc         name of the chip; "" for none. Default Ascend910B3
 *   devices     how many there are. Default 2
 *   workspace   bytes that each operator asks for. Default 192
 *   words       what aclGetRecentErrMsg says; "" for NULL
 *   capture     1: streams are captured in a graph, while nothing may be allocated or waited for
 *   partial     1: a capture that fails leaves a graph behind
 *   abnormal    1: devices are not well
 *   hung        1: streams stand still. Who asks for an event sees it, and who waits with a limit; who waits for a
 *               stream without one goes on as if it was done, since the stand-ins of libraries do
 *   misaligned  1: memory is aligned to 64 bytes, and not to more
 *   FUNCTION    the code that it returns, "207001"; "0" for none. "207001@3": at the third call from now, only once.
 *               The name "kernel" stands for the work of a stream, whose error shows up when that is waited for.
 *   stall FUNCTION  milliseconds that it takes before it does anything
 */
typedef void (*stand_in_set_fn)(const char *name, const char *value);

/*
 * How many there are: "tensors", "lists", "scalars", "arrays", "executors", "blocks" of memory, "queued" pieces of
 * work, "contexts" of devices, "host blocks" of pinned memory, "streams" beside the default ones, "events", "graphs";
 * or were since the last stand_in_clear(): "violations" of the interface's rules,
 * "launched" operators, "waits", "allocations", "finalised", "reset" devices, "made contexts", "stalls". -1: no such
 * name.
 */
typedef int64_t (*stand_in_count_fn)(const char *name);

/* What happened since the last stand_in_clear(), a line each: "launch aclnnSwiGlu on 0", "done aclnnSwiGlu", "wait 0",
 * "violation: executor of aclnnMm used twice". Valid until the next call of this library. */
typedef const char *(*stand_in_log_fn)(void);

typedef void (*stand_in_clear_fn)(void);

typedef struct stand_in {
  stand_in_set_fn set;
  stand_in_count_fn count;
  stand_in_log_fn log;
  stand_in_clear_fn clear;
  void *library;
} stand_in;

#endif
