/* Events of the stand-in drivers: see work.h. */
#include "tests/drivers/gpu/work.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct standin_event {
  bool timed;
  const void *where;    /* its device */
  int users;            /* whoever made it, and tasks that will record it */
  unsigned long number; /* of the task that records it; 0: there was none */
  unsigned long time;   /* when that ran */
  standin_place place;  /* in a capture */
} event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void leave(event *e) {
  pthread_mutex_lock(&lock);
  bool last = !--e->users;
  pthread_mutex_unlock(&lock);
  if (last)
    free(e);
}

int standin_create_event(event **made, unsigned flags) {
  int code = STANDIN_BEGIN;
  if (code || (flags && flags != 2))
    return code ? code : STANDIN_INVALID_VALUE;
  *made = calloc(1, sizeof **made);
  if (!*made)
    return STANDIN_OUT_OF_MEMORY;
  (*made)->timed = !flags;
  (*made)->where = standin_here();
  (*made)->users = 1;
  return 0;
}

int standin_destroy_event(event *e) {
  int code = STANDIN_BEGIN;
  leave(e);
  return code;
}

static int run_record(const standin_task *t) {
  event *e = *(event *const *)t->arguments;
  pthread_mutex_lock(&lock);
  if (e->number == t->number)
    e->time = standin_clock();
  pthread_mutex_unlock(&lock);
  leave(e);
  return 0;
}

/* Stream and event have to be one device's. */
int standin_record_event(event *e, void *stream) {
  int code = STANDIN_BEGIN;
  if (code || e->where != standin_here() || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_HANDLE;
  standin_log("record stream %p", stream);
  standin_place place = standin_capture_place(stream);
  standin_task *t = place.capture ? NULL : standin_make_task(run_record, stream, sizeof e);
  if (!t && !place.capture)
    return STANDIN_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  e->place = place;
  if (t) {
    e->number = t->number;
    e->users++;
    *(event **)t->arguments = e;
  }
  pthread_mutex_unlock(&lock);
  return t ? standin_queue_task(t) : 0;
}

static int run_wait(const standin_task *t) {
  standin_finish(*(const unsigned long *)t->arguments);
  return 0;
}

int standin_wait_event(void *stream, event *e, unsigned flags) {
  int code = STANDIN_BEGIN;
  if (code || flags || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_VALUE;
  standin_log("wait stream %p", stream);
  if (standin_capture_joins(stream, &e->place, &code))
    return code;
  if (!e->number || !standin_is_pending(e->number))
    return 0;
  standin_task *t = standin_make_task(run_wait, stream, sizeof e->number);
  if (!t)
    return STANDIN_OUT_OF_MEMORY;
  *(unsigned long *)t->arguments = e->number;
  return standin_queue_task(t);
}

/* One that is captured has no time at which it is done. */
static int check_uncaptured(const event *e) {
  if (!standin_capture_is_open(e->place.capture))
    return 0;
  standin_capture_spoil(e->place.capture);
  return STANDIN_CAPTURED_EVENT;
}

int standin_query_event(event *e) {
  int code = STANDIN_BEGIN;
  if (code || (code = check_uncaptured(e)))
    return code;
  return standin_is_pending(e->number) ? STANDIN_NOT_READY : 0;
}

int standin_synchronize_event(event *e) {
  int code = STANDIN_BEGIN;
  standin_log("synchronize event");
  if (code || (code = check_uncaptured(e)))
    return code;
  standin_finish(e->number);
  return standin_settle();
}

int standin_elapsed(float *ms, event *first, event *last) {
  int code = STANDIN_BEGIN;
  if (code || !first->timed || !last->timed || !first->number || !last->number)
    return code ? code : STANDIN_INVALID_HANDLE;
  if (standin_is_pending(first->number) || standin_is_pending(last->number))
    return STANDIN_NOT_READY;
  *ms = (float)(last->time - first->time) / 1000;
  return 0;
}
