/*
 * One implementation, calls that it passed, in ways that take longer: tensors that end, or begin, where memory does;
 * the same call a thousand times; two threads with different data. Whatever a call leaves behind adds up meanwhile.
 */
#include "cli/trials/clock.h"
#include "cli/verify/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Calls at the edges of memory, elements of one of them; repetitions of one call at least and at most, and how many lie
 * between counts of what is left behind; pairs of calls for two threads, elements of one of them. */
enum { EDGE_CALLS = 16, EDGE_ELEMENTS = 1 << 18, REPEATS_LEAST = 100, REPEATS_MOST = 1200, BETWEEN_COUNTS = 32 };
enum { PAIRS = 3, PAIR_ELEMENTS = 1 << 16, PAIR_ROUNDS = 8, TOLERATED_GROWTH = 8 };

typedef struct session {
  const verify_impl *impl;
  const test_call *calls;
  const bool *passed;
  uint32_t n;
  double seconds;
  verify_row *row;
  failed_call *failed;
} session;

/* What is tried next: if it does not come back it is known. */
static void try_next(const session *s, const test_call *call, failed_call next) {
  next.call = (uint32_t)(call - s->calls) + 1;
  *s->failed = next;
}

/* It came back. */
static void came_back(const session *s) {
  if (!s->row->problem)
    *s->failed = (failed_call){0};
}

/* ------------------------------------------------------------------------------------------------------------ edges */

static const attempt *at_the_edge; /* the call that is made, for locate() */

static bool locate(const void *address, char *words, size_t size) {
  const attempt *made = at_the_edge;
  char where[64];
  for (uint32_t i = 0; made && i < made->call->n_values; i++)
    if (made->tensors[i].memory && guarded_is_beyond(&made->tensors[i], address, where, sizeof where)) {
      snprintf(words, size, "%s of '%s'", where, fl_op_argument(made->call->op, i)->name);
      return true;
    }
  return false;
}

static bool test_at_edge(session *s, const test_call *call, memory_edge edge) {
  verify_test t = {.impl = s->impl, .call = call, .row = s->row};
  attempt made;
  if (!verify_create_attempt(&made, s->impl->at, call, edge))
    return false;
  try_next(s, call, (failed_call){.edge = edge});
  char *number = attempt_number(&made), *described = attempt_describe(&made), *where = NULL;
  if (number && described &&
      asprintf(&where, "%s at the %s of memory", number, edge == EDGE_BEHIND ? "end" : "beginning") >= 0)
    trial_doing(where, described);
  free(number);
  free(described);
  free(where);
  at_the_edge = &made;
  trial_set_locate(locate);
  attempt_run(&made, s->impl->policy);
  trial_set_locate(NULL);
  at_the_edge = NULL;
  if (made.status)
    verify_fail(&t, "with tensors at the edge of memory it returned %s: %.400s", fl_status_name(made.status),
                verify_words(&made));
  else if (verify_stays_inside(&t, &made))
    verify_is_right(&t, &made);
  bool done = verify_conclude(&t, &made);
  attempt_free(&made);
  came_back(s);
  return done;
}

/* Small calls, spread over all that there are. */
static bool test_edges(session *s) {
  uint32_t suitable = 0, seen = 0;
  if (s->impl->at.device.device_type != kDLCPU)
    return true;
  for (uint32_t i = 0; i < s->n; i++)
    suitable += s->passed[i] && s->calls[i].elements <= EDGE_ELEMENTS;
  uint32_t step = suitable / EDGE_CALLS + 1;
  for (uint32_t i = 0; i < s->n && !s->row->problem; i++) {
    if (!s->passed[i] || s->calls[i].elements > EDGE_ELEMENTS || seen++ % step)
      continue;
    if (!test_at_edge(s, &s->calls[i], EDGE_BEHIND))
      return false;
    if (!s->row->problem && !test_at_edge(s, &s->calls[i], EDGE_BEFORE))
      return false;
  }
  return true;
}

/* -------------------------------------------------------------------------------------------------- again and again */

/* What adds up, counted three times. */
typedef struct growth {
  int (*count)(void);
  const char *what;
  int counts[3];
} growth;

static void look_for_growth(verify_test *t, growth *list, size_t n, uint32_t repeat) {
  uint32_t turn = repeat / BETWEEN_COUNTS;
  if (repeat % BETWEEN_COUNTS || turn < 1 || turn > 3)
    return;
  for (size_t i = 0; i < n; i++) {
    int *counts = list[i].counts;
    counts[turn - 1] = list[i].count();
    if (turn == 3 && counts[0] >= 0 && counts[1] - counts[0] >= TOLERATED_GROWTH &&
        counts[2] - counts[1] >= TOLERATED_GROWTH)
      verify_fail(t, "%d calls left %d %s behind", BETWEEN_COUNTS, counts[2] - counts[1], list[i].what);
  }
}

/* The smallest call that has something in it. */
static const test_call *find_smallest(const session *s) {
  const test_call *smallest = NULL;
  for (uint32_t i = 0; i < s->n; i++)
    if (s->passed[i] && (!smallest || (s->calls[i].elements < smallest->elements && s->calls[i].elements > 1)))
      smallest = &s->calls[i];
  return smallest;
}

static bool repeat_call(session *s, const test_call *call) {
  growth list[] = {{state_descriptors, "open descriptors", {0}}, {state_threads, "threads", {0}}};
  verify_test t = {.impl = s->impl, .call = call, .row = s->row};
  attempt first, made;
  double end = seconds_now() + s->seconds;
  if (!verify_create_attempt(&first, s->impl->at, call, EDGE_NONE))
    return false;
  try_next(s, call, (failed_call){.calls = 1});
  attempt_run(&first, s->impl->policy);
  if (!attempt_clone(&made, &first)) {
    attempt_free(&first);
    return false;
  }
  for (uint32_t i = 1; i <= REPEATS_MOST && (i <= REPEATS_LEAST || seconds_now() < end) && !t.problem; i++) {
    s->failed->calls = i + 1;
    attempt_run(&made, s->impl->policy);
    if (made.status)
      verify_fail(&t, "called %u times, it returned %s: %.400s", i, fl_status_name(made.status), verify_words(&made));
    else if (!verify_has_bits(&t, &first, &made, "called again and again with the same arguments, it gave other bits"))
      break;
    look_for_growth(&t, list, sizeof list / sizeof *list, i);
  }
  bool done = verify_conclude(&t, &made);
  attempt_free(&made);
  attempt_free(&first);
  came_back(s);
  return done;
}

static bool repeat(session *s) {
  const test_call *call = find_smallest(s);
  return !call || repeat_call(s, call);
}

bool verify_again(const verify_impl *impl, const test_call *call, double seconds, verify_row *row,
                  failed_call *failed) {
  static process_state state;
  bool passed, on_cpu = impl->at.device.device_type == kDLCPU;
  session s = {.impl = impl, .calls = call, .n = 1, .seconds = seconds, .row = row, .failed = failed};
  if (failed->edge)
    return test_at_edge(&s, call, failed->edge);
  if (failed->calls)
    return repeat_call(&s, call);
  if (on_cpu) /* a driver may do anything */
    state_take(&state);
  return verify_with_call(impl, call, on_cpu ? &state : NULL, row, &passed);
}

/* ------------------------------------------------------------------------------------------ threads, different data */

/* One of two threads. */
typedef struct racer {
  verify_test test; /* its own: problems are found in its thread */
  verify_row row;
  attempt made;
  atomic_int *ready; /* both have begun */
  atomic_bool *over; /* one has found something */
  double end;
  pthread_t thread;
} racer;

static void *race(void *self) {
  racer *r = self;
  atomic_fetch_add(r->ready, 1);
  while (atomic_load(r->ready) < 2 && !atomic_load(r->over))
    sched_yield();
  for (int i = 0; (i < PAIR_ROUNDS || seconds_now() < r->end) && !atomic_load(r->over); i++) {
    attempt_run(&r->made, r->test.impl->policy);
    if (r->made.status)
      verify_fail(&r->test, "returned %s: %.400s", fl_status_name(r->made.status), verify_words(&r->made));
    else if (verify_stays_inside(&r->test, &r->made))
      verify_is_right(&r->test, &r->made);
    if (r->test.problem || r->test.no_memory)
      atomic_store(r->over, true);
  }
  return NULL;
}

/* false: out of memory, or no threads. */
static bool run_racers(racer racers[2]) {
  int n = 0;
  while (n < 2 && !pthread_create(&racers[n].thread, NULL, race, &racers[n]))
    n++;
  if (n < 2)
    atomic_store(racers[0].over, true);
  for (int i = 0; i < n; i++)
    pthread_join(racers[i].thread, NULL);
  return n == 2;
}

static bool test_pair(session *s, const test_call *const pair[2]) {
  racer racers[2];
  atomic_int ready = 0;
  atomic_bool over = false;
  int n = 0;
  memset(racers, 0, sizeof racers);
  for (; n < 2; n++) {
    racers[n].test = (verify_test){.impl = s->impl, .call = pair[n], .row = &racers[n].row};
    racers[n].ready = &ready;
    racers[n].over = &over;
    racers[n].end = seconds_now() + s->seconds / (2 * PAIRS);
    if (!verify_create_attempt(&racers[n].made, s->impl->at, pair[n], EDGE_NONE))
      break;
  }
  bool done = n == 2 && run_racers(racers);
  for (int i = 0; i < n; i++) {
    verify_test t = {.impl = s->impl, .call = pair[i], .row = s->row};
    if (racers[i].test.problem && !s->row->problem)
      verify_fail(&t, "called from two threads at once with different data: %s", racers[i].test.problem);
    done = done && !racers[i].test.no_memory && verify_conclude(&t, &racers[i].made);
    free(racers[i].test.problem);
    free(racers[i].row.worst);
    attempt_free(&racers[i].made);
  }
  return done;
}

/* Of those that are not too large the largest, so that the threads meet. */
static const test_call *next_largest(const session *s, const test_call *before) {
  const test_call *found = NULL;
  for (uint32_t i = 0; i < s->n; i++) {
    const test_call *call = &s->calls[i];
    bool smaller =
        !before || call->elements < before->elements || (call->elements == before->elements && call > before);
    if (s->passed[i] && call->elements <= PAIR_ELEMENTS && call->elements > 0 && smaller &&
        (!found || call->elements > found->elements))
      found = call;
  }
  return found;
}

static bool test_races(session *s) {
  const test_call *pair[2] = {NULL, NULL};
  trial_doing("two threads with different data", NULL);
  for (int i = 0; i < PAIRS && !s->row->problem; i++) {
    pair[0] = next_largest(s, pair[1]);
    pair[1] = pair[0] ? next_largest(s, pair[0]) : NULL;
    if (!pair[1])
      break;
    try_next(s, pair[0], (failed_call){.threads = true});
    if (!test_pair(s, pair))
      return false;
    came_back(s);
  }
  return true;
}

bool verify_more(const verify_impl *impl, const test_call *calls, const bool *passed, uint32_t n, double seconds,
                 verify_row *row, failed_call *failed) {
  session s = {
      .impl = impl, .calls = calls, .passed = passed, .n = n, .seconds = seconds, .row = row, .failed = failed};
  bool (*const steps[])(session *) = {test_edges, repeat, test_races};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (row->problem || !row->calls)
      break;
    else if (!steps[i](&s))
      return false;
  return true;
}
