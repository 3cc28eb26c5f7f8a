/*
 * Calls of built-in ops written as text, for suites that need many:
 *     op_case *c = op_case_make("topk_softmax gating_output=f7x16 topk=3", bfloat16, 0);
 * A tensor is its element type, its shape and what it holds: f (the given type) and w (float32) hold values between -1
 * and 1 that follow from the name; i and l (int32, int64), b (bool), c, e and u (int8, float8_e4m3fn, uint8) hold
 * 0, 1, 2… modulo the number after %. An
 * attribute is what it says, a list 1,2. The rest has its default or is none. Results are as the schema infers them.
 */
#ifndef FLHOST_TESTS_OP_CASE_H
#define FLHOST_TESTS_OP_CASE_H

#include "core/schema.h"
#include "tests/kernels.h"

typedef struct op_case {
  fl_schema *schema;
  fl_value values[FL_SCHEMA_MAX_VALUES];
  owned *tensors[FL_SCHEMA_MAX_VALUES];
  char strings[FL_SCHEMA_MAX_VALUES][32];
  int64_t lists[FL_SCHEMA_MAX_VALUES][4];
} op_case;

/* Tensors have `padding` elements behind each row; 0: compact. */
op_case *op_case_make(const char *text, DLDataType dtype, int64_t padding);
void op_case_free(op_case *made);

/* What belongs to a name; a name that the op does not have ends the test. */
fl_value *op_case_value(op_case *made, const char *name);
DLTensor *op_case_tensor(op_case *made, const char *name);

/* The i-th element of a tensor, in the order of its shape. */
double op_case_get(op_case *made, const char *name, int64_t i);
void op_case_set(op_case *made, const char *name, int64_t i, double value);
void op_case_set_all(op_case *made, const char *name, const double *values);

/* The host's checks; then makes results where none are there yet. FL_EINVAL: fl_error_message() says why. */
fl_status op_case_check(op_case *made);

/* Checks and calls an implementation; its words are in `message`. */
fl_status op_case_call(op_case *made, const char *id);
void op_case_run(op_case *made, const char *id); /* wants FL_OK */

/* The host's checks refuse the call in these words. */
void op_case_refused(const char *text, const char *expected);
/* Only the implementation can: it does so in these words, and has written nothing to the results. */
void op_case_refused_by(op_case *made, const char *id, const char *expected);

#endif
