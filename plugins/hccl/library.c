/* Finds and opens HCCL: see library.h. */
#include "plugins/hccl/library.h"
#include "plugins/ascend/locks.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Collectives are in the first, and in newer toolkits what makes communicators in the second. */
enum { COLLECTIVES, COMMUNICATORS, LIBRARIES, WORDS = 1024 };

hccl_table hccl;

/* Guarded by the lock until `opened` is set. */
static struct {
  pthread_mutex_t lock;
  char *chosen; /* HCCL_SO_PATH; kept for the life of the process */
  void *libraries[LIBRARIES];
  atomic_bool opened;
  char reason[WORDS];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void free_lock(void) {
  pthread_mutex_init(&state.lock, NULL);
}

void hccl_choose_library(void) {
  const char *path = secure_getenv("HCCL_SO_PATH");
  ascend_guard_forks(free_lock);
  pthread_mutex_lock(&state.lock);
  if (path && *path && !state.libraries[COLLECTIVES]) {
    free(state.chosen);
    state.chosen = strdup(path);
  }
  pthread_mutex_unlock(&state.lock);
}

/* Of this plugin: no operators. */
bool ascend_libraries_open(const char **reason) {
  return ascend_acl_open(reason);
}

/* --------------------------------------------------------------------------------------------------------- opening */

static bool open_libraries(void) {
  const char *words;
  state.libraries[COLLECTIVES] =
      state.chosen ? dlopen(state.chosen, RTLD_LAZY | RTLD_LOCAL) : ascend_open_of_toolkit("libhccl.so");
  if (state.libraries[COLLECTIVES])
    return true;
  words = dlerror();
  if (state.chosen)
    snprintf(state.reason, sizeof state.reason, "HCCL_SO_PATH: %s", words ? words : state.chosen);
  else
    snprintf(state.reason, sizeof state.reason, "HCCL is not there. HCCL_SO_PATH is not set; by the loader: %s",
             words ? words : "libhccl.so: dlopen failed");
  return false;
}

/* In the second library only what the first lacks: that is usually linked with it. */
static bool find(const char *name, void *function) {
  void *address = dlsym(state.libraries[COLLECTIVES], name);
  if (!address && !state.libraries[COMMUNICATORS])
    state.libraries[COMMUNICATORS] = ascend_open_of_toolkit("libhcomm.so");
  if (!address && state.libraries[COMMUNICATORS])
    address = dlsym(state.libraries[COMMUNICATORS], name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static bool find_functions(void) {
#define FIND(name, field, arguments)                                                                                   \
  if (!find(#name, &hccl.field)) {                                                                                     \
    snprintf(state.reason, sizeof state.reason, "HCCL lacks %s: is it too old?", #name);                               \
    return false;                                                                                                      \
  }
  HCCL_FUNCTIONS(FIND)
#undef FIND
#define FIND_OPTIONAL(name, field, arguments) find(#name, &hccl.field);
  HCCL_OPTIONAL(FIND_OPTIONAL)
#undef FIND_OPTIONAL
  return true;
}

/* The loader counts: what does not suit is let go of, as another may come. */
static bool bind(void) {
  if (!open_libraries())
    return false;
  if (find_functions())
    return true;
  for (int i = 0; i < LIBRARIES; i++) {
    if (state.libraries[i])
      dlclose(state.libraries[i]);
    state.libraries[i] = NULL;
  }
  return false;
}

bool hccl_open(const char **reason) {
  if (atomic_load_explicit(&state.opened, memory_order_acquire))
    return true;
  pthread_mutex_lock(&state.lock);
  bool opened = atomic_load(&state.opened) || bind();
  atomic_store_explicit(&state.opened, opened, memory_order_release);
  pthread_mutex_unlock(&state.lock);
  *reason = state.reason;
  return opened;
}

/* ---------------------------------------------------------------------------------------------------------- errors */

/* What ACL has to say is long and has many lines: as one, and as much as there is room for. */
static void make_one_line(char *text) {
  for (char *c = text; *c; c++)
    if (*c == '\n' || *c == '\r' || *c == '\t')
      *c = ' ';
}

fl_status hccl_status(HcclResult result, const char *function, char *message, size_t message_size) {
  static const struct {
    const char *name;
    int value;
    fl_status status;
    const char *words;
  } results[] = {
#define HCCL_ROW(name, value, status, words) {#name, value, status, words},
      HCCL_RESULTS(HCCL_ROW)
#undef HCCL_ROW
  };
  enum { N = sizeof results / sizeof *results };
  int i = 0;
  if (!result)
    return FL_OK;
  while (i < N && results[i].value != result)
    i++;
  const char *more = acl.aclGetRecentErrMsg();
  fl_say(message, message_size, FL_OK, "%s: %s (%s, %d)%s%s", function, i < N ? results[i].words : "unknown error",
         i < N ? results[i].name : "not in its header", result, more ? ": " : "", more ? more : "");
  if (message && message_size)
    make_one_line(message);
  return i < N ? results[i].status : FL_EINTERNAL;
}
