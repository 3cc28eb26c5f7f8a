/* Filling rows and costs with what was measured. */
#include "bench/dispatch/dispatch.h"

#include <math.h>

static bench_spread in_unit(bench_spread spread, double unit) {
  return (bench_spread){spread.median / unit, spread.minimum / unit};
}

static void set(bench *b, bench_row row, const bench_pair *pair, double unit, bench_spread value) {
  bench_result *result = &b->rows[row];
  result->measured = true;
  result->subject = in_unit(pair->subject, unit);
  result->baseline = in_unit(pair->baseline, unit);
  result->value = value;
}

void bench_set_difference(bench *b, bench_row row, const bench_pair *pair, double unit) {
  set(b, row, pair, unit, in_unit(pair->difference, unit));
}

void bench_set_ratio(bench *b, bench_row row, const bench_pair *pair, double unit) {
  set(b, row, pair, unit, pair->ratio);
}

void bench_set_absolute(bench *b, bench_row row, bench_spread value) {
  const bench_pair pair = {.subject = value, .baseline = {NAN, NAN}};
  set(b, row, &pair, 1, value);
}

void bench_note(bench *b, bench_row row, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(b->rows[row].note, sizeof b->rows[row].note, format, arguments);
  va_end(arguments);
}

void bench_note_cost(bench *b, bench_cost cost, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(b->costs[cost].note, sizeof b->costs[cost].note, format, arguments);
  va_end(arguments);
}

fl_status bench_row_compare(bench *b, bench_row row, const bench_way *subject, const bench_way *baseline) {
  bench_pair pair;
  fl_status status = bench_compare(&b->effort, subject, baseline, &pair);
  if (!status)
    bench_set_difference(b, row, &pair, 1);
  return status;
}

/* Without a second processor there is still what a call costs on one thread. */
static fl_status one_thread_only(bench *b, bench_row row, bench_cost cost, const bench_way *way) {
  fl_status status = FL_OK;
  if (row != BENCH_ROWS)
    bench_note(b, row, "there is one processor only");
  if (cost != BENCH_COSTS) {
    status = bench_alone(&b->effort, way, &b->costs[cost].one);
    b->costs[cost].measured = !status;
    bench_note_cost(b, cost, "there is one processor only");
  }
  return status;
}

fl_status bench_row_scaling(bench *b, bench_row row, bench_cost cost, const bench_way *way) {
  bench_pair pair;
  if (b->n_processors < 2)
    return one_thread_only(b, row, cost, way);
  fl_status status = bench_scaling(&b->effort, way, &pair);
  if (status)
    return status;
  if (row != BENCH_ROWS)
    bench_set_ratio(b, row, &pair, 1);
  if (cost != BENCH_COSTS) { /* a call costs each of two threads twice what both together need for one */
    b->costs[cost].measured = b->costs[cost].has_two = true;
    b->costs[cost].one = pair.baseline;
    b->costs[cost].two = (bench_spread){2 * pair.subject.median, 2 * pair.subject.minimum};
  }
  return FL_OK;
}
