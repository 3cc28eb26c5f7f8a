/*
 * What a thread remembers of the calls that passed the full check, so that the next call of the same form need not go
 * through it: an engine calls an op with the same shapes once a layer. A memo holds all that the check looks at but the
 * addresses, of which only the overlap matters. It is the thread's own: read and written without a lock.
 */
#ifndef FLHOST_CORE_MEMO_H
#define FLHOST_CORE_MEMO_H

#include "core/schema.h"

/* A thread's memos, one for each of a fixed number of ops; which op shares a place with which is chance. */
typedef struct fl_memos fl_memos;

fl_memos *fl_memos_create(void); /* NULL: out of memory */
void fl_memos_free(fl_memos *memos);

/* True: a call of just this form passed, and where this one's tensors lie is good too. False says nothing. */
bool fl_memo_has(const fl_memos *memos, const fl_schema *schema, const fl_call *call);

/* Remembers a call that passed the full check; some are too unusual to be remembered. */
void fl_memo_keep(fl_memos *memos, const fl_schema *schema, const fl_call *call);

#endif
