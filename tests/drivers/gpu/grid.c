/* Grids on the CPU: see grid.h. GRID_WARP is the number of threads of a warp. */
#include "tests/drivers/gpu/grid.h"
#include "tests/drivers/gpu/coroutine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_THREADS = 1024, MOST_SHARED = 227 << 10, LANE_BYTES = 8 };

/* Where threads wait for each other. */
typedef struct meeting {
  unsigned expected, arrived; /* of those that have not ended */
  unsigned round;
} meeting;

typedef struct warp {
  meeting exchange;
  char values[2][GRID_WARP][LANE_BYTES]; /* of this round and of the one before */
  unsigned given[2][GRID_WARP];          /* in which round, counted from 1 */
} warp;

typedef struct worker {
  grid_thread self;   /* first: grid_self points here */
  coroutine *routine; /* NULL: not begun, or ended */
  bool ended;
  struct warp *warp;
  const meeting *at; /* waits there, or NULL */
  unsigned round;
  struct block *block;
} worker;

typedef struct block {
  const grid_kernel *kernel;
  const void *arguments;
  meeting barrier;
  unsigned n;
  bool backwards;
  worker *workers;
  warp *warps;
  coroutine **idle; /* stacks that nobody uses */
  unsigned n_idle;
  const char *trouble;
} block;

__thread grid_thread *grid_self;

/* ---------------------------------------------------------------------------------------------------- meetings */

static bool is_complete(meeting *m) {
  if (m->arrived < m->expected)
    return false;
  m->arrived = 0;
  m->round++;
  return true;
}

static void meet(worker *w, meeting *m) {
  unsigned round = m->round;
  m->arrived++;
  if (is_complete(m))
    return;
  w->at = m;
  w->round = round;
  coroutine_yield(w->routine);
}

static void stay_away(meeting *m) {
  m->expected--;
  if (m->expected)
    is_complete(m);
}

void grid_barrier(void) {
  worker *w = (worker *)grid_self;
  meet(w, &w->block->barrier);
}

void grid_exchange(void *value, size_t size, unsigned lane, unsigned from) {
  worker *w = (worker *)grid_self;
  unsigned round = w->warp->exchange.round, turn = round % 2;
  memcpy(w->warp->values[turn][lane], value, size);
  w->warp->given[turn][lane] = round + 1;
  meet(w, &w->warp->exchange);
  if (from >= GRID_WARP)
    return;
  if (w->warp->given[turn][from] != round + 1)
    w->block->trouble = "a shuffle reads a lane that is not there";
  memcpy(value, w->warp->values[turn][from], size);
}

/* ------------------------------------------------------------------------------------------------------ a block */

static void run_worker(void *argument) {
  worker *w = argument;
  w->block->kernel->run(w->block->arguments);
}

/* Few stacks serve a block whose threads never wait. */
static coroutine *take_routine(block *b) {
  return b->n_idle ? b->idle[--b->n_idle] : coroutine_create(run_worker);
}

/* Until it waits or ends. */
static bool advance(worker *w) {
  block *b = w->block;
  bool begun = w->routine != NULL;
  if (!begun && !(w->routine = take_routine(b))) {
    b->trouble = "out of memory";
    return false;
  }
  grid_self = &w->self;
  w->at = NULL;
  if (!(begun ? coroutine_resume(w->routine) : coroutine_start(w->routine, w)))
    return true;
  w->ended = true;
  b->idle[b->n_idle++] = w->routine;
  w->routine = NULL;
  stay_away(&w->warp->exchange);
  stay_away(&b->barrier);
  return true;
}

static bool run_block(block *b) {
  unsigned left = b->n;
  while (left) {
    bool moved = false;
    for (unsigned i = 0; i < b->n; i++) {
      worker *w = &b->workers[b->backwards ? b->n - 1 - i : i];
      if (w->ended || (w->at && w->at->round == w->round))
        continue;
      if (!advance(w))
        return false;
      left -= w->ended;
      moved = true;
    }
    if (!moved) {
      b->trouble = "threads of a block wait for each other for ever";
      return false;
    }
  }
  return !b->trouble;
}

static void set_up_block(block *b, grid_dimensions index, grid_dimensions grid, grid_dimensions size,
                         unsigned char *shared) {
  unsigned n_warps = (b->n + GRID_WARP - 1) / GRID_WARP;
  memset(b->warps, 0, n_warps * sizeof *b->warps);
  b->barrier = (meeting){.expected = b->n};
  for (unsigned i = 0; i < b->n; i++)
    b->warps[i / GRID_WARP].exchange.expected++;
  for (unsigned i = 0; i < b->n; i++)
    b->workers[i] = (worker){.self = {.thread = {i % size.x, i / size.x % size.y, i / size.x / size.y},
                                      .block = index,
                                      .block_size = size,
                                      .grid_size = grid,
                                      .shared = shared},
                             .warp = &b->warps[i / GRID_WARP],
                             .block = b};
}

/* ------------------------------------------------------------------------------------------------------- a grid */

static void free_block(block *b) {
  for (unsigned i = 0; i < b->n_idle; i++)
    coroutine_free(b->idle[i]);
  for (unsigned i = 0; b->workers && i < b->n; i++)
    coroutine_free(b->workers[i].routine); /* of one that waits for ever */
  free(b->idle);
  free(b->workers);
  free(b->warps);
}

static bool allocate_block(block *b) {
  b->workers = calloc(b->n, sizeof *b->workers);
  b->warps = calloc(b->n / GRID_WARP + 1, sizeof *b->warps);
  b->idle = calloc(b->n, sizeof(coroutine *));
  return b->workers && b->warps && b->idle;
}

/* Shared memory holds no zeros to begin with. */
static bool run_blocks(block *b, grid_dimensions grid, grid_dimensions size, unsigned char *shared, unsigned bytes) {
  grid_dimensions i;
  for (i.z = 0; i.z < grid.z; i.z++)
    for (i.y = 0; i.y < grid.y; i.y++)
      for (i.x = 0; i.x < grid.x; i.x++) {
        const grid_dimensions mirrored = {grid.x - 1 - i.x, grid.y - 1 - i.y, grid.z - 1 - i.z};
        memset(shared, 0xa5, bytes);
        set_up_block(b, b->backwards ? mirrored : i, grid, size, shared);
        if (!run_block(b))
          return false;
      }
  return true;
}

bool grid_run(const grid_kernel *kernel, const void *arguments, grid_dimensions grid, grid_dimensions size,
              unsigned shared, bool backwards, char *words, size_t words_size) {
  block b = {.kernel = kernel, .arguments = arguments, .n = size.x * size.y * size.z, .backwards = backwards};
  grid_thread *outer = grid_self;
  unsigned char *memory = NULL;
  bool good = false;
  if (!b.n || b.n > MOST_THREADS || b.n > kernel->most_threads || shared > MOST_SHARED || !grid.x || !grid.y ||
      !grid.z || grid.y > 65535 || grid.z > 65535) {
    b.trouble = "a block or grid of a size that no device has, or more threads than the kernel is for";
    goto out;
  }
  memory = aligned_alloc(16, (shared + 16u) / 16 * 16);
  if (!memory || !allocate_block(&b)) {
    b.trouble = "out of memory";
    goto out;
  }
  good = run_blocks(&b, grid, size, memory, shared);
out:
  if (!good)
    snprintf(words, words_size, "%s: %s", kernel->name, b.trouble);
  grid_self = outer;
  free_block(&b);
  free(memory);
  return good;
}

/* The linker makes these of the section that the kernels' entries are in. */
extern const grid_kernel *const __start_grid_kernels[], *const __stop_grid_kernels[];

const grid_kernel *grid_kernel_at(size_t i) {
  return i < (size_t)(__stop_grid_kernels - __start_grid_kernels) ? __start_grid_kernels[i] : NULL;
}

const grid_kernel *grid_find(const char *name) {
  for (const grid_kernel *const *k = __start_grid_kernels; k < __stop_grid_kernels; k++)
    if (!strcmp((*k)->name, name))
      return *k;
  return NULL;
}
