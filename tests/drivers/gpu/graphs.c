/* Captures of the stand-in drivers, and the graphs that come of them: see work.h. A graph's tasks run in the order in
 * which they were captured, which is one of those that their streams and events allow. */
#include "tests/drivers/gpu/work.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What was captured, or what can be launched. */
typedef struct standin_graph {
  standin_task *first, **last;
} graph;

/* A stream in a capture. */
typedef struct member {
  void *stream;
  size_t work;   /* tasks that it was given */
  size_t joined; /* so many of these another member waits for */
} member;

enum { MOST_MEMBERS = 8 };

typedef struct capture {
  struct capture *next;
  unsigned long id;
  pthread_t thread;
  bool ended; /* by something that it cannot hold */
  int n;
  member members[MOST_MEMBERS]; /* the first: where it began */
  graph *graph;
} capture;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static capture *captures;

/* ----------------------------------------------------------------------------------------------------------- graphs */

static graph *make_graph(void) {
  graph *made = calloc(1, sizeof *made);
  if (made)
    made->last = &made->first;
  return made;
}

static void add_task(graph *g, standin_task *t) {
  *g->last = t;
  g->last = &t->next;
}

static void free_graph(graph *g) {
  for (standin_task *t = g->first, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  free(g);
}

static standin_task *copy_task(const standin_task *from, void *stream) {
  standin_task *made = standin_make_task(from->run, stream, from->size);
  if (made)
    memcpy(made->arguments, from->arguments, from->size);
  return made;
}

int standin_instantiate(graph **instance, graph *from, unsigned long long flags) {
  int code = STANDIN_BEGIN;
  graph *made = code || flags ? NULL : make_graph();
  if (!made)
    return code ? code : STANDIN_INVALID_VALUE;
  for (const standin_task *t = from->first; t; t = t->next) {
    standin_task *copied = copy_task(t, NULL);
    if (copied)
      add_task(made, copied);
  }
  *instance = made;
  return 0;
}

int standin_launch_graph(graph *instance, void *stream) {
  int code = STANDIN_BEGIN;
  standin_log("launch graph stream %p", stream);
  if (code || standin_capture_status(stream) || !standin_is_here(stream))
    return code ? code : STANDIN_NOT_SUPPORTED;
  for (const standin_task *t = instance->first; t && !code; t = t->next) {
    standin_task *copied = copy_task(t, stream);
    code = copied ? standin_queue_task(copied) : STANDIN_OUT_OF_MEMORY;
  }
  return code;
}

int standin_destroy_graph(graph *g) {
  int code = STANDIN_BEGIN;
  standin_log("destroy graph");
  free_graph(g);
  return code;
}

int standin_destroy_instance(graph *g) {
  int code = STANDIN_BEGIN;
  free_graph(g);
  return code;
}

/* --------------------------------------------------------------------------------------------------------- captures */

/* Of the capture that the stream is in. With the lock held. */
static capture *find_capture(void *stream, member **found) {
  for (capture *c = captures; c; c = c->next)
    for (int i = 0; i < c->n; i++)
      if (c->members[i].stream == stream) {
        *found = &c->members[i];
        return c;
      }
  *found = NULL;
  return NULL;
}

static capture *find_id(unsigned long id) {
  capture *c = captures;
  while (c && c->id != id)
    c = c->next;
  return id ? c : NULL;
}

int standin_begin_capture(void *stream, int mode) {
  static unsigned long ids;
  int code = STANDIN_BEGIN;
  member *in;
  if (code || mode != 1)
    return code ? code : STANDIN_INVALID_VALUE;
  if (!stream)
    return STANDIN_CAPTURE_UNSUPPORTED;
  capture *c = calloc(1, sizeof *c);
  if (!c || !(c->graph = make_graph())) {
    free(c);
    return STANDIN_OUT_OF_MEMORY;
  }
  c->thread = pthread_self();
  c->members[c->n++].stream = stream;
  pthread_mutex_lock(&lock);
  bool captured = find_capture(stream, &in);
  if (!captured) {
    c->id = ++ids;
    c->next = captures;
    captures = c;
  }
  pthread_mutex_unlock(&lock);
  if (!captured)
    return 0;
  free_graph(c->graph);
  free(c);
  return STANDIN_ILLEGAL_STATE;
}

static int judge(const capture *c) {
  if (c->ended)
    return STANDIN_CAPTURE_INVALIDATED;
  for (int i = 1; i < c->n; i++)
    if (c->members[i].joined < c->members[i].work)
      return STANDIN_CAPTURE_UNJOINED;
  return 0;
}

/* The capture that began in the stream, taken out of the list. */
static capture *take_capture(void *stream, int *code) {
  member *in;
  pthread_mutex_lock(&lock);
  capture *c = find_capture(stream, &in), **place = &captures;
  *code = !c                                          ? STANDIN_ILLEGAL_STATE
          : in != c->members                          ? STANDIN_CAPTURE_UNMATCHED
          : !pthread_equal(c->thread, pthread_self()) ? STANDIN_CAPTURE_WRONG_THREAD
                                                      : 0;
  while (!*code && *place != c)
    place = &(*place)->next;
  if (!*code)
    *place = c->next;
  pthread_mutex_unlock(&lock);
  return *code ? NULL : c;
}

/* A failure that a test wants does not keep the stream in the capture. */
int standin_end_capture(void *stream, graph **made) {
  int wanted = STANDIN_BEGIN, code;
  capture *c = take_capture(stream, &code);
  *made = NULL;
  if (!c)
    return code;
  code = wanted ? wanted : judge(c);
  if (code)
    free_graph(c->graph);
  else
    *made = c->graph;
  free(c);
  return code;
}

bool standin_capture_takes(standin_task *t, int *code) {
  member *in;
  pthread_mutex_lock(&lock);
  capture *c = find_capture(t->stream, &in);
  *code = c && c->ended ? STANDIN_CAPTURE_INVALIDATED : 0;
  if (c && !*code) {
    add_task(c->graph, t);
    in->work++;
  }
  pthread_mutex_unlock(&lock);
  if (*code)
    free(t);
  return c;
}

bool standin_capture_ends(void *stream, bool all) {
  bool found = false;
  member *in;
  pthread_mutex_lock(&lock);
  capture *one = all ? captures : find_capture(stream, &in);
  for (capture *c = one; c; c = all ? c->next : NULL)
    found = c->ended = true;
  pthread_mutex_unlock(&lock);
  return found;
}

bool standin_thread_capture_ends(void) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (capture *c = captures; c; c = c->next)
    if (pthread_equal(c->thread, pthread_self()))
      found = c->ended = true;
  pthread_mutex_unlock(&lock);
  return found;
}

int standin_capture_status(void *stream) {
  member *in;
  pthread_mutex_lock(&lock);
  const capture *c = find_capture(stream, &in);
  int status = !c ? 0 : c->ended ? 2 : 1;
  pthread_mutex_unlock(&lock);
  return status;
}

/* ------------------------------------------------------------------------------------------- events in captured
 * streams
 */

standin_place standin_capture_place(void *stream) {
  member *in;
  pthread_mutex_lock(&lock);
  const capture *c = find_capture(stream, &in);
  standin_place place = {c ? c->id : 0, stream, c ? in->work : 0};
  pthread_mutex_unlock(&lock);
  return place;
}

bool standin_capture_is_open(unsigned long id) {
  pthread_mutex_lock(&lock);
  bool open = find_id(id);
  pthread_mutex_unlock(&lock);
  return open;
}

void standin_capture_spoil(unsigned long id) {
  pthread_mutex_lock(&lock);
  capture *c = find_id(id);
  if (c)
    c->ended = true;
  pthread_mutex_unlock(&lock);
}

/* `to` is the capture that the event is in, `from` that of the stream. */
static int join(capture *from, capture *to, void *stream, const standin_place *place) {
  member *of;
  if (!to) {
    from->ended = true;
    return STANDIN_CAPTURE_ISOLATION;
  }
  if (from && from != to) {
    from->ended = to->ended = true;
    return STANDIN_CAPTURE_MERGE;
  }
  if (find_capture(place->stream, &of) == to && of->joined < place->work)
    of->joined = place->work;
  if (!from && to->n == MOST_MEMBERS)
    return STANDIN_OUT_OF_MEMORY;
  if (!from)
    to->members[to->n++] = (member){.stream = stream};
  return 0;
}

bool standin_capture_joins(void *stream, const standin_place *place, int *code) {
  member *in;
  pthread_mutex_lock(&lock);
  capture *from = find_capture(stream, &in), *to = find_id(place->capture);
  bool concerned = from || to;
  if (concerned)
    *code = join(from, to, stream, place);
  pthread_mutex_unlock(&lock);
  return concerned;
}
