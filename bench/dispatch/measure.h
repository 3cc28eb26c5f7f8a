/*
 * How the benchmark takes time: short samples of two ways to do a thing, in turn, for many rounds, so that whatever
 * else the machine does falls on both alike. A figure is the median over the rounds of the difference or ratio of the
 * pair, beside it that of the two least samples.
 */
#ifndef FLHOST_BENCH_MEASURE_H
#define FLHOST_BENCH_MEASURE_H

#include <flhost/flhost.h>

/* How much is measured. */
typedef struct bench_effort {
  int rounds;         /* of a pair, at most */
  double seconds;     /* of a pair, at most, once a few rounds are made */
  double sample_ns;   /* length of a sample on one thread */
  double parallel_ns; /* on two: long beside the time in which they start */
} bench_effort;

/* One way to do something `n` times. */
typedef struct bench_way {
  fl_status (*run)(void *context, long n);
  void *context;
  void *second_context;              /* of the second thread; NULL: it shares the first's */
  fl_status (*enter)(void *context); /* before and after each sample, not timed; NULL: nothing */
  fl_status (*leave)(void *context);
} bench_way;

/* Over the rounds. */
typedef struct bench_spread {
  double median, minimum;
} bench_spread;

/* Two ways beside each other; nanoseconds for one time of each. */
typedef struct bench_pair {
  bench_spread subject, baseline;
  bench_spread difference; /* subject - baseline: median of the rounds; of the two minima */
  bench_spread ratio;      /* subject / baseline, likewise */
} bench_pair;

double bench_now(void); /* nanoseconds */

/* Sorts the samples. */
bench_spread bench_spread_of(double *samples, int n);

/* From samples that belong together; sorts them. False: out of memory. */
bool bench_pair_of(double *subject, double *baseline, int n, bench_pair *pair);

/* Chooses the processors and binds this thread to the first of them; how many there are, at most 2. */
int bench_pin(void);

/* FL_OK, or what one of the ways returned. */
fl_status bench_compare(const bench_effort *effort, const bench_way *subject, const bench_way *baseline,
                        bench_pair *pair);

/* The same way on one thread and on two at once: what a time takes on one, and what two threads together need for one.
 * `ratio` is their throughput over that of one thread. Two processors are needed. */
fl_status bench_scaling(const bench_effort *effort, const bench_way *way, bench_pair *pair);

/* One way by itself, on one thread. */
fl_status bench_alone(const bench_effort *effort, const bench_way *way, bench_spread *spread);

#endif
