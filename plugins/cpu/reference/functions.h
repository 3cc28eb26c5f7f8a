/* The scalar functions that activations are made of, in float as PyTorch's strided CPU loops compute them. libm only.
 */
#ifndef FLHOST_CPU_REFERENCE_FUNCTIONS_H
#define FLHOST_CPU_REFERENCE_FUNCTIONS_H

#include <math.h>
#include <string.h>

static inline float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/* x / (1 + exp(-x)) */
static inline float silu(float x) {
  return x / (1.0f + expf(-x));
}

/* 0.5 x (1 + erf(x / sqrt(2))) */
static inline float gelu(float x) {
  const float sqrt_half = 0.70710678118654752440f;
  return x * 0.5f * (1.0f + erff(x * sqrt_half));
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static inline float gelu_tanh(float x) {
  const float sqrt_2_over_pi = 0.79788456080286535588f;
  float inner = sqrt_2_over_pi * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1.0f + tanhf(inner));
}

/* `approximate` is "none" or "tanh". */
static inline float (*gelu_of(const char *approximate))(float) {
  return strcmp(approximate, "tanh") ? gelu : gelu_tanh;
}

/* log(1 + exp(x)); above 20 that is x. */
static inline float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

/* torch.clamp(x, max=limit) and torch.clamp(x, -limit, limit): NaN stays. */
static inline float clamp_above(float x, float limit) {
  return x > limit ? limit : x;
}

static inline float clamp_both(float x, float limit) {
  return x < -limit ? -limit : clamp_above(x, limit);
}

#endif
