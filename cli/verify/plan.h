/* The calls that implementations of an op are tested with, for one element type. */
#ifndef FLHOST_CLI_VERIFY_PLAN_H
#define FLHOST_CLI_VERIFY_PLAN_H

#include "cli/verify/verify.h"

/* Zero-initialise. */
typedef struct verify_plan {
  fl_op *op;
  uint32_t dtype;
  const char *name; /* of the element type; "" for an op without tensors */
  test_call *calls; /* each with what the reference gave */
  uint32_t n;
  struct kept_memory {
    void *memory;
    size_t size;
  } * kept; /* where that lies */
  uint32_t n_kept;
  trial_end end; /* the reference did not come back: `trouble` says from which call; there are no calls */
  char *trouble; /* why there are none */
} verify_plan;

/* Makes the calls, and asks the reference in a child. false: out of memory. */
bool verify_plan_make(verify_plan *plan, const verify_impl *reference, const verify_request *asked, uint64_t seed);

/* Makes a plan of one call. false: out of memory; without calls: the source makes none, or the reference does not take
 * it. */
bool verify_plan_one(verify_plan *plan, const verify_impl *reference, const trial_limits *limits,
                     const call_source *source);

void verify_plan_free(verify_plan *plan);

#endif
