/* Calls inside a call: see nesting.h. */
#include "core/call/nesting.h"

#include "core/support.h"

/* FL_ESTATE, with the ends of the chain. */
static fl_status too_deep(const fl_nesting *nesting, const fl_op *outermost, const fl_op *op) {
  enum { SHOWN = 4 }; /* at each end */
  fl_text chain = {0};
  fl_text_add(&chain, "%s", outermost ? outermost->name : "…");
  for (uint32_t i = 0; i < nesting->n; i++)
    if (i < SHOWN || i + SHOWN >= nesting->n)
      fl_text_add(&chain, " > %s", nesting->calls[i].op->name);
    else if (i == SHOWN)
      fl_text_add(&chain, " > …");
  fl_status status =
      fl_error(FL_ESTATE, "%s: not called: %u calls are inside each other already, the most that may be: %s", op->name,
               (unsigned)nesting->n + 1, fl_text_get(&chain));
  fl_text_free(&chain);
  return status;
}

fl_status fl_nesting_enter(fl_nesting *nesting, const fl_op *outermost, const fl_op *op, const void *frame) {
  uintptr_t here = (uintptr_t)frame;
  /* Calls that a longjmp has left are deeper in the stack than this one. */
  while (nesting->n && nesting->calls[nesting->n - 1].frame <= here)
    nesting->n--;
  if (nesting->n == FL_NESTING_MAX)
    return too_deep(nesting, outermost, op);
  nesting->calls[nesting->n++] = (struct fl_nested_call){op, here};
  return FL_OK;
}

void fl_nesting_leave(fl_nesting *nesting) {
  nesting->n -= nesting->n > 0;
}
