/* Comparison of a result with what was expected, under a tolerance: public as fl_compare_tensors. */
#include "core/support.h"

#include <flhost/element.h>
#include <flhost/testing.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

static void print_shape(const DLTensor *tensor, char *text, size_t size) {
  size_t length = 0;
  for (int d = 0; d < tensor->ndim && length < size; d++)
    length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
  if (!tensor->ndim)
    *text = 0;
}

/* Fills `problem` and gives false where the tensors are not of one kind. */
static bool comparable(const DLTensor *result, const DLTensor *expected, char *problem, size_t size) {
  char a[96], b[96];
  bool same = result->ndim == expected->ndim;
  for (int d = 0; same && d < result->ndim; d++)
    same = result->shape[d] == expected->shape[d];
  if (!same) {
    print_shape(result, a, sizeof a);
    print_shape(expected, b, sizeof b);
    snprintf(problem, size, "shape [%s], expected [%s]", a, b);
    return false;
  }
  if (!same_dtype(result->dtype, expected->dtype)) {
    snprintf(problem, size, "element type (code %u, %u bits), expected (code %u, %u bits)", result->dtype.code,
             result->dtype.bits, expected->dtype.code, expected->dtype.bits);
    return false;
  }
  if (!fl_element_type_of(result->dtype)) {
    snprintf(problem, size, "element type (code %u, %u bits) cannot be compared", result->dtype.code,
             result->dtype.bits);
    return false;
  }
  return true;
}

/* |a - b| where NaN equals NaN and an infinity equals itself; infinite where just one is not finite. */
static double distance(double a, double b) {
  if ((isnan(a) && isnan(b)) || a == b)
    return 0;
  return isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
}

/* How a comparison decides. */
typedef struct comparison_rule {
  const fl_element_type *type;
  double atol, rtol;
  bool exact;
} comparison_rule;

/* Takes one pair of elements into account; `excess` is how far the worst so far lies outside the tolerance. */
static bool compare_element(const comparison_rule *rule, const char *got, const char *want, int64_t i,
                            fl_comparison *result, double *excess) {
  size_t bytes = rule->type->dtype.bits / 8u;
  if (!memcmp(got + (size_t)i * bytes, want + (size_t)i * bytes, bytes))
    return true;
  double a = rule->type->get(got, i), b = rule->type->get(want, i), error = distance(a, b);
  double allowed = rule->exact || !isfinite(b) ? 0 : rule->atol + rule->rtol * fabs(b);
  bool pass = rule->exact ? isnan(a) && isnan(b) : error <= allowed;
  if (error > result->max_abs_err)
    result->max_abs_err = error;
  if (b != 0 && error / fabs(b) > result->max_rel_err)
    result->max_rel_err = error / fabs(b);
  double share = !pass && !(error > allowed) ? INFINITY : error > 0 ? error / allowed : 0;
  if (share > result->max_share)
    result->max_share = share;
  /* A failing element (say, -0 for 0, bit for bit) counts for more than any that passes. */
  double beyond = error - allowed + !pass;
  if ((error > 0 || !pass) && beyond > *excess) {
    *excess = beyond;
    result->worst = i;
  }
  return pass;
}

static fl_comparison compare(const DLTensor *result, const DLTensor *expected, double atol, double rtol,
                             bool bit_exact) {
  fl_comparison found = {.worst = -1};
  int64_t n = 1;
  double excess = -INFINITY;
  if (!comparable(result, expected, found.problem, sizeof found.problem)) {
    found.max_abs_err = found.max_rel_err = found.max_share = INFINITY;
    return found;
  }
  comparison_rule rule = {.type = fl_element_type_of(result->dtype), .atol = atol, .rtol = rtol};
  const char *got = fl_data(result), *want = fl_data(expected);
  rule.exact = bit_exact || !(rule.type->largest || rule.type->atol > 0); /* codes of int8 have a tolerance */
  for (int d = 0; d < result->ndim; d++)
    n *= result->shape[d];
  for (int64_t i = 0; i < n; i++)
    found.failures += !compare_element(&rule, got, want, i, &found, &excess);
  found.pass = !found.failures;
  if (found.worst >= 0) {
    found.got = rule.type->get(got, found.worst);
    found.wanted = rule.type->get(want, found.worst);
  }
  if (!found.pass)
    snprintf(found.problem, sizeof found.problem,
             "%" PRId64 " of %" PRId64 " elements differ%s, worst at %" PRId64 ": %.9g, expected %.9g", found.failures,
             n, bit_exact ? " in their bits" : "", found.worst, found.got, found.wanted);
  return found;
}

fl_status fl_compare_tensors(const DLTensor *result, const DLTensor *expected, double atol, double rtol, bool bit_exact,
                             fl_comparison *found) {
  fl_status status = fl_sized_check(found, sizeof *found, "fl_compare_tensors: the comparison's", "fl_comparison");
  if (status)
    return status;
  fl_comparison made = compare(result, expected, atol, rtol, bit_exact);
  fl_sized_give(found, &made, sizeof made);
  return FL_OK;
}
