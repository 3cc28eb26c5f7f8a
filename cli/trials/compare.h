/* fl_compare_tensors in one expression. */
#ifndef FLHOST_CLI_TRIALS_COMPARE_H
#define FLHOST_CLI_TRIALS_COMPARE_H

#include <flhost/testing.h>

typedef fl_comparison comparison;

static inline comparison compare_tensors(const DLTensor *result, const DLTensor *expected, double atol, double rtol,
                                         bool bit_exact) {
  comparison found = {.size = sizeof found};
  fl_compare_tensors(result, expected, atol, rtol, bit_exact, &found);
  return found;
}

#endif
