/*
 * Steps that ops without an operator of their own are made of. Each rounds to the element type of its result, as
 * PyTorch does between two steps. Operands of size 1 in a dimension broadcast along it; a result may be where the first
 * operand is.
 */
#ifndef FLHOST_ASCEND_ARITHMETIC_H
#define FLHOST_ASCEND_ARITHMETIC_H

#include "plugins/ascend/call.h"

void ascend_mul(ascend_call *c, ascend_view a, ascend_view b, ascend_view out);
void ascend_muls(ascend_call *c, ascend_view a, double factor, ascend_view out);
void ascend_add(ascend_call *c, ascend_view a, ascend_view b, ascend_view out);
void ascend_div(ascend_call *c, ascend_view a, ascend_view b, ascend_view out);

/* In place only. */
void ascend_adds(ascend_call *c, ascend_view a, double term);
void ascend_sub(ascend_call *c, ascend_view a, ascend_view b);
void ascend_tanh(ascend_call *c, ascend_view a);
void ascend_rsqrt(ascend_call *c, ascend_view a);

/* To the type of `out`. */
void ascend_cast(ascend_call *c, ascend_view a, ascend_view out);

/* The same in float32: itself, or scratch memory. */
ascend_view ascend_in_float(ascend_call *c, ascend_view view);

/* Does the element type have this number? On some chips a scalar is rounded to the type of the tensor that it goes
 * with, on others it is not: exact ones alone give the same on all. */
bool ascend_is_exact(aclDataType type, double value);

#endif
