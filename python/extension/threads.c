/* The threads of OpenMP's run-time library, which torch computes with, for kernels. */
#include "python/extension/core.h"

#include <flhost/threads.h>
#include <pthread.h>

/* Functions of that library, whichever of its implementations it is. Set before they are of use to anybody. */
static void (*_Atomic parallel)(void (*work)(void *data), void *data, unsigned n, unsigned flags);
static int (*_Atomic max_threads)(void);

static uint32_t count(void *none) {
  (void)none;
  int n = max_threads();
  return n > 0 ? (uint32_t)n : 1;
}

static void run(void *none, void (*work)(void *data), void *data, uint32_t n) {
  (void)none;
  parallel(work, data, n, 0);
}

/* The library's threads are not in a child, and it waits for them there. */
static void leave_in_child(void) {
  fl_use_thread_pool(NULL);
}

static void follow_forks(void) {
  pthread_atfork(NULL, NULL, leave_in_child);
}

/* Addresses of GOMP_parallel and omp_get_max_threads; 0: flhost's own threads. */
PyObject *fl_py_use_openmp(PyObject *module, PyObject *addresses) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const fl_thread_pool pool = {.size = sizeof pool, .count = count, .run = run};
  unsigned long long first, second;
  (void)module;
  if (!PyArg_ParseTuple(addresses, "KK", &first, &second))
    return NULL;
  if (first && second) {
    parallel = (void (*)(void (*)(void *), void *, unsigned, unsigned))(uintptr_t)first;
    max_threads = (int (*)(void))(uintptr_t)second;
    pthread_once(&once, follow_forks);
  }
  return fl_py_ok(fl_use_thread_pool(first && second ? &pool : NULL)) ? Py_NewRef(Py_None) : NULL;
}
