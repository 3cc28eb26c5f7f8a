/*
 * What code of a plugin says when it says no (fl_reason): text of its own that stays, or what it formats into the room
 * that is handed in.
 */
#ifndef FLHOST_CORE_SUPPORT_SAID_H
#define FLHOST_CORE_SUPPORT_SAID_H

#include "core/support/text.h"

#include <string.h>

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

/* The same, to be kept or given out: as it may be shown (fl_show), cut to the length of the room. What needs no change
 * stays where it is. */
static inline const char *fl_said_shown(fl_said *said, const char *otherwise) {
  char shown[FL_REASON_MAX];
  said->room[sizeof said->room - 1] = 0;
  const char *text = fl_said_or(said, otherwise);
  fl_show(shown, sizeof shown, text, false);
  return strcmp(shown, text) ? memcpy(said->room, shown, sizeof shown) : text;
}

#endif
