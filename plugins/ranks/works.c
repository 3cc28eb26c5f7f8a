/* What a rank waits for: see works.h. */
#include "plugins/ranks/works.h"

#include <time.h>

enum { KIND_BITS = 8 };
#define NS_PER_S UINT64_C(1000000000)

uint64_t works_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void works_limit(works *w, const work_events *events, double timeout) {
  const double most = 1e9; /* seconds, of what nanoseconds can count */
  w->events = events;
  w->timeout = timeout;
  w->limit = (uint64_t)((timeout < most ? timeout : most) * (double)NS_PER_S);
  if (timeout > 0 && !w->limit)
    w->limit = 1;
  for (int i = 0; i < WORKS && w->limit; i++)
    w->items[i].event = events->create();
}

void works_free(works *w) {
  for (int i = 0; i < WORKS; i++)
    if (w->items[i].event)
      w->events->destroy(w->items[i].event);
}

/* The place of the oldest work, once that is done; before, that of the newest: a communicator's works are done one
 * after the other, so that an end of the later one says the same of both. */
static work *find_place(works *w) {
  work *oldest = &w->items[w->place % WORKS];
  if (atomic_load(&oldest->since) && !w->events->is_done(oldest->event))
    return &w->items[(w->place + WORKS - 1) % WORKS];
  w->place++;
  return oldest;
}

void works_number(works *w, int kind) {
  uint64_t number = (w->last >> KIND_BITS) + (kind != WORK_JOINING);
  w->last = number << KIND_BITS | (uint64_t)kind;
}

work *works_begin(works *w, int kind, void *stream) {
  works_number(w, kind);
  if (!w->limit)
    return NULL;
  w->since = works_now();
  if (w->events->is_captured(stream))
    return NULL;
  work *begun = find_place(w);
  atomic_store(&begun->since, 0);
  atomic_store(&begun->recorded, false);
  atomic_store(&begun->id, w->last);
  atomic_store(&begun->since, w->since);
  return begun;
}

void works_record(const works *w, work *begun, void *stream, bool asked) {
  if (!begun)
    return;
  if (asked && begun->event && w->events->record(begun->event, stream))
    atomic_store(&begun->recorded, true);
  else
    atomic_store(&begun->since, 0);
}

work_id works_find_late(works *w, uint64_t now, uint64_t *next) {
  work_id first = 0;
  if (now + w->limit < *next)
    *next = now + w->limit; /* of what begins from now on */
  for (int i = 0; i < WORKS; i++) {
    work *one = &w->items[i];
    uint64_t since = atomic_load(&one->since);
    work_id id = atomic_load(&one->id);
    if (!since)
      continue;
    if (since + w->limit > now) {
      if (since + w->limit < *next)
        *next = since + w->limit;
    } else if (atomic_load(&one->recorded) && w->events->is_done(one->event)) {
      atomic_compare_exchange_strong(&one->since, &since, 0);
    } else if (atomic_load(&one->since) == since && (!first || id < first)) {
      first = id;
    }
  }
  return first;
}

bool works_are_pending(works *w) {
  for (int i = 0; i < WORKS; i++)
    if (atomic_load(&w->items[i].since) && !w->events->is_done(w->items[i].event))
      return true;
  return false;
}

fl_status works_say_late(const works *w, work_id late, int me, int ranks, const char *library, const char *becomes,
                         char *message, size_t message_size) {
  static const char *const others[] = {"batch", "joining", "splitting", "leaving"};
  int kind = (int)(late & ((1u << KIND_BITS) - 1));
  if (kind == WORK_JOINING)
    return fl_say(
        message, message_size, FL_EDEVICE,
        "rank %d waited %g seconds, and not all of the %d ranks have come; %s does not say which is missing%s", me,
        w->timeout, ranks, library, becomes);
  const char *name = fl_collective_kind_name(kind);
  return fl_say(message, message_size, FL_EDEVICE,
                "%s, number %llu of this rank's, was not done after %g seconds: another rank has not come to it, has "
                "ended or hangs; %s does not say which%s",
                name ? name : others[kind - WORK_BATCH], (unsigned long long)(late >> KIND_BITS), w->timeout, library,
                becomes);
}
