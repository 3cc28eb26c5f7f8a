/*
 * Calls that overwrite their arguments: copies from which a fallback can start (F6), and implementations that work only
 * in place. On a device the copies are made by its platform, in the order of the call's stream.
 */
#ifndef FLHOST_CORE_CALL_IN_PLACE_H
#define FLHOST_CORE_CALL_IN_PLACE_H

#include "core/call/binding.h"

enum { FL_VALUES_MAX = 64 }; /* of one call, where they have to be copied */

/* Copies of the arguments that a call overwrites. */
typedef struct fl_kept {
  void *copies[FL_VALUES_MAX]; /* by argument; NULL: none. On the host compact, on a device all that the tensor spans */
  bool on_device;              /* some are */
  const fl_op *op;
  const fl_call *call; /* as it was given */
} fl_kept;

/* Of the arguments of kept->call; what cannot be copied is not kept. */
void fl_keep_inputs(fl_kept *kept);

/* Waits for the stream first, where it may still be using copies. The error that there is stays. */
void fl_kept_free(fl_kept *kept);

/* Puts the arguments back; `kept` may be NULL. The first argument that is lost: overwritten, and no copy kept, or the
 * copy cannot be put back. NULL: a fallback may start. */
const char *fl_restore_inputs(const fl_op *op, const fl_call *call, const fl_kept *kept);

/* Calls an implementation that works only in place with the results in the place of the arguments they may be. */
fl_status fl_call_in_place(const fl_op *op, const fl_candidate *candidate, fl_call *call);

#endif
