/* Pools of device memory of the stand-in drivers, and host memory that devices reach: see work.h. */
#include "tests/drivers/gpu/work.h"

#include <pthread.h>
#include <stdlib.h>

enum { KEEPS = 4, HELD = 5, USED = 7, ALIGNMENT = 256, PAGE = 4096 };

typedef struct block {
  struct block *next;
  size_t size;
  bool used;
  void *memory;
} block;

typedef struct pool {
  struct pool *next;
  uint64_t keeps, used, held;
  block *blocks;
} pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pool *pools;

/* For the thread's device, and with no word that has no meaning. */
static bool is_sound(const gpu_pool_properties *p) {
  bool zero = !p->handles && !p->security;
  for (size_t i = 0; i < sizeof p->reserved; i++)
    zero &= !p->reserved[i];
  return zero && p->kind == 1 && p->place == 1 && p->ordinal == standin_device();
}

int standin_create_pool(void **made, const gpu_pool_properties *properties) {
  int code = STANDIN_BEGIN;
  standin_log("create pool %d", properties->ordinal);
  if (code || !is_sound(properties))
    return code ? code : STANDIN_INVALID_VALUE;
  pool *p = calloc(1, sizeof *p);
  if (!p)
    return STANDIN_OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  p->next = pools;
  pools = p;
  pthread_mutex_unlock(&lock);
  *made = p;
  return 0;
}

int standin_set_pool(void *to, int attribute, void *value) {
  int code = STANDIN_BEGIN;
  if (code || attribute != KEEPS)
    return code ? code : STANDIN_INVALID_VALUE;
  ((pool *)to)->keeps = *(const uint64_t *)value;
  return 0;
}

int standin_ask_pool(void *of, int attribute, void *value) {
  int code = STANDIN_BEGIN;
  if (code || (attribute != USED && attribute != HELD))
    return code ? code : STANDIN_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  *(uint64_t *)value = attribute == USED ? ((pool *)of)->used : ((pool *)of)->held;
  pthread_mutex_unlock(&lock);
  return 0;
}

/* Gives back what nobody uses, but for `keep` bytes. With the lock held. */
static void trim(pool *p, uint64_t keep) {
  for (block **place = &p->blocks; *place;) {
    block *b = *place;
    if (b->used || p->held <= keep) {
      place = &b->next;
      continue;
    }
    *place = b->next;
    p->held -= b->size;
    free(b->memory);
    free(b);
  }
}

int standin_trim_pool(void *of, size_t keep) {
  int code = STANDIN_BEGIN;
  if (code)
    return code;
  pthread_mutex_lock(&lock);
  trim(of, keep);
  pthread_mutex_unlock(&lock);
  return 0;
}

int standin_destroy_pool(void *of) {
  int code = STANDIN_BEGIN;
  pool **place = &pools;
  standin_log("destroy pool");
  pthread_mutex_lock(&lock);
  while (*place != of)
    place = &(*place)->next;
  *place = (*place)->next;
  trim(of, 0);
  pthread_mutex_unlock(&lock);
  free(of);
  return code;
}

static block *new_block(pool *p, size_t size) {
  block *b = calloc(1, sizeof *b);
  if (b)
    b->memory = aligned_alloc(ALIGNMENT, size);
  if (!b || !b->memory) {
    free(b);
    return NULL;
  }
  b->size = size;
  b->next = p->blocks;
  p->blocks = b;
  p->held += size;
  return b;
}

/* A graph has no memory of its own here. */
int standin_allocate_async(void **memory, size_t size, void *of, void *stream) {
  int code = STANDIN_BEGIN;
  pool *p = of;
  if (!code)
    code = standin_now().allocate;
  standin_log("allocate %zu stream %p", size, stream);
  if (code || !size || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_VALUE;
  if (standin_capture_ends(stream, false))
    return STANDIN_CAPTURE_UNSUPPORTED;
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  pthread_mutex_lock(&lock);
  block *b = p->blocks;
  while (b && (b->used || b->size != size))
    b = b->next;
  if (!b)
    b = new_block(p, size);
  if (b) {
    b->used = true;
    p->used += size;
    *memory = b->memory;
  }
  pthread_mutex_unlock(&lock);
  return b ? 0 : STANDIN_OUT_OF_MEMORY;
}

/* With the lock held. */
static block *find_block(const void *memory, pool **of) {
  for (*of = pools; *of; *of = (*of)->next)
    for (block *b = (*of)->blocks; b; b = b->next)
      if (b->memory == memory && b->used)
        return b;
  return NULL;
}

static int run_release(const standin_task *t) {
  pool *of;
  pthread_mutex_lock(&lock);
  block *b = find_block(*(void *const *)t->arguments, &of);
  if (b) {
    b->used = false;
    of->used -= b->size;
    if (of->held > of->keeps)
      trim(of, of->keeps);
  }
  pthread_mutex_unlock(&lock);
  return 0;
}

int standin_release_async(void *memory, void *stream) {
  int code = STANDIN_BEGIN;
  pool *of;
  pthread_mutex_lock(&lock);
  bool known = find_block(memory, &of);
  pthread_mutex_unlock(&lock);
  if (code || !known || !standin_is_here(stream))
    return code ? code : STANDIN_INVALID_VALUE;
  standin_task *t = standin_make_task(run_release, stream, sizeof memory);
  if (!t)
    return STANDIN_OUT_OF_MEMORY;
  *(void **)t->arguments = memory;
  return standin_queue_task(t);
}

/* ------------------------------------------------------------------------------------------------------ host memory */

int standin_allocate_host(void **memory, size_t size, unsigned flags) {
  int code = STANDIN_BEGIN;
  if (!code)
    code = standin_now().allocate;
  if (code || !size || flags != 1)
    return code ? code : STANDIN_INVALID_VALUE;
  *memory = aligned_alloc(PAGE, (size + PAGE - 1) / PAGE * PAGE);
  return *memory ? 0 : STANDIN_OUT_OF_MEMORY;
}

int standin_release_host(void *memory) {
  int code = STANDIN_BEGIN;
  free(memory);
  return code;
}
