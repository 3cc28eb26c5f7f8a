/* Taking time: see measure.h. */
#include "bench/dispatch/measure.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { MAX_PROCESSORS = 2 };

static int processors[MAX_PROCESSORS], n_processors;

bool bench_pair_of(double *subject, double *baseline, int n, bench_pair *pair) {
  double *differences = malloc((size_t)n * sizeof *differences), *ratios = malloc((size_t)n * sizeof *ratios);
  bool done = differences && ratios;
  for (int i = 0; i < n && done; i++) {
    differences[i] = subject[i] - baseline[i];
    ratios[i] = subject[i] / baseline[i];
  }
  if (done) {
    pair->difference = bench_spread_of(differences, n);
    pair->ratio = bench_spread_of(ratios, n);
    pair->subject = bench_spread_of(subject, n);
    pair->baseline = bench_spread_of(baseline, n);
    pair->difference.minimum = pair->subject.minimum - pair->baseline.minimum;
    pair->ratio.minimum = pair->subject.minimum / pair->baseline.minimum;
  }
  free(differences);
  free(ratios);
  return done;
}

/* --------------------------------------------------------------------------------------------------- processors */

/* Two processors with the same number here are one core's. */
static int core_of(int processor) {
  char path[96];
  int core = processor;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", processor);
  FILE *file = fopen(path, "re");
  if (file) {
    if (fscanf(file, "%d", &core) != 1)
      core = processor;
    fclose(file);
  }
  return core;
}

/* False where that is not allowed; then the kernel places the thread. */
static bool pin_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return !sched_setaffinity(0, sizeof set, &set);
}

int bench_pin(void) {
  cpu_set_t allowed;
  int other = -1;
  n_processors = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed))
    return n_processors = 1;
  for (int i = 0; i < CPU_SETSIZE && n_processors < MAX_PROCESSORS; i++) {
    if (!CPU_ISSET(i, &allowed))
      continue;
    if (!n_processors || core_of(i) != core_of(processors[0]))
      processors[n_processors++] = i;
    else if (other < 0)
      other = i; /* of the same core: only if there is no better */
  }
  if (n_processors == 1 && other >= 0)
    processors[n_processors++] = other;
  if (n_processors)
    pin_to(processors[0]);
  return n_processors;
}

/* ------------------------------------------------------------------------------------------------ on one thread */

fl_status bench_compare(const bench_effort *effort, const bench_way *subject, const bench_way *baseline,
                        bench_pair *pair) {
  const bench_way ways[] = {*baseline, *subject};
  double *samples = malloc(2 * (size_t)effort->rounds * sizeof *samples);
  int rounds;
  fl_status status = samples ? bench_turns(effort, ways, 2, samples, &rounds) : FL_ENOMEM;
  if (!status && !bench_pair_of(samples + effort->rounds, samples, rounds, pair))
    status = FL_ENOMEM;
  free(samples);
  return status;
}

fl_status bench_alone(const bench_effort *effort, const bench_way *way, bench_spread *spread) {
  double *samples = malloc((size_t)effort->rounds * sizeof *samples);
  int rounds;
  fl_status status = samples ? bench_turns(effort, way, 1, samples, &rounds) : FL_ENOMEM;
  if (!status)
    *spread = bench_spread_of(samples, rounds);
  free(samples);
  return status;
}

/* ------------------------------------------------------------------------------------------------ on two threads */

/* The second thread. It spins between the samples, so that both start within some ten nanoseconds. */
typedef struct helper {
  const bench_way *way;
  long n;
  atomic_int asked, ready, done; /* numbers of samples; asked < 0: end */
  fl_status status;
  double end;
} helper;

/* Gives up the processor now and then, for machines that have no other to run on. */
static void spin_until(const atomic_int *number, int wanted) {
  for (unsigned i = 1; atomic_load_explicit(number, memory_order_acquire) != wanted; i++)
    if (!(i % 4096))
      sched_yield();
}

static void *help(void *argument) {
  helper *h = argument;
  void *context = h->way->second_context ? h->way->second_context : h->way->context;
  if (n_processors > 1)
    pin_to(processors[1]);
  for (int turn = 1, asked;; turn++) {
    for (unsigned i = 1; (asked = atomic_load_explicit(&h->asked, memory_order_acquire)) != turn && asked >= 0; i++)
      if (!(i % 4096))
        sched_yield();
    if (asked < 0)
      return NULL;
    atomic_store_explicit(&h->ready, turn, memory_order_release);
    h->status = h->way->run(context, h->n);
    h->end = bench_now();
    atomic_store_explicit(&h->done, turn, memory_order_release);
  }
}

/* Both threads run `n` times at once; nanoseconds for one of the 2n times. */
static fl_status sample_both(helper *h, int turn, double *ns) {
  atomic_store_explicit(&h->asked, turn, memory_order_release);
  spin_until(&h->ready, turn);
  double start = bench_now();
  fl_status status = h->way->run(h->way->context, h->n);
  double end = bench_now();
  spin_until(&h->done, turn);
  *ns = ((end > h->end ? end : h->end) - start) / (2 * (double)h->n);
  return status ? status : h->status;
}

fl_status bench_scaling(const bench_effort *effort, const bench_way *way, bench_pair *pair) {
  double *both = malloc((size_t)effort->rounds * sizeof *both), *alone = malloc((size_t)effort->rounds * sizeof *alone);
  helper h = {.way = way};
  pthread_t thread;
  double warm;
  int round = 0;
  fl_status status = both && alone ? bench_calibrate(effort, way, effort->parallel_ns, &h.n) : FL_ENOMEM;
  if (!status && pthread_create(&thread, NULL, help, &h))
    status = FL_ENOMEM;
  if (status)
    goto out;
  double end = bench_now() + effort->seconds * 1e9;
  status = sample_both(&h, 1, &warm);
  for (; !status && round < effort->rounds && (round < BENCH_FEWEST_ROUNDS || bench_now() < end); round++) {
    status = bench_sample(way, h.n, &alone[round]);
    if (!status)
      status = sample_both(&h, round + 2, &both[round]);
  }
  atomic_store_explicit(&h.asked, -1, memory_order_release);
  pthread_join(thread, NULL);
  if (!status && !bench_pair_of(alone, both, round, pair))
    status = FL_ENOMEM;
  if (!status) { /* the ratio is alone / both; what both need is the subject */
    bench_spread spread = pair->subject;
    pair->subject = pair->baseline;
    pair->baseline = spread;
    pair->difference = (bench_spread){-pair->difference.median, -pair->difference.minimum};
  }
out:
  free(both);
  free(alone);
  return status;
}
