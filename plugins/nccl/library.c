/* Finds and opens the library of collectives: see library.h. */
#include "plugins/nccl/library.h"

#include <limits.h>
#include <link.h>

/* 2.10 has the mean, and bfloat16. */
enum { LEAST_VERSION = 21000, WORDS = 512 };

nccl_calls nccl;

/* The library's functions; of NCCL_OPTIONAL some are NULL. */
static struct {
#define NCCL_FIELD(name, field, result, arguments) result(*field) arguments;
  NCCL_FUNCTIONS(NCCL_FIELD)
  NCCL_OPTIONAL(NCCL_FIELD)
#undef NCCL_FIELD
} of_library;

/* Guarded by the lock until `opened` is set. */
static struct {
  pthread_mutex_t lock;
  char *chosen; /* VLLM_NCCL_SO_PATH; kept for the life of the process */
  void *library;
  atomic_bool opened;
  char reason[2 * WORDS];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const gpu_symbol symbols[] = {
#define NCCL_SYMBOL(name, field, result, arguments) {#name, &of_library.field},
    NCCL_FUNCTIONS(NCCL_SYMBOL){NULL, NULL},
};
static const gpu_symbol optional[] = {
    NCCL_OPTIONAL(NCCL_SYMBOL){NULL, NULL},
#undef NCCL_SYMBOL
};

/* vLLM's own variable, and no setting of the host's. */
void nccl_choose_library(fl_registry *registry) {
  const char *path = secure_getenv("VLLM_NCCL_SO_PATH");
  (void)registry;
  gpu_free_after_fork(&state.lock);
  pthread_mutex_lock(&state.lock);
  if (path && *path && !state.library) {
    free(state.chosen);
    state.chosen = strdup(path);
  }
  pthread_mutex_unlock(&state.lock);
}

/* -------------------------------------------------------------------------------------------------- beside torch */

/* The directory of a libtorch*.so that the process has mapped. */
static int find_torch(struct dl_phdr_info *info, size_t size, void *found) {
  char *directory = found;
  const char *name = info->dlpi_name, *slash = name ? strrchr(name, '/') : NULL;
  (void)size;
  if (!slash || strncmp(slash, "/libtorch", 9) != 0 || slash - name >= PATH_MAX)
    return 0;
  memcpy(directory, name, (size_t)(slash - name));
  directory[slash - name] = 0;
  return 1;
}

/* What the loader said of the last that was tried; empty where there is no torch. */
static void *open_beside_torch(char *words, size_t size) {
  char directory[PATH_MAX] = "", path[PATH_MAX + 64];
  *words = 0;
  if (!dl_iterate_phdr(find_torch, directory))
    return NULL;
  for (const char *const *place = nccl_vendor.beside_torch; *place; place++) {
    snprintf(path, sizeof path, "%s/%s", directory, *place);
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    const char *said = library ? NULL : dlerror();
    if (library)
      return library;
    if (!*words)
      snprintf(words, size, "%.500s", said ? said : path);
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------ by name */

static void *refuse(const char *beside, const char *loader) {
  snprintf(state.reason, sizeof state.reason,
           "%s is not there. VLLM_NCCL_SO_PATH is not set; the process has no %s mapped; beside torch: %.300s; by the "
           "loader: %.300s",
           nccl_vendor.title, nccl_vendor.libraries[0], *beside ? beside : "the process has no libtorch", loader);
  return NULL;
}

/* The process's own copy goes first: torch brings one, and two of them do not know of each other. */
static void *open_library(void) {
  driver d = {.root = nccl_vendor.root, .usual_root = nccl_vendor.usual_root};
  char beside[WORDS];
  for (int i = 0; nccl_vendor.libraries[i]; i++)
    d.libraries[i] = nccl_vendor.libraries[i];
  if (state.chosen) {
    void *library = dlopen(state.chosen, RTLD_LAZY | RTLD_LOCAL);
    const char *words = library ? NULL : dlerror();
    if (!library)
      snprintf(state.reason, sizeof state.reason, "VLLM_NCCL_SO_PATH: %s", words ? words : state.chosen);
    return library;
  }
  if (driver_open(&d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) || (d.library = open_beside_torch(beside, sizeof beside)) ||
      driver_open(&d, RTLD_LAZY | RTLD_LOCAL))
    return d.library;
  return refuse(beside, d.reason);
}

/* ----------------------------------------------------------------------------------------------------- functions */

/* From 2.9 on 2.10.3 is 21003; before, 2.8.4 was 2804. */
static void say_version(int version, char *text, size_t size) {
  int unit = version < 10000 ? 1000 : 10000;
  snprintf(text, size, "%d.%d.%d", version / unit, version % unit / 100, version % 100);
}

static bool suits(void) {
  char has[32], least[32];
  int version = 0;
  ncclResult_t result = of_library.get_version(&version);
  say_version(version, has, sizeof has);
  say_version(LEAST_VERSION, least, sizeof least);
  if (result)
    snprintf(state.reason, sizeof state.reason, "%s does not say its version: %s (%d)", nccl_vendor.title,
             of_library.get_error_string(result), result);
  else if (version < LEAST_VERSION)
    snprintf(state.reason, sizeof state.reason, "%s is of version %s, at least %s is needed", nccl_vendor.title, has,
             least);
  else
    return true;
  return false;
}

/* ------------------------------------------------------------------------------------------------- its own ways */

static ncclResult_t make_id(void *id) {
  return of_library.get_unique_id(id);
}

static ncclResult_t init_rank(ncclComm_t *made, int ranks, const void *bytes, int rank) {
  ncclUniqueId id;
  memcpy(&id, bytes, sizeof id);
  return of_library.init_rank(made, ranks, id, rank);
}

static ncclResult_t begin_rank(ncclComm_t *made, int ranks, const void *bytes, int rank) {
  ncclConfig_t config = {sizeof config, NCCL_CONFIG_MAGIC, NCCL_CONFIG_VERSION, 0, NCCL_CONFIG_UNDEF_INT};
  ncclUniqueId id;
  memcpy(&id, bytes, sizeof id);
  return of_library.init_rank_config(made, ranks, id, rank, &config);
}

static ncclResult_t group_start(ncclComm_t comm) {
  (void)comm;
  return of_library.group_start();
}

static ncclResult_t group_end(ncclComm_t comm) {
  (void)comm;
  return of_library.group_end();
}

/* A library that cannot split in the background would do so without a limit. */
static void fill_calls(void) {
  bool background = of_library.init_rank_config && of_library.finalize;
  nccl = (nccl_calls){
      .all_reduce = of_library.all_reduce,
      .reduce = of_library.reduce,
      .broadcast = of_library.broadcast,
      .all_gather = of_library.all_gather,
      .reduce_scatter = of_library.reduce_scatter,
      .send = of_library.send,
      .recv = of_library.recv,
      .abort = of_library.abort,
      .split = background ? of_library.split : NULL,
      .make_id = make_id,
      .init_rank = init_rank,
      .begin_rank = background ? begin_rank : NULL,
      .finalize = of_library.finalize,
      .destroy = of_library.destroy,
      .get_async_error = of_library.get_async_error,
      .group_start = group_start,
      .group_end = group_end,
  };
}

/* ------------------------------------------------------------------------------------------------------- opening */

/* The loader counts: what does not suit is let go of, as another may come. */
static bool bind(void) {
  driver d = {.library = state.library = open_library()};
  bool bound = d.library;
  for (const gpu_symbol *symbol = symbols; symbol->name && bound; symbol++)
    if (!(bound = driver_find(&d, symbol->name, symbol->slot)))
      snprintf(state.reason, sizeof state.reason, "%s lacks %s: is it too old?", nccl_vendor.title, symbol->name);
  for (const gpu_symbol *symbol = optional; symbol->name && bound; symbol++)
    driver_find(&d, symbol->name, symbol->slot);
  if (bound && suits()) {
    fill_calls();
    return true;
  }
  if (d.library)
    dlclose(d.library);
  state.library = NULL;
  return false;
}

bool nccl_open(const char **reason) {
  if (atomic_load_explicit(&state.opened, memory_order_acquire))
    return true;
  pthread_mutex_lock(&state.lock);
  bool opened = atomic_load(&state.opened) || bind();
  atomic_store_explicit(&state.opened, opened, memory_order_release);
  pthread_mutex_unlock(&state.lock);
  *reason = state.reason;
  return opened;
}

/* -------------------------------------------------------------------------------------------------------- errors */

/* The last error's text is the thread's, or the process's, whatever the communicator, and several lines long sometimes.
 */
fl_status nccl_words(ncclResult_t result, char *words, size_t size) {
  static const struct {
    const char *name;
    int value;
    fl_status status;
  } results[] = {
#define NCCL_ROW(name, value, status) {#name, value, status},
      NCCL_RESULTS(NCCL_ROW)
#undef NCCL_ROW
  };
  enum { N = sizeof results / sizeof *results };
  const char *text = of_library.get_error_string(result),
             *last = of_library.get_last_error ? of_library.get_last_error(NULL) : NULL;
  int i = 0;
  while (i < N && results[i].value != result)
    i++;
  int length = last ? (int)strcspn(last, "\n") : 0;
  snprintf(words, size, "%s (%s, %d)%s%.*s", text ? text : "unknown error",
           i < N ? results[i].name : "not in its header", result, length ? ": " : "", length, last ? last : "");
  return i < N ? results[i].status : FL_EINTERNAL;
}
