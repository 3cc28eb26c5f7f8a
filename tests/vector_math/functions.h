/* The functions of plugins/cpu/flagos/vectors/vector.h over arrays: exp, exp_to_one, exp_weight, expm1, tanh, sigmoid,
 * silu, gelu, gelu_tanh, softplus; and the conversions of chunk.h, of a multiple of VECTOR_CHUNK: floats rounded to
 * bfloat16, to float16, and these as floats. */
#ifndef FLHOST_TESTS_VECTOR_MATH_FUNCTIONS_H
#define FLHOST_TESTS_VECTOR_MATH_FUNCTIONS_H

#include <stdint.h>

enum { VECTOR_FUNCTIONS = 10, VECTOR_ROUNDINGS = 2, VECTOR_CHUNK = 32 };

typedef void (*vector_function)(const float *x, float *y, int n);
extern const vector_function vector_functions[VECTOR_FUNCTIONS];
typedef void (*vector_rounding)(const float *x, uint16_t *y, int n);
extern const vector_rounding vector_roundings[VECTOR_ROUNDINGS];
typedef void (*vector_widening)(const uint16_t *x, float *y, int n);
extern const vector_widening vector_widenings[VECTOR_ROUNDINGS];

#endif
