/*
 * Two ways to do a thing beside each other, on one thread and on two: the samples of cli/bench/measure.h as pairs. A
 * figure is the median over the rounds of the difference or ratio of the pair, beside it that of the two least samples.
 */
#ifndef FLHOST_BENCH_MEASURE_H
#define FLHOST_BENCH_MEASURE_H

#include "cli/bench/measure.h"

/* Two ways beside each other; nanoseconds for one time of each. */
typedef struct bench_pair {
  bench_spread subject, baseline;
  bench_spread difference; /* subject - baseline: median of the rounds; of the two minima */
  bench_spread ratio;      /* subject / baseline, likewise */
} bench_pair;

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
