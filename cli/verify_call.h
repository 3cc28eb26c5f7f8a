/* One generated call of `flhost verify`: its inputs, and what the reference implementation made of them. */
#ifndef FLHOST_CLI_VERIFY_CALL_H
#define FLHOST_CLI_VERIFY_CALL_H

#include "cli/guarded.h"
#include <flhost/flhost.h>
#include <flhost/testing.h>

/* Arrays are by value of the schema: arguments, then results. */
typedef struct test_call {
  fl_op *op;
  uint32_t dtype; /* what was asked for; 0: any */
  uint64_t number;
  bool awkward; /* some of the inputs hold infinities and the like */
  uint32_t n_arguments, n_values;
  fl_input *inputs;        /* of arguments only */
  fl_tensor_spec *results; /* of results only, from 0 */
  void **data;             /* of a tensor argument: its elements, compact */
  /* What the reference gave: */
  fl_status status;
  char *message;
  void **expected;           /* of a tensor that is written: its elements, compact */
  fl_value *expected_values; /* of a result that is no tensor; strings are owned */
} test_call;

typedef enum call_outcome {
  CALL_MADE,
  CALL_IMPOSSIBLE, /* this number makes none: fl_error_message() says why */
  CALL_NO_MEMORY
} call_outcome;

/* Makes the call of that number, if its tensors hold at most `*budget` elements together, which are taken off it. */
call_outcome test_call_create(test_call *call, fl_op *op, uint32_t dtype, uint64_t seed, uint64_t number,
                              int64_t *budget);
void test_call_free(test_call *call);

/* A call as it is made: tensors in watched memory. */
typedef struct attempt {
  const test_call *call;
  guarded *tensors; /* by value; an argument's stand also for a result that is in its place */
  int *source;      /* by value: the tensor that it is; -1: no tensor */
  fl_value *values;
  layout *layouts;
  place at;
  guarded workspace; /* as the call was given it; no memory: none */
  fl_status status;
  char *message; /* fl_error_message(), or NULL */
} attempt;

/* `varied`: layouts and results in place as the number of the call has it; else compact and separate. false: out of
 * memory, on a device with fl_error_message(). */
bool attempt_create(attempt *made, place at, const test_call *call, bool varied);
bool attempt_clone(attempt *clone, const attempt *made);
void attempt_free(attempt *made);

/* What is allowed of a value's tensor: the op's tolerance for its element type, or for that of the call's activations
 * where that is wider, as vLLM's tests have it: a float32 result of bfloat16 steps is no more exact than these. */
fl_tolerance attempt_tolerance(const attempt *made, uint32_t index);

/* Does the host's check let it pass? */
bool attempt_is_allowed(attempt *made);

/* Puts the inputs back, and calls the op under the policy, with the workspace it asks for; on a device waits until it
 * is done. */
void attempt_run(attempt *made, fl_policy *policy);

/* Keeps what the attempt gave as what is expected of others. false: out of memory. */
bool attempt_keep(const attempt *made, test_call *call);

/* Is the value a tensor that the call writes: a result, an argument in its place, or a state? */
bool attempt_writes(const attempt *made, uint32_t index);

/* "call 17: x bfloat16[7, 64] padded, approximate=tanh, out in place"; malloc'ed, NULL when out of memory. */
char *attempt_describe(const attempt *made);

#endif
