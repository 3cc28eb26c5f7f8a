/* Where calls that went wrong are kept: a directory of the user's, with a bounded number of files of bounded size. */
#ifndef FLHOST_CORE_GUARD_EVIDENCE_H
#define FLHOST_CORE_GUARD_EVIDENCE_H

#include "core/registry.h"

/*
 * Saves the call for `flhost run`; `expected` is what the reference gives, by value. All tensors are on the host. NULL:
 * `why` says why not; else the file's path, malloc'ed.
 */
char *fl_evidence_save(fl_op *op, const fl_impl_record *record, const fl_call *call, const fl_saved_call *about,
                       char *why, size_t size);

#endif
