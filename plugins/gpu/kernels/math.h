/*
 * C's mathematical functions in single precision, for devices whose compiler brings none: AMD's. So their kernels need
 * no device library of ROCm's, which is there for some devices only and different from one version to the next, and the
 * tests run on the CPU what the device will: no result is more than 2 units in the last place off.
 *
 * Arguments are reduced as usual (to a power of two and what remains). Of that, the polynomials are minimax ones, found
 * by Remez' algorithm, with coefficients rounded to float one by one, from that of the lowest power on, and the others
 * found anew each time. Beside each: what it approximates, where, and its error relative to the function's value.
 */
#ifndef FLHOST_GPU_MATH_H
#define FLHOST_GPU_MATH_H

#ifndef INFINITY
#define INFINITY __builtin_inff()
#define NAN      __builtin_nanf("")
#endif

namespace gpu_math {

GPU_DEVICE float fabsf(float x) {
  return __builtin_fabsf(x);
}

GPU_DEVICE float fmaxf(float a, float b) {
  return __builtin_fmaxf(a, b);
}

GPU_DEVICE float ceilf(float x) {
  return __builtin_ceilf(x);
}

GPU_DEVICE float sqrtf(float x) {
  return __builtin_sqrtf(x);
}

GPU_DEVICE double sqrt(double x) {
  return __builtin_sqrt(x);
}

GPU_DEVICE float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

/* coefficients[0] is that of the highest power. */
template <int N> GPU_DEVICE float polynomial(float x, const float (&coefficients)[N]) {
  float sum = coefficients[0];
#pragma unroll
  for (int i = 1; i < N; i++)
    sum = fmaf(sum, x, coefficients[i]);
  return sum;
}

/* 2^n for -126 <= n <= 127 */
GPU_DEVICE float power_of_two(int n) {
  return gpu_float(uint32_t(n + 127) << 23);
}

/* x 2^n, rounded once where the result is denormal; |n| <= 250 */
GPU_DEVICE float scale(float x, int n) {
#if defined(__HIP__)
  return __builtin_amdgcn_ldexpf(x, n);
#else
  return x * power_of_two(n / 2) * power_of_two(n - n / 2);
#endif
}

/* ln 2 in two parts: multiples of the first by small integers have few digits. */
constexpr float log2_of_e = 0x1.715476p+0f, ln2 = 0x1.62e430p-1f, ln2_rest = -0x1.05c610p-29f;

/* ----------------------------------------------------------------------------------------------------- exponentials */

/* e^x is 2^n e^r, |r| <= ln(2) / 2: n, and e^r - 1. */
struct exponential {
  int n;
  float minus_1;
};

GPU_DEVICE exponential reduce(float x) {
  /* (e^r - 1 - r) / r^2; 2^-28 of e^r */
  constexpr float p[] = {0x1.6d0d7ep-10f, 0x1.1241cep-7f, 0x1.555522p-5f, 0x1.555486p-3f, 0.5f};
  constexpr float to_integer =
      0x1.8p23f; /* floats of this size are 1 apart: an addition rounds, and the last bits are n */
  float shifted = fmaf(x, log2_of_e, to_integer), n = shifted - to_integer;
  float r = fmaf(n, -ln2_rest, fmaf(n, -ln2, x));
  return {int(gpu_bits(shifted) - gpu_bits(to_integer)), fmaf(r * r, polynomial(r, p), r)};
}

/* NaN stays. */
GPU_DEVICE float clamp(float x, float least, float most) {
  return x < least ? least : x > most ? most : x;
}

GPU_DEVICE float expf(float x) {
  exponential e = reduce(clamp(x, -110.0f, 90.0f));
  return scale(1.0f + e.minus_1, e.n);
}

GPU_DEVICE float expm1f(float x) {
  exponential e = reduce(clamp(x, -30.0f, 90.0f));
  if (e.n > 26) /* 1 is less than half a unit */
    return scale(1.0f + e.minus_1, e.n);
  float power = power_of_two(e.n);
  return fmaf(power, e.minus_1, power - 1.0f);
}

/* ------------------------------------------------------------------------------------------------------- logarithms */

/* x > 0 is 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
struct logarithm {
  float n, f;
};

/* Of what is no denormal. */
GPU_DEVICE logarithm split(float x) {
  constexpr uint32_t sqrt_half = 0x3f3504f3u;
  int n = int(gpu_bits(x) - sqrt_half) >> 23;
  return {float(n), gpu_float(gpu_bits(x) - (uint32_t(n) << 23)) - 1.0f};
}

/* Of denormals too. */
GPU_DEVICE logarithm split_any(float x) {
  bool denormal = x < 0x1p-126f;
  logarithm l = split(denormal ? x * 0x1p23f : x);
  return {denormal ? l.n - 23.0f : l.n, l.f};
}

/* log(1 + f) - f */
GPU_DEVICE float log_tail(float f) {
  /* (log(1 + f) - f + f^2 / 2) / f^3; 2^-30 of log(1 + f) */
  constexpr float p[] = {-0x1.210eb2p-4f, 0x1.d2bb3ap-4f,  -0x1.b6f386p-4f, 0x1.bde7d8p-4f,  -0x1.fcbdc6p-4f,
                         0x1.24c444p-3f,  -0x1.556696p-3f, 0x1.9998b2p-3f,  -0x1.ffffc6p-3f, 0x1.555556p-2f};
  return f * f * fmaf(f, polynomial(f, p), -0.5f);
}

/* Is `x` an argument whose logarithm is no number? Then that is what there is instead. */
GPU_DEVICE bool has_no_logarithm(float x, float *instead) {
  *instead = x == 0 ? -INFINITY : x < 0 ? NAN : x;
  return !(x > 0 && x < INFINITY);
}

GPU_DEVICE float natural(logarithm l) {
  return fmaf(l.n, ln2, l.f + fmaf(l.n, ln2_rest, log_tail(l.f)));
}

GPU_DEVICE float logf(float x) {
  float instead;
  return has_no_logarithm(x, &instead) ? instead : natural(split_any(x));
}

GPU_DEVICE float log1pf(float x) {
  float sum = 1.0f + x, instead;
  if (has_no_logarithm(sum, &instead))
    return instead;
  float added = sum - 1.0f, lost = (1.0f - (sum - added)) + (x - added); /* 1 + x is sum + lost */
  logarithm l = split(sum);
  l.f += scale(lost, -int(l.n));
  return natural(l);
}

GPU_DEVICE float log2f(float x) {
  constexpr float log2_of_e_rest = 0x1.4ae0c0p-26f;
  float instead;
  if (has_no_logarithm(x, &instead))
    return instead;
  logarithm l = split_any(x);
  return l.n + fmaf(l.f, log2_of_e, fmaf(l.f, log2_of_e_rest, log_tail(l.f) * log2_of_e));
}

/* ------------------------------------------------------------------------------------------------------------ gates */

GPU_DEVICE float tanhf(float x) {
  /* (tanh(x) / x - 1) / x^2 in x^2 <= 0.625^2; 2^-27 of tanh(x) */
  constexpr float p[] = {-0x1.7c8f28p-8f, 0x1.53cd02p-6f, -0x1.b88592p-5f, 0x1.1109bap-3f, -0x1.555542p-2f};
  float square = x * x;
  if (fabsf(x) < 0.625f)
    return fmaf(x * square, polynomial(square, p), x);
  return __builtin_copysignf(1.0f - 2.0f / (1.0f + expf(2.0f * fabsf(x))), x);
}

GPU_DEVICE float erff(float x) {
  /* erf(x) / x - 1 in x^2 <= 1; 2^-28 of erf(x) */
  constexpr float near[] = {0x1.581e04p-14f, -0x1.a9b21cp-11f, 0x1.54dd96p-8f, -0x1.b8168ap-6f,
                            0x1.ce2ecap-4f,  -0x1.812748p-2f,  0x1.06eba8p-3f};
  /* -log(1 - erf(x)), 1 <= x <= 4; 2^-29 of erf(x) */
  constexpr float far[] = {-0x1.852f06p-13f, 0x1.814df2p-9f, -0x1.654282p-6f, 0x1.a60aa2p-4f,
                           0x1.46c582p-1f,   0x1.2085b2p+0f, 0x1.72ea90p-12f};
  if (fabsf(x) < 1.0f)
    return fmaf(x, polynomial(x * x, near), x);
  return __builtin_copysignf(1.0f - expf(-polynomial(clamp(fabsf(x), 0.0f, 4.0f), far)), x);
}

} // namespace gpu_math

using gpu_math::ceilf;
using gpu_math::erff;
using gpu_math::expf;
using gpu_math::expm1f;
using gpu_math::fabsf;
using gpu_math::fmaf;
using gpu_math::fmaxf;
using gpu_math::log1pf;
using gpu_math::log2f;
using gpu_math::logf;
using gpu_math::sqrt;
using gpu_math::sqrtf;
using gpu_math::tanhf;

#endif
