/*
 * Calls that ranks share (fl_op_def.ranks): around whichever implementation was chosen, which sees this rank's part and
 * no group, the host cuts and gathers arguments and makes results over the ranks. Only bindings that were made in a
 * scope with a group come here.
 */
#ifndef FLHOST_CORE_CALL_OVER_RANKS_H
#define FLHOST_CORE_CALL_OVER_RANKS_H

#include "core/call/binding.h"
#include "core/schema.h"

/* A tensor with room for its sizes. */
typedef struct fl_own_tensor {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} fl_own_tensor;

/* This rank's part of a call. */
typedef struct fl_rank_call {
  fl_call call;
  fl_value values[FL_SCHEMA_MAX_VALUES];
  fl_own_tensor tensors[FL_RANKS_STEPS_MAX]; /* of the step of that number */
  void *gathered[FL_RANKS_STEPS_MAX];        /* where a step's ranks come together */
  size_t used;                               /* bytes of memory for all of it */
} fl_rank_call;

/* Makes of a call, which is good and has a group, this rank's part, whose tensors between lie at `memory`; NULL: it is
 * not to be run, but asked about. FL_EINVAL: something that ranks make is not compact. */
fl_status fl_rank_call_make(const fl_op *op, const fl_call *call, void *memory, fl_rank_call *part);

/* Can the implementation be called where ranks share the op's calls? What the host does around it must say all then. */
static inline bool fl_knows_ranks(const fl_impl_record *record) {
  const fl_ranks_plan *plan = record->op->schema->over_ranks;
  return !plan || plan->n_steps || record->flags & FL_IMPL_RANKS;
}

/* What a binding's target calls. */
fl_status fl_run_over_ranks(void *binding, fl_call *call);

/* What a binding's candidates see of a call: the whole of it where nobody shares it or the first of them does all by
 * itself, else this rank's part, in *part. NULL: an error. */
const fl_call *fl_call_as_seen(const fl_binding *binding, const fl_call *call, fl_rank_call *part);

#endif
