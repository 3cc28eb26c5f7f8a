/* The plugins that a round of loading will open after the one that is tried, so that one process tries them all. */
#ifndef FLHOST_CORE_PLUGINS_LOOK_AHEAD_H
#define FLHOST_CORE_PLUGINS_LOOK_AHEAD_H

#include "core/plugins/discovery.h"

/* Is a plugin not opened now, though it was judged well? */
typedef bool (*fl_waits)(fl_host *host, const fl_found *found, const fl_note_info *info, fl_plugin_record *record);

/* Set it first (fl_upcoming_set), and end it (FL_RELEASED_BY), after or before the loader. */
typedef struct fl_upcoming {
  fl_loader *loader;
  const fl_found_list *found; /* in the order in which they are opened */
  uint32_t next;              /* of them: the one after that which is being loaded */
  fl_waits waits;
  fl_plugin_record records[FL_JUDGE_BATCH];
  fl_note_info infos[FL_JUDGE_BATCH];
  uint32_t n;
} fl_upcoming;

/* Its records have no value so far: they are large, and seldom asked for. */
void fl_upcoming_set(fl_upcoming *upcoming, fl_loader *loader, const fl_found_list *found, fl_waits waits);

/* Lets the loader's judge look ahead, until it is ended. */
void fl_upcoming_begin(fl_upcoming *upcoming);
void fl_upcoming_end(fl_upcoming *upcoming);

#endif
