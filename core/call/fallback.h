/* Candidates of an op, and what becomes of a call when the first is not the one (rules S3 and F). */
#ifndef FLHOST_CORE_CALL_FALLBACK_H
#define FLHOST_CORE_CALL_FALLBACK_H

#include "core/call/binding.h"

/*
 * What a binding's target calls when that is not the kernel itself. Like a kernel, fl_run_counted and fl_run_guarded
 * give back the first candidate's error as it is; what fl_run_candidates gives back is settled.
 */
fl_status fl_run_counted(void *binding, fl_call *call);    /* counts the call of the first candidate */
fl_status fl_run_guarded(void *binding, fl_call *call);    /* asks the first candidate, logs, counts */
fl_status fl_run_candidates(void *binding, fl_call *call); /* looks at everything */

/* Says that an error is the call's, and gives it back: whoever called the target has nothing left to try. */
static inline fl_status fl_settle(fl_status status) {
  fl_self.settled = status != FL_OK;
  return status;
}

/* A target came back with an error: that of the first candidate, unless it is settled. `given`: what the call was. */
fl_status fl_finish_failed(const fl_target *target, fl_call *call, const fl_call *given, fl_status status);

/* Does a candidate take the call? If not, *reason. */
bool fl_candidate_takes(const fl_candidate *candidate, const fl_call *call, fl_said *said);

/* FL_ENOIMPL: nothing failed, and nothing took the call; `why` has a line for each candidate, and gets one for the
 * rest. */
fl_status fl_none_takes(const fl_binding *binding, const fl_call *call, fl_text *why);

#endif
