/* Calls that are left otherwise than by returning: by an exception, the end of the thread, longjmp. */
#ifndef FLHOST_CORE_CALL_LEAVING_H
#define FLHOST_CORE_CALL_LEAVING_H

#include "core/registry.h"

/* An implementation that was called by the target has not returned: a C++ exception, or the end of the thread, leaves
 * through it. A failure of it; logged, and remembered where failures are. */
void fl_left_early(const fl_target *target);

/* The thread ends in the midst of a call, of which nothing was unwound: it was left by longjmp, say. */
void fl_ends_inside(fl_thread *self);

/* The host goes. Calls of it that threads were left in by longjmp are over for the calling thread; of the others nobody
 * looks any more at what they ran. */
void fl_calls_end(fl_host *host);

#endif
