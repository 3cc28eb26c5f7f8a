/* Test data: see fill.h. */
#include "cli/trials/fill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- numbers */

/* splitmix64 */
static uint64_t next_bits(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* 0 to below 1. */
static double next_fraction(uint64_t *state) {
  return (double)(next_bits(state) >> 11) * 0x1p-53;
}

/* Mean 0, variance 1, the sum of four uniform numbers: within 3.5. */
static double next_normal(uint64_t *state) {
  uint64_t bits = next_bits(state);
  uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
  return ((double)sum - 2 * 65535.0) * (1.7320508075688772 / 65536.0);
}

static double next_in_range(uint64_t *state, double low, double high, bool integer) {
  double fraction = next_fraction(state);
  return integer ? low + floor(fraction * (high - low + 1)) : low + fraction * (high - low);
}

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* ------------------------------------------------------------------------------------------------------------- rows */

/* Fills with n different integers from low to high; there are enough. */
static void fill_distinct(double *values, int64_t n, double low, double high, uint64_t *state) {
  int64_t left = (int64_t)(high - low) + 1, needed = n;
  for (int64_t v = 0, i = 0; i < n; v++, left--) /* each with the probability that keeps all subsets equally likely */
    if (next_fraction(state) * (double)left < (double)needed) {
      values[i++] = low + (double)v;
      needed--;
    }
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t other = (int64_t)(next_bits(state) % (uint64_t)(i + 1));
    double moved = values[i];
    values[i] = values[other];
    values[other] = moved;
  }
}

static void fill_ascending(double *values, int64_t n, double low, double high, uint64_t *state) {
  for (int64_t i = 0; i < n; i++)
    values[i] = next_in_range(state, low, high, true);
  qsort(values, (size_t)n, sizeof *values, compare_numbers);
  values[0] = low;
  if (n > 1)
    values[n - 1] = high;
}

static bool is_normal(const fl_input *input) {
  return input->contents == FL_CONTENTS_NORMAL || input->contents == FL_CONTENTS_MODERATE;
}

static void fill_row(const fl_input *input, const fl_element_type *type, double *values, int64_t n, uint64_t *state) {
  if (input->contents == FL_CONTENTS_DISTINCT)
    fill_distinct(values, n, input->low, input->high, state);
  else if (input->contents == FL_CONTENTS_ASCENDING)
    fill_ascending(values, n, input->low, input->high, state);
  else
    for (int64_t i = 0; i < n; i++)
      values[i] = is_normal(input) ? next_normal(state) : next_in_range(state, input->low, input->high, !type->largest);
}

/* One value that is not like others, somewhere in the row: two could meet, and the order of a sum would decide. */
static void spoil_row(const fl_input *input, const fl_element_type *type, double *values, int64_t n, int64_t row,
                      uint64_t *state) {
  const double awkward[] = {
      0, -0.0, INFINITY, -INFINITY, NAN, type->denormal, -type->denormal, type->largest, -type->largest};
  int64_t count = sizeof awkward / sizeof awkward[0] - (input->contents == FL_CONTENTS_MODERATE ? 2 : 0);
  values[next_bits(state) % (uint64_t)n] = awkward[row % count];
}

bool fill_tensor(const fl_input *input, uint64_t seed, bool awkward, void *data) {
  const fl_tensor_spec *spec = &input->spec;
  const fl_element_type *type = fl_element_type_of(spec->dtype);
  int64_t length = spec->ndim ? spec->shape[spec->ndim - 1] : 1, n = 1;
  uint64_t state = seed;
  for (int d = 0; d < spec->ndim; d++)
    n *= spec->shape[d];
  if (!n)
    return true;
  if (!type || !type->put || (!is_normal(input) && !(input->low <= input->high)) ||
      (input->contents == FL_CONTENTS_DISTINCT && input->high - input->low + 1 < (double)length))
    return false;
  if (input->contents == FL_CONTENTS_DISTINCT && input->high - input->low + 1 >= (double)n)
    length = n; /* they suffice for all rows */
  double *values = malloc((size_t)length * sizeof *values);
  if (!values)
    return false;
  int64_t first_kind = (int64_t)(next_bits(&state) % 9);
  for (int64_t row = 0; row * length < n; row++) {
    fill_row(input, type, values, length, &state);
    if (awkward && type->largest != 0 && is_normal(input))
      spoil_row(input, type, values, length, row + first_kind, &state);
    for (int64_t i = 0; i < length; i++)
      type->put(data, row * length + i, values[i]);
  }
  free(values);
  return true;
}
