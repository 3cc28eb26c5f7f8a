/* Codes of quantised values, one at a time, and what the reference kernels make of a row's largest magnitude. */
#ifndef FLHOST_CPU_REFERENCE_CODES_H
#define FLHOST_CPU_REFERENCE_CODES_H

#include <math.h>
#include <stdint.h>

/* The larger one; NaN if there is one. */
static inline float larger(float a, float b) {
  return a > b || isnan(a) ? a : b;
}

/* To the nearest integer, ties to even, saturated; NaN is 0. */
static inline int8_t to_int8(float value) {
  return isnan(value) ? 0 : (int8_t)fminf(fmaxf(nearbyintf(value), -128), 127);
}

#endif
