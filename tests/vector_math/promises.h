/*
 * What the elementary functions and conversions of the CPU plugin's vectorised kernels promise, held against libm in
 * double and against flhost/dtype.h. Without Check, for programs that run elsewhere than on this machine (tests/cross).
 */
#ifndef FLHOST_TESTS_VECTOR_MATH_PROMISES_H
#define FLHOST_TESTS_VECTOR_MATH_PROMISES_H

#include "tests/vector_math/functions.h"

#include <stdbool.h>

/* The largest error of a function, in ulps, of those that count, and where it is. */
typedef struct vector_worst {
  const char *name;
  double ulps, allowed;
  float at;
} vector_worst;

/* For all bfloat16 and float16 values, and `points` floats spread over all bits. Another call takes them anew. */
const vector_worst *vector_worst_errors(const vector_function of[VECTOR_FUNCTIONS], int64_t points);

/* Every bit pattern's upper half with lower halves next to what decides: ties, carries, and both sides of them. The
 * first that is rounded to 16 bits otherwise than by dtype.h, in words; NULL: none. `flushes`: to bfloat16 denormals
 * become zeros. */
const char *vector_wrong_rounding(const vector_rounding of[VECTOR_ROUNDINGS], bool flushes);

/* The same of all values of 16 bits as floats. */
const char *vector_wrong_widening(const vector_widening of[VECTOR_ROUNDINGS]);

#endif
