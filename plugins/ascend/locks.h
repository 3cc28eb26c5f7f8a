/* The plugin's locks. A child process finds them free: the thread that had one is not there. */
#ifndef FLHOST_ASCEND_LOCKS_H
#define FLHOST_ASCEND_LOCKS_H

#include <pthread.h>

/* Of acl.c, libraries.c, runtime.c, call.c, workspace.c, platform.c and work.c. Nobody holds two. */
enum {
  ASCEND_LOCK_ACL,
  ASCEND_LOCK_LIBRARIES,
  ASCEND_LOCK_RUNTIME,
  ASCEND_LOCK_OPS,
  ASCEND_LOCK_WORKSPACES,
  ASCEND_LOCK_BLOCKS,
  ASCEND_LOCK_HOST_MEMORY,
  ASCEND_N_LOCKS
};
extern pthread_mutex_t ascend_locks[ASCEND_N_LOCKS];

/* Sees to the locks when the process forks, and has `more` see to others. At registration. */
void ascend_guard_forks(void (*more)(void));

#endif
