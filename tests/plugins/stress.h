/* What tests/stress.c and its plugins share: how they are told to behave, and what they leave behind. */
#ifndef FLHOST_TESTS_STRESS_H
#define FLHOST_TESTS_STRESS_H

#include <flhost/plugin.h>
#include <stdatomic.h>

/* stress_0(Tensor x, int tag) -> (str ran, int echo): `ran` is the impl_id, `echo` the tag. */
#define STRESS_SCHEMA "(Tensor x, int tag) -> (str ran, int echo)"
enum { STRESS_OPS = 3, STRESS_X = 0, STRESS_TAG, STRESS_RAN, STRESS_ECHO, STRESS_VALUES };

typedef struct stress_control {
  _Atomic long inside; /* calls that are in a kernel */
  _Atomic long calls;
  _Atomic int fails;   /* every so many calls; 0: none */
  _Atomic bool absent; /* what is_available says */
} stress_control;

/* Ends a call as the control says. Relaxed: what orders these counts for others has to be the host's own doing. */
static inline fl_status stress_run(stress_control *control, const char *id, fl_call *call) {
  fl_status status = FL_OK;
  atomic_fetch_add_explicit(&control->inside, 1, memory_order_relaxed);
  long n = atomic_fetch_add_explicit(&control->calls, 1, memory_order_relaxed);
  int fails = atomic_load_explicit(&control->fails, memory_order_relaxed);
  if (fails && n % fails == 0) {
    status = fl_fail(call, FL_EDEVICE, "%s fails on command", id);
  } else {
    call->values[STRESS_RAN] = fl_string(id);
    call->values[STRESS_ECHO] = call->values[STRESS_TAG];
  }
  atomic_fetch_sub_explicit(&control->inside, 1, memory_order_relaxed);
  return status;
}

#endif
