/* The host that a process shares. */
#include "core/host/default_host.h"

#include "core/support.h"

#include <pthread.h>
#include <stdatomic.h>

/* Held while it is created, so that it is created once; a library that a plugin needs may ask for it meanwhile. */
static pthread_mutex_t default_lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static _Atomic(fl_host *) default_host;

static bool lock_default(const char *who) {
  if (!pthread_mutex_lock(&default_lock))
    return true;
  fl_error(FL_ESTATE,
           "%s: this thread is about to create or destroy the default host, and one of its plugins asks for it", who);
  return false;
}

static void unlock_default(const bool *locked) {
  if (*locked)
    pthread_mutex_unlock(&default_lock);
}

fl_host *fl_default_host(void) {
  fl_host *host = atomic_load_explicit(&default_host, memory_order_acquire);
  if (host)
    return host;
  /* Also when a plugin throws. */
  __attribute__((cleanup(unlock_default))) bool locked = lock_default("fl_default_host");
  if (!locked)
    return NULL;
  host = atomic_load_explicit(&default_host, memory_order_relaxed);
  if (!host && !fl_host_create(NULL, &host))
    atomic_store_explicit(&default_host, host, memory_order_release);
  return host;
}

fl_status fl_create_default_host(const fl_host_options *options) {
  if (!lock_default("fl_create_default_host"))
    return FL_ESTATE;
  fl_host *host = atomic_load_explicit(&default_host, memory_order_relaxed);
  fl_status status = host ? fl_error(FL_EEXIST, "fl_create_default_host: the process has a default host already; "
                                                "options are for who uses it first")
                          : fl_host_create(options, &host);
  if (!status)
    atomic_store_explicit(&default_host, host, memory_order_release);
  pthread_mutex_unlock(&default_lock);
  return status;
}

void fl_reset_default_host(void) {
  if (!lock_default("fl_reset_default_host"))
    return;
  fl_host_destroy(atomic_exchange(&default_host, NULL));
  pthread_mutex_unlock(&default_lock);
}

fl_host *fl_get_default_manager(void) {
  return fl_default_host();
}

void fl_reset_default_manager(void) {
  fl_reset_default_host();
}

void fl_default_after_fork(void) {
  default_lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
}
