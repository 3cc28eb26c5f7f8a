/* Compares a result with what was expected, element by element, under a tolerance. */
#ifndef FLHOST_CLI_COMPARE_H
#define FLHOST_CLI_COMPARE_H

#include <flhost/plugin.h>

typedef struct comparison {
  bool pass;
  double max_abs_err; /* largest |result - expected|; infinite where only one of them is NaN or infinite */
  double max_rel_err; /* largest of that over |expected|, of the elements with expected != 0 */
  double max_share;   /* largest difference as a share of what is allowed there; infinite where nothing is */
  int64_t worst;      /* linear index of the element that is farthest out (passing or not); -1: all are equal */
  double got, wanted; /* its values, if there is one */
  int64_t failures;   /* number of elements that do not pass */
  char problem[256];  /* "" when pass: what differs, in words */
} comparison;

/*
 * `result` and `expected` are compact tensors on the CPU. Floating-point elements pass when |result - expected| <= atol
 * + rtol * |expected|, both are NaN, or both are the same infinity; integers and booleans when they are equal. With
 * `bit_exact` floating-point elements pass when their bits are equal or both are NaN. Different shapes or element
 * types, or one that cannot be compared, do not pass.
 */
comparison compare_tensors(const DLTensor *result, const DLTensor *expected, double atol, double rtol, bool bit_exact);

#endif
