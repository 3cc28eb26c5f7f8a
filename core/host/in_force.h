/* The settings in force in a host. */
#ifndef FLHOST_CORE_HOST_IN_FORCE_H
#define FLHOST_CORE_HOST_IN_FORCE_H

#include <flhost/flhost.h>

/* Reads what says whose code must not be asked, before there is a platform. FL_ENOMEM. */
fl_status fl_settings_load_first(fl_host *host);

/* Reads the settings and puts them in force. The platform was chosen before. */
fl_status fl_settings_load(fl_host *host);

/* fl_host_hooks.setting. */
fl_status fl_settings_text(fl_host *host, const char *name, char *value, size_t size);

#endif
