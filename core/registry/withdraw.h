/* Taking away what a plugin registered, while calls go on. */
#ifndef FLHOST_CORE_REGISTRY_WITHDRAW_H
#define FLHOST_CORE_REGISTRY_WITHDRAW_H

#include "core/registry/records.h"

/* fl_withdraw_plugin, which waits so many seconds for calls that began before. */
fl_status fl_withdraw_within(fl_host *host, const char *plugin, double seconds);

#endif
