/* The arguments of the kernels in probe.cu, which test what kernels are written in. C11 and C++17. */
#ifndef FLHOST_TESTS_PROBE_H
#define FLHOST_TESTS_PROBE_H

#include <stdint.h>

typedef struct probe_arguments {
  const void *in;
  void *out;
  int64_t n;
} probe_arguments;

#endif
