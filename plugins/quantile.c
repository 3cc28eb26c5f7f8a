/* The normal quantile that gelu_and_mul_sparse takes its cut from. */
#include "plugins/quantile.h"

#include <math.h>

/* y with erf(y) = v, from Winitzki's approximation by Newton's steps on erfc, which keeps its digits near |v| = 1. */
static double inverse_erf(double v) {
  const double pi = 3.14159265358979323846, a = 0.147;
  double rest = 1 - fabs(v);
  if (v == 0 || rest <= 0)
    return v == 0 ? 0 : copysign(INFINITY, v);
  double logarithm = log(rest * (2 - rest)), half = 2 / (pi * a) + logarithm / 2;
  double y = sqrt(sqrt(half * half - logarithm / a) - half);
  for (int i = 0; i < 4; i++)
    y += (erfc(y) - rest) * sqrt(pi) / 2 * exp(y * y);
  return copysign(y, v);
}

/* torch.distributions.Normal(0, 1).icdf of a float32 tensor: each step is a float. */
float normal_quantile(double probability) {
  float v = 2.0f * (float)probability - 1.0f;
  return (float)inverse_erf((double)v) * 1.41421356237309504880f;
}
