/* The plugin's locks: see locks.h. */
#include "plugins/ascend/locks.h"

#include <stddef.h>

pthread_mutex_t ascend_locks[ASCEND_N_LOCKS] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static void (*of_plugin)(void); /* the same for what is not in the list */

/* What they guard is good without the thread that had one: it is done, or will be done again. */
static void free_locks(void) {
  for (int i = 0; i < ASCEND_N_LOCKS; i++)
    pthread_mutex_init(&ascend_locks[i], NULL);
  if (of_plugin)
    of_plugin();
}

static void guard_forks(void) {
  pthread_atfork(NULL, NULL, free_locks);
}

void ascend_guard_forks(void (*more)(void)) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  of_plugin = more;
  pthread_once(&once, guard_forks);
}
