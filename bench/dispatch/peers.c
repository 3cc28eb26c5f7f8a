/*
 * What others pay to get from a name or a handle to a function, on one thread and on two: a counted handle, tables
 * behind a lock, OpenSSL's fetch (libcrypto, opened when it is there), and Python's dispatchers (bench/peers.py).
 */
#include "bench/dispatch/dispatch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- tables */

enum { PLACES = 256, NAMES = 64 };

/* Names to functions, open addressing. */
typedef struct table {
  pthread_mutex_t mutex;
  pthread_rwlock_t rwlock;
  struct place {
    char name[32];
    fl_kernel_fn fn;
  } places[PLACES];
} table;

static uint32_t hash(const char *name) {
  uint32_t h = 2166136261u;
  while (*name)
    h = (h ^ (unsigned char)*name++) * 16777619u;
  return h;
}

static struct place *find(table *t, const char *name) {
  uint32_t i = hash(name) % PLACES;
  while (t->places[i].fn && strcmp(t->places[i].name, name) != 0)
    i = (i + 1) % PLACES;
  return &t->places[i];
}

/* An object that lives as long as somebody holds it. */
typedef struct counted {
  _Atomic uint64_t holders;
  fl_kernel_fn fn;
} counted;

/* libcrypto's functions; NULL: it is not there. */
typedef struct crypto {
  void *(*fetch)(void *context, const char *algorithm, const char *properties);
  void (*release)(void *digest);
} crypto;

/* What the threads share, and what each has. */
typedef struct peer_caller {
  table *table;
  counted *counted;
  crypto crypto;
  bench_caller *caller;
} peer_caller;

/* ------------------------------------------------------------------------------------------------------- the loops */

static fl_status run_mutex(void *context, long n) {
  peer_caller *c = context;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    pthread_mutex_lock(&c->table->mutex);
    fl_kernel_fn fn = find(c->table, c->caller->name)->fn;
    pthread_mutex_unlock(&c->table->mutex);
    status |= fn(NULL, &c->caller->call);
  }
  return status;
}

static fl_status run_rwlock(void *context, long n) {
  peer_caller *c = context;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    pthread_rwlock_rdlock(&c->table->rwlock);
    fl_kernel_fn fn = find(c->table, c->caller->name)->fn;
    pthread_rwlock_unlock(&c->table->rwlock);
    status |= fn(NULL, &c->caller->call);
  }
  return status;
}

static fl_status run_counted(void *context, long n) {
  peer_caller *c = context;
  counted *handle = c->counted;
  fl_status status = FL_OK;
  for (long i = 0; i < n; i++) {
    atomic_fetch_add_explicit(&handle->holders, 1, memory_order_relaxed);
    status |= handle->fn(NULL, &c->caller->call);
    atomic_fetch_sub_explicit(&handle->holders, 1, memory_order_release);
  }
  return status;
}

static fl_status run_fetch(void *context, long n) {
  peer_caller *c = context;
  for (long i = 0; i < n; i++) {
    void *digest = c->crypto.fetch(NULL, "SHA2-256", NULL);
    if (!digest)
      return FL_EINTERNAL;
    c->crypto.release(digest);
  }
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------- the peers */

/* Finds a function as the type that the pointer has. */
static bool find_symbol(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

/* Not closed: the library has threads' destructors. */
static bool open_crypto(bench *b, crypto *functions) {
  const char *(*version)(int);
  void *library = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    bench_note_cost(b, COST_OPENSSL, "absent: libcrypto.so.3 is not on this machine");
    return false;
  }
  if (!find_symbol(library, "EVP_MD_fetch", &functions->fetch) ||
      !find_symbol(library, "EVP_MD_free", &functions->release)) {
    bench_note_cost(b, COST_OPENSSL, "absent: libcrypto.so.3 has no EVP_MD_fetch");
    return false;
  }
  if (find_symbol(library, "OpenSSL_version", &version))
    bench_note_cost(b, COST_OPENSSL, "%s", version(0));
  return true;
}

static void fill_table(table *t) {
  pthread_mutex_init(&t->mutex, NULL);
  pthread_rwlock_init(&t->rwlock, NULL);
  for (int i = 0; i < NAMES; i++) {
    char name[sizeof t->places[0].name];
    snprintf(name, sizeof name, "bench_op_%d", i);
    struct place *place = find(t, name);
    memcpy(place->name, name, sizeof name);
    place->fn = bench_nothing;
  }
}

fl_status bench_peers(bench *b) {
  static const struct {
    bench_cost cost;
    fl_status (*run)(void *context, long n);
  } peers[] = {{COST_REFCOUNT, run_counted}, {COST_MUTEX, run_mutex}, {COST_RWLOCK, run_rwlock}};
  fl_host *host = NULL;
  table *names = calloc(1, sizeof *names);
  counted handle = {1, bench_nothing};
  bench_caller *callers = aligned_alloc(_Alignof(bench_caller), 2 * sizeof *callers);
  fl_status status = names && callers ? bench_host(0, "ERROR", &host) : FL_ENOMEM;
  if (!status)
    status = bench_op(host, "bench_op_7");
  if (status)
    goto out;
  fill_table(names);
  peer_caller contexts[2] = {{.table = names, .counted = &handle, .caller = &callers[0]},
                             {.table = names, .counted = &handle, .caller = &callers[1]}};
  for (int i = 0; i < 2; i++)
    bench_caller_init(&callers[i], host, "bench_op_7");
  for (size_t i = 0; i < sizeof peers / sizeof peers[0] && !status; i++) {
    const bench_way way = {.run = peers[i].run, .context = &contexts[0], .second_context = &contexts[1]};
    status = bench_row_scaling(b, BENCH_ROWS, peers[i].cost, &way);
  }
  if (!status && open_crypto(b, &contexts[0].crypto)) {
    contexts[1].crypto = contexts[0].crypto;
    const bench_way way = {.run = run_fetch, .context = &contexts[0], .second_context = &contexts[1]};
    status = bench_row_scaling(b, BENCH_ROWS, COST_OPENSSL, &way);
  }
  pthread_mutex_destroy(&names->mutex);
  pthread_rwlock_destroy(&names->rwlock);
out:
  fl_host_destroy(host);
  free(names);
  free(callers);
  return status;
}

/* ---------------------------------------------------------------------------------------------------------- Python */

/* [{"name": "Python", "note": why}] */
static json_t *no_python(const char *why) {
  return json_pack("[{s:s, s:n, s:s}]", "name", "Python", "ns", "note", why);
}

json_t *bench_python_peers(const bench *b) {
  json_error_t error;
  const char *python = getenv("PYTHON");
  char command[512];
  snprintf(command, sizeof command, "%s bench/peers.py%s 2>/dev/null", python ? python : "python3",
           b->quick ? " --quick" : "");
  FILE *from = popen(command, "r");
  json_t *peers = from ? json_loadf(from, JSON_DISABLE_EOF_CHECK, &error) : NULL;
  if (from && (pclose(from) || !json_is_array(peers))) {
    json_decref(peers);
    peers = NULL;
  }
  return peers ? peers : no_python("absent: python3 did not run bench/peers.py");
}
