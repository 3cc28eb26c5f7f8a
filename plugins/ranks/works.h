/*
 * What a rank has asked of its library, by which others that do not come are noticed: the last works with an event
 * behind each in its stream, and since when they wait. The rank's thread writes them, another may look.
 */
#ifndef FLHOST_RANKS_WORKS_H
#define FLHOST_RANKS_WORKS_H

#include <flhost/communicator.h>

#include <stdatomic.h>

/* What is waited for: a fl_collective_kind, or one of these. */
typedef enum work_kind { WORK_BATCH = FL_COLLECTIVES, WORK_JOINING, WORK_SPLITTING, WORK_LEAVING } work_kind;

/* Which of a rank's works: its number among them, from 1 on (joining: 0), and the kind; never 0. */
typedef uint64_t work_id;

typedef struct work {
  void *event;            /* of the rank's device, for as long as the rank's part; NULL where there can be none */
  _Atomic uint64_t since; /* when it was asked for, works_now's; 0: there is none */
  _Atomic work_id id;     /* which it is */
  _Atomic bool recorded;  /* the event says when it is done; before, the library is still being asked */
} work;

/* The driver's events, on the device that was entered. */
typedef struct work_events {
  void *(*create)(void); /* NULL: it cannot */
  void (*destroy)(void *event);
  bool (*record)(void *event, void *stream);
  bool (*is_done)(void *event);
  bool (*is_captured)(void *stream);
} work_events;

enum { WORKS = 64 };
typedef struct works {
  const work_events *events;
  double timeout;    /* seconds; 0: without end, and nothing is kept in mind */
  uint64_t limit;    /* the same in nanoseconds */
  work_id last;      /* that was begun, the thread's own */
  uint64_t since;    /* when it was, where there is a limit */
  uint64_t place;    /* where the next goes in items, */
  work items[WORKS]; /* which is a circle of the last ones */
} works;

uint64_t works_now(void); /* nanoseconds */

/* The limit of a rank that is being made, and the events for it; and their end. */
void works_limit(works *w, const work_events *events, double timeout);
void works_free(works *w);

/* Notes what is about to be asked of the library. NULL: it has no limit (there is none, or the stream is being
 * captured: a graph's work is the graph's). */
work *works_begin(works *w, int kind, void *stream);
/* After it was asked: the event goes behind it. */
void works_record(const works *w, work *begun, void *stream, bool asked);
/* What is waited for where it is asked, as joining is: it has a number alone. */
void works_number(works *w, int kind);

/* The first work that has waited for longer than the limit; 0: none. *next is brought forward to when one may have. */
work_id works_find_late(works *w, uint64_t now, uint64_t *next);
/* Is one in its stream that is not done? */
bool works_are_pending(works *w);

/* Says in the message which it is: of rank `me` of `ranks`, by `library`, and what `becomes` of it. */
fl_status works_say_late(const works *w, work_id late, int me, int ranks, const char *library, const char *becomes,
                         char *message, size_t message_size);

#endif
