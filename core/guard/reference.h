/* What the reference gives for a watched call, and whether an implementation gave the same. */
#ifndef FLHOST_CORE_GUARD_REFERENCE_H
#define FLHOST_CORE_GUARD_REFERENCE_H

#include "core/guard/copies.h"

/* A call of the reference, all on the host: inputs as they were before, results and states of its own. */
typedef struct fl_reference_call {
  const fl_impl_record *record;
  fl_call call;
  fl_value values[FL_SCHEMA_MAX_VALUES];  /* what it was called with, results written */
  fl_value initial[FL_SCHEMA_MAX_VALUES]; /* the arguments as they were: what is saved */
  fl_value layout[FL_SCHEMA_MAX_VALUES];  /* what the implementation was called with: where its tensors lay */
  DLTensor tensors[FL_SCHEMA_MAX_VALUES], before[FL_SCHEMA_MAX_VALUES + 1];
  char *memory[FL_SCHEMA_MAX_VALUES]; /* of what it writes, compact */
  char *got[FL_SCHEMA_MAX_VALUES];    /* room for what the implementation wrote there, compact */
  char *workspace;
} fl_reference_call;

/* The op's reference that takes calls on the host, the best one; NULL: there is none. The thread is reading. */
const fl_impl_record *fl_reference_find(fl_op *op);

/* Calls it. FL_ENOTSUP: it does not take the call; any other error is its own. To be freed in any case. */
fl_status fl_reference_run(fl_reference_call *reference, fl_copies *copies);
void fl_reference_free(fl_reference_call *reference);

/* Are the implementation's results, and states, those of the reference? If not, words. */
bool fl_reference_agrees(const fl_reference_call *reference, const fl_copies *copies, fl_text *text);

/* Puts them in the place of the implementation's. */
void fl_reference_replace(const fl_reference_call *reference, fl_copies *copies);

#endif
