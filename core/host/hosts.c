/* The hosts of the process, so that fork finds them: see hosts.h. */
#include "core/host/hosts.h"

#include "core/call.h"
#include "core/host/default_host.h"
#include "core/support.h"

#include <stdlib.h>
#include <time.h>

/* Order, as fork takes them: this lock, each host's lock, those of threads. None is held while code of a plugin or of
 * the engine runs. */
static pthread_mutex_t hosts_lock = PTHREAD_MUTEX_INITIALIZER;
static fl_host *hosts;
static uint64_t last_number;

static void clear_counters(fl_impl_record *record) {
  fl_tally *tally = atomic_load(&record->tally);
  for (int i = 0; tally && i < FL_EVENTS; i++)
    atomic_store(&tally->events[i], 0);
}

/* What is left to a host in the child of a fork, where only this thread is. The host's lock is held. */
static void start_anew(fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    fl_op *op = host->ops[i];
    fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
    if (!host->frozen_by.n)
      fl_failures_clear_locked(op);
    for (uint32_t j = 0; set && j < set->n; j++)
      clear_counters(set->impls[j]);
  }
  /* Another thread may have been asking, or loading, when the process forked. */
  host->availability_lock = host->loading = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  host->loading_depth = 0;
  host->logging = 0;
  fl_views_after_fork(host);
  if (!host->frozen_by.n) /* else what is bound stays bound */
    fl_registry_advance(host);
}

static void fork_prepare(void) {
  pthread_mutex_lock(&hosts_lock);
  for (fl_host *host = hosts; host; host = host->next)
    pthread_mutex_lock(&host->lock);
}

static void fork_parent(void) {
  for (fl_host *host = hosts; host; host = host->next)
    pthread_mutex_unlock(&host->lock);
  pthread_mutex_unlock(&hosts_lock);
}

/* X1: runs after the handler of threads. */
static void fork_child(void) {
  fl_default_after_fork();
  for (fl_host *host = hosts; host; host = host->next) {
    start_anew(host);
    pthread_mutex_unlock(&host->lock);
  }
  pthread_mutex_unlock(&hosts_lock);
}

static void initialise(void) {
  fl_threads_start(); /* before our own handlers: fork locks in reverse order of registration */
  pthread_atfork(fork_prepare, fork_parent, fork_child);
}

void fl_hosts_add(fl_host *host) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, initialise);
  pthread_mutex_lock(&hosts_lock);
  host->number = ++last_number;
  host->next = hosts;
  hosts = host;
  pthread_mutex_unlock(&hosts_lock);
}

bool fl_hosts_remove(fl_host *host) {
  pthread_mutex_lock(&hosts_lock);
  for (fl_host **link = &hosts; *link; link = &(*link)->next)
    if (*link == host) {
      *link = host->next;
      break;
    }
  while (host->logging) {
    pthread_mutex_unlock(&hosts_lock);
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    pthread_mutex_lock(&hosts_lock);
  }
  bool was_last = !hosts;
  pthread_mutex_unlock(&hosts_lock);
  return was_last;
}

/* The host of a logger; NULL: it has ended. The lock is held. */
static fl_host *host_of(const fl_logger *logger) {
  fl_host *host = hosts;
  while (host && host->number != logger->host)
    host = host->next;
  return host;
}

void fl_hosts_log(const fl_logger *logger, int level, const char *message) {
  const fl_provider *provider = logger->plugin;
  pthread_mutex_lock(&hosts_lock);
  fl_host *host = host_of(logger);
  if (host)
    host->logging++; /* it stays while the engine's callback runs, which may itself use hosts */
  pthread_mutex_unlock(&hosts_lock);
  if (!host)
    return;
  fl_log_of_plugin(&host->log, level, provider->plugin, message);
  pthread_mutex_lock(&hosts_lock);
  if (host->logging) /* in the child of a fork nobody logs at first */
    host->logging--;
  pthread_mutex_unlock(&hosts_lock);
}
