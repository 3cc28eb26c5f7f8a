/*
 * flhost bench: how fast implementations are, on calls of the sizes that models have. All of one call take turns, with
 * the reference and a memcpy of as many bytes among them, so that a busy machine slows all alike.
 */
#include "cli/bench.h"

#include "cli/bench_measure.h"
#include "cli/cli.h"
#include "cli/subjects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At most so many rounds, of samples of a millisecond. A call that would take SLOWEST times as long as was asked for
 * is left out, one of more than once as long is timed once. */
enum { ROUNDS = 1000, SAMPLE_NS = 1000000, SLOWEST = 10 };

/* What the command line asks for. */
typedef struct request {
  const char *impl;  /* --impl, or NULL */
  const char *sizes; /* --dims, or NULL */
  uint32_t dtype;    /* --dtype, or 0 */
  DLDevice device;   /* --device, or the processor */
  bool small, large; /* --size: the first call, the last one; else all */
  double seconds;
  bool json;
} request;

/* One thing that is timed: an implementation, or memcpy. */
typedef struct subject {
  fl_host *host;
  const fl_impl_info *info; /* NULL: memcpy */
  fl_policy *policy;        /* this implementation and no other */
  const timed_call *call;
  fl_scope scope;
  device_memory to, from;  /* of memcpy, `half` bytes each */
  device_memory workspace; /* of an implementation */
  size_t half;
  bool shown; /* asked for */
  double ns;  /* of the call before; NAN: it was not timed */
  fl_cost cost;
  double *samples; /* of this call; NULL: not timed in rounds */
  int rounds;
  double median; /* NAN: not timed */
  fl_status status;
  char *reason;
} subject;

/* One op while it is timed. */
typedef struct session {
  fl_host *host;
  const request *asked;
  fl_op *op;
  subject *subjects; /* implementations, the last is memcpy */
  int n, reference;  /* index; -1: there is none */
  timings *rows;
  int exit_status; /* not EXIT_OK: the sizes are no good */
  bool no_memory;
} session;

/* ------------------------------------------------------------------------------------------------------------- ways */

static fl_status enter(void *context) {
  subject *s = context;
  return s->info ? fl_scope_enter(s->host, s->policy, &s->scope) : FL_OK;
}

static fl_status leave(void *context) {
  subject *s = context;
  if (s->info)
    fl_scope_leave(&s->scope);
  return FL_OK;
}

static bool is_processor(DLDevice device) {
  return device.device_type == kDLCPU;
}

/* A device may still be at work when a call returns. */
static fl_status finish(const subject *s) {
  return is_processor(s->call->device) ? FL_OK : fl_device_synchronize(s->host, s->call->device, NULL, true);
}

static fl_status run_impl(subject *s, long n) {
  fl_call call = {.size = sizeof call, .count = s->call->n_values, .values = s->call->values};
  call.workspace = s->workspace.memory;
  call.workspace_size = s->workspace.size;
  fl_status status = FL_OK;
  while (n-- && !status)
    status = fl_invoke(s->call->op, &call);
  return status ? status : finish(s);
}

/* On the processor through a pointer that the compiler does not see through: it would leave out what nobody reads. */
static fl_status run_memcpy(subject *s, long n) {
  static void *(*volatile const copy)(void *, const void *, size_t) = memcpy;
  fl_status status = FL_OK;
  while (n-- && !status)
    if (is_processor(s->call->device))
      copy(s->to.memory, s->from.memory, s->half);
    else
      status = fl_device_copy(s->host, s->call->device, s->to.memory, s->from.memory, s->half, FL_COPY_ON_DEVICE, NULL);
  return status ? status : finish(s);
}

static fl_status run(void *context, long n) {
  subject *s = context;
  return s->info ? run_impl(s, n) : run_memcpy(s, n);
}

static bench_way way_of(subject *s) {
  return (bench_way){.run = run, .context = s, .enter = enter, .leave = leave};
}

/* --------------------------------------------------------------------------------------------------------- subjects */

static bool is_for_device(const session *s, const fl_impl_info *info) {
  return info->devices & FL_DEVICE(s->asked->device.device_type);
}

/* Why it cannot be timed here, malloc'ed; NULL: it can. */
static char *why_not(session *s, const fl_impl_info *info) {
  char *reason = NULL, *devices = NULL;
  int length = 0;
  if (!info->available) {
    reason = cli_unavailable_reason(info);
    length = reason ? (int)strlen(reason) : -1;
  } else if (!is_for_device(s, info)) {
    devices = cli_device_names(info->devices);
    length = asprintf(&reason, "it is for tensors on %s (--device)", devices ? devices : "another device");
    free(devices);
  }
  s->no_memory |= length < 0;
  return length > 0 ? reason : NULL;
}

/* Implementations that are asked for, and the reference of highest priority. */
static void find_subjects(session *s, const fl_snapshot *snapshot, uint32_t index) {
  uint32_t n = fl_snapshot_impl_count(snapshot, index);
  s->reference = -1;
  s->subjects = calloc(n + 1, sizeof *s->subjects);
  s->no_memory |= !s->subjects;
  for (uint32_t i = 0; i < n && !s->no_memory; i++) {
    subject *added = &s->subjects[s->n];
    const fl_impl_info *info = fl_snapshot_impl(snapshot, index, i);
    bool is_reference = info->kind == FL_KIND_REFERENCE && info->available && is_for_device(s, info);
    *added = (subject){.host = s->host, .info = info, .ns = NAN};
    added->shown = s->asked->impl ? !strcmp(s->asked->impl, info->impl_id)
                                  : is_for_device(s, info) || is_processor(s->asked->device);
    if (is_reference && (s->reference < 0 || info->priority > s->subjects[s->reference].info->priority))
      s->reference = s->n;
    if (!added->shown && s->reference != s->n)
      continue;
    s->no_memory |= !cli_create_policy(s->host, fl_op_name(s->op), info->impl_id, &added->policy);
    s->n++;
  }
  if (!s->no_memory)
    s->subjects[s->n++] = (subject){.host = s->host, .shown = true, .ns = NAN};
}

/* Readies the subjects for a call. */
static void begin(session *s, const timed_call *call) {
  for (int i = 0; i < s->n; i++) {
    subject *each = &s->subjects[i];
    each->call = call;
    each->status = FL_OK;
    each->median = NAN;
    each->rounds = 0;
    each->half = 0;
    each->reason = each->info ? why_not(s, each->info) : NULL;
  }
}

static void end(session *s) {
  for (int i = 0; i < s->n; i++) {
    subject *each = &s->subjects[i];
    device_memory_free(&each->to);
    device_memory_free(&each->from);
    device_memory_free(&each->workspace);
    free(each->reason);
    free(each->samples);
    each->reason = NULL;
    each->samples = NULL;
  }
}

/* Is there anything to time, and nothing against it? Of no bytes there is no copy. */
static bool is_ready(const subject *each) {
  return !each->reason && (each->info || each->half);
}

static void session_free(session *s) {
  for (int i = 0; s->subjects && i < s->n; i++)
    fl_policy_release(s->subjects[i].policy);
  free(s->subjects);
}

/* ----------------------------------------------------------------------------------------------------------- timing */

/* Would a call take too long? From what the call before took. */
static bool is_too_slow(session *s, subject *each) {
  double most = s->asked->seconds * SLOWEST;
  double flops = each->call->cost.flops / each->cost.flops, bytes = each->call->cost.bytes / each->cost.bytes;
  double seconds = each->ns * 1e-9 * fmax(flops, bytes);
  if (!(seconds > most))
    return false;
  s->no_memory |= asprintf(&each->reason,
                           "not timed: one call would take about %.3g s, which is more than %d times "
                           "--seconds",
                           seconds, SLOWEST) < 0;
  return true;
}

/* Memory for memcpy, which reads half of the bytes and writes half. Written to at once: a page that nobody has written
 * to would be made during the first copy. */
static bool ready_memcpy(subject *each) {
  const timed_call *call = each->call;
  each->half = (size_t)(call->cost.bytes / 2);
  void *bytes = calloc(1, each->half + 1);
  bool done = bytes && !device_memory_create(&each->to, call->host, call->device, each->half) &&
              !device_memory_create(&each->from, call->host, call->device, each->half);
  if (done && each->half)
    done = !device_memory_put(&each->to, bytes) && !device_memory_put(&each->from, bytes);
  free(bytes);
  return done;
}

/* The workspace that an implementation asks for. */
static fl_status ready_workspace(subject *each) {
  const timed_call *call = each->call;
  fl_call planned = {.size = sizeof planned, .count = call->n_values, .values = call->values};
  fl_status status = enter(each);
  if (status)
    return status;
  status = device_workspace(&each->workspace, each->host, call->device, call->op, &planned);
  leave(each);
  return status;
}

/* Why a call did not work, malloc'ed; NULL: out of memory. */
static char *describe_failure(fl_status status) {
  char *reason;
  if (status == FL_ENOIMPL || status == FL_ENOTSUP)
    return cli_skip_reason(fl_error_message());
  return asprintf(&reason, "returned %s: %s", fl_status_name(status), fl_error_message()) < 0 ? NULL : reason;
}

/* Once, to see that it works and about how long it takes; again if that is long, as the first call resolves the op and
 * touches memory for the first time. What takes long even then stays at this once. */
static void try_once(session *s, subject *each) {
  const bench_way way = way_of(each);
  double longest = s->asked->seconds * 1e9;
  each->status = each->info ? ready_workspace(each) : FL_OK;
  if (!each->status)
    each->status = bench_sample(&way, 1, &each->ns);
  if (!each->status && each->ns > longest)
    each->status = bench_sample(&way, 1, &each->ns);
  each->cost = each->call->cost;
  if (each->status) {
    each->reason = describe_failure(each->status);
    s->no_memory |= !each->reason;
    each->ns = NAN;
  } else if (each->ns > longest) {
    each->median = each->ns;
    each->rounds = 1;
  }
}

/* Keeps the samples of one that took its turns. */
static void keep_samples(session *s, subject *each, const double *samples, int rounds) {
  double *sorted = malloc((size_t)rounds * sizeof *sorted);
  each->samples = malloc((size_t)rounds * sizeof *each->samples);
  s->no_memory |= !sorted || !each->samples;
  if (!s->no_memory) {
    memcpy(each->samples, samples, (size_t)rounds * sizeof *samples);
    memcpy(sorted, samples, (size_t)rounds * sizeof *samples);
    each->rounds = rounds;
    each->ns = each->median = bench_spread_of(sorted, rounds).median;
  }
  free(sorted);
}

/* Those that are quick enough, in turn. */
static void time_in_turn(session *s) {
  bench_way *ways = calloc((size_t)s->n, sizeof *ways);
  double *samples = malloc((size_t)s->n * ROUNDS * sizeof *samples);
  int n = 0, rounds = 0;
  s->no_memory |= !ways || !samples;
  for (int i = 0; i < s->n && !s->no_memory; i++)
    if (is_ready(&s->subjects[i]) && isnan(s->subjects[i].median))
      ways[n++] = way_of(&s->subjects[i]);
  const bench_effort effort = {.rounds = ROUNDS, .seconds = s->asked->seconds * n, .sample_ns = SAMPLE_NS};
  fl_status status = s->no_memory || !n ? FL_OK : bench_turns(&effort, ways, n, samples, &rounds);
  s->no_memory |= status == FL_ENOMEM;
  for (int i = 0; i < n && !s->no_memory; i++) {
    subject *each = ways[i].context;
    each->status = status;
    if (!status)
      keep_samples(s, each, samples + (size_t)i * ROUNDS, rounds);
    else
      s->no_memory |= !(each->reason = describe_failure(status));
  }
  free(ways);
  free(samples);
}

/* How many times as fast as another: the median over the rounds in which both took turns, else of the medians. */
static double times_as_fast(const subject *each, const subject *other, double *room) {
  if (!each->samples || !other->samples)
    return other->median / each->median;
  for (int i = 0; i < each->rounds; i++)
    room[i] = other->samples[i] / each->samples[i];
  return bench_spread_of(room, each->rounds).median;
}

static void add_row(session *s, subject *each, const char *dtype, double *room) {
  const subject *copy = &s->subjects[s->n - 1], *reference = s->reference < 0 ? NULL : &s->subjects[s->reference];
  timing *row = timings_add(s->rows, each->call, each->info ? each->info->impl_id : "memcpy", dtype);
  if (!row) {
    s->no_memory = true;
    return;
  }
  row->us = each->median / 1e3;
  row->rounds = each->rounds;
  row->reason = each->reason;
  each->reason = NULL;
  row->failed = each->status && each->status != FL_ENOIMPL && each->status != FL_ENOTSUP;
  row->is_memcpy = !each->info;
  if (row->is_memcpy) {
    row->flops = 0;
    return;
  }
  if (reference && each != reference)
    row->as_reference = times_as_fast(each, reference, room);
  if (copy->half)
    row->as_memcpy = times_as_fast(each, copy, room);
}

static void add_rows(session *s, const char *dtype) {
  double *room = malloc(ROUNDS * sizeof *room);
  s->no_memory |= !room;
  for (int i = 0; i < s->n && !s->no_memory; i++)
    if (s->subjects[i].shown && (s->subjects[i].info || s->subjects[i].half))
      add_row(s, &s->subjects[i], dtype, room);
  free(room);
}

/* For all that would have been timed. */
static void refuse_all(session *s, const timed_call *call) {
  for (int i = 0; i < s->n - 1; i++)
    if (!s->subjects[i].reason)
      s->no_memory |= asprintf(&s->subjects[i].reason, "not timed: there is no memory for tensors of %.3g GB",
                               timed_call_bytes(call) / 1e9) < 0;
}

/* Memory and data for the call. */
static bool ready(session *s, timed_call *call) {
  fl_status status = timed_call_fill(call);
  if (!status && ready_memcpy(&s->subjects[s->n - 1]))
    return true;
  if (status == FL_EINVAL) {
    cli_error("%s: with these sizes an argument has no values to take", fl_op_name(s->op));
    s->exit_status = EXIT_USAGE;
  } else {
    s->subjects[s->n - 1].half = 0;
    refuse_all(s, call);
  }
  return false;
}

static void time_call(session *s, timed_call *call, uint32_t dtype) {
  bool some = false;
  begin(s, call);
  for (int i = 0; i < s->n - 1; i++)
    some |= !s->subjects[i].reason && !is_too_slow(s, &s->subjects[i]);
  some = some && ready(s, call);
  for (int i = 0; i < s->n && some && !s->no_memory; i++)
    if (is_ready(&s->subjects[i]))
      try_once(s, &s->subjects[i]);
  if (some && !s->no_memory)
    time_in_turn(s);
  if (!s->no_memory && !s->exit_status)
    add_rows(s, timed_call_dtype(call, dtype));
  end(s);
}

/* ----------------------------------------------------------------------------------------------------- the command */

/* The calls of one op. The exit status. */
static int time_op(session *s) {
  uint32_t dtype = s->asked->dtype ? s->asked->dtype : FL_BFLOAT16, number = 0, n = 1;
  for (; number < n && !s->no_memory && !s->exit_status; number++) {
    timed_call call;
    fl_status status = timed_call_plan(&call, s->host, s->asked->device, s->op, dtype, s->asked->sizes, number);
    if (status == FL_ENOENT && !s->asked->dtype && dtype) { /* what most models use it does not take: anything */
      dtype = 0;
      status = timed_call_plan(&call, s->host, s->asked->device, s->op, dtype, s->asked->sizes, number);
    }
    if (status)
      return status == FL_ENOENT ? EXIT_OK : cli_fail(status);
    n = s->asked->small ? 1 : call.n_calls;
    if (!s->asked->large || number + 1 == n)
      time_call(s, &call, dtype);
    timed_call_free(&call);
  }
  return s->exit_status;
}

static int time_all(fl_host *host, const request *asked, const fl_snapshot *snapshot, int n, char **ops,
                    timings *rows) {
  uint32_t all = 0, done = 0;
  int status = EXIT_OK;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    all += cli_is_selected(fl_snapshot_op_name(snapshot, i), n, ops);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot) && !status; i++) {
    const char *name = fl_snapshot_op_name(snapshot, i);
    if (!cli_is_selected(name, n, ops) || !fl_snapshot_impl_count(snapshot, i))
      continue;
    cli_show_progress(done++, all, name);
    session s = {.host = host, .asked = asked, .op = fl_find_op(host, name), .rows = rows};
    if (!s.op)
      continue; /* withdrawn meanwhile */
    find_subjects(&s, snapshot, i);
    if (!s.no_memory && (!asked->impl || s.n > 1))
      status = time_op(&s);
    if (s.no_memory)
      status = cli_no_memory();
    session_free(&s);
  }
  cli_show_progress(done, all, NULL);
  return status;
}

static int exit_status_of(const timings *rows) {
  bool timed = false;
  for (size_t i = 0; i < rows->n; i++) {
    if (rows->items[i].failed)
      return EXIT_MISMATCH;
    timed |= rows->items[i].rounds > 0 && !rows->items[i].is_memcpy;
  }
  return timed ? EXIT_OK : EXIT_NO_IMPL;
}

static int bench(fl_host *host, const request *asked, int n, char **ops) {
  timings rows = {0};
  for (int i = 0; i < n; i++)
    if (!fl_find_op(host, ops[i]))
      return cli_fail(FL_ENOENT);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return cli_no_memory();
  int status = cli_check_impl(snapshot, asked->impl, n, ops);
  if (!status)
    status = time_all(host, asked, snapshot, n, ops, &rows);
  if (!status && !rows.n)
    cli_error("nothing to time: no implementation of these operators takes what was asked for");
  if (!status)
    status = asked->json ? timings_print_json(&rows, asked->device, asked->seconds) : timings_print_table(&rows);
  if (!status)
    status = exit_status_of(&rows);
  timings_free(&rows);
  fl_snapshot_release(snapshot);
  return status;
}

static bool parse_seconds(const char *text, double *seconds) {
  char *end;
  *seconds = strtod(text, &end);
  if (end != text && !*end && *seconds > 0 && *seconds <= 3600)
    return true;
  cli_error("--seconds: '%s' is not a number above 0 and up to 3600", text);
  return false;
}

static bool parse_size(const char *word, request *asked) {
  static const char *const words[] = {"small", "large", NULL};
  asked->small = !strcmp(word, words[0]);
  asked->large = !strcmp(word, words[1]);
  if (!asked->small && !asked->large)
    cli_unknown("size", "", word, words, "sizes: small (the first call of each operator), large (the last)");
  return asked->small || asked->large;
}

int command_bench(int argc, char **argv) {
  request asked = {.seconds = 0.2, .device = {kDLCPU, 0}};
  const char *dtype = NULL, *size = NULL, *seconds = NULL, *device = NULL;
  const cli_option options[] = {
      {"impl", "ID", "only implementations of that identifier, beside the reference", NULL, &asked.impl},
      {"dtype", "NAME", "calls of that element type (bfloat16, or what the operator takes)", NULL, &dtype},
      {"size", "WORD", "small: only the first call of each operator (one token); large: only the last", NULL, &size},
      {"dims", "TEXT", "sizes in place of the operator's own: \"n: 1 128; d: 8192\"", NULL, &asked.sizes},
      {"seconds", "S", "time for each implementation of each call, about (0.2)", NULL, &seconds},
      CLI_DEVICE_INDEX(&device),
      CLI_JSON(&asked.json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP…]", 0, -1,
      "Times each available implementation (of all operators, or of those named) on calls of the sizes that "
      "models of about 8 billion parameters have: one token, 128, 4096. Implementations, the operator's "
      "reference and a memcpy of as many bytes take turns; times are medians. Bytes and operations are those of "
      "the best algorithm, as 'flhost ops OP' shows. X REFERENCE, X MEMCPY: how many times as fast as these.\n"
      "Exit status 0: all well. 1: an implementation failed. 2: bad usage or settings. 3: nothing to time.",
      options};
  int status, first = cli_parse(&syntax, argc, argv, &status);
  if (first < 0)
    return status;
  if ((dtype && !cli_dtype(dtype, &asked.dtype)) || (size && !parse_size(size, &asked)) ||
      (seconds && !parse_seconds(seconds, &asked.seconds)))
    return EXIT_USAGE;
  if (asked.sizes && !asked.sizes[strspn(asked.sizes, " ;")]) {
    cli_error("--dims: '%s' has no sizes, expected some as in 'n: 1 128; d: 8192'", asked.sizes);
    return EXIT_USAGE;
  }
  if (asked.sizes && first == argc) {
    cli_error("--dims needs the operator that has these dimensions");
    return EXIT_USAGE;
  }
  fl_host *host = cli_open_host(0, &status);
  if (!host)
    return status;
  status = !device                                   ? EXIT_OK
           : cli_device(host, device, &asked.device) ? cli_check_device(host, asked.device)
                                                     : EXIT_USAGE;
  if (!status)
    status = bench(host, &asked, argc - first, argv + first);
  fl_host_destroy(host);
  return status;
}
