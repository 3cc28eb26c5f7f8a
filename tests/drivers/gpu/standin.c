/* What the stand-in drivers share: see standin.h. */
#include "tests/drivers/gpu/standin.h"
#include "tests/drivers/gpu/grid.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char flhost_stand_in_driver[] = "a stand-in of flhost's tests: it computes on the CPU";

enum {
  LOG_SIZE = 1 << 16,
  OUT_OF_MEMORY = 2,
  INVALID_VALUE = 1,
  NOT_FOUND = 500,
  CAPTURE_UNSUPPORTED = 900,
  LAUNCH_FAILURE = 719,
  INVALID_IMAGE = 200,
  INVALID_HANDLE = 400
};

/* Work that waits in a stream. */
typedef struct task {
  struct task *next;
  void *stream;
  const grid_kernel *kernel;  /* one of the three: a kernel, */
  void (*call)(const void *); /* a function of the host's, */
  grid_dimensions grid, block;
  unsigned shared;
  void *to; /* a copy */
  const void *from;
  size_t size;
  _Alignas(16) char arguments[];
} task;

/* All of it is guarded by the lock; a kernel runs outside. */
static struct {
  pthread_mutex_t lock;
  bool begun;
  standin_settings settings;
  int broken;    /* the error that everything returns from now on */
  bool launched; /* a kernel, since the settings were made */
  char log[LOG_SIZE];
  size_t length;
  task *first, **last;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .last = &state.first};

/* ------------------------------------------------------------------------------------------------------ settings */

static const struct {
  const char *name;
  size_t offset;
} names[] = {
#define NAME(field)                                                                                                    \
  { #field, offsetof(standin_settings, field) }
    NAME(devices),        NAME(version),      NAME(init),           NAME(count),      NAME(describe),
    NAME(major),          NAME(minor),        NAME(warp),           NAME(units),      NAME(shared),
    NAME(load),           NAME(find),         NAME(allocate),       NAME(copy),       NAME(launch),
    NAME(arch),           NAME(broken),       NAME(synchronize),    NAME(delay),      NAME(capturing),
    NAME(crash),          NAME(math_create),  NAME(math_prepare),   NAME(math_run),   NAME(math_none),
    NAME(math_workspace), NAME(conv_version), NAME(conv_create),    NAME(conv_graph), NAME(conv_plan),
    NAME(conv_run),       NAME(conv_none),    NAME(conv_workspace), NAME(stall),      NAME(arch_step),
    NAME(math_old),       NAME(backwards),
#undef NAME
};

static bool set_one(const char *name, size_t length, int value) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strlen(names[i].name) == length && !memcmp(names[i].name, name, length)) {
      memcpy((char *)&state.settings + names[i].offset, &value, sizeof value);
      return true;
    }
  return false;
}

/* With the lock held. */
static bool set_all(const char *settings) {
  bool known = true;
  state.begun = true;
  state.settings = standin_defaults;
  state.broken = 0;
  state.launched = false;
  while (*settings) {
    size_t length = strcspn(settings, "= ");
    if (settings[length] == '=')
      known &= set_one(settings, length, atoi(settings + length + 1));
    else
      known &= !length;
    settings += strcspn(settings, " ");
    settings += *settings == ' ';
  }
  return known;
}

static void begin(void) {
  const char *settings = getenv("FLHOST_STAND_IN");
  if (!state.begun && !set_all(settings ? settings : "")) {
    fprintf(stderr, "FLHOST_STAND_IN: unknown setting in '%s'\n", settings);
    abort();
  }
}

bool flhost_stand_in_set(const char *settings) {
  pthread_mutex_lock(&state.lock);
  bool known = set_all(settings);
  pthread_mutex_unlock(&state.lock);
  return known;
}

standin_settings standin_now(void) {
  pthread_mutex_lock(&state.lock);
  begin();
  standin_settings settings = state.settings;
  pthread_mutex_unlock(&state.lock);
  return settings;
}

/* ----------------------------------------------------------------------------------------------------------- log */

static void add_line(const char *format, va_list arguments) {
  int n = vsnprintf(state.log + state.length, LOG_SIZE - state.length - 1, format, arguments);
  if (n < 0 || state.length + (size_t)n + 2 > LOG_SIZE)
    return; /* full: what came first is kept */
  state.length += (size_t)n;
  state.log[state.length++] = '\n';
  state.log[state.length] = 0;
}

void standin_log(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  pthread_mutex_lock(&state.lock);
  add_line(format, arguments);
  pthread_mutex_unlock(&state.lock);
  va_end(arguments);
}

const char *flhost_stand_in_log(void) {
  return state.log;
}

const grid_kernel *flhost_stand_in_kernel(size_t i) {
  return grid_kernel_at(i);
}

void flhost_stand_in_clear(void) {
  pthread_mutex_lock(&state.lock);
  state.length = 0;
  state.log[0] = 0;
  pthread_mutex_unlock(&state.lock);
}

/* -------------------------------------------------------------------------------------------------------- errors */

int standin_check(int code) {
  pthread_mutex_lock(&state.lock);
  begin();
  int broken = state.broken;
  pthread_mutex_unlock(&state.lock);
  return broken ? broken : code;
}

/* What a capture forbids to everybody. */
static int check_uncaptured(int code) {
  return standin_check(standin_now().capturing ? CAPTURE_UNSUPPORTED : code);
}

/* What it forbids only because it might be meant as a part of the graph. */
static _Thread_local bool relaxed;

static int check_safe(int code) {
  return relaxed ? standin_check(code) : check_uncaptured(code);
}

void standin_relax(bool may) {
  relaxed = may;
}

static void break_device(int code) {
  pthread_mutex_lock(&state.lock);
  state.broken = code;
  pthread_mutex_unlock(&state.lock);
}

/* -------------------------------------------------------------------------------------------------------- memory */

int standin_allocate(void **memory, size_t size) {
  int code = check_safe(standin_now().allocate);
  standin_log("allocate %zu", size);
  if (code)
    return code;
  if (!size)
    return INVALID_VALUE;
  *memory = aligned_alloc(256, (size + 255) / 256 * 256);
  return *memory ? 0 : OUT_OF_MEMORY;
}

int standin_release(void *memory) {
  int code = standin_check(0);
  standin_log("release");
  if (!code)
    free(memory);
  return code;
}

/* ------------------------------------------------------------------------------------------------------- modules */

/* A module or a function. */
typedef struct handle {
  const void *of, *where;
} handle;

/* The one handle of that. Kept. */
static int make_handle(void **made, const void *of, const void *where) {
  enum { MOST_HANDLES = 4096 };
  static handle handles[MOST_HANDLES];
  static int n;
  int i = 0;
  pthread_mutex_lock(&state.lock);
  while (i < n && (handles[i].of != of || handles[i].where != where))
    i++;
  if (i == n && n < MOST_HANDLES)
    handles[n++] = (handle){of, where};
  *made = i < n ? &handles[i] : NULL;
  pthread_mutex_unlock(&state.lock);
  return *made ? 0 : OUT_OF_MEMORY;
}

int standin_load(void **module, const void *image, const void *where) {
  int code = check_safe(standin_now().load);
  standin_log("load");
  if (code)
    return code;
  return image ? make_handle(module, image, where) : INVALID_IMAGE;
}

int standin_find(void **function, void *module, const char *name) {
  int code = standin_check(standin_now().find);
  const grid_kernel *kernel = grid_find(name);
  const handle *of = module;
  standin_log("find %s", name);
  if (code || !kernel)
    return code ? code : NOT_FOUND;
  return make_handle(function, kernel, of ? of->where : NULL);
}

/* ------------------------------------------------------------------------------------------------------- streams */

static int run(const task *t) {
  char words[256];
  if (t->call) {
    t->call(t->arguments);
    return 0;
  }
  if (!t->kernel) {
    memmove(t->to, t->from, t->size);
    return 0;
  }
  if (grid_run(t->kernel, t->arguments, t->grid, t->block, t->shared, standin_now().backwards, words, sizeof words))
    return 0;
  standin_log("failed %s", words);
  fprintf(stderr, "stand-in driver: %s\n", words);
  return LAUNCH_FAILURE;
}

/* Now, or when somebody waits. Takes the task. */
static int queue(task *t) {
  int code = 0;
  if (standin_now().delay) {
    pthread_mutex_lock(&state.lock);
    *state.last = t;
    state.last = &t->next;
    pthread_mutex_unlock(&state.lock);
    return 0;
  }
  code = run(t);
  free(t);
  if (code)
    break_device(code);
  return 0; /* a kernel's failure appears when somebody waits */
}

/* The first task of a stream, taken out; NULL: there is none. */
static task *take(void *stream, bool all) {
  task **place = &state.first, *found;
  pthread_mutex_lock(&state.lock);
  while (*place && !all && (*place)->stream != stream)
    place = &(*place)->next;
  found = *place;
  if (found) {
    *place = found->next;
    if (state.last == &found->next)
      state.last = place;
    found->next = NULL;
  }
  pthread_mutex_unlock(&state.lock);
  return found;
}

int standin_launch(void *function, const void *where, const unsigned *grid, const unsigned *block, unsigned shared,
                   void *stream, void **arguments) {
  int code = standin_check(standin_now().launch);
  const handle *f = function;
  const grid_kernel *kernel = f->of;
  if (code || (f->where && f->where != where))
    return code ? code : INVALID_HANDLE;
  standin_log("launch %s grid %ux%ux%u block %ux%ux%u shared %u stream %p", kernel->name, grid[0], grid[1], grid[2],
              block[0], block[1], block[2], shared, stream);
  task *t = calloc(1, sizeof *t + kernel->arguments_size);
  if (!t)
    return OUT_OF_MEMORY;
  t->stream = stream;
  t->kernel = kernel;
  t->grid = (grid_dimensions){grid[0], grid[1], grid[2]};
  t->block = (grid_dimensions){block[0], block[1], block[2]};
  t->shared = shared;
  memcpy(t->arguments, arguments[0], kernel->arguments_size);
  pthread_mutex_lock(&state.lock);
  state.launched = true;
  pthread_mutex_unlock(&state.lock);
  return queue(t);
}

int standin_queue(void (*call)(const void *arguments), const void *arguments, size_t size, void *stream) {
  int code = standin_check(standin_now().launch);
  task *t = code ? NULL : calloc(1, sizeof *t + size);
  if (!t)
    return code ? code : OUT_OF_MEMORY;
  t->stream = stream;
  t->call = call;
  memcpy(t->arguments, arguments, size);
  return queue(t);
}

int standin_copy(void *to, const void *from, size_t size, void *stream, const char *kind) {
  int code = standin_check(standin_now().copy);
  standin_log("copy %s %zu stream %p", kind, size, stream);
  if (code)
    return code;
  task *t = calloc(1, sizeof *t);
  if (!t)
    return OUT_OF_MEMORY;
  t->stream = stream;
  t->to = to;
  t->from = from;
  t->size = size;
  return queue(t);
}

int standin_synchronize(void *stream, bool all) {
  int code = check_uncaptured(standin_now().synchronize);
  if (all)
    standin_log("synchronize all");
  else
    standin_log("synchronize stream %p", stream);
  if (code)
    return code;
  for (task *t; (t = take(stream, all));) {
    int failed = run(t);
    free(t);
    if (failed)
      break_device(failed);
  }
  pthread_mutex_lock(&state.lock);
  if (state.launched && state.settings.broken)
    state.broken = state.settings.broken;
  code = state.broken;
  pthread_mutex_unlock(&state.lock);
  return code;
}

int standin_capturing(void *stream, int *status) {
  (void)stream;
  *status = standin_now().capturing;
  return standin_check(0);
}
