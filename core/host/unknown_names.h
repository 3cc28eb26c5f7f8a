/* Names in orders of ops that nobody has registered. */
#ifndef FLHOST_CORE_HOST_UNKNOWN_NAMES_H
#define FLHOST_CORE_HOST_UNKNOWN_NAMES_H

#include <flhost/flhost.h>

/* T2, and its like for ops and implementations: what no plugin has registered may come later, so these are warnings. */
void fl_warn_of_unknown_names(fl_host *host);

#endif
