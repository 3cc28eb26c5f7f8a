/*
 * gelu of a chunk, x times the normal distribution function, and its tanh form, 0.5 x (1 + tanh(sqrt(2 / pi) (x +
 * 0.044715 x^3))). Where a vector picks from two others in one instruction, by AVX-512, both are a polynomial of degree
 * 4 in each of 32 pieces, which takes half as long as one polynomial for all. Other instruction sets pick number by
 * number, for which that one, or exp, is faster.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_GELU_H
#define FLHOST_CPU_FLAGOS_VECTORS_GELU_H

#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/vector.h"

#ifdef __AVX512F__
enum { GELU_PIECES = 32, GELU_DEGREE = 4 };

/* What the distribution function is above a half, of t = |x|: pieces are 0.175 wide, their polynomials those that agree
 * with it at Chebyshev's places, in powers of the part of a piece that t is beyond its beginning: off by 3e-9. In the
 * last piece, from 5.425 on, it is all, as it is beyond that: off by 3e-8. */
static const float gelu_pieces[GELU_DEGREE + 1][GELU_PIECES] = {
    {0.000000000e+00f, 6.946018338e-02f, 1.368306577e-01f, 2.002084106e-01f, 2.580363452e-01f, 3.092130423e-01f,
     3.531409502e-01f, 3.897123933e-01f, 4.192433357e-01f, 4.423717856e-01f, 4.599408507e-01f, 4.728853106e-01f,
     4.821355939e-01f, 4.885470271e-01f, 4.928571880e-01f, 4.956675470e-01f, 4.974448681e-01f, 4.985350668e-01f,
     4.991836548e-01f, 4.995579123e-01f, 4.997673631e-01f, 4.998810887e-01f, 4.999409318e-01f, 4.999715090e-01f,
     4.999866486e-01f, 4.999939203e-01f, 4.999973178e-01f, 4.999988377e-01f, 4.999995232e-01f, 4.999997914e-01f,
     4.999999106e-01f, 5.000000000e-01f},
    {6.981474161e-02f, 6.875386834e-02f, 6.566696614e-02f, 6.082702801e-02f,
     5.464444682e-02f, 4.760967940e-02f, 4.022945836e-02f, 3.296801820e-02f,
     2.620240115e-02f, 2.019709721e-02f, 1.509858947e-02f, 1.094670221e-02f,
     7.697144058e-03f, 5.248984788e-03f, 3.471525153e-03f, 2.226714510e-03f,
     1.385185518e-03f, 8.357000188e-04f, 4.889809061e-04f, 2.774804307e-04f,
     1.527114800e-04f, 8.150979556e-05f, 4.219360562e-05f, 2.118273733e-05f,
     1.031373813e-05f, 4.870220437e-06f, 2.230383416e-06f, 9.906237892e-07f,
     4.267133420e-07f, 1.782632637e-07f, 7.222467246e-08f, 0},
    {1.259887540e-06f,  -1.051707193e-03f, -2.010289580e-03f, -2.793891588e-03f,
     -3.347041318e-03f, -3.645539982e-03f, -3.696746659e-03f, -3.534530988e-03f,
     -3.210546682e-03f, -2.784050535e-03f, -2.312440192e-03f, -1.844120678e-03f,
     -1.414470724e-03f, -1.044868841e-03f, -7.441174239e-04f, -5.113151274e-04f,
     -3.392266808e-04f, -2.174101828e-04f, -1.346642821e-04f, -8.064365829e-05f,
     -4.670579438e-05f, -2.616805250e-05f, -1.418642933e-05f, -7.443261438e-06f,
     -3.780230145e-06f, -1.858681230e-06f, -8.848757602e-07f, -4.079460894e-07f,
     -1.821431965e-07f, -7.876885633e-08f, -3.299628659e-08f, 0},
    {-3.598834155e-04f, -3.432639933e-04f, -2.963042934e-04f, -2.259386965e-04f,
     -1.421037305e-04f, -5.579655408e-05f, 2.290712291e-05f,  8.642581815e-05f,
     1.305397018e-04f,  1.544721163e-04f,  1.603087730e-04f,  1.520130318e-04f,
     1.343349431e-04f,  1.118654254e-04f,  8.838794020e-05f,  6.656962796e-05f,
     4.794561028e-05f,  3.310086686e-05f,  2.194450281e-05f,  1.398983113e-05f,
     8.585776413e-06f,  5.077095466e-06f,  2.894934369e-06f,  1.592632202e-06f,
     8.458035836e-07f,  4.338018584e-07f,  2.149537153e-07f,  1.029371361e-07f,
     4.765370321e-08f,  2.133179322e-08f,  9.235500364e-09f,  0},
    {4.058625564e-06f,  1.156738927e-05f,  1.737712773e-05f,  2.074317126e-05f,
     2.139653043e-05f,  1.955600601e-05f,  1.582971345e-05f,  1.104310559e-05f,
     6.046022463e-06f,  1.548902446e-06f,  -1.978320142e-06f, -4.334299774e-06f,
     -5.552188668e-06f, -5.827328550e-06f, -5.433790648e-06f, -4.651671588e-06f,
     -3.717573236e-06f, -2.800968332e-06f, -2.002074552e-06f, -1.363448973e-06f,
     -8.874047808e-07f, -5.532562000e-07f, -3.309933163e-07f, -1.902850784e-07f,
     -1.052370635e-07f, -5.604137598e-08f, -2.875776062e-08f, -1.422935725e-08f,
     -6.792594043e-09f, -3.129744020e-09f, -1.392452709e-09f, 0},
};

/* What the tanh form's factor of x is above a half, in the same way. */
static const float gelu_tanh_pieces[GELU_DEGREE + 1][GELU_PIECES] = {
    {0.000000000e+00f, 6.945846230e-02f, 1.368177086e-01f, 2.001692802e-01f, 2.579573393e-01f, 3.090887666e-01f,
     3.529790342e-01f, 3.895336390e-01f, 4.190771878e-01f, 4.422484338e-01f, 4.598830640e-01f, 4.729027748e-01f,
     4.822233319e-01f, 4.886883497e-01f, 4.930289090e-01f, 4.958461225e-01f, 4.976111054e-01f, 4.986765981e-01f,
     4.992952347e-01f, 4.996399581e-01f, 4.998239577e-01f, 4.999177754e-01f, 4.999634027e-01f, 4.999845326e-01f,
     4.999938011e-01f, 4.999976456e-01f, 4.999991655e-01f, 4.999997020e-01f, 4.999999106e-01f, 4.999999702e-01f,
     5.000000000e-01f, 5.000000000e-01f},
    {6.981474161e-02f, 6.874875724e-02f, 6.564866751e-02f, 6.079316139e-02f,
     5.459998176e-02f, 4.756587744e-02f, 4.020025581e-02f, 3.296505287e-02f,
     2.623070031e-02f, 2.025312372e-02f, 1.517144684e-02f, 1.102178451e-02f,
     7.760644425e-03f, 5.291515030e-03f, 3.489767667e-03f, 2.222966170e-03f,
     1.365442411e-03f, 8.072649944e-04f, 4.584476119e-04f, 2.495573717e-04f,
     1.299263822e-04f, 6.454842514e-05f, 3.053069304e-05f, 1.371654889e-05f,
     5.839865480e-06f, 2.350736850e-06f, 8.925734392e-07f, 3.189487074e-07f,
     1.070127311e-07f, 3.363495793e-08f, 9.880801066e-09f, 0},
    {1.289884608e-06f,  -1.056605252e-03f, -2.018053550e-03f, -2.801058348e-03f,
     -3.349959152e-03f, -3.641777206e-03f, -3.686159384e-03f, -3.519474994e-03f,
     -3.195068799e-03f, -2.772392705e-03f, -2.307530027e-03f, -1.846688334e-03f,
     -1.423081965e-03f, -1.056712586e-03f, -7.561081438e-04f, -5.210359814e-04f,
     -3.454224498e-04f, -2.199883747e-04f, -1.343525510e-04f, -7.852711860e-05f,
     -4.383116539e-05f, -2.331070027e-05f, -1.178508683e-05f, -5.650697403e-06f,
     -2.563590442e-06f, -1.097897098e-06f, -4.428284512e-07f, -1.678304358e-07f,
     -5.963113381e-08f, -1.981767461e-08f, -6.146437137e-09f, 0},
    {-3.617296170e-04f, -3.447287891e-04f, -2.967509208e-04f, -2.250684047e-04f,
     -1.401010668e-04f, -5.331252396e-05f, 2.497828791e-05f,  8.730578702e-05f,
     1.298911666e-04f,  1.525243279e-04f,  1.577289659e-04f,  1.496072364e-04f,
     1.327361388e-04f,  1.113454055e-04f,  8.884406270e-05f,  6.764936552e-05f,
     4.922419612e-05f,  3.423076123e-05f,  2.273174323e-05f,  1.439520020e-05f,
     8.677390724e-06f,  4.968895155e-06f,  2.697024229e-06f,  1.384499910e-06f,
     6.706642353e-07f,  3.058754316e-07f,  1.310511237e-07f,  5.262963043e-08f,
     1.976770569e-08f,  6.928936536e-09f,  2.261583365e-09f,  0},
    {4.151943358e-06f,  1.181811876e-05f,  1.770214294e-05f,  2.102435792e-05f,
     2.151998888e-05f,  1.946149678e-05f,  1.554360279e-05f,  1.067104131e-05f,
     5.725588380e-06f,  1.388224064e-06f,  -1.942823246e-06f, -4.142333637e-06f,
     -5.290555691e-06f, -5.587608030e-06f, -5.278291155e-06f, -4.599654403e-06f,
     -3.751420309e-06f, -2.883681873e-06f, -2.095690661e-06f, -1.441194399e-06f,
     -9.374828096e-07f, -5.761792181e-07f, -3.340674652e-07f, -1.824008109e-07f,
     -9.360982745e-08f, -4.506944151e-08f, -2.031714708e-08f, -8.558770581e-09f,
     -3.362577772e-09f, -1.229660818e-09f, -4.177199697e-10f, 0},
};

CPU_TEMPLATE __m512 gelu_pick(const float *from, __m512i piece) {
  return _mm512_permutex2var_ps(_mm512_loadu_ps(from), piece, _mm512_loadu_ps(from + 16));
}

CPU_TEMPLATE void gelu_by_pieces(const float (*powers)[GELU_PIECES], float *values) {
  const __m512 half = _mm512_set1_ps(0.5f), last = _mm512_set1_ps(GELU_PIECES - 0.5f);
  const __m512 pieces = _mm512_set1_ps(GELU_PIECES / 5.6f);
  for (int i = 0; i < CPU_CHUNK; i += 16) {
    __m512 x = _mm512_loadu_ps(values + i), at = _mm512_min_ps(_mm512_mul_ps(_mm512_abs_ps(x), pieces), last);
    __m512 beyond = _mm512_reduce_ps(at, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i piece = _mm512_cvttps_epi32(at);
    __m512 above = gelu_pick(powers[GELU_DEGREE], piece);
    for (int power = GELU_DEGREE - 1; power >= 0; power--)
      above = _mm512_fmadd_ps(above, beyond, gelu_pick(powers[power], piece));
    above = _mm512_or_ps(above, _mm512_and_ps(x, _mm512_set1_ps(-0.0f))); /* as x: no piece's is below 0 */
    _mm512_storeu_ps(values + i, _mm512_mul_ps(x, _mm512_add_ps(half, above)));
  }
}

CPU_TEMPLATE void cpu_gelu_chunk(float *values) {
  gelu_by_pieces(gelu_pieces, values);
}

CPU_TEMPLATE void cpu_gelu_tanh_chunk(float *values) {
  gelu_by_pieces(gelu_tanh_pieces, values);
}
#else
/* The distribution function is 0.5 + x odd(x^2) where it is neither 0 nor 1: `odd` in s from -1 to 1 is the polynomial
 * of least error between x = 0 and 5.6. It is off by 6e-8; next to 0 on the left, where the two terms cancel, that is
 * all there is, as in 0.5 (1 + erf). */
CPU_TEMPLATE float gelu_of(float x) {
  const float most = 5.6f;
  float t = vector_clamp(x, most), s = t * t * 6.377551020e-02f - 1.0f;
  float odd = 7.290792419e-04f;
  odd = odd * s - 1.803826890e-03f;
  odd = odd * s + 1.170221949e-03f;
  odd = odd * s - 1.198249520e-03f;
  odd = odd * s + 4.869989585e-03f;
  odd = odd * s - 8.741010912e-03f;
  odd = odd * s + 1.126940083e-02f;
  odd = odd * s - 1.529342588e-02f;
  odd = odd * s + 2.085218765e-02f;
  odd = odd * s - 2.640241198e-02f;
  odd = odd * s + 3.198321536e-02f;
  odd = odd * s - 3.833771124e-02f;
  odd = odd * s + 4.698014259e-02f;
  odd = odd * s - 6.305148453e-02f;
  odd = odd * s + 1.262595952e-01f;
  float share = t * odd + 0.5f;
  share = share < 0.0f ? 0.0f : share;
  return x * vector_clamp_above(share, 1.0f);
}

CPU_TEMPLATE void cpu_gelu_chunk(float *values) {
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = gelu_of(values[i]);
}

/* 0.5 (1 + tanh(y)) = 1 / (1 + exp(-2y)) */
CPU_TEMPLATE float gelu_tanh_of(float x) {
  const float sqrt_8_over_pi = 1.59576912f;
  return x / vector_one_plus_exp_minus(sqrt_8_over_pi * (x + 0.044715f * (x * x * x)));
}

CPU_TEMPLATE void cpu_gelu_tanh_chunk(float *values) {
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = gelu_tanh_of(values[i]);
}
#endif

#endif
