/* The function of a library that the call path is measured against: see forward.c. */
#ifndef FLHOST_BENCH_FORWARD_H
#define FLHOST_BENCH_FORWARD_H

#include <flhost/plugin.h>

typedef struct bench_pointer {
  fl_kernel_fn fn;
  void *self;
} bench_pointer;

FL_EXPORT fl_status bench_forward(const bench_pointer *pointer, fl_call *call);

#endif
