/*
 * One implementation, one call: is what it gives right, and does it keep the contract of plugin.h? The call is made
 * twice, some calls by several threads at once, and everything near its tensors is watched.
 */
#include "cli/cli.h"
#include "cli/trials/compare.h"
#include "cli/trials/subjects.h"
#include "cli/verify/test.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 3, THREADED_BYTES = 1 << 18, WHERE_MAX = 192 };

bool verify_fail(verify_test *t, const char *format, ...) {
  va_list arguments;
  if (t->problem)
    return false;
  va_start(arguments, format);
  if (vasprintf(&t->problem, format, arguments) < 0)
    t->problem = NULL;
  va_end(arguments);
  t->no_memory |= !t->problem;
  return false;
}

static const char *kind_of(const verify_test *t, uint32_t index) {
  return index < t->call->n_arguments ? "argument" : "result";
}

static const char *name_of(const verify_test *t, uint32_t index) {
  return fl_op_argument(t->call->op, index)->name;
}

const char *verify_words(const attempt *made) {
  return made->message && *made->message ? made->message : "(no message)";
}

/* ------------------------------------------------------------------------------------------------- what was written */

/* Nothing at all may be written by a call that was turned down. */
static bool is_untouched(verify_test *t, const attempt *made) {
  char where[WHERE_MAX];
  for (uint32_t i = 0; i < t->call->n_values; i++)
    if (made->source[i] == (int)i && !guarded_is_intact(&made->tensors[i], false, where, sizeof where))
      return verify_fail(t, "%s '%s' was written (%s) before the implementation returned FL_ENOTSUP", kind_of(t, i),
                         name_of(t, i), where);
  return true;
}

/* Results and states may be written, nothing around them and nothing else. */
bool verify_stays_inside(verify_test *t, const attempt *made) {
  char where[WHERE_MAX];
  for (uint32_t i = 0; i < t->call->n_values; i++) {
    bool written = attempt_writes(made, i), mutable = fl_op_argument(t->call->op, i)->mutates;
    if (made->source[i] != (int)i || guarded_is_intact(&made->tensors[i], written, where, sizeof where))
      continue;
    if (written)
      return verify_fail(t, "written outside %s '%s': %s", kind_of(t, i), name_of(t, i), where);
    return verify_fail(t, "argument '%s' was overwritten (%s), %s", name_of(t, i), where,
                       mutable ? "though the result is another tensor" : "which the schema does not mark as mutable");
  }
  if (made->workspace.memory && !guarded_is_intact(&made->workspace, true, where, sizeof where))
    return verify_fail(t, "written outside the workspace of %" PRId64 " bytes: %s", made->workspace.shape[0], where);
  return true;
}

/* ----------------------------------------------------------------------------------------------------------- values */

static bool same_value(const fl_value *a, const fl_value *b) {
  if (a->type != b->type || a->length != b->length)
    return false;
  if (a->type == FL_STRING)
    return a->v.s && b->v.s && !strcmp(a->v.s, b->v.s);
  if (a->type == FL_FLOAT)
    return a->v.f == b->v.f || (isnan(a->v.f) && isnan(b->v.f));
  if (a->type == FL_BOOL)
    return a->v.b == b->v.b;
  if (a->type == FL_INT_LIST)
    return !a->length || !memcmp(a->v.ints, b->v.ints, a->length * sizeof *a->v.ints);
  return a->v.i == b->v.i;
}

static bool has_value(verify_test *t, const attempt *made, uint32_t index) {
  const fl_value *got = &made->values[index], *wanted = &t->call->kept->values[index].value;
  if (same_value(got, wanted))
    return true;
  /* Which class or component to use is each backend's own answer; it only has to be one. */
  if (got->type == FL_STRING && wanted->type == FL_STRING)
    return (got->v.s && *got->v.s) || verify_fail(t, "result '%s' is an empty string", name_of(t, index));
  return verify_fail(t, "result '%s' is not what the reference gives", name_of(t, index));
}

/* Takes a comparison into the row's numbers. */
static void note_error(verify_test *t, const attempt *made, uint32_t index, const comparison *found,
                       fl_tolerance allowed) {
  verify_row *row = t->row;
  double limit = isfinite(found->wanted) ? allowed.atol + allowed.rtol * fabs(found->wanted) : 0;
  double error = found->pass && !(found->max_abs_err > 0) ? 0 : fabs(found->got - found->wanted);
  double share = !found->pass && !(error / limit > 1) ? INFINITY : error > 0 ? error / limit : 0;
  char at[WHERE_MAX], *number, *call, *worst = NULL;
  row->compared = true;
  if (found->max_abs_err > row->max_abs_err)
    row->max_abs_err = found->max_abs_err;
  if (found->max_rel_err > row->max_rel_err)
    row->max_rel_err = found->max_rel_err;
  if (found->worst < 0 || (row->worst && share <= row->share))
    return;
  format_index(&made->tensors[made->source[index]].tensor, found->worst, at, sizeof at);
  number = attempt_number(made);
  call = attempt_describe(made);
  if (!number || !call || asprintf(&worst, "%s%s in %s: %s", name_of(t, index), at, number, call) < 0) {
    t->no_memory = true;
    worst = NULL;
  }
  free(number);
  free(call);
  free(row->worst);
  row->worst = worst;
  row->share = share;
  row->got = found->got;
  row->wanted = found->wanted;
  row->atol = allowed.atol;
  row->rtol = allowed.rtol;
}

static bool has_elements(verify_test *t, const attempt *made, uint32_t index) {
  const guarded *tensor = &made->tensors[made->source[index]];
  fl_tolerance allowed = attempt_tolerance(made, index);
  DLTensor got = tensor->tensor, wanted = tensor->tensor;
  char at[WHERE_MAX], share[48] = "";
  got.strides = wanted.strides = NULL;
  got.byte_offset = wanted.byte_offset = 0;
  got.data = malloc(guarded_bytes(tensor) + 1);
  wanted.data = t->call->kept->values[index].data;
  if (!got.data) {
    t->no_memory = true;
    return false;
  }
  guarded_read(tensor, got.data);
  comparison found = compare_tensors(&got, &wanted, allowed.atol, allowed.rtol, false);
  free(got.data);
  note_error(t, made, index, &found, allowed);
  if (found.pass)
    return true;
  if (found.worst < 0)
    return verify_fail(t, "%s '%s': %s", kind_of(t, index), name_of(t, index), found.problem);
  format_index(&tensor->tensor, found.worst, at, sizeof at);
  if (isfinite(found.max_share))
    snprintf(share, sizeof share, ": error %.2g x tolerance", found.max_share);
  return verify_fail(
      t,
      "%s '%s': %" PRId64
      " element%s from the reference, the worst at %s: %.9g, the reference gives %.9g (atol %g, rtol %g%s)",
      kind_of(t, index), name_of(t, index), found.failures, found.failures == 1 ? " differs" : "s differ", at,
      found.got, found.wanted, allowed.atol, allowed.rtol, share);
}

/* Between an op's parts numbers are rounded, and something else may come of infinities, and of the least and the
 * largest numbers, than of the op in one piece. */
static bool may_differ(const verify_test *t) {
  return t->call->awkward && !strcmp(t->impl->info->impl_id, "reference.parts");
}

/* Are the results, and the states, those of the reference? */
bool verify_is_right(verify_test *t, const attempt *made) {
  const test_call *call = t->call;
  if (may_differ(t))
    return true;
  for (uint32_t i = 0; i < call->n_values; i++) {
    bool stands_for_argument = made->source[i] >= 0 && made->source[i] != (int)i;
    if (i < call->n_arguments && !call->kept->values[i].written)
      continue; /* no state; what a result writes in its place is looked at there */
    if (attempt_writes(made, i) ? !has_elements(t, made, i)
                                : i >= call->n_arguments && !stands_for_argument && !has_value(t, made, i))
      return false;
  }
  return true;
}

/* Same bits as an earlier attempt? */
bool verify_has_bits(verify_test *t, const attempt *first, const attempt *made, const char *when) {
  char at[WHERE_MAX];
  int64_t element;
  for (uint32_t i = 0; i < t->call->n_values; i++) {
    if (made->source[i] != (int)i || !attempt_writes(made, i) ||
        guarded_same(&first->tensors[i], &made->tensors[i], &element))
      continue;
    format_index(&made->tensors[i].tensor, element, at, sizeof at);
    return verify_fail(t, "%s: %s '%s' differs at element %s", when, kind_of(t, i), name_of(t, i), at);
  }
  return true;
}

/* ----------------------------------------------------------------------------------------------------------- status */

static bool skip(verify_test *t, const attempt *made) {
  t->row->skipped++;
  if (!t->row->reason)
    t->row->reason = cli_skip_reason(made->message);
  return true;
}

/* Is the status in order? *judge: there is something to look at. */
static bool check_status(verify_test *t, const attempt *made, bool *judge) {
  const test_call *call = t->call;
  *judge = made->status == FL_OK && call->kept->status == FL_OK;
  if (made->status == FL_ENOIMPL)
    return skip(t, made);
  if (made->status == FL_ENOTSUP) {
    if (!is_untouched(t, made))
      return false;
    return t->impl->info->has_supports_args
               ? verify_fail(t, "returned FL_ENOTSUP, although its supports_args said that it takes the call: %s",
                             verify_words(made))
               : skip(t, made);
  }
  t->row->calls++;
  if (made->status == call->kept->status)
    return true;
  if (made->status == FL_OK)
    return verify_fail(t, "returned FL_OK, but the reference refuses the call: %.400s", call->kept->message);
  return verify_fail(t, "returned %s: %.400s", fl_status_name(made->status), verify_words(made));
}

/* ---------------------------------------------------------------------------------------------------------- threads */

/* One of several threads that make the same call on tensors of their own. */
typedef struct worker {
  verify_test test; /* its own: problems are found in its thread */
  attempt attempt;
  const attempt *first;
  pthread_mutex_t *gate; /* open when all are there */
  pthread_t thread;
} worker;

static bool run_once(worker *w) {
  verify_test *t = &w->test;
  attempt_run(&w->attempt, t->impl->policy);
  if (w->attempt.status)
    return verify_fail(t, "returned %s: %.400s", fl_status_name(w->attempt.status), verify_words(&w->attempt));
  if (!verify_stays_inside(t, &w->attempt))
    return false;
  if (t->impl->info->flags & FL_IMPL_DETERMINISTIC)
    return verify_has_bits(t, w->first, &w->attempt, "other bits than alone, although it is declared deterministic");
  return verify_is_right(t, &w->attempt);
}

static void *work(void *self) {
  worker *w = self;
  pthread_mutex_lock(w->gate);
  pthread_mutex_unlock(w->gate);
  for (int round = 0; round < ROUNDS && run_once(w); round++)
    ;
  return NULL;
}

/* false: not all could be started. */
static bool run_workers(worker *workers) {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  int n = 0;
  pthread_mutex_lock(&gate);
  for (; n < THREADS; n++) {
    workers[n].gate = &gate;
    if (pthread_create(&workers[n].thread, NULL, work, &workers[n]))
      break;
  }
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < n; i++)
    pthread_join(workers[i].thread, NULL);
  pthread_mutex_destroy(&gate);
  return n == THREADS;
}

static bool agrees_in_threads(verify_test *t, const attempt *first) {
  worker workers[THREADS];
  verify_row rows[THREADS]; /* numbers of threads are not kept: they are those of the calls before, or a failure's */
  int n = 0;
  memset(workers, 0, sizeof workers);
  memset(rows, 0, sizeof rows);
  for (; n < THREADS; n++) {
    workers[n].test = *t;
    workers[n].test.row = &rows[n];
    workers[n].first = first;
    if (!attempt_clone(&workers[n].attempt, first))
      break;
  }
  if (n < THREADS || !run_workers(workers))
    t->no_memory = true;
  for (int i = 0; i < n; i++) {
    if (workers[i].test.problem)
      verify_fail(t, "called from %d threads at once: %s", THREADS, workers[i].test.problem);
    t->no_memory |= workers[i].test.no_memory;
    free(workers[i].test.problem);
    free(rows[i].worst);
    attempt_free(&workers[i].attempt);
  }
  return !t->problem;
}

/* Some of the calls that are not large. */
static bool wants_threads(const attempt *made) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < made->call->n_values; i++)
    bytes += made->tensors[i].size;
  return made->call->source.number % 3 == 1 && bytes <= THREADED_BYTES;
}

/* --------------------------------------------------------------------------------------------------------- the test */

bool verify_leaves_nothing(verify_test *t) {
  char words[WHERE_MAX * 2];
  return !t->state || !state_difference(t->state, words, sizeof words) || verify_fail(t, "the call %s", words);
}

/* With prepared weights, where it prepares some of these, it gives what is expected, too. */
static bool agrees_prepared(verify_test *t, const attempt *first) {
  attempt made;
  bool prepared;
  if (!t->impl->info->prepares)
    return true;
  if (!attempt_clone(&made, first)) {
    t->no_memory = true;
    return false;
  }
  attempt_run_prepared(&made, t->impl->policy, &prepared);
  if (made.status)
    verify_fail(t, "%s returned %s: %.400s", prepared ? "with prepared weights, it" : "preparing weights, it",
                fl_status_name(made.status), verify_words(&made));
  else if (prepared && !(verify_stays_inside(t, &made) && verify_is_right(t, &made)) && t->problem) {
    char *alone = t->problem;
    t->problem = NULL;
    verify_fail(t, "with prepared weights: %s", alone);
    free(alone);
  }
  attempt_free(&made);
  return !t->problem && !t->no_memory;
}

static bool run_test(verify_test *t, attempt *made) {
  attempt again;
  bool judge, same;
  attempt_run(made, t->impl->policy);
  if (!check_status(t, made, &judge))
    return false;
  if (!verify_leaves_nothing(t))
    return false;
  if (!judge)
    return true;
  if (!verify_stays_inside(t, made) || !verify_is_right(t, made))
    return false;
  if (!attempt_clone(&again, made)) {
    t->no_memory = true;
    return false;
  }
  attempt_run(&again, t->impl->policy);
  same = again.status
             ? verify_fail(t, "returned %s when called once more: %.400s", fl_status_name(again.status),
                           verify_words(&again))
             : verify_has_bits(t, made, &again, "called twice with the same arguments, it gave different bits");
  attempt_free(&again);
  return same && agrees_prepared(t, made) && (!wants_threads(made) || agrees_in_threads(t, made));
}

bool verify_create_attempt(attempt *made, place at, const test_call *call, memory_edge edge) {
  if (!attempt_create(made, at, call, (arrangement){true, edge}))
    return false;
  if (attempt_is_allowed(made))
    return true;
  attempt_free(made);
  return attempt_create(made, at, call, (arrangement){false, edge});
}

bool verify_conclude(verify_test *t, const attempt *made) {
  char *number = NULL, *described = NULL;
  if (t->problem) {
    t->row->failures++;
    if (!t->row->problem) {
      number = attempt_number(made);
      described = attempt_describe(made);
      if (number && described && asprintf(&t->row->problem, "%s, in %s: %s", t->problem, number, described) < 0)
        t->row->problem = NULL;
    }
    t->no_memory |= !t->row->problem;
  }
  free(number);
  free(described);
  free(t->problem);
  t->problem = NULL;
  return !t->no_memory;
}

/* A device that has no memory for the call's tensors fails the test, and ends nothing. */
static bool fail_without_memory(verify_row *row, const test_call *call) {
  row->calls++;
  row->failures++;
  return row->problem || asprintf(&row->problem, "no memory for the tensors of call %" PRIu64 ": %s",
                                  call->source.number, fl_error_message()) >= 0;
}

/* For whoever wants to know what a child was at. */
static void announce(const attempt *made) {
  char *number = attempt_number(made), *described = attempt_describe(made);
  if (number && described)
    trial_doing(number, described);
  free(number);
  free(described);
}

bool verify_with_call(const verify_impl *impl, const test_call *call, const process_state *state, verify_row *row,
                      bool *passed) {
  verify_test t = {.impl = impl, .call = call, .row = row, .state = state};
  attempt made;
  *passed = false;
  if (!verify_create_attempt(&made, impl->at, call, EDGE_NONE))
    return impl->at.device.device_type != kDLCPU && fail_without_memory(row, call);
  uint32_t calls = row->calls;
  announce(&made);
  run_test(&t, &made);
  *passed = !t.problem && row->calls > calls && made.status == FL_OK;
  if (t.problem)
    row->calls = calls + 1;
  bool done = verify_conclude(&t, &made);
  attempt_free(&made);
  return done;
}
