/* One generated call of `flhost verify`: its inputs, and what the reference implementation made of them. */
#ifndef FLHOST_CLI_VERIFY_CALL_H
#define FLHOST_CLI_VERIFY_CALL_H

#include "cli/trials/guarded.h"
#include <flhost/flhost.h>
#include <flhost/testing.h>

/* What a call is made up from. */
typedef struct call_source {
  uint32_t dtype; /* what was asked for; 0: any */
  uint64_t seed, number;
  char sizes[160]; /* "d: 8195": in place of the cases' own; "": none */
  double
      slack;  /* how many times the tolerance is allowed: sums are longer than the op's authors had in mind; 0: once */
  bool timed; /* of the calls that the op is timed with, this number */
  bool other_seed; /* not the first one: the seed is named */
} call_source;

/* What the reference gave for one value. */
typedef struct kept_value {
  bool written; /* a tensor that it writes: `data` holds the elements, compact */
  void *data;
  fl_value value; /* of a result that is no tensor; what it points to lies behind */
  char text[128];
  int64_t ints[FL_MAX_DIMS];
} kept_value;

/* What it gave for one call: in shared memory, since it computes in a child. */
typedef struct kept_call {
  bool useful; /* it takes such calls */
  fl_status status;
  char message[256];
  kept_value values[]; /* by value of the op */
} kept_call;

/* Arrays are by value of the schema: arguments, then results. */
typedef struct test_call {
  fl_op *op;
  call_source source;
  bool awkward; /* some of the inputs hold infinities and the like */
  uint32_t n_arguments, n_values;
  fl_input *inputs;        /* of arguments only */
  fl_tensor_spec *results; /* of results only, from 0 */
  void **data;             /* of a tensor argument: its elements, compact */
  int64_t elements;        /* of all tensors */
  double operations;       /* about so many; 0: not known */
  kept_call *kept;         /* of the reference; NULL: not asked yet */
} test_call;

typedef enum call_outcome {
  CALL_MADE,
  CALL_IMPOSSIBLE, /* this source makes none: fl_error_message() says why */
  CALL_NO_MEMORY
} call_outcome;

/* Makes the call, if its tensors hold at most `elements` together, and it takes at most so many operations. */
call_outcome test_call_create(test_call *call, fl_op *op, const call_source *source, int64_t elements,
                              double operations);
void test_call_free(test_call *call);

/* Bytes that the reference's results of a call take, and the same laid out in memory of that size. */
size_t kept_call_bytes(const test_call *call);
kept_call *kept_call_place(const test_call *call, void *memory);

/* A call as it is made: tensors in watched memory. */
typedef struct attempt {
  const test_call *call;
  guarded *tensors; /* by value; an argument's stand also for a result that is in its place */
  int *source;      /* by value: the tensor that it is; -1: no tensor */
  fl_value *values;
  layout *layouts;
  place at;
  guarded workspace;           /* as the call was given it; no memory: none */
  const fl_prepared *prepared; /* as it was given that, or NULL */
  fl_status status;
  char *message; /* fl_error_message(), or NULL */
} attempt;

/* How a call's tensors are laid out. */
typedef struct arrangement {
  bool varied; /* layouts and results in place as the number of the call has it; else compact and separate */
  memory_edge edge;
} arrangement;

/* false: out of memory, on a device with fl_error_message(). */
bool attempt_create(attempt *made, place at, const test_call *call, arrangement as);
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

/* The same with what the implementation prepares of the weights, if it does of these: *prepared. */
void attempt_run_prepared(attempt *made, fl_policy *policy, bool *prepared);

/* Keeps what the attempt gave as what is expected of others, in call->kept. */
void attempt_keep(const attempt *made);

/* Is the value a tensor that the call writes: a result, an argument in its place, or a state? */
bool attempt_writes(const attempt *made, uint32_t index);

/* "call 17", and "x bfloat16[7, 64] padded, approximate=tanh, out in place"; malloc'ed, NULL when out of memory. */
char *attempt_number(const attempt *made);
char *attempt_describe(const attempt *made);

#endif
