/*
 * For a long time, all that goes on in a server on a bad day: threads call real operators, in scopes and outside, while
 * policies change, implementations come, go and fail, others fork, open libraries and end with scopes open, and memory,
 * descriptors and processes run short again and again (tests/faults/inject.c, preloaded). `make soak` runs it.
 *
 *     soak [--seconds N] [--seed N]
 *
 * What must hold to the end: no result is wrong; a call fails only while something is short, or where its only
 * implementation does; what is counted adds up; memory stays flat; no descriptor is left open. Prints how often each
 * thing was done; the last line is "N passed, N failed".
 */
#include "tests/faults/inject.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <flhost/flhost.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#pragma weak inject_faults
#pragma weak end_of_faults

static _Atomic bool stop;
static fl_host *host;
static unsigned seed = 1;
static char plugin_file[512];

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static unsigned roll(unsigned *dice, unsigned sides) {
  *dice = *dice * 1103515245u + 12345u;
  return (*dice >> 16) % sides;
}

/* ---------------------------------------------------------------------------------------------------- the report */

enum { RESULTS, ERRORS, COUNTERS, FLAT, DESCRIPTORS, CHILDREN, N_PROMISES };
static struct {
  const char *text;
  _Atomic long looked;
  _Atomic bool broken;
} promises[N_PROMISES] = {
    [RESULTS] = {.text = "a result is right"},
    [ERRORS] = {.text = "a call fails only while something is short"},
    [COUNTERS] = {.text = "what is counted adds up"},
    [FLAT] = {.text = "memory stays flat"},
    [DESCRIPTORS] = {.text = "no descriptor is left open"},
    [CHILDREN] = {.text = "a child of a fork calls like its parent"},
};
enum { FAILED_CALLS, POLICIES, CAME_AND_WENT, LOOKS, FORKS, THREADS, SHORTAGES, REFUSED, N_COUNTS };
static struct {
  const char *text;
  _Atomic long n;
} counts[N_COUNTS] = {
    [FAILED_CALLS] = {.text = "calls that failed while something was short"},
    [POLICIES] = {.text = "policies set and reset"},
    [CAME_AND_WENT] = {.text = "plugins that came and went"},
    [LOOKS] = {.text = "explanations, snapshots, lists"},
    [FORKS] = {.text = "forks"},
    [THREADS] = {.text = "threads that ended with a scope open"},
    [SHORTAGES] = {.text = "shortages of memory, descriptors, processes"},
    [REFUSED] = {.text = "requests that these made fail"},
};

static void broken(int which, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void broken(int which, const char *format, ...) {
  va_list arguments;
  char text[1024];
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!atomic_exchange(&promises[which].broken, true)) /* the first of each tells enough */
    fprintf(stderr, "broken: %s: %s\n", promises[which].text, text);
  stop = true;
}

static void count(int which) {
  atomic_fetch_add_explicit(&counts[which].n, 1, memory_order_relaxed);
}

/* -------------------------------------------------------------------------------------------------------- shortages */

/* Odd while something is short. */
static _Atomic unsigned shortage;

/* Was nothing short since `before`, which was read then? */
static bool had_plenty(unsigned before) {
  return !(before & 1) && atomic_load(&shortage) == before;
}

/* What a request may end with. */
static void expect_done(fl_status status, unsigned before, const char *what) {
  if (!status)
    return;
  count(REFUSED);
  if (had_plenty(before) && status != FL_ESTATE)
    broken(ERRORS, "%s: %s: %s", what, fl_status_name(status), fl_error_message());
}

static void *run_short(void *unused) {
  static const fault_kind kinds[] = {FAULT_MEMORY, FAULT_MEMORY,      FAULT_DESCRIPTORS, FAULT_PROCESSES,
                                     FAULT_READ,   FAULT_INTERRUPTED, FAULT_SHORT};
  unsigned dice = seed * 7;
  (void)unused;
  while (!stop) {
    pause_ms(40);
    unsigned first = roll(&dice, 30), n = 1 + roll(&dice, 10);
    atomic_fetch_add(&shortage, 1);
    inject_faults(kinds[roll(&dice, sizeof kinds / sizeof *kinds)], first, first + n);
    pause_ms(10);
    end_of_faults();
    pause_ms(2); /* who was refused has noticed */
    atomic_fetch_add(&shortage, 1);
    count(SHORTAGES);
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

enum { ROWS = 4, WIDTH = 32, N_OPS = 3 };

typedef struct operands {
  float x[ROWS][2 * WIDTH], out[ROWS][2 * WIDTH], weight[WIDTH];
  int64_t wide[2], narrow[2], row[1];
  DLTensor dl[3];
  fl_value values[7];
} operands;

static const char *const op_names[N_OPS] = {"silu_and_mul", "rms_norm", "unsteady"};
static fl_op *ops[N_OPS];
static _Atomic long calls_done[N_OPS];

static DLTensor tensor(void *data, int32_t ndim, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = {kDLFloat, 32, 1}, .shape = shape};
}

/* A call of the op on numbers of that round. */
static fl_call make_call(int op, unsigned round, operands *t) {
  *t = (operands){.wide = {ROWS, 2 * WIDTH}, .narrow = {ROWS, WIDTH}, .row = {WIDTH}};
  float *x = &t->x[0][0];
  for (int i = 0; i < ROWS * (op == 0 ? 2 : 1) * WIDTH; i++)
    x[i] = (float)((int)((unsigned)i * 37u + round * 11u) % 41 - 20) / 8;
  for (int i = 0; i < WIDTH; i++)
    t->weight[i] = 1.0f + (float)(i % 5);
  t->dl[0] = tensor(x, 2, op == 0 ? t->wide : t->narrow);
  t->dl[1] = tensor(t->out, 2, t->narrow);
  t->dl[2] = tensor(t->weight, 1, t->row);
  if (op != 1) {
    t->values[0] = fl_tensor(&t->dl[0]);
    t->values[1] = fl_tensor(&t->dl[1]);
    return (fl_call){.size = sizeof(fl_call), .count = 2, .values = t->values};
  }
  const fl_value values[] = {fl_tensor(&t->dl[0]), fl_none(), fl_tensor(&t->dl[2]), fl_float(1e-6), fl_none(),
                             fl_tensor(&t->dl[1]), fl_none()};
  memcpy(t->values, values, sizeof values);
  return (fl_call){.size = sizeof(fl_call), .count = 7, .values = t->values};
}

static double expected(int op, const operands *t, int row, int column) {
  const float *x = &t->x[0][0] + row * (op == 0 ? 2 : 1) * WIDTH;
  double value = (double)x[column], squares = 0;
  if (op == 0)
    return value / (1 + exp(-value)) * (double)x[WIDTH + column];
  if (op == 2)
    return value + 1;
  for (int i = 0; i < WIDTH; i++)
    squares += (double)x[i] * (double)x[i];
  return value / sqrt(squares / WIDTH + 1e-6) * (double)t->weight[column];
}

static bool is_right(int op, const operands *t) {
  const float *out = &t->out[0][0];
  for (int row = 0; row < ROWS; row++)
    for (int column = 0; column < WIDTH; column++) {
      double wanted = expected(op, t, row, column), got = (double)out[row * WIDTH + column];
      if (!(fabs(got - wanted) <= 1e-4 * (1 + fabs(wanted))))
        return false;
    }
  return true;
}

static void call_one(int op, unsigned round) {
  operands t;
  unsigned before = atomic_load(&shortage);
  fl_call call = make_call(op, round, &t);
  fl_status status = fl_invoke(ops[op], &call);
  if (status) {
    count(FAILED_CALLS);
    if (had_plenty(before))
      broken(ERRORS, "%s: %s: %s", op_names[op], fl_status_name(status), fl_error_message());
    return;
  }
  atomic_fetch_add_explicit(&calls_done[op], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&promises[RESULTS].looked, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&promises[ERRORS].looked, 1, memory_order_relaxed);
  if (!is_right(op, &t))
    broken(RESULTS, "%s, round %u", op_names[op], round);
}

static void *caller(void *number) {
  unsigned dice = seed + (unsigned)(uintptr_t)number;
  for (unsigned round = 0; !stop; round++)
    call_one((int)roll(&dice, N_OPS), round);
  return NULL;
}

static void *scoped_caller(void *unused) {
  unsigned dice = seed * 3;
  (void)unused;
  for (unsigned round = 0; !stop; round++) {
    fl_scope scope;
    unsigned before = atomic_load(&shortage);
    fl_status status = fl_scope_prefer(host, roll(&dice, 2) ? "reference" : "flagos", &scope);
    expect_done(status, before, "fl_scope_prefer");
    for (int i = 0; i < 20; i++)
      call_one((int)roll(&dice, N_OPS), round);
    if (!status)
      fl_scope_leave(&scope);
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------- implementations */

/* x + 1; as a default now and then fails. */
static fl_status unsteady(void *self, fl_call *call) {
  static _Atomic unsigned turn;
  const float *x = fl_data(call->values[0].v.tensor);
  float *out = fl_data(call->values[1].v.tensor);
  if (self && atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % 1000 == 999)
    return fl_fail(call, FL_EINTERNAL, "one in a thousand");
  for (int i = 0; i < ROWS * WIDTH; i++)
    out[i] = x[i] + 1;
  return FL_OK;
}

static fl_impl implementation(const char *op, const char *id, fl_kind kind, void *self) {
  return (fl_impl){.size = sizeof(fl_impl),
                   .op_name = op,
                   .impl_id = id,
                   .kind = kind,
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = unsteady,
                   .self = self};
}

/* Policies, and a plugin that comes and goes. */
static void *changer(void *unused) {
  unsigned dice = seed * 5;
  (void)unused;
  while (!stop) {
    unsigned before = atomic_load(&shortage);
    const char *const denied[] = {"acme"};
    fl_policy *policy = fl_get_policy(host), *derived = NULL;
    fl_status status = policy ? fl_policy_with_denied_vendors(policy, denied, roll(&dice, 2), &derived) : FL_ENOMEM;
    if (!status)
      status = fl_set_global_policy(host, derived);
    expect_done(status, before, "a policy");
    fl_policy_release(derived);
    fl_policy_release(policy);
    count(POLICIES);
    before = atomic_load(&shortage);
    if (!roll(&dice, 4))
      expect_done(fl_reset_global_policy(host), before, "fl_reset_global_policy");
    before = atomic_load(&shortage);
    expect_done(fl_load_plugin(host, plugin_file), before, "fl_load_plugin");
    before = atomic_load(&shortage);
    status = fl_withdraw_plugin(host, "good");
    expect_done(status == FL_ENOENT ? FL_OK : status, before, "fl_withdraw_plugin");
    if (!roll(&dice, 50))
      fl_clear_failed_impls(host, NULL);
    pause_ms(2);
    count(CAME_AND_WENT);
  }
  return NULL;
}

static void look_at_lists(void) {
  fl_explanation *why = NULL;
  fl_plugins *plugins = NULL;
  fl_settings *settings = NULL;
  unsigned before = atomic_load(&shortage);
  expect_done(fl_explain(host, "rms_norm", kDLCPU, &why), before, "fl_explain");
  fl_explanation_free(why);
  before = atomic_load(&shortage);
  expect_done(fl_get_discovered_plugins(host, &plugins), before, "fl_get_discovered_plugins");
  fl_plugins_free(plugins);
  before = atomic_load(&shortage);
  expect_done(fl_get_settings(host, &settings), before, "fl_get_settings");
  fl_settings_free(settings);
  fl_snapshot_release(fl_registry_snapshot(host));
  count(LOOKS);
}

/* Others use the dynamic linker, too. */
static void *looker(void *unused) {
  (void)unused;
  while (!stop) {
    look_at_lists();
    void *library = dlopen("libm.so.6", RTLD_NOW);
    if (library)
      dlclose(library);
    pause_ms(5);
  }
  return NULL;
}

/* --------------------------------------------------------------------------------------------------- forks, threads */

static void *end_in_a_scope(void *unused) {
  fl_scope scope;
  (void)unused;
  if (!fl_scope_prefer(host, "reference", &scope))
    call_one(0, 1);
  return NULL;
}

static void *forker(void *unused) {
  (void)unused;
  while (!stop) {
    pid_t child = fork();
    if (child == 0) {
      end_of_faults();
      atomic_store(&shortage, 0);
      alarm(30);
      for (int op = 0; op < N_OPS; op++)
        call_one(op, 3);
      _exit(promises[RESULTS].broken || promises[ERRORS].broken);
    }
    int status = 0;
    if (child > 0) {
      while (waitpid(child, &status, 0) < 0)
        ;
      count(FORKS);
      atomic_fetch_add(&promises[CHILDREN].looked, 1);
      if (status)
        broken(CHILDREN, "status 0x%x", (unsigned)status);
    }
    pthread_t thread;
    if (!pthread_create(&thread, NULL, end_in_a_scope, NULL)) {
      pthread_join(thread, NULL);
      count(THREADS);
    }
    pause_ms(100);
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------ at the end */

static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file) {
    if (fscanf(file, "%*s %ld", &pages) != 1)
      pages = 0;
    fclose(file);
  }
  return pages;
}

static int open_descriptors(void) {
  int n = 0;
  for (int i = 0; i < 1024; i++)
    n += fcntl(i, F_GETFD) >= 0;
  return n;
}

/* Each call that came back well ended in one implementation, once. */
static void add_up(int op) {
  fl_explanation *why = NULL;
  long ran = 0;
  if (fl_explain(host, op_names[op], kDLCPU, &why)) {
    broken(COUNTERS, "%s", fl_error_message());
    return;
  }
  const fl_explained *impl;
  for (uint32_t i = 0; (impl = fl_explained_at(why, i)); i++) {
    fl_counters counters = {.size = sizeof counters};
    if (!fl_get_counters(host, op_names[op], impl->impl_id, &counters))
      ran += (long)(counters.calls - counters.failures);
  }
  fl_explanation_free(why);
  atomic_fetch_add(&promises[COUNTERS].looked, 1);
  if (ran != calls_done[op])
    broken(COUNTERS, "%s: %ld calls came back, implementations ran %ld times", op_names[op], (long)calls_done[op], ran);
}

/* The most of the last half beside the most of the first, from a tenth of the time on. */
static void watch_memory(double seconds) {
  double start = now(), end = start + seconds;
  long early = 0, late = 0;
  for (double at; !stop && (at = now()) < end;) {
    pause_ms(200);
    long pages = resident();
    if (at > start + seconds / 10 && at < start + seconds / 2)
      early = pages > early ? pages : early;
    else if (at >= start + seconds / 2)
      late = pages > late ? pages : late;
    atomic_fetch_add(&promises[FLAT].looked, 1);
  }
  if (!stop && late > early + early / 20 + 1024)
    broken(FLAT, "%ld pages at most in the first half, %ld in the second", early, late);
  printf("%12ld  pages of memory at most in the first half, %ld in the second\n", early, late);
}

static void make_host(void) {
  static char path[512];
  const char *build = getenv("FLHOST_BUILD");
  char here[256];
  if (!getcwd(here, sizeof here))
    exit(2);
  snprintf(path, sizeof path, "VLLM_FL_PLUGIN_PATH=%s/%s/plugins", here, build ? build : "build");
  snprintf(plugin_file, sizeof plugin_file, "%s/%s/tests/plugins/good.so", here, build ? build : "build");
  static const char *environment[] = {path, "VLLM_FL_LOG_LEVEL=ERROR", "VLLM_FL_PLATFORM=cpu", NULL};
  fl_host_options options = {.size = sizeof options, .flags = FL_HOST_STATISTICS, .environment = environment};
  const fl_op_def def = {.size = sizeof def, .schema = "unsteady(Tensor x) -> Tensor out"};
  fl_impl steady = implementation("unsteady", "reference.steady", FL_KIND_REFERENCE, NULL),
          failing = implementation("unsteady", "default.unsteady", FL_KIND_DEFAULT, &host);
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = fl_register_op(host, &def);
  if (!status)
    status = fl_register_impl(host, &steady);
  if (!status)
    status = fl_register_impl(host, &failing);
  for (int op = 0; !status && op < N_OPS; op++)
    status = (ops[op] = fl_find_op(host, op_names[op])) ? FL_OK : FL_ENOENT;
  if (status) {
    fprintf(stderr, "soak: %s\n", fl_error_message());
    exit(2);
  }
}

static int report(void) {
  int good = 0;
  for (int i = 0; i < N_COUNTS; i++)
    printf("%12ld  %s\n", (long)counts[i].n, counts[i].text);
  for (int i = 0; i < N_PROMISES; i++) {
    bool held = !promises[i].broken && promises[i].looked;
    printf("%s %12ld times: %s\n",
           held                 ? "holds   "
           : promises[i].broken ? "BROKEN  "
                                : "NOT SEEN",
           (long)promises[i].looked, promises[i].text);
    good += held;
  }
  printf("%d passed, %d failed\n", good, N_PROMISES - good);
  return good == N_PROMISES ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"seconds", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'r'}, {0}};
  double seconds = 600;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == 's')
      seconds = atof(optarg);
    else if (option == 'r')
      seed = (unsigned)strtoul(optarg, NULL, 10);
    else
      return 2;
  }
  if (!inject_faults || !end_of_faults) {
    fputs("soak: libinject.so is not preloaded: make soak\n", stderr);
    return 2;
  }
  static void *(*const jobs[])(void *) = {caller, caller, scoped_caller, changer, looker, forker, run_short};
  enum { JOBS = sizeof jobs / sizeof *jobs };
  pthread_t threads[JOBS];
  printf("%g seconds, --seed %u\n", seconds, seed);
  fflush(stdout);
  make_host();
  for (int op = 0; op < N_OPS; op++)
    call_one(op, 0);
  look_at_lists();
  int open_before = open_descriptors();
  for (size_t i = 0; i < JOBS; i++)
    if (pthread_create(&threads[i], NULL, jobs[i], (void *)i))
      return 2;
  watch_memory(seconds);
  stop = true;
  for (size_t i = 0; i < JOBS; i++)
    pthread_join(threads[i], NULL);
  for (int op = 0; op < N_OPS; op++)
    add_up(op);
  atomic_fetch_add(&promises[DESCRIPTORS].looked, 1);
  if (open_descriptors() > open_before)
    broken(DESCRIPTORS, "%d were open, %d are", open_before, open_descriptors());
  fl_host_destroy(host);
  return report();
}
