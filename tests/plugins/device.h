/* What tests see of the test device (tests/plugins/device.c): its symbol test_device_state. */
#ifndef FLHOST_TESTS_PLUGINS_DEVICE_H
#define FLHOST_TESTS_PLUGINS_DEVICE_H

#include <flhost/plugin.h>

typedef struct device_state {
  void *stream;         /* of the last kernel */
  int32_t device;       /* of the last kernel */
  unsigned kernels;     /* that ran */
  unsigned synchronous; /* calls of synchronize */
  unsigned allocations; /* that are not released */
  unsigned active;      /* calls of is_active */
  unsigned properties;  /* calls of properties */
  bool asleep;          /* set by a test: is_active says no */
  bool full;            /* set by a test: allocate fails */
  bool captured;        /* set by a test: all streams are being captured */
} device_state;

/* How test_device_fail fails. */
enum { FAIL_NOT, FAIL_AT_ONCE, FAIL_LATE };

#endif
