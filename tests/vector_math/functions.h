/* The functions of plugins/cpu/flagos/vector.h over arrays: exp, expm1, erfc, tanh, sigmoid, silu, gelu, gelu_tanh, softplus. */
#ifndef FLHOST_TESTS_VECTOR_MATH_FUNCTIONS_H
#define FLHOST_TESTS_VECTOR_MATH_FUNCTIONS_H

enum { VECTOR_FUNCTIONS = 9 };

typedef void (*vector_function)(const float *x, float *y, int n);
extern const vector_function vector_functions[VECTOR_FUNCTIONS];

#endif
