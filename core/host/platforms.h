/* The platforms of a host: what its plugins say of them, and which is in force. */
#ifndef FLHOST_CORE_HOST_PLATFORMS_H
#define FLHOST_CORE_HOST_PLATFORMS_H

#include <flhost/flhost.h>

/* The name of the platform that a word stands for, as far as plugins say; NULL: none. Lives as long as the host, which
 * is the context (fl_config_sources.find_platform). Takes the host's lock. */
const char *fl_find_platform(const void *host, const char *word);

/* Decides which platform is in force (H2), when the plugins are found. FL_ECONFIG: one is forced that nobody knows. */
fl_status fl_choose_platform(fl_host *host);

#endif
