/* The hosts of the process, so that fork finds them. */
#ifndef FLHOST_CORE_HOST_HOSTS_H
#define FLHOST_CORE_HOST_HOSTS_H

#include <flhost/flhost.h>

void fl_hosts_add(fl_host *host);
void fl_hosts_remove(fl_host *host);

#endif
