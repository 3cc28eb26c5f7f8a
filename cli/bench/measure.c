/* Taking time: see measure.h. */
#include "cli/bench/measure.h"
#include "cli/trials/clock.h"

#include <stdlib.h>

double bench_now(void) {
  return seconds_now() * 1e9;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

bench_spread bench_spread_of(double *samples, int n) {
  qsort(samples, (size_t)n, sizeof *samples, compare);
  return (bench_spread){(samples[(n - 1) / 2] + samples[n / 2]) / 2, samples[0]};
}

fl_status bench_sample(const bench_way *way, long n, double *ns) {
  fl_status status = way->enter ? way->enter(way->context) : FL_OK;
  if (status)
    return status;
  double start = bench_now();
  status = way->time ? way->time(way->context, n, ns) : way->run(way->context, n);
  if (!way->time)
    *ns = (bench_now() - start) / (double)n;
  fl_status left = way->leave ? way->leave(way->context) : FL_OK;
  return status ? status : left;
}

fl_status bench_calibrate(const bench_effort *effort, const bench_way *way, double length, long *n) {
  double ns = 0; /* of a call that fails nothing is known */
  fl_status status = effort->warm_up ? bench_sample(way, effort->warm_up, &ns) : FL_OK;
  for (*n = 1; !status && *n < 1L << 30; *n *= 2) {
    status = bench_sample(way, *n, &ns);
    if (!(ns * (double)*n < length))
      break;
  }
  return status;
}

fl_status bench_turns(const bench_effort *effort, const bench_way *ways, int n_ways, double *samples, int *rounds) {
  long *n = malloc((size_t)n_ways * sizeof *n);
  double end = bench_now() + effort->seconds * 1e9;
  fl_status status = n ? FL_OK : FL_ENOMEM;
  for (int i = 0; i < n_ways && !status; i++)
    status = bench_calibrate(effort, &ways[i], effort->sample_ns, &n[i]);
  for (*rounds = 0; !status && *rounds < effort->rounds && (*rounds < BENCH_FEWEST_ROUNDS || bench_now() < end);
       ++*rounds)
    for (int i = 0; i < n_ways && !status; i++) {
      int way = (*rounds + i) % n_ways;
      status = bench_sample(&ways[way], n[way], &samples[way * effort->rounds + *rounds]);
    }
  free(n);
  return status;
}
