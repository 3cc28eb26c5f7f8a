/*
 * What code of a plugin says when it says no (fl_reason): text of its own that stays, or what it formats into the room
 * that is handed in.
 */
#ifndef FLHOST_CORE_SUPPORT_SAID_H
#define FLHOST_CORE_SUPPORT_SAID_H

#include <flhost/plugin.h>

typedef struct fl_said {
  const char *text; /* in `room` or a static string; NULL or "": nothing was said */
  char room[FL_REASON_MAX];
} fl_said;

/* What to hand in as `reason`. */
static inline const char **fl_said_room(fl_said *said) {
  said->room[0] = 0;
  said->text = said->room;
  return &said->text;
}

/* What was said, else the other words. */
static inline const char *fl_said_or(const fl_said *said, const char *otherwise) {
  return said->text && *said->text ? said->text : otherwise;
}

#endif
