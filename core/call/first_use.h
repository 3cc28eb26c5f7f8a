/* What an op uses is logged when it is used first, and when that changes (rule F1). */
#ifndef FLHOST_CORE_CALL_FIRST_USE_H
#define FLHOST_CORE_CALL_FIRST_USE_H

#include "core/registry.h"

/* F1: logs the first use of an op, and a change of what it uses; lists kind default in the oplist file. */
void fl_note_use(fl_op *op, const fl_impl_record *record);
/* The same without a line in the log: a fallback was logged already. */
void fl_note_fallback(fl_op *op, const fl_impl_record *record);

/* An op that is resolved ahead, for one device type after the other perhaps, is not switched by that. */
void fl_note_ahead(fl_op *op, const fl_impl_record *record);

#endif
