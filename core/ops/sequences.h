/*
 * Sequences of a batch that lie one after the other, each of which may begin from and leave its state in a slot of a
 * state tensor: what the entries of such ops have in common.
 */
#ifndef FLHOST_CORE_OPS_SEQUENCES_H
#define FLHOST_CORE_OPS_SEQUENCES_H

#include <flhost/plugin.h>

/* What tests are drawn from: one sequence or several one behind the other, with states in some of the slots. */
#define SEQUENCE_CASES(length, state)                                                                                  \
  "s: 3 5; q: 1 3; query_start_loc: none ascending 0.." length "; cache_indices: with " state                          \
  " none distinct 0..s-1; "                                                                                            \
  "has_initial_state: with " state " none 0..1"
/* q sequences in a batch, s slots in a state. */
#define SEQUENCES "query_start_loc: int32|int64[q + 1]; cache_indices: int32|int64[q]; has_initial_state: bool[q]; "
#define SEQUENCES_DOC                                                                                                  \
  " Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; "   \
  "-1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not)."

/* Of a state of `whole` bytes, only the slots of the q sequences (one without query_start_loc), each of `slot` bytes:
 * written, and read where has_initial_state may say so. */
#define STATE_BYTES(whole, slot) "default - 2*" whole " + (1 + given(has_initial_state))*min(max(q, 1), s)*" slot

/* Where an op has what it says about sequences; `state` is one state of it. */
typedef struct fl_sequence_arguments {
  const char *state_name;
  uint32_t state, query_start_loc, cache_indices, has_initial_state;
} fl_sequence_arguments;

/* What the rules cannot say of them. FL_EINVAL with what was given and what is expected. */
fl_status fl_check_sequences(fl_call *call, const fl_sequence_arguments *at);

/* NULL: there is none. */
const DLTensor *fl_tensor_at(const fl_call *call, uint32_t index);

#endif
