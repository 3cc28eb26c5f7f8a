/*
 * The stand-in's streams: work waits in them until somebody waits for it, events order them, and what a captured stream
 * is given becomes a graph. The prototypes are those of acl/acl_rt.h.
 */
#include "tests/drivers/ascend/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

EXPORT int aclrtCreateStream(void **handle);
EXPORT int aclrtCreateStreamWithConfig(void **handle, uint32_t priority, uint32_t flag);
EXPORT int aclrtDeviceGetStreamPriorityRange(int32_t *least, int32_t *greatest);
EXPORT int aclrtDestroyStream(void *handle);
EXPORT int aclrtSynchronizeStream(void *handle);
EXPORT int aclrtSynchronizeStreamWithTimeout(void *handle, int32_t milliseconds);
EXPORT int aclrtSynchronizeDevice(void);
EXPORT int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind);
EXPORT int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *handle);
EXPORT int aclrtCreateEventExWithFlag(void **handle, uint32_t flag);
EXPORT int aclrtDestroyEvent(void *handle);
EXPORT int aclrtRecordEvent(void *handle, void *stream_handle);
EXPORT int aclrtStreamWaitEvent(void *stream_handle, void *handle);
EXPORT int aclrtQueryEventStatus(void *handle, int *status);
EXPORT int aclrtSynchronizeEvent(void *handle);
EXPORT int aclrtEventElapsedTime(float *ms, void *first, void *last);
EXPORT int aclmdlRICaptureBegin(void *handle, int mode);
EXPORT int aclmdlRICaptureGetInfo(void *handle, int *status, void **graph_handle);
EXPORT int aclmdlRICaptureEnd(void *handle, void **graph_handle);
EXPORT int aclmdlRIExecuteAsync(void *graph_handle, void *handle);
EXPORT int aclmdlRIDestroy(void *graph_handle);

typedef struct stream stream;
typedef struct graph graph;

/* Where an event is: in a stream, or in a graph that the stream was captured in. Others may hold it longer than the
 * event, which moves when it is recorded again. */
typedef struct place {
  int holders, done;
  stream *in;
  graph *graph;
  uint64_t captured; /* how much of the stream the graph had then */
  int64_t ns;        /* when it was done */
} place;

/* A piece of work: an operator, a copy, a place to reach or to wait for, a graph. */
typedef struct work {
  struct work *next;
  aclOpExecutor *executor;
  void *workspace, *to;
  const void *from;
  size_t size;
  place *reached, *awaited;
  graph *graph;
} work;

struct stream {
  stream *next;
  int device;
  int index; /* 0: the device's default */
  work *first;
  int error;         /* what came after is lost, until somebody was told */
  graph *graph;      /* that it is captured in */
  uint64_t captured; /* pieces of work that the graph has of it */
  int open;          /* it came by an event, and the first stream has not waited for its last work */
};

struct graph {
  graph *next;
  stream *origin;
  pthread_t thread;
  int mode, invalid, queued;
  work *first;
};

typedef struct event {
  struct event *next;
  uint32_t flag;
  place *at; /* NULL: not recorded */
} event;

static stream default_streams[MAX_DEVICES];

/* Before any thread can use them. */
static __attribute__((constructor)) void number_default_streams(void) {
  for (int i = 0; i < MAX_DEVICES; i++)
    default_streams[i].device = i;
}

static stream *streams;
static int n_streams;
static event *events;
static graph *graphs;
static graph *everybodys;              /* a capture that forbids all threads what a graph cannot hold, */
static _Thread_local graph *capturing; /* and one that forbids it this thread, which has begun it */

static stream *stream_of(void *handle) {
  return handle ? handle : &default_streams[stand_in_current()];
}

/* ------------------------------------------------------------------------------------------------- work that waits */

static int overlaps(const void *memory, const char *block, size_t size) {
  return (const char *)memory >= block && (const char *)memory < block + size;
}

static void check_work(const work *first, const char *block, size_t size) {
  for (const work *w = first; w; w = w->next) {
    int used = overlaps(w->workspace, block, size) || overlaps(w->to, block, size) || overlaps(w->from, block, size);
    for (int i = 0; w->executor && i < w->executor->n; i++)
      used |= overlaps(w->executor->tensors[i].data, block, size);
    if (used)
      stand_in_violation("memory of %s freed before it was done", w->executor ? w->executor->name : "a copy");
    if (w->graph)
      check_work(w->graph->first, block, size);
  }
}

void stand_in_check_free(const char *memory, size_t size) {
  for (int i = 0; i < MAX_DEVICES; i++)
    check_work(default_streams[i].first, memory, size);
  for (const stream *s = streams; s; s = s->next)
    check_work(s->first, memory, size);
}

int stand_in_is_busy(int device) {
  return default_streams[device].first != NULL;
}

void stand_in_check_capture(const char *function) {
  if (stand_in_setting("capture"))
    stand_in_violation("%s while a stream is captured", function);
}

static void let_go(place *p) {
  if (p && !--p->holders)
    free(p);
}

static void append(work **link, work made) {
  work *w = malloc(sizeof *w);
  if (!w)
    abort();
  *w = made;
  while (*link)
    link = &(*link)->next;
  *link = w;
}

static void free_work(work *w) {
  let_go(w->reached);
  let_go(w->awaited);
  free(w);
}

static void enqueue(stream *s, work made) {
  stand_in_lock();
  if (s->graph) {
    append(&s->graph->first, made);
    s->captured++;
    s->open = s != s->graph->origin;
  } else {
    append(&s->first, made);
    stand_in_add("queued", 1);
  }
  stand_in_unlock();
}

int stand_in_queue(aclOpExecutor *executor, void *workspace, uint64_t size, void *handle) {
  if (!stand_in_has_context())
    return RUNTIME_ERROR;
  stream *s = stream_of(handle);
  if (s->device != stand_in_current()) {
    stand_in_violation("%s on a stream of another device", executor->name);
    return INVALID_PARAMETER;
  }
  stand_in_note("launch %s on %d.%d", executor->name, s->device, s->index);
  stand_in_add("launched", 1);
  enqueue(s, (work){.executor = executor, .workspace = workspace, .size = size});
  return 0;
}

/* ------------------------------------------------------------------------------------------------ work that is done */

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int do_operator(const work *w) {
  int ordered = stand_in_ordered("kernel");
  if (w->workspace && !stand_in_is_device_memory(w->workspace, w->size))
    stand_in_violation("the workspace of %s is no device memory", w->executor->name);
  else if (w->workspace)
    memset(w->workspace, 0xa5, w->size);
  int code = ordered ? ordered : w->executor->compute(w->executor);
  stand_in_note("%s %s", code ? "failed" : "done", w->executor->name);
  return code;
}

static int do_copy(const work *w) {
  memmove(w->to, w->from, w->size);
  stand_in_note("done copy of %zu bytes", w->size);
  return 0;
}

/* In the order in which it was captured; places have no meaning any more. */
static int do_graph(const graph *g) {
  int code = 0;
  for (const work *w = g->first; w && !code; w = w->next)
    code = w->executor ? do_operator(w) : w->to ? do_copy(w) : 0;
  stand_in_note("%s graph", code ? "failed" : "done");
  return code;
}

static void advance(stream *s);

/* Places are reached behind a failure, too. */
static void do_work(stream *s, const work *w) {
  if (w->reached) {
    w->reached->ns = now();
    w->reached->done = 1;
  }
  while (w->awaited && !w->awaited->done)
    advance(w->awaited->in);
  if (w->graph)
    w->graph->queued--;
  if (!s->error)
    s->error = w->executor ? do_operator(w) : w->graph ? do_graph(w->graph) : w->to ? do_copy(w) : 0;
}

/* One piece of work. */
static void advance(stream *s) {
  work *w = s->first;
  do_work(s, w);
  s->first = w->next;
  free_work(w);
  stand_in_add("queued", -1);
}

static int drain(stream *s) {
  stand_in_lock();
  while (s->first)
    advance(s);
  int error = s->error;
  s->error = 0;
  stand_in_unlock();
  return error;
}

/* ---------------------------------------------------------------------------------------------------------- streams */

static int make_stream(void **handle) {
  stream *made = calloc(1, sizeof *made);
  if (!made)
    return NO_MEMORY;
  stand_in_lock();
  made->device = stand_in_current();
  made->index = ++n_streams;
  made->next = streams;
  streams = made;
  stand_in_unlock();
  stand_in_add("streams", 1);
  *handle = made;
  return 0;
}

int aclrtCreateStream(void **handle) {
  NEEDS_CONTEXT();
  return make_stream(handle);
}

int aclrtCreateStreamWithConfig(void **handle, uint32_t priority, uint32_t flag) {
  enum { LEAST = 7, FLAGS = 3 };
  NEEDS_CONTEXT();
  if (priority > LEAST || flag > FLAGS)
    return INVALID_PARAMETER;
  stand_in_note("stream of priority %u", priority);
  return make_stream(handle);
}

int aclrtDeviceGetStreamPriorityRange(int32_t *least, int32_t *greatest) {
  NEEDS_CONTEXT();
  *least = 7;
  *greatest = 0;
  return 0;
}

static graph *forbidding(void) {
  stand_in_lock();
  graph *g = capturing ? capturing : everybodys;
  stand_in_unlock();
  return g;
}

/* A call that a graph cannot hold spoils it. */
static int spoil(graph *g, int code) {
  stand_in_lock();
  g->invalid = 1;
  stand_in_unlock();
  return code;
}

int aclrtSynchronizeStream(void *handle) {
  NEEDS_CONTEXT();
  stand_in_check_capture(__func__);
  stream *s = stream_of(handle);
  if (s->graph)
    return spoil(s->graph, STREAM_CAPTURED);
  stand_in_note("wait %d.%d", s->device, s->index);
  stand_in_add("waits", 1);
  return stand_in_setting("hung") ? 0 : drain(s);
}

/* What stands still is waited for until the end of that time, and anything else as long as it takes. */
int aclrtSynchronizeStreamWithTimeout(void *handle, int32_t milliseconds) {
  if (!stand_in_setting("hung"))
    return aclrtSynchronizeStream(handle);
  NEEDS_CONTEXT();
  nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000L}, NULL);
  return WAITED_TOO_LONG;
}

int aclrtSynchronizeDevice(void) {
  NEEDS_CONTEXT();
  graph *g = forbidding();
  if (g)
    return spoil(g, NOT_WHILE_CAPTURED);
  if (stand_in_setting("hung")) {
    stand_in_violation("a device is waited for that stands still");
    return 0;
  }
  int current = stand_in_current(), error = drain(&default_streams[current]);
  stand_in_note("wait %d", current);
  stand_in_add("waits", 1);
  stand_in_lock();
  for (stream *s = streams; s; s = s->next)
    if (s->device == current && !s->graph) {
      int code = drain(s);
      error = error ? error : code;
    }
  stand_in_unlock();
  return error;
}

int aclrtDestroyStream(void *handle) {
  NEEDS_CONTEXT();
  stream *gone = handle, **link = &streams;
  stand_in_lock();
  while (*link && *link != gone)
    link = &(*link)->next;
  int code = !*link ? INVALID_PARAMETER : gone->graph ? STREAM_CAPTURED : 0;
  if (!*link)
    stand_in_violation("aclrtDestroyStream of what is no stream");
  if (!code && gone->first)
    stand_in_violation("stream destroyed before its work was done");
  if (!code) {
    drain(gone);
    for (event *e = events; e; e = e->next)
      if (e->at && e->at->in == gone)
        e->at->in = NULL;
    *link = gone->next;
    free(gone);
    stand_in_add("streams", -1);
  }
  stand_in_unlock();
  return code;
}

/* ----------------------------------------------------------------------------------------------------------- copies */

enum { TO_DEVICE = 1, TO_HOST = 2, ON_DEVICE = 3 };

static int check_copy(const void *to, size_t room, const void *from, size_t size, int kind) {
  int to_device = kind == TO_DEVICE || kind == ON_DEVICE, from_device = kind == TO_HOST || kind == ON_DEVICE;
  if (room < size || kind < TO_DEVICE || kind > ON_DEVICE)
    return INVALID;
  if (stand_in_is_device_memory(to, size) != to_device || stand_in_is_device_memory(from, size) != from_device) {
    stand_in_violation("a copy of kind %d between other memory", kind);
    return INVALID_PARAMETER;
  }
  return 0;
}

/* Waits for no stream. */
int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) {
  NEEDS_CONTEXT();
  int code = check_copy(to, room, from, size, kind);
  graph *g = forbidding();
  if (g)
    return spoil(g, NOT_WHILE_CAPTURED);
  if (code)
    return code;
  memcpy(to, from, size);
  return 0;
}

int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *handle) {
  NEEDS_CONTEXT();
  stream *s = stream_of(handle);
  int code = check_copy(to, room, from, size, kind);
  if (!code && kind != ON_DEVICE && !stand_in_is_pinned(kind == TO_HOST ? to : from, size)) {
    if (s->graph)
      return spoil(s->graph, NOT_ASYNCHRONOUS);
    stand_in_violation("an asynchronous copy with host memory that ACL has not allocated");
    code = INVALID_PARAMETER;
  }
  if (code)
    return code;
  stand_in_note("launch copy on %d.%d", s->device, s->index);
  enqueue(s, (work){.to = to, .from = from, .size = size});
  return 0;
}

/* ----------------------------------------------------------------------------------------------------------- events */

enum { FLAG_SYNC = 1, FLAG_TIMES = 8 };

int aclrtCreateEventExWithFlag(void **handle, uint32_t flag) {
  NEEDS_CONTEXT();
  event *made = calloc(1, sizeof *made);
  if (!made)
    return NO_MEMORY;
  stand_in_lock();
  made->flag = flag;
  made->next = events;
  events = made;
  stand_in_unlock();
  stand_in_add("events", 1);
  *handle = made;
  return 0;
}

int aclrtDestroyEvent(void *handle) {
  NEEDS_CONTEXT();
  event **link = &events;
  stand_in_lock();
  while (*link && *link != handle)
    link = &(*link)->next;
  event *gone = *link;
  if (gone) {
    *link = gone->next;
    let_go(gone->at);
    free(gone);
    stand_in_add("events", -1);
  } else {
    stand_in_violation("aclrtDestroyEvent of what is no event");
  }
  stand_in_unlock();
  return gone ? 0 : INVALID_PARAMETER;
}

int aclrtRecordEvent(void *handle, void *stream_handle) {
  NEEDS_CONTEXT();
  event *e = handle;
  stream *s = stream_of(stream_handle);
  place *made = calloc(1, sizeof *made);
  if (!made)
    return NO_MEMORY;
  stand_in_lock();
  *made = (place){.holders = 2, .in = s, .graph = s->graph, .captured = s->captured};
  int was_open = s->open;
  let_go(e->at);
  e->at = made;
  enqueue(s, (work){.reached = made});
  if (s->graph) { /* nothing that anybody would have to wait for */
    s->captured--;
    s->open = was_open;
  }
  stand_in_unlock();
  return 0;
}

/* The event is captured: its stream's graph takes this stream in, too, or has its other one back. */
static int join(stream *s, const place *at) {
  if (s->graph && s->graph != at->graph)
    return spoil(s->graph, CAPTURE_DEPENDENCY);
  if (!at->in || at->in->graph != at->graph)
    return EVENT_CAPTURED;
  if (!s->graph) {
    s->graph = at->graph;
    s->captured = 0;
  } else if (at->captured == at->in->captured) {
    at->in->open = 0;
  }
  return 0;
}

int aclrtStreamWaitEvent(void *stream_handle, void *handle) {
  NEEDS_CONTEXT();
  event *e = handle;
  stream *s = stream_of(stream_handle);
  stand_in_lock();
  place *at = e->at;
  int code = !at || !(e->flag & FLAG_SYNC) ? INVALID_PARAMETER
             : at->graph                   ? join(s, at)
             : s->graph                    ? spoil(s->graph, CAPTURE_DEPENDENCY)
                                           : 0;
  if (!code) {
    at->holders++;
    enqueue(s, (work){.awaited = at});
  }
  stand_in_unlock();
  return code;
}

/* The device gets on meanwhile: the stream does a piece of work, so that who asks again and again sees the end. */
int aclrtQueryEventStatus(void *handle, int *status) {
  enum { NOT_READY, COMPLETE };
  NEEDS_CONTEXT();
  const event *e = handle;
  stand_in_lock();
  int captured = e->at && e->at->graph;
  if (!captured) {
    *status = !e->at || e->at->done ? COMPLETE : NOT_READY;
    if (*status == NOT_READY && !stand_in_setting("hung"))
      advance(e->at->in);
  }
  stand_in_unlock();
  return captured ? EVENT_CAPTURED : 0;
}

int aclrtSynchronizeEvent(void *handle) {
  NEEDS_CONTEXT();
  const event *e = handle;
  if (!e->at || e->at->graph)
    return e->at ? EVENT_CAPTURED : INVALID_PARAMETER;
  stand_in_lock();
  int waits = !e->at->done;
  while (!e->at->done)
    advance(e->at->in);
  int code = waits ? e->at->in->error : 0;
  stand_in_unlock();
  stand_in_note("wait for an event");
  return code;
}

int aclrtEventElapsedTime(float *ms, void *first, void *last) {
  NEEDS_CONTEXT();
  const event *a = first, *b = last;
  if (!(a->flag & b->flag & FLAG_TIMES) || !a->at || !b->at)
    return NO_TIME;
  stand_in_lock();
  int done = a->at->done && b->at->done;
  *ms = (float)(b->at->ns - a->at->ns) / 1e6f;
  stand_in_unlock();
  return done ? 0 : NOT_COMPLETE;
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };

int aclmdlRICaptureBegin(void *handle, int mode) {
  NEEDS_CONTEXT();
  stream *s = stream_of(handle);
  if (!s->index || mode < 0 || mode > MODE_RELAXED)
    return INVALID_PARAMETER;
  if (s->graph)
    return STREAM_CAPTURED;
  graph *made = calloc(1, sizeof *made);
  if (!made)
    return NO_MEMORY;
  made->origin = s;
  made->thread = pthread_self();
  made->mode = mode;
  stand_in_lock();
  s->graph = made;
  s->captured = 0;
  s->open = 0;
  if (mode == MODE_GLOBAL)
    everybodys = made;
  stand_in_unlock();
  capturing = mode == MODE_THREAD_LOCAL ? made : NULL;
  return 0;
}

/* With the setting `capture` all streams are captured; in one that is nothing may be waited for. */
int aclmdlRICaptureGetInfo(void *handle, int *status, void **graph_handle) {
  enum { NONE, ACTIVE, INVALIDATED };
  NEEDS_CONTEXT();
  stand_in_lock();
  graph *g = stream_of(handle)->graph;
  *status = g ? g->invalid ? INVALIDATED : ACTIVE : stand_in_setting("capture") ? ACTIVE : NONE;
  *graph_handle = g;
  stand_in_unlock();
  return 0;
}

static void free_graph(graph *g) {
  for (work *w = g->first, *next; w; w = next) {
    next = w->next;
    free_work(w);
  }
  free(g);
}

/* The graph's streams are themselves again. 1: one of them was never waited for. */
static int release_streams(const graph *g) {
  int open = 0;
  for (stream *s = streams; s; s = s->next)
    if (s->graph == g) {
      open |= s->open;
      s->graph = NULL;
      s->open = 0;
    }
  return open;
}

static void keep_graph(graph *g, void **handle) {
  g->next = graphs;
  graphs = g;
  stand_in_add("graphs", 1);
  *handle = g;
}

/* A failure that was ordered is one of the end itself: the capture is over all the same. */
int aclmdlRICaptureEnd(void *handle, void **graph_handle) {
  int code = stand_in_ordered(__func__);
  if (!stand_in_has_context())
    return NO_CONTEXT;
  stream *s = stream_of(handle);
  graph *g = s->graph;
  if (!g || g->origin != s)
    return g ? OTHER_STREAM : NOT_CAPTURED;
  if (g->mode != MODE_RELAXED && !pthread_equal(g->thread, pthread_self()))
    return OTHER_THREAD;
  capturing = NULL;
  stand_in_lock();
  everybodys = everybodys == g ? NULL : everybodys;
  if (release_streams(g) && !code)
    code = NOT_JOINED;
  if (!code && g->invalid)
    code = CAPTURE_INVALIDATED;
  if (!code || stand_in_setting("partial"))
    keep_graph(g, graph_handle);
  else
    free_graph(g);
  stand_in_unlock();
  return code;
}

int aclmdlRIExecuteAsync(void *graph_handle, void *handle) {
  NEEDS_CONTEXT();
  stream *s = stream_of(handle);
  graph *g = graph_handle;
  if (s->graph)
    return spoil(s->graph, NOT_WHILE_CAPTURED);
  stand_in_note("launch graph on %d.%d", s->device, s->index);
  stand_in_lock();
  g->queued++;
  enqueue(s, (work){.graph = g});
  stand_in_unlock();
  return 0;
}

int aclmdlRIDestroy(void *graph_handle) {
  NEEDS_CONTEXT();
  graph **link = &graphs;
  stand_in_lock();
  while (*link && *link != graph_handle)
    link = &(*link)->next;
  graph *gone = *link;
  int code = !gone ? INVALID_PARAMETER : gone->queued ? GRAPH_RUNS : 0;
  if (code)
    stand_in_violation("aclmdlRIDestroy of %s", gone ? "a graph that runs" : "what is no graph");
  if (!code) {
    *link = gone->next;
    free_graph(gone);
    stand_in_add("graphs", -1);
  }
  stand_in_unlock();
  return code;
}
