/*
 * What an implementation left behind when it returned: its status, its words, the call that it was lent and the results
 * that it writes by value. Nothing of it is believed before it was looked at here. None of this is on the way of a call
 * of tensors alone that goes well.
 */
#ifndef FLHOST_CORE_CALL_RETURNED_H
#define FLHOST_CORE_CALL_RETURNED_H

#include "core/registry.h"

/* Does an implementation write results of the op that are no tensors, and have to be looked at? */
bool fl_has_results_to_judge(const fl_op *op);

/*
 * Makes the call again what it was given as, with the thread's message, and gives back what is to be made of `status`:
 * the same, or FL_EINTERNAL with words where the implementation broke its contract. *spoilt: it has changed the
 * caller's values or tensors, so that nobody can be called with them any more.
 */
fl_status fl_take_back(const fl_op *op, fl_call *call, const fl_call *given, fl_status status, bool *spoilt);

#endif
