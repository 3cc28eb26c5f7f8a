/* How much workspace a call should bring. */
#include "core/call/fallback.h"
#include "core/call/invoke.h"

fl_status fl_workspace_size(fl_op *op, const fl_call *call, size_t *size) {
  fl_call whole;
  size_t largest = 0;
  bool taken = false;
  __attribute__((cleanup(fl_text_free))) fl_text why = {0}; /* a candidate's function may not return */
  if (!op)
    return fl_error(FL_ENOENT, "fl_workspace_size: the op is NULL");
  fl_status status = fl_check(op, call);
  if (status || (status = fl_thread_join()))
    return status;
  fl_sized_take(&whole, sizeof whole, call);
  call = &whole;
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  const fl_target *target = fl_bind(op, fl_call_device(op, call), FL_ASK_FOR_CALL, &status);
  const fl_binding *binding = target ? target->binding : NULL;
  for (uint32_t i = 0; binding && i < binding->n; i++) {
    const fl_impl_record *record = binding->candidates[i].record;
    fl_said said;
    if (!fl_candidate_takes(&binding->candidates[i], call, &said)) {
      fl_text_add(&why, "\n  %s: not supported: %s", record->impl_id, said.text);
      continue;
    }
    const fl_impl_extra *extra = record->extra;
    size_t wanted = extra && extra->workspace_size ? extra->workspace_size(record->self, call) : 0;
    taken = true;
    if (wanted > largest)
      largest = wanted;
    if (binding->strict)
      break; /* no other is called */
  }
  if (binding && !taken)
    status = fl_none_takes(binding, call, &why);
  if (!status)
    *size = largest;
  return status;
}
