/*
 * Calls that are watched (VLLM_FL_GUARD, VLLM_FL_CANARY): an implementation runs on copies of the caller's tensors, and
 * what it gives is looked at before the caller gets it. A host that watches nothing has no fl_watch, and its bindings
 * never come here.
 */
#ifndef FLHOST_CORE_GUARD_WATCH_H
#define FLHOST_CORE_GUARD_WATCH_H

#include "core/registry.h"

/* What a host watches. Set at creation, but for what is atomic. */
typedef struct fl_watch {
  bool guarded;
  uint32_t canary; /* calls of each implementation that are compared with the reference; 0: none */
  char *evidence;  /* VLLM_FL_EVIDENCE; NULL: where XDG says */
  _Atomic uint32_t turn, saved;
} fl_watch;

/* Reads what is to be watched from the host's settings. FL_ENOMEM. */
fl_status fl_watch_create(fl_host *host);
void fl_watch_free(fl_host *host);

/* Does a call of the implementation have to be watched? */
bool fl_watch_wants(const fl_host *host, const fl_impl_record *record);

/* One call that is watched. */
typedef struct fl_watched {
  fl_op *op;
  fl_impl_record *record;
  /* Calls the implementation, and waits for the device. */
  fl_status (*run)(void *user, fl_call *call);
  void *user;
  /* What came of it. */
  bool untouched;              /* it failed, and the caller's tensors are as they were */
  const fl_impl_record *wrong; /* its results were not those of this reference, which the caller has got */
} fl_watched;

/* Runs it. What an implementation does wrong is FL_EINTERNAL, with words in call->message. */
fl_status fl_watch_run(fl_watched *watched, fl_call *call);

#endif
