/* The hosts of the process, so that fork finds them. */
#ifndef FLHOST_CORE_HOST_HOSTS_H
#define FLHOST_CORE_HOST_HOSTS_H

#include <flhost/flhost.h>

/* Gives it its number, too. */
void fl_hosts_add(fl_host *host);
/* Waits until no plugin is logging to it. Was it the last? */
bool fl_hosts_remove(fl_host *host);

/* fl_logger.log: does nothing when the host has ended. */
void fl_hosts_log(const fl_logger *logger, int level, const char *message);

#endif
