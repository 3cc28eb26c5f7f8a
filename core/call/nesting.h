/*
 * Calls inside a call: an implementation may call ops in its turn, down to a depth that leaves room on the stack. What
 * a thread is in is its own.
 */
#ifndef FLHOST_CORE_CALL_NESTING_H
#define FLHOST_CORE_CALL_NESTING_H

#include "core/registry.h"

enum { FL_NESTING_MAX = 32 }; /* calls inside the outermost; flhost/call.h names it */

/* The calls that a thread is in, but for the outermost. */
typedef struct fl_nesting {
  uint32_t n;
  struct fl_nested_call {
    const fl_op *op;
    uintptr_t frame; /* on the stack, which grows down */
  } calls[FL_NESTING_MAX];
} fl_nesting;

/* A call inside another begins, whose frame on the stack is `frame`. FL_ESTATE: it would be too deep. */
fl_status fl_nesting_enter(fl_nesting *nesting, const fl_op *outermost, const fl_op *op, const void *frame);
/* It ends, however. */
void fl_nesting_leave(fl_nesting *nesting);

#endif
