/* Checks of what ops say about the sequences of a batch: see sequences.h. */
#include "core/ops/sequences.h"

const DLTensor *fl_tensor_at(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

/* Without query_start_loc, which the rules compare with, there is one sequence. */
static fl_status check_one(fl_call *call, const fl_sequence_arguments *at, uint32_t index, const char *name) {
  const DLTensor *tensor = fl_tensor_at(call, index);
  if (!tensor)
    return FL_OK;
  if (!fl_tensor_at(call, at->state))
    return fl_fail(call, FL_EINVAL, "argument '%s': given, expected none without '%s'", name, at->state_name);
  if (!fl_tensor_at(call, at->query_start_loc) && tensor->shape[0] != 1)
    return fl_fail(call, FL_EINVAL, "argument '%s': shape [%lld], expected [1] without 'query_start_loc'", name,
                   (long long)tensor->shape[0]);
  return FL_OK;
}

fl_status fl_check_sequences(fl_call *call, const fl_sequence_arguments *at) {
  const DLTensor *state = fl_tensor_at(call, at->state), *starts = fl_tensor_at(call, at->query_start_loc);
  int64_t sequences = starts ? starts->shape[0] - 1 : 1;
  fl_status status = check_one(call, at, at->cache_indices, "cache_indices");
  if (!status)
    status = check_one(call, at, at->has_initial_state, "has_initial_state");
  if (!status && state && !fl_tensor_at(call, at->cache_indices) && state->shape[0] < sequences)
    return fl_fail(call, FL_EINVAL, "argument '%s': %lld slots, expected %lld or more without 'cache_indices'",
                   at->state_name, (long long)state->shape[0], (long long)sequences);
  return status;
}
