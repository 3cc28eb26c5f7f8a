/* The handler of guard pages: see touch.h. */
#include "core/guard/touch.h"

#include "core/support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WATCHES = 1024 };

/* One piece of memory. Filled by its owner before `begin` is set; the handler of any thread reads it. */
typedef struct watch {
  _Atomic bool taken;
  _Atomic uintptr_t begin; /* of the map; 0: nothing is watched */
  _Atomic uintptr_t end;
  _Atomic uintptr_t touched; /* the address; 0: none */
  fl_watched_memory memory;
} watch;

/* The process's, as signals are. */
static watch watches[WATCHES];
static struct sigaction before;

/* -------------------------------------------------------------------------------------------- in the signal handler */

/* A line that is put together without anything that takes a lock or memory. */
typedef struct line {
  char text[640];
  size_t length;
} line;

static void add(line *to, const char *text) {
  while (*text && to->length < sizeof to->text - 1)
    to->text[to->length++] = *text++;
}

static void add_number(line *to, size_t number) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = 0;
  do
    digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  add(to, digits + at);
}

static void report(const watch *w, uintptr_t address) {
  line text = {.length = 0};
  uintptr_t first = (uintptr_t)w->memory.first;
  bool is_before = address < first, is_behind = address >= first + w->memory.span;
  add(&text, "flhost: guarded mode: ");
  add(&text, w->memory.what);
  add(&text, is_before || is_behind ? ": touched " : ": an input, written at byte ");
  add_number(&text, is_before ? first - address : is_behind ? address - first - w->memory.span + 1 : address - first);
  add(&text, is_before ? " bytes before its beginning" : is_behind ? " bytes behind its end" : "");
  add(&text, "; the call's results are thrown away\n");
  if (write(STDERR_FILENO, text.text, text.length) < 0)
    return; /* nobody is left to tell */
}

static watch *find(uintptr_t address) {
  for (int i = 0; i < WATCHES; i++) {
    uintptr_t begin = atomic_load_explicit(&watches[i].begin, memory_order_acquire);
    if (begin && address >= begin && address < atomic_load_explicit(&watches[i].end, memory_order_relaxed))
      return &watches[i];
  }
  return NULL;
}

/* The whole side: who is out by one is often out by many. */
static bool open_pages(const watch *w, uintptr_t address) {
  const fl_watched_memory *memory = &w->memory;
  char *begin = memory->inside;
  size_t size = memory->inside_size;
  if (address < (uintptr_t)memory->inside) {
    begin = memory->map;
    size = (size_t)(memory->inside - memory->map);
  } else if (address >= (uintptr_t)memory->inside + memory->inside_size) {
    begin = memory->inside + memory->inside_size;
    size = (size_t)(memory->map + memory->size - begin);
  }
  return !mprotect(begin, size, PROT_READ | PROT_WRITE);
}

static void hand_on(int number, siginfo_t *info, void *context) {
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    /* The instruction faults again, and ends the process where it went wrong. */
    struct sigaction plain = {.sa_handler = SIG_DFL};
    sigaction(number, &plain, NULL);
    if (info->si_code <= 0) /* sent by somebody, not by an instruction */
      raise(number);
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  int error = errno;
  uintptr_t address = (uintptr_t)info->si_addr, none = 0;
  watch *w = info->si_code == SEGV_ACCERR ? find(address) : NULL;
  if (w && atomic_compare_exchange_strong(&w->touched, &none, address))
    report(w, address);
  if (!w || !open_pages(w, address))
    hand_on(number, info, context);
  errno = error;
}

/* --------------------------------------------------------------------------------------------------------- outside */

static void install(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
  action.sa_sigaction = on_fault;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
}

int fl_touch_watch(const fl_watched_memory *memory) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
  for (int i = 0; i < WATCHES; i++) {
    watch *w = &watches[i];
    if (atomic_exchange_explicit(&w->taken, true, memory_order_acquire))
      continue;
    w->memory = *memory;
    atomic_store_explicit(&w->touched, 0, memory_order_relaxed);
    atomic_store_explicit(&w->end, (uintptr_t)memory->map + memory->size, memory_order_relaxed);
    atomic_store_explicit(&w->begin, (uintptr_t)memory->map, memory_order_release);
    return i;
  }
  return -1;
}

bool fl_touch_look(int number, ptrdiff_t *byte) {
  uintptr_t touched = number < 0 ? 0 : atomic_load_explicit(&watches[number].touched, memory_order_acquire);
  if (touched)
    *byte = (ptrdiff_t)(touched - (uintptr_t)watches[number].memory.first);
  return touched;
}

void fl_touch_release(int number) {
  if (number < 0)
    return;
  atomic_store_explicit(&watches[number].begin, 0, memory_order_release);
  atomic_store_explicit(&watches[number].taken, false, memory_order_release);
}
