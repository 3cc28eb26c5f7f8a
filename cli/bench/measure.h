/*
 * How benchmarks take time, `flhost bench` and those in bench/: short samples of several ways to do a thing, in turn,
 * for many rounds, so that whatever else the machine does falls on all alike. Figures are medians over the rounds.
 */
#ifndef FLHOST_CLI_BENCH_MEASURE_H
#define FLHOST_CLI_BENCH_MEASURE_H

#include <flhost/flhost.h>

/* How much is measured. */
typedef struct bench_effort {
  int rounds;         /* at most */
  double seconds;     /* at most, once a few rounds are made */
  double sample_ns;   /* length of a sample on one thread */
  double parallel_ns; /* on two: long beside the time in which they start */
  int warm_up;        /* times that do not count, which resolve and fault pages in */
} bench_effort;

/* One way to do something `n` times. */
typedef struct bench_way {
  fl_status (*run)(void *context, long n);
  void *context;
  void *second_context;              /* of a second thread; NULL: it shares the first's */
  fl_status (*enter)(void *context); /* before and after each sample, not timed; NULL: nothing */
  fl_status (*leave)(void *context);
  /* In place of `run`: it is done elsewhere, and the time taken there, in nanoseconds for one of n. NAN: not done. */
  fl_status (*time)(void *context, long n, double *ns);
} bench_way;

/* Over the rounds. */
typedef struct bench_spread {
  double median, minimum;
} bench_spread;

enum { BENCH_FEWEST_ROUNDS = 5 };

double bench_now(void); /* nanoseconds */

/* Sorts the samples. */
bench_spread bench_spread_of(double *samples, int n);

/* Nanoseconds for one of `n` times. */
fl_status bench_sample(const bench_way *way, long n, double *ns);

/* How many times make a sample of that length. */
fl_status bench_calibrate(const bench_effort *effort, const bench_way *way, double length, long *n);

/*
 * Samples n_ways ways, each round all of them once, the first one of the round being another each time. Sample `r` of
 * way `w`, in nanoseconds for one time, is samples[w * effort->rounds + r]. FL_OK, or what one of the ways returned.
 */
fl_status bench_turns(const bench_effort *effort, const bench_way *ways, int n_ways, double *samples, int *rounds);

#endif
