/*
 * The least that a call through a shared library costs: a function of one that calls what it is given, and looks
 * whether that failed. What fl_invoke takes beyond this is flhost's own.
 */
#include "bench/forward.h"

fl_status bench_forward(const bench_pointer *pointer, fl_call *call) {
  fl_status status = pointer->fn(pointer->self, call);
  return __builtin_expect(status != FL_OK, 0) ? FL_EINTERNAL : status;
}
