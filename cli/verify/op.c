/*
 * One op of `flhost verify`: which implementations, the calls for each element type, and a child process for each
 * implementation, in which it is called; a child that does not come back is a verdict, and the next element type has a
 * new one. Nothing is called in this process.
 */
#include "cli/cli.h"
#include "cli/trials/clock.h"
#include "cli/trials/device.h"
#include "cli/trials/subjects.h"
#include "cli/verify/plan.h"
#include "cli/verify/save.h"
#include "cli/verify/test.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICE_TYPES = 20, PRINTED_MOST = 1 << 16 };

/* What a child finds, as it goes. */
typedef struct shared_row {
  bool begun, finished, no_memory;
  uint32_t calls, failures, skipped;
  failed_call failed;
  bool compared;
  double max_abs_err, max_rel_err, share, got, wanted, atol, rtol, seconds;
  char problem[2048], reason[1024], worst[1024];
} shared_row;

/* One op while it is tested. */
typedef struct session {
  fl_host *host;
  const verify_request *asked;
  fl_op *op;
  verify_impl reference; /* info NULL: there is none */
  verify_impl *impls;
  uint32_t n_impls;
  verify_plan *plans; /* by element type */
  uint32_t n_plans;
  size_t first_row; /* of the op: a row for each impl, for each element type */
  verify_rows *rows;
  bool no_memory;
} session;

/* -------------------------------------------------------------------------------------------------- implementations */

/* By its name; without one, a device leaves out those that are not for it. */
static bool is_asked(const session *s, const fl_impl_info *info) {
  if (s->asked->impl)
    return !strcmp(s->asked->impl, info->impl_id);
  return !s->asked->has_device || info->devices & FL_DEVICE(s->asked->device.device_type);
}

static bool is_on_cpu(const fl_impl_info *info) {
  return info->devices & FL_DEVICE(kDLCPU);
}

/* A row for an implementation that cannot be tested. */
static void add_untested(session *s, const char *impl_id, const char *format, const char *why) {
  verify_row *row = verify_rows_add(s->rows, fl_op_name(s->op), impl_id, "");
  if (!row || asprintf(&row->reason, format, why) < 0) {
    if (row)
      row->reason = NULL;
    s->no_memory = true;
  }
}

/* The device to test an implementation on: the one asked for, the processor, or the first of another type that is
 * there. */
static bool choose_device(session *s, const fl_impl_info *info, DLDevice *device) {
  if (s->asked->has_device) {
    *device = s->asked->device;
    return info->devices & FL_DEVICE(device->device_type);
  }
  for (int32_t type = kDLCPU; type < DEVICE_TYPES; type++) {
    if (!(info->devices & FL_DEVICE(type)))
      continue;
    if (type == kDLCPU || cli_count_devices_apart(s->host, type, &s->asked->limits) > 0) {
      *device = (DLDevice){(DLDeviceType)type, 0};
      return true;
    }
  }
  return false;
}

/* Can it be tested here, and on which device? Says in a row why not. */
static bool is_testable(session *s, const fl_impl_info *info, place *at) {
  if (!info->available) {
    char *reason = cli_unavailable_reason(info);
    s->no_memory |= !reason;
    add_untested(s, info->impl_id, "%s", reason ? reason : "");
    free(reason);
    return false;
  }
  at->host = s->host;
  if (choose_device(s, info, &at->device))
    return true;
  char *devices = cli_device_names(info->devices);
  add_untested(s, info->impl_id,
               s->asked->has_device ? "it is for tensors on %s"
                                    : "it is for tensors on %s, and no plugin has such a device",
               devices ? devices : "another device");
  free(devices);
  return false;
}

/* Sorts out what can be tested, and against what: the reference of highest priority. */
static void find_impls(session *s, const fl_snapshot *snapshot, uint32_t index) {
  uint32_t n = fl_snapshot_impl_count(snapshot, index);
  s->impls = calloc(n + 1, sizeof *s->impls);
  s->no_memory |= !s->impls;
  for (uint32_t i = 0; i < n && !s->no_memory; i++) {
    const fl_impl_info *info = fl_snapshot_impl(snapshot, index, i);
    bool is_better = !s->reference.info || info->priority > s->reference.info->priority;
    if (info->kind == FL_KIND_REFERENCE && info->available && is_on_cpu(info) && is_better)
      s->reference = (verify_impl){.info = info, .at = {s->host, {kDLCPU, 0}}};
    place at;
    if (is_asked(s, info) && is_testable(s, info, &at))
      s->impls[s->n_impls++] = (verify_impl){.info = info, .at = at};
  }
  if (s->no_memory || !s->reference.info)
    return;
  s->no_memory = !cli_create_policy(s->host, fl_op_name(s->op), s->reference.info->impl_id, &s->reference.policy);
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++)
    s->no_memory = !cli_create_policy(s->host, fl_op_name(s->op), s->impls[i].info->impl_id, &s->impls[i].policy);
}

/* ----------------------------------------------------------------------------------------------------- in the child */

/* One implementation, its rows from `next` on. */
typedef struct testing {
  session *session;
  const verify_impl *impl;
  uint32_t number; /* of the implementation */
  uint32_t next;   /* element type */
  shared_row *shared;
} testing;

static verify_row *row_of(const session *s, uint32_t plan, uint32_t impl) {
  return &s->rows->items[s->first_row + (size_t)plan * s->n_impls + impl];
}

static void show_text(char *to, size_t size, const char *text) {
  if (!*to && text)
    snprintf(to, size, "%s", text);
}

static void show_row(const verify_row *row, shared_row *shared, double begin) {
  shared->calls = row->calls;
  shared->failures = row->failures;
  shared->skipped = row->skipped;
  shared->compared = row->compared;
  shared->max_abs_err = row->max_abs_err;
  shared->max_rel_err = row->max_rel_err;
  shared->share = row->share;
  shared->got = row->got;
  shared->wanted = row->wanted;
  shared->atol = row->atol;
  shared->rtol = row->rtol;
  shared->seconds = row->seconds + seconds_now() - begin;
  show_text(shared->problem, sizeof shared->problem, row->problem);
  show_text(shared->reason, sizeof shared->reason, row->reason);
  *shared->worst = 0;
  show_text(shared->worst, sizeof shared->worst, row->worst);
}

static void test_row(const testing *t, const verify_plan *plan, verify_row *row, shared_row *shared) {
  static process_state state;
  bool *passed = calloc(plan->n + 1, sizeof *passed);
  bool on_cpu = t->impl->at.device.device_type == kDLCPU, kept = on_cpu, done = passed != NULL;
  double begin = seconds_now();
  shared->begun = true;
  if (kept)
    state_take(&state);
  for (uint32_t i = 0; i < plan->n && done; i++) {
    uint32_t failures = row->failures;
    if (!shared->failed.call)
      shared->failed.call = i + 1; /* unless it comes back */
    done = verify_with_call(t->impl, &plan->calls[i], kept ? &state : NULL, row, &passed[i]);
    if (row->failures == failures && shared->failed.call == i + 1)
      shared->failed.call = 0;
    if (!kept && passed[i]) { /* a driver that began its work may have done anything */
      state_take(&state);
      kept = true;
    }
    show_row(row, shared, begin);
  }
  if (done && !t->session->asked->quick)
    done = verify_more(t->impl, plan->calls, passed, plan->n, t->session->asked->seconds, row, &shared->failed);
  show_row(row, shared, begin);
  shared->no_memory = !done;
  shared->finished = true;
  free(passed);
}

static bool is_to_test(const session *s, uint32_t plan, uint32_t impl) {
  return !s->plans[plan].trouble && !row_of(s, plan, impl)->end;
}

static void test_rows(void *context) {
  const testing *t = context;
  for (uint32_t i = t->next; i < t->session->n_plans; i++) {
    verify_row row = *row_of(t->session, i, t->number);
    char **texts[] = {&row.problem, &row.reason, &row.worst};
    bool copied = true;
    if (!is_to_test(t->session, i, t->number))
      continue;
    for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
      copied &= !*texts[j] || (*texts[j] = strdup(*texts[j]));
    if (copied)
      test_row(t, &t->session->plans[i], &row, &t->shared[i]);
    for (size_t j = 0; j < sizeof texts / sizeof *texts; j++)
      free(*texts[j]);
  }
}

/* ---------------------------------------------------------------------------------------------------- in the parent */

static bool take_text(char **to, const char *text) {
  if (!*text || (*to && !strcmp(*to, text)))
    return true;
  free(*to);
  *to = strdup(text);
  return *to;
}

static bool take_row(verify_row *row, const shared_row *shared) {
  if (!shared->begun)
    return true;
  row->calls = shared->calls;
  row->failures = shared->failures;
  row->skipped = shared->skipped;
  row->compared = shared->compared;
  row->max_abs_err = shared->max_abs_err;
  row->max_rel_err = shared->max_rel_err;
  row->share = shared->share;
  row->got = shared->got;
  row->wanted = shared->wanted;
  row->atol = shared->atol;
  row->rtol = shared->rtol;
  row->seconds = shared->seconds;
  return take_text(&row->problem, shared->problem) && take_text(&row->reason, shared->reason) &&
         take_text(&row->worst, shared->worst) && !shared->no_memory;
}

/* A child that did not come back: its words outweigh what was found before. */
static bool take_end(verify_row *row, trial_end end, const char *words) {
  free(row->problem);
  row->problem = strdup(words);
  row->end = end;
  row->failures++;
  row->calls++;
  return row->problem;
}

/* Kernels that print disturb whoever prints results. */
static bool take_printed(verify_row *row, const trial_outcome *outcome) {
  if (outcome->printed <= PRINTED_MOST || row->problem)
    return true;
  row->failures++;
  return asprintf(&row->problem, "it printed %.3g MB to the standard streams, beginning with: %.80s",
                  (double)outcome->printed / 1e6, outcome->beginning) >= 0;
}

static void save_failing(session *s, uint32_t plan, uint32_t impl, const shared_row *shared) {
  verify_row *row = row_of(s, plan, impl);
  if (!s->asked->save || !row->problem || row->saved || !shared->failed.call)
    return;
  s->no_memory |=
      !verify_save_smallest(&s->impls[impl], &s->reference, s->asked,
                            &s->plans[plan].calls[shared->failed.call - 1].source, &shared->failed, s->op, row);
}

/* One implementation with all element types: as many children as it takes. */
static void test_impl(session *s, uint32_t number) {
  size_t size = s->n_plans * sizeof(shared_row);
  testing t = {.session = s, .impl = &s->impls[number], .number = number, .shared = trial_share(size)};
  s->no_memory |= !t.shared;
  while (t.next < s->n_plans && !s->no_memory) {
    uint32_t first = t.next;
    while (t.next < s->n_plans && !is_to_test(s, t.next, number))
      t.next++;
    if (t.next == s->n_plans)
      break;
    first = t.next;
    trial_outcome outcome = trial_run(&s->asked->limits, test_rows, &t);
    while (t.next < s->n_plans && (t.shared[t.next].finished || !is_to_test(s, t.next, number)))
      t.next++;
    for (uint32_t i = first; i < s->n_plans && i <= t.next; i++)
      s->no_memory |= !take_row(row_of(s, i, number), &t.shared[i]);
    for (uint32_t i = first; i < t.next && !s->no_memory; i++)
      s->no_memory |= is_to_test(s, i, number) && !take_printed(row_of(s, i, number), &outcome);
    if (outcome.end && t.next == s->n_plans) /* after the last: at its end */
      t.next--;
    s->no_memory |= !outcome.end && t.next < s->n_plans;
    if (outcome.end && !s->no_memory) {
      s->no_memory = !take_end(row_of(s, t.next, number), outcome.end, outcome.words);
      t.next++;
    }
  }
  for (uint32_t i = 0; i < s->n_plans && !s->no_memory; i++)
    save_failing(s, i, number, &t.shared[i]);
  trial_unshare(t.shared, size);
}

/* Rows of tests for which the reference gave nothing to compare with: that must not look like success. */
static void fail_without_calls(session *s, uint32_t plan) {
  const verify_plan *p = &s->plans[plan];
  for (uint32_t i = 0; p->trouble && i < s->n_impls && !s->no_memory; i++) {
    verify_row *row = row_of(s, plan, i);
    bool itself = s->impls[i].info == s->reference.info;
    if (row->problem)
      continue;
    row->failures++;
    row->end = itself ? p->end : TRIAL_DONE;
    if (asprintf(&row->problem, p->end && !itself ? "not compared: the reference %s %s" : "%.0s%s",
                 s->reference.info->impl_id, p->trouble) < 0) {
      row->problem = NULL;
      s->no_memory = true;
    }
  }
}

/* ---------------------------------------------------------------------------------------------------------- the op */

/* Does the op take that element type? 0: it has no tensors. Numbers that make no call do not tell. */
static bool takes_dtype(session *s, uint32_t dtype) {
  enum { MOST_NUMBERS = 1000 };
  uint32_t n = fl_op_argument_count(s->op);
  fl_input *inputs = calloc(n + 1, sizeof *inputs);
  fl_status status = inputs ? FL_EINVAL : FL_ENOMEM;
  for (uint64_t number = 0; status == FL_EINVAL && number < MOST_NUMBERS; number++)
    status = fl_generate_inputs(s->op, dtype, s->asked->seed, number, inputs, n, sizeof(fl_input));
  s->no_memory |= !inputs;
  free(inputs);
  return inputs && status != FL_ENOENT;
}

static void add_rows(session *s, const char *dtype) {
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++) {
    verify_row *row = verify_rows_add(s->rows, fl_op_name(s->op), s->impls[i].info->impl_id, dtype);
    s->no_memory = !row;
    if (row)
      cli_device_text(s->impls[i].at.device, row->device, sizeof row->device);
  }
}

static void add_plan(session *s, uint32_t dtype, const char *name) {
  verify_plan *grown = realloc(s->plans, (s->n_plans + 1) * sizeof *grown);
  s->no_memory |= !grown;
  if (!grown)
    return;
  s->plans = grown;
  s->plans[s->n_plans++] = (verify_plan){.op = s->op, .dtype = dtype, .name = name};
  add_rows(s, name);
}

/* Each element type that the op takes and that is asked for. */
static void find_dtypes(session *s) {
  const fl_element_type *type;
  s->first_row = s->rows->n;
  if (!cli_has_tensors(s->op) && !s->asked->dtype)
    add_plan(s, 0, "");
  for (uint32_t i = 0; (type = fl_element_type_at(i)) && type->bit && !s->no_memory; i++)
    if ((!s->asked->dtype || s->asked->dtype == type->bit) && cli_has_tensors(s->op) && takes_dtype(s, type->bit))
      add_plan(s, type->bit, type->name);
}

static void test_seed(session *s, uint64_t seed) {
  for (uint32_t i = 0; i < s->n_plans && !s->no_memory; i++) {
    s->no_memory = !verify_plan_make(&s->plans[i], &s->reference, s->asked, seed);
    if (!s->no_memory)
      fail_without_calls(s, i);
  }
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++)
    test_impl(s, i);
  for (uint32_t i = 0; i < s->n_plans; i++) {
    verify_plan fresh = {.op = s->op, .dtype = s->plans[i].dtype, .name = s->plans[i].name};
    verify_plan_free(&s->plans[i]);
    s->plans[i] = fresh;
  }
}

static void session_free(session *s) {
  fl_policy_release(s->reference.policy);
  for (uint32_t i = 0; s->impls && i < s->n_impls; i++)
    fl_policy_release(s->impls[i].policy);
  free(s->plans);
  free(s->impls);
}

bool verify_op(fl_host *host, const verify_request *asked, const fl_snapshot *snapshot, uint32_t index,
               verify_rows *rows) {
  session s = {
      .host = host, .asked = asked, .op = fl_find_op(host, fl_snapshot_op_name(snapshot, index)), .rows = rows};
  if (!s.op)
    return true; /* withdrawn meanwhile */
  find_impls(&s, snapshot, index);
  if (!s.reference.info) {
    for (uint32_t i = 0; i < s.n_impls; i++)
      add_untested(&s, s.impls[i].info->impl_id, "no reference implementation of %s is available", fl_op_name(s.op));
  } else if (!s.no_memory) {
    find_dtypes(&s);
    for (uint64_t i = 0; i < asked->seeds && s.n_impls && !s.no_memory; i++)
      test_seed(&s, asked->seed + i);
  }
  session_free(&s);
  return !s.no_memory;
}
