/* Streams of the stand-in drivers, and the tasks in them: see work.h. */
#include "tests/drivers/gpu/grid.h"
#include "tests/drivers/gpu/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAUNCH_FAILURE = 719 };

/* Of the least and the most urgent stream. */
#ifdef STANDIN_hip
enum { LEAST = 1, GREATEST = -1 };
#else
enum { LEAST = 0, GREATEST = -5 };
#endif

typedef struct standin_stream {
  struct standin_stream *next;
  const void *where; /* its device */
} standin_stream;

/* Guarded by the lock; a task runs outside. */
static struct {
  pthread_mutex_t lock;
  standin_task *first, **last;
  standin_stream *streams;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &state.first};

static atomic_ulong numbers, ticks;

/* Held while tasks run that waited: a stream's come one after the other, whoever waits for it. A task that waits for
 * another stream runs that one's. */
static pthread_mutex_t running = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* ------------------------------------------------------------------------------------------------------------ tasks */

standin_task *standin_make_task(int (*run)(const standin_task *task), void *stream, size_t size) {
  standin_task *t = calloc(1, sizeof *t + size);
  if (!t)
    return NULL;
  t->number = atomic_fetch_add(&numbers, 1) + 1;
  t->stream = stream;
  t->run = run;
  t->size = size;
  return t;
}

unsigned long standin_clock(void) {
  return atomic_load(&ticks);
}

/* A failure appears when somebody waits. */
static void run_task(standin_task *t) {
  atomic_fetch_add(&ticks, 1);
  int code = t->run(t);
  free(t);
  if (code)
    standin_break(code);
}

/* Where the first task of the stream is, or the first of all. With the lock held. */
static standin_task **find_first(void *stream, bool all) {
  standin_task **place = &state.first;
  while (*place && !all && (*place)->stream != stream)
    place = &(*place)->next;
  return place;
}

/* That task, up to number `last`, taken out; NULL: there is none. */
static standin_task *take(void *stream, bool all, unsigned long last) {
  pthread_mutex_lock(&state.lock);
  standin_task **place = find_first(stream, all), *found = *place;
  if (found && found->number > last)
    found = NULL;
  if (found) {
    *place = found->next;
    if (state.last == &found->next)
      state.last = place;
    found->next = NULL;
  }
  pthread_mutex_unlock(&state.lock);
  return found;
}

static void advance(void *stream, bool all, unsigned long last) {
  pthread_mutex_lock(&running);
  for (standin_task *t; (t = take(stream, all, last));)
    run_task(t);
  pthread_mutex_unlock(&running);
}

bool standin_has_work(void *stream) {
  pthread_mutex_lock(&state.lock);
  bool has = *find_first(stream, false);
  pthread_mutex_unlock(&state.lock);
  return has;
}

/* Is that task waiting, and in which stream? */
static bool find_task(unsigned long number, void **stream) {
  pthread_mutex_lock(&state.lock);
  const standin_task *t = state.first;
  while (t && t->number != number)
    t = t->next;
  *stream = t ? t->stream : NULL;
  pthread_mutex_unlock(&state.lock);
  return t;
}

bool standin_is_pending(unsigned long number) {
  void *stream;
  return find_task(number, &stream);
}

void standin_finish(unsigned long number) {
  void *stream;
  if (find_task(number, &stream))
    advance(stream, false, number);
}

int standin_queue_task(standin_task *t) {
  int code = 0;
  bool delay = standin_now().delay;
  if (standin_capture_takes(t, &code))
    return code;
  if (!delay && !standin_has_work(t->stream)) {
    run_task(t);
    return 0;
  }
  void *stream = t->stream;
  pthread_mutex_lock(&state.lock);
  *state.last = t;
  state.last = &t->next;
  pthread_mutex_unlock(&state.lock);
  if (!delay)
    advance(stream, false, ULONG_MAX);
  return 0;
}

/* --------------------------------------------------------------------------------------------- kernels and the like */

typedef struct launch {
  const grid_kernel *kernel;
  grid_dimensions grid, block;
  unsigned shared;
  _Alignas(16) char arguments[];
} launch;

static int run_kernel(const standin_task *t) {
  char words[256];
  const launch *l = (const launch *)t->arguments;
  if (grid_run(l->kernel, l->arguments, l->grid, l->block, l->shared, standin_now().backwards, words, sizeof words))
    return 0;
  standin_log("failed %s", words);
  fprintf(stderr, "stand-in driver: %s\n", words);
  return LAUNCH_FAILURE;
}

int standin_launch(void *function, const unsigned *grid, const unsigned *block, unsigned shared, void *stream,
                   void **arguments) {
  int code = standin_check(standin_now().launch);
  const grid_kernel *kernel = code ? NULL : standin_kernel_of(function);
  if (!kernel || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_HANDLE;
  standin_log("launch %s grid %ux%ux%u block %ux%ux%u shared %u stream %p", kernel->name, grid[0], grid[1], grid[2],
              block[0], block[1], block[2], shared, stream);
  standin_task *t = standin_make_task(run_kernel, stream, sizeof(launch) + kernel->arguments_size);
  if (!t)
    return STANDIN_OUT_OF_MEMORY;
  launch *l = (launch *)t->arguments;
  l->kernel = kernel;
  l->grid = (grid_dimensions){grid[0], grid[1], grid[2]};
  l->block = (grid_dimensions){block[0], block[1], block[2]};
  l->shared = shared;
  memcpy(l->arguments, arguments[0], kernel->arguments_size);
  standin_note_launch();
  return standin_queue_task(t);
}

typedef struct host_call {
  void (*call)(const void *arguments);
  _Alignas(16) char arguments[];
} host_call;

static int run_call(const standin_task *t) {
  const host_call *h = (const host_call *)t->arguments;
  h->call(h->arguments);
  return 0;
}

int standin_queue(void (*call)(const void *arguments), const void *arguments, size_t size, void *stream) {
  int code = standin_check(standin_now().launch);
  standin_task *t = code ? NULL : standin_make_task(run_call, stream, sizeof(host_call) + size);
  if (!t)
    return code ? code : STANDIN_OUT_OF_MEMORY;
  host_call *h = (host_call *)t->arguments;
  h->call = call;
  memcpy(h->arguments, arguments, size);
  return standin_queue_task(t);
}

int flhost_stand_in_queue(void (*call)(const void *arguments), const void *arguments, size_t size, void *stream) {
  return standin_queue(call, arguments, size, stream);
}

typedef struct copying {
  void *to;
  const void *from;
  size_t size;
} copying;

static int run_copy(const standin_task *t) {
  const copying *c = (const copying *)t->arguments;
  memmove(c->to, c->from, c->size);
  return 0;
}

int standin_copy(void *to, const void *from, size_t size, void *stream, const char *kind) {
  int code = standin_check(standin_now().copy);
  standin_log("copy %s %zu stream %p", kind, size, stream);
  if (code || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_HANDLE;
  standin_task *t = standin_make_task(run_copy, stream, sizeof(copying));
  if (!t)
    return STANDIN_OUT_OF_MEMORY;
  *(copying *)t->arguments = (copying){to, from, size};
  return standin_queue_task(t);
}

int standin_synchronize(void *stream, bool all) {
  bool captured = standin_now().capturing || standin_capture_ends(stream, all);
  int code = standin_check(captured ? STANDIN_CAPTURE_UNSUPPORTED : standin_now().synchronize);
  if (all)
    standin_log("synchronize all");
  else
    standin_log("synchronize stream %p", stream);
  if (code)
    return code;
  advance(stream, all, ULONG_MAX);
  return standin_settle();
}

int standin_capturing(void *stream, int *status) {
  *status = standin_now().capturing ? 1 : standin_capture_status(stream);
  return standin_check(0);
}

/* ---------------------------------------------------------------------------------------------------------- streams */

int standin_priorities(int *least, int *greatest) {
  int code = STANDIN_BEGIN;
  *least = LEAST;
  *greatest = GREATEST;
  return code;
}

/* Of the driver it is known that it takes the nearest priority; that is not left to it. */
int standin_create_stream(void **made, unsigned flags, int priority) {
  int code = STANDIN_BEGIN;
  standin_log("create stream priority %d", priority);
  if (code || flags != 1 || priority > LEAST || priority < GREATEST)
    return code ? code : STANDIN_INVALID_VALUE;
  standin_stream *s = calloc(1, sizeof *s);
  if (!s)
    return STANDIN_OUT_OF_MEMORY;
  s->where = standin_here();
  pthread_mutex_lock(&state.lock);
  s->next = state.streams;
  state.streams = s;
  pthread_mutex_unlock(&state.lock);
  *made = s;
  return 0;
}

/* Where it is in the list; *place is NULL where a test invented it. With the lock held. */
static standin_stream **find_stream(const void *wanted) {
  standin_stream **place = &state.streams;
  while (*place && *place != wanted)
    place = &(*place)->next;
  return place;
}

bool standin_is_here(void *wanted) {
  pthread_mutex_lock(&state.lock);
  const standin_stream *s = *find_stream(wanted);
  bool here = !s || s->where == standin_here();
  pthread_mutex_unlock(&state.lock);
  return here;
}

/* What is left in it is done first: nobody else will wait for it. */
int standin_destroy_stream(void *wanted) {
  int code = STANDIN_BEGIN;
  standin_log("destroy stream");
  if (code || !standin_is_here(wanted))
    return code ? code : STANDIN_INVALID_HANDLE;
  advance(wanted, false, ULONG_MAX);
  pthread_mutex_lock(&state.lock);
  standin_stream **place = find_stream(wanted), *found = *place;
  if (found)
    *place = found->next;
  pthread_mutex_unlock(&state.lock);
  free(found);
  return found ? 0 : STANDIN_INVALID_HANDLE;
}

int standin_query_stream(void *wanted) {
  int code = STANDIN_BEGIN;
  if (code || standin_capture_ends(wanted, false))
    return code ? code : STANDIN_CAPTURE_UNSUPPORTED;
  return standin_check_safe(standin_has_work(wanted) ? STANDIN_NOT_READY : 0);
}
