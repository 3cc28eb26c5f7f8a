/* The host that a process shares. */
#ifndef FLHOST_CORE_HOST_DEFAULT_HOST_H
#define FLHOST_CORE_HOST_DEFAULT_HOST_H

#include <flhost/flhost.h>

/* In the child of a fork. */
void fl_default_after_fork(void);

#endif
