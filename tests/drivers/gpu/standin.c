/* What the stand-in drivers share: see standin.h. */
#include "tests/drivers/gpu/grid.h"
#include "tests/drivers/gpu/work.h"

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
  INVALID_IMAGE = 200
};

/* A function that is to fail. */
typedef struct failing {
  char name[32];
  int code;
} failing;

/* All of it is guarded by the lock. */
static struct {
  pthread_mutex_t lock;
  bool begun;
  standin_settings settings;
  int broken;    /* the error that everything returns from now on */
  bool launched; /* a kernel, since the settings were made */
  char log[LOG_SIZE];
  size_t length;
  failing failing; /* name empty: none */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------------------------------------------ settings */

static const struct {
  const char *name;
  size_t offset;
} names[] = {
#define NAME(field)                                                                                                    \
  { #field, offsetof(standin_settings, field) }
    NAME(devices),        NAME(version),      NAME(init),         NAME(count),          NAME(describe),
    NAME(major),          NAME(minor),        NAME(warp),         NAME(units),          NAME(shared),
    NAME(load),           NAME(find),         NAME(allocate),     NAME(copy),           NAME(launch),
    NAME(arch),           NAME(broken),       NAME(synchronize),  NAME(delay),          NAME(capturing),
    NAME(crash),          NAME(math_create),  NAME(math_prepare), NAME(math_run),       NAME(math_none),
    NAME(math_workspace), NAME(conv_version), NAME(conv_create),  NAME(conv_graph),     NAME(conv_plan),
    NAME(conv_run),       NAME(conv_none),    NAME(conv_engine),  NAME(conv_workspace), NAME(stall),
    NAME(arch_step),      NAME(math_old),     NAME(backwards),
#undef NAME
};

static bool set_one(const char *name, size_t length, int value) {
  enum { PREFIX = sizeof "fail." - 1 };
  if (length > PREFIX && length - PREFIX < sizeof state.failing.name && !memcmp(name, "fail.", PREFIX)) {
    memcpy(state.failing.name, name + PREFIX, length - PREFIX);
    state.failing.code = value;
    return true;
  }
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
  state.failing = (failing){0};
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

static _Thread_local bool relaxed;

int standin_check_safe(int code) {
  bool forbidden = !relaxed && (standin_now().capturing || standin_thread_capture_ends());
  return standin_check(forbidden ? CAPTURE_UNSUPPORTED : code);
}

int standin_exchange_mode(int *mode) {
  static _Thread_local int own;
  int outer = own;
  if (*mode < 0 || *mode > 2)
    return INVALID_VALUE;
  own = *mode;
  *mode = outer;
  relaxed = own == 2;
  return 0;
}

void standin_break(int code) {
  pthread_mutex_lock(&state.lock);
  state.broken = code;
  pthread_mutex_unlock(&state.lock);
}

void standin_note_launch(void) {
  pthread_mutex_lock(&state.lock);
  state.launched = true;
  pthread_mutex_unlock(&state.lock);
}

int standin_settle(void) {
  pthread_mutex_lock(&state.lock);
  if (state.launched && state.settings.broken)
    state.broken = state.settings.broken;
  int code = state.broken;
  pthread_mutex_unlock(&state.lock);
  return code;
}

int standin_begin(const char *function) {
  pthread_mutex_lock(&state.lock);
  int code = strcmp(state.failing.name, function) ? 0 : state.failing.code;
  pthread_mutex_unlock(&state.lock);
  return standin_here() ? standin_check(code) : STANDIN_INVALID_CONTEXT;
}

/* -------------------------------------------------------------------------------------------------------- memory */

int standin_allocate(void **memory, size_t size) {
  int code = standin_check_safe(standin_now().allocate);
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
  int code = standin_check_safe(standin_now().load);
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

const grid_kernel *standin_kernel_of(void *function) {
  const handle *f = function;
  return f->where && f->where != standin_here() ? NULL : f->of;
}
