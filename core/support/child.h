/*
 * A child process with limits, for what may crash, hang or eat the machine: fl_child_run. Used to ask drivers, to judge
 * plugins, and by tools.
 */
#ifndef FLHOST_CORE_SUPPORT_CHILD_H
#define FLHOST_CORE_SUPPORT_CHILD_H

#include <flhost/testing.h>

/* For a program that was started as a child: ends with whoever started it (the thread, that is, which waits). */
void fl_child_end_with_parent(void);

#endif
