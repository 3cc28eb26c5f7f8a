/* What the loading of a host's plugins at its creation and later have in common. */
#ifndef FLHOST_CORE_PLUGINS_PLUGINS_H
#define FLHOST_CORE_PLUGINS_PLUGINS_H

#include "core/plugins/discovery.h"

/* D4: loads one and keeps the record; one that lists its ops may be deferred. The loading lock is held. FL_EPLUGIN when
 * it failed. */
fl_status fl_plugins_load(fl_loader *loader, const fl_found *found, bool may_defer, bool *loaded);

/* FL_PLUGIN_VENDOR: do the settings keep it out? Why goes to record->denied. */
bool fl_plugin_is_kept_out(fl_host *host, const fl_note_info *info, fl_plugin_record *record);

#endif
