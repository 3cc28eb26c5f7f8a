/*
 * One op of `flhost bench`. All that are timed with one call take turns in one child process, with the reference and a
 * memcpy among them, so that a busy machine slows all alike; one that does not come back is left out, and another child
 * goes on. Nothing is called in this process.
 */
#include "cli/bench/bench.h"

#include "cli/bench/graph.h"
#include "cli/bench/measure.h"
#include "cli/bench/peer.h"
#include "cli/cli.h"
#include "cli/trials/subjects.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* At most so many rounds, of samples of a millisecond. A call that would take SLOWEST times as long as was asked for
 * is left out, one of more than once as long is timed once. */
enum { ROUNDS = 1000, SAMPLE_NS = 1000000, SLOWEST = 10 };

/* Before time is taken all copies of the tensors are gone through, for a second at most, which is not of the time that
 * was asked for. */
enum { TOUCH_NS = 1000000000 };

/* What is timed. */
typedef enum subject_kind { IMPLEMENTATION, MEMCPY, LOOP, TORCH } subject_kind;

/* One thing that is timed. */
typedef struct subject {
  fl_host *host;
  int32_t number;
  subject_kind kind;
  struct shared *shared; /* of the session */
  struct session *session;
  const char *name;         /* the row's */
  const fl_impl_info *info; /* of an implementation */
  fl_policy *policy;        /* this implementation and no other */
  const timed_call *call;
  fl_scope scope;
  device_memory to, from;       /* of memcpy, `half` bytes for each copy of the call */
  const fl_prepared **prepared; /* for each copy of the call; NULL: not asked for, or it prepares nothing */
  call_graph graph;             /* of its calls, on a device that has graphs */
  char *no_graph;               /* why there is none */
  double graph_us;              /* of one call in it */
  size_t half;
  byte_loop loop;
  uint32_t at; /* the copy of the call's tensors that is next */
  bool shown;  /* asked for */
  double ns;   /* of the call before; NAN: it was not timed */
  fl_cost cost;
  double *samples; /* of this call; NULL: not timed in rounds */
  int rounds;
  double median; /* NAN: not timed */
  fl_status status;
  bool ended;  /* it did not come back from this call: `reason` says how */
  bool failed; /* torch: it is gone */
  char *reason;
} subject;

/* One op while it is timed. */
typedef struct session {
  fl_host *host;
  const bench_request *asked;
  fl_op *op;
  subject *subjects; /* implementations, memcpy, peers */
  int n, memcpy;
  int reference; /* index; -1: there is none */
  timings *rows;
  int exit_status; /* not EXIT_OK: the sizes are no good */
  bool no_memory;
  struct shared *shared; /* in shared memory */
} session;

/* A row as a child leaves it. */
typedef struct shared_row {
  timing row; /* its strings lie below; the element type's name is the library's */
  char impl_id[256], shapes[1024], reason[TRIAL_WORDS], no_graph[TRIAL_WORDS];
} shared_row;

enum { SUBJECTS_MOST = 64, ROWS_MOST = 4096 };

/* What a child leaves behind, and the next one goes on with. */
typedef struct shared {
  bool full, no_memory;
  int exit_status;
  uint32_t number; /* of the call that is timed */
  int32_t current; /* the subject that is called */
  uint32_t n_rows;
  shared_row rows[ROWS_MOST];
  struct {
    char ended[TRIAL_WORDS];    /* it did not come back from this call; "": it did */
    char no_graph[TRIAL_WORDS]; /* nor from the graph of this call */
    bool in_graph;              /* that is what it is at */
    double ns;                  /* of the call before, and what that cost */
    fl_cost cost;
  } subjects[SUBJECTS_MOST];
} shared;

/* ------------------------------------------------------------------------------------------------------------- ways */

static fl_status enter(void *context) {
  subject *s = context;
  s->shared->current = s->number; /* outside of what is timed */
  trial_beat();
  return s->kind == IMPLEMENTATION ? fl_scope_enter(s->host, s->policy, &s->scope) : FL_OK;
}

static fl_status leave(void *context) {
  subject *s = context;
  if (s->kind == IMPLEMENTATION)
    fl_scope_leave(&s->scope);
  return FL_OK;
}

static fl_status enter_graph(void *context) {
  subject *s = context;
  s->shared->subjects[s->number].in_graph = true;
  return enter(context);
}

static fl_status leave_graph(void *context) {
  subject *s = context;
  s->shared->subjects[s->number].in_graph = false;
  return leave(context);
}

static bool is_processor(DLDevice device) {
  return device.device_type == kDLCPU;
}

/* A device may still be at work when a call returns. */
static fl_status finish(const subject *s) {
  return is_processor(s->call->device) ? FL_OK : fl_device_synchronize(s->host, s->call->device, NULL, true);
}

/* The copy of the call's tensors whose turn it is. */
static uint32_t next_copy(subject *s) {
  uint32_t copy = s->at;
  s->at = copy + 1 < s->call->copies ? copy + 1 : 0;
  return copy;
}

static fl_status run_impl(subject *s, long n) {
  fl_call call = {.size = sizeof call, .count = s->call->n_values};
  fl_status status = FL_OK;
  while (n-- && !status) {
    uint32_t copy = next_copy(s);
    call.values = s->call->values + (size_t)copy * call.count;
    call.prepared = s->prepared ? s->prepared[copy] : NULL;
    status = fl_invoke(s->call->op, &call);
  }
  return status ? status : finish(s);
}

/* On the processor through a pointer that the compiler does not see through: it would leave out what nobody reads. */
static fl_status run_memcpy(subject *s, long n) {
  static void *(*volatile const copy)(void *, const void *, size_t) = memcpy;
  fl_status status = FL_OK;
  while (n-- && !status) {
    size_t at = next_copy(s) * s->half;
    char *to = (char *)s->to.memory + at, *from = (char *)s->from.memory + at;
    if (is_processor(s->call->device))
      copy(to, from, s->half);
    else
      status = fl_device_copy(s->host, s->call->device, to, from, s->half, FL_COPY_ON_DEVICE, NULL);
  }
  return status ? status : finish(s);
}

static fl_status run(void *context, long n) {
  subject *s = context;
  return s->kind == IMPLEMENTATION ? run_impl(s, n) : s->kind == LOOP ? byte_loop_run(&s->loop, n) : run_memcpy(s, n);
}

static fl_status run_graph(void *context, long n) {
  const subject *s = context;
  return call_graph_launch(&s->graph, n);
}

/* That torch fails is no reason to lose the turns of the others. */
static fl_status time_torch(void *context, long n, double *ns) {
  subject *s = context;
  char words[TORCH_PEER_WORDS];
  if (!s->reason && torch_peer_time(s->session->asked->torch, s->name, n, ns, words)) {
    s->failed = true;
    s->session->no_memory |= !(s->reason = strdup(words));
  }
  if (s->reason)
    *ns = NAN;
  return FL_OK;
}

static bench_way way_of(subject *s) {
  return (bench_way){
      .run = run, .context = s, .enter = enter, .leave = leave, .time = s->kind == TORCH ? time_torch : NULL};
}

static bench_way way_of_graph(subject *s) {
  return (bench_way){.run = run_graph, .context = s, .enter = enter_graph, .leave = leave_graph};
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
  s->subjects = calloc(n + 1 + BENCH_PEERS_MOST, sizeof *s->subjects);
  s->no_memory |= !s->subjects;
  for (uint32_t i = 0; i < n && !s->no_memory; i++) {
    subject *added = &s->subjects[s->n];
    const fl_impl_info *info = fl_snapshot_impl(snapshot, index, i);
    bool is_reference = info->kind == FL_KIND_REFERENCE && info->available && is_for_device(s, info);
    if (info->kind == FL_KIND_REFERENCE && s->asked->no_reference)
      continue;
    *added = (subject){.kind = IMPLEMENTATION, .name = info->impl_id, .info = info};
    added->shown = s->asked->impl ? !strcmp(s->asked->impl, info->impl_id)
                                  : is_for_device(s, info) || is_processor(s->asked->device);
    if (is_reference && (s->reference < 0 || info->priority > s->subjects[s->reference].info->priority))
      s->reference = s->n;
    if ((!added->shown && s->reference != s->n) || s->n == SUBJECTS_MOST - 1 - BENCH_PEERS_MOST)
      continue;
    s->no_memory |= !cli_create_policy(s->host, fl_op_name(s->op), info->impl_id, &added->policy);
    s->n++;
  }
  if (s->no_memory)
    return;
  s->memcpy = s->n++;
  s->subjects[s->memcpy] = (subject){.kind = MEMCPY, .name = "memcpy", .shown = true};
  for (int i = 0; i < s->asked->n_peers; i++)
    s->subjects[s->n++] = (subject){
        .kind = bench_peer_is_loop(s->asked->peers[i]) ? LOOP : TORCH, .name = s->asked->peers[i], .shown = true};
  for (int i = 0; i < s->n; i++) {
    subject *each = &s->subjects[i];
    each->host = s->host;
    each->number = i;
    each->shared = s->shared;
    each->session = s;
    each->ns = NAN;
  }
}

/* Readies the subjects for a call. */
static void begin(session *s, const timed_call *call) {
  for (int i = 0; i < s->n; i++) {
    subject *each = &s->subjects[i];
    each->call = call;
    each->status = FL_OK;
    each->median = NAN;
    each->graph_us = NAN;
    each->rounds = 0;
    each->half = 0;
    each->at = 0;
    each->failed = false;
    each->ended = *s->shared->subjects[i].ended;
    each->reason = each->ended                                         ? strdup(s->shared->subjects[i].ended)
                   : each->kind == IMPLEMENTATION                      ? why_not(s, each->info)
                   : each->kind == LOOP && !is_processor(call->device) ? strdup("it is for tensors on cpu (--device)")
                                                                       : NULL;
  }
  if (s->asked->torch)
    torch_peer_next_call(s->asked->torch);
}

static void end(session *s) {
  for (int i = 0; i < s->n; i++) {
    subject *each = &s->subjects[i];
    call_graph_free(&each->graph);
    device_memory_free(&each->to);
    device_memory_free(&each->from);
    for (uint32_t copy = 0; each->prepared && copy < each->call->copies; copy++)
      fl_prepared_free(each->prepared[copy]);
    free(each->prepared);
    each->prepared = NULL;
    byte_loop_free(&each->loop);
    free(each->no_graph);
    each->no_graph = NULL;
    free(each->reason);
    free(each->samples);
    each->reason = NULL;
    each->samples = NULL;
  }
}

/* Is there anything to time, and nothing against it? Of no bytes there is no copy. */
static bool is_ready(const subject *each) {
  return !each->reason && (each->kind == MEMCPY ? each->half : each->kind == LOOP ? each->loop.from != NULL : true);
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
  size_t all = each->half * call->copies;
  void *bytes = calloc(1, all + 1);
  bool done = bytes && !device_memory_create(&each->to, call->host, call->device, all) &&
              !device_memory_create(&each->from, call->host, call->device, all);
  if (done && all)
    done = !device_memory_put(&each->to, bytes) && !device_memory_put(&each->from, bytes);
  free(bytes);
  return done;
}

/* What it prepares of the weights of each copy, where that is asked for. */
static fl_status ready_prepared(session *s, subject *each) {
  const timed_call *call = each->call;
  if (!s->asked->prepared || !each->info->prepares)
    return FL_OK;
  each->prepared = calloc(call->copies, sizeof *each->prepared);
  s->no_memory |= !each->prepared;
  fl_status status = each->prepared ? enter(each) : FL_ENOMEM;
  if (status)
    return status;
  for (uint32_t copy = 0; copy < call->copies && !status; copy++) {
    const fl_call planned = {
        .size = sizeof planned, .count = call->n_values, .values = call->values + (size_t)copy * call->n_values};
    status = fl_prepare(call->op, &planned, &each->prepared[copy]);
  }
  leave(each);
  return status ? status : finish(each);
}

/* Bytes of one copy's; NAN: none. */
static double prepared_bytes(const subject *each) {
  return each->prepared && each->prepared[0] ? (double)each->prepared[0]->bytes : NAN;
}

/* Why a call did not work, malloc'ed; NULL: out of memory. */
static char *describe_failure(fl_status status) {
  char *reason;
  if (status == FL_ENOIMPL || status == FL_ENOTSUP)
    return cli_skip_reason(fl_error_message());
  return asprintf(&reason, "returned %s: %s", fl_status_name(status), fl_error_message()) < 0 ? NULL : reason;
}

/* Has torch make the call; false: it does not, and `reason` says why. */
static bool ready_torch(session *s, subject *each) {
  char words[TORCH_PEER_WORDS];
  enter(each);
  fl_status status = torch_peer_ready(s->asked->torch, each->name, each->call, words);
  each->failed = status && status != FL_ENOTSUP;
  if (status)
    s->no_memory |= !(each->reason = strdup(words));
  return !status;
}

/* Makes a graph of calls of one that works, on a device. */
static void ready_graph(session *s, subject *each) {
  const char *before = each->shared->subjects[each->number].no_graph;
  char words[TRIAL_WORDS] = "";
  if (each->kind != IMPLEMENTATION || is_processor(each->call->device) || each->reason)
    return;
  if (*before)
    snprintf(words, sizeof words, "%s", before);
  else if (!enter_graph(each) && !call_graph_capture(&each->graph, each->call, each->prepared, words))
    *words = 0;
  if (!*before)
    leave_graph(each);
  if (*words)
    s->no_memory |= asprintf(&each->no_graph, "no graph: %s", words) < 0;
}

/* Once, to see that it works and about how long it takes; again if that is long, as the first call resolves the op and
 * touches memory for the first time. What takes long even then stays at this once. */
static void try_once(session *s, subject *each) {
  const bench_way way = way_of(each);
  double longest = s->asked->seconds * 1e9;
  each->status = each->kind == IMPLEMENTATION ? ready_prepared(s, each) : FL_OK;
  if (each->kind == TORCH && !ready_torch(s, each))
    return;
  if (!each->status)
    each->status = bench_sample(&way, 1, &each->ns);
  if (!each->status && each->ns > longest)
    each->status = bench_sample(&way, 1, &each->ns);
  each->cost = each->call->cost;
  s->shared->subjects[each->number].ns = each->status ? NAN : each->ns;
  s->shared->subjects[each->number].cost = each->cost;
  if (each->status) {
    each->reason = describe_failure(each->status);
    s->no_memory |= !each->reason;
    each->ns = NAN;
  } else if (each->ns > longest) {
    each->median = each->ns;
    each->rounds = 1;
  } else {
    ready_graph(s, each);
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

/* Keeps what one call took in a graph. */
static void keep_graph(subject *each, double *samples, int rounds) {
  each->graph_us = bench_spread_of(samples, rounds).median / GRAPH_CALLS / 1e3;
}

/* One call with every copy of the tensors: the first that reads what was only written so far takes longer. */
static fl_status touch_copies(const bench_way *ways, int n_ways) {
  fl_status status = FL_OK;
  for (int i = 0; i < n_ways && !status; i++) {
    const subject *each = ways[i].context;
    double most = TOUCH_NS / each->ns, copies = each->call->copies, ns;
    if (copies > 1 && ways[i].run != run_graph)
      status = bench_sample(&ways[i], (long)fmax(1, fmin(copies, most)), &ns);
  }
  return status;
}

/* Those that are quick enough, in turn, and their graphs. */
static void time_in_turn(session *s) {
  bench_way *ways = calloc((size_t)2 * SUBJECTS_MOST, sizeof *ways);
  double *samples = calloc((size_t)2 * SUBJECTS_MOST * ROUNDS, sizeof *samples);
  int n = 0, rounds = 0;
  s->no_memory |= !ways || !samples;
  for (int i = 0; i < s->n && !s->no_memory; i++) {
    if (!is_ready(&s->subjects[i]) || !isnan(s->subjects[i].median))
      continue;
    ways[n++] = way_of(&s->subjects[i]);
    if (s->subjects[i].graph.graph)
      ways[n++] = way_of_graph(&s->subjects[i]);
  }
  const bench_effort effort = {.rounds = ROUNDS, .seconds = s->asked->seconds * n, .sample_ns = SAMPLE_NS};
  fl_status status = s->no_memory ? FL_OK : touch_copies(ways, n);
  if (!status && !s->no_memory && n)
    status = bench_turns(&effort, ways, n, samples, &rounds);
  s->no_memory |= status == FL_ENOMEM;
  for (int i = 0; i < n && !s->no_memory; i++) {
    subject *each = ways[i].context;
    double *taken = samples + (size_t)i * ROUNDS;
    if (each->reason)
      continue;
    each->status = status;
    if (status)
      s->no_memory |= !(each->reason = describe_failure(status));
    else if (ways[i].run == run_graph)
      keep_graph(each, taken, rounds);
    else
      keep_samples(s, each, taken, rounds);
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
  const subject *copy = &s->subjects[s->memcpy], *reference = s->reference < 0 ? NULL : &s->subjects[s->reference];
  timing *row = timings_add(s->rows, each->call, each->name, dtype);
  if (!row) {
    s->no_memory = true;
    return;
  }
  row->us = each->median / 1e3;
  row->rounds = each->rounds;
  row->prepared = prepared_bytes(each);
  row->reason = each->reason;
  row->no_graph = each->no_graph;
  row->graph_us = each->graph_us;
  each->reason = each->no_graph = NULL;
  row->failed =
      each->failed || each->ended || (each->status && each->status != FL_ENOIMPL && each->status != FL_ENOTSUP);
  row->is_beside = each->kind != IMPLEMENTATION;
  if (each->kind == MEMCPY || each->kind == LOOP) {
    row->flops = 0;
    return;
  }
  if (reference && each != reference)
    row->as_reference = times_as_fast(each, reference, room);
  if (copy->half)
    row->as_memcpy = times_as_fast(each, copy, room);
  for (int i = 0; i < s->asked->n_peers; i++)
    if (each != &s->subjects[s->memcpy + 1 + i])
      row->as_peer[i] = times_as_fast(each, &s->subjects[s->memcpy + 1 + i], room);
}

static void add_rows(session *s, const char *dtype) {
  double *room = malloc(ROUNDS * sizeof *room);
  s->no_memory |= !room;
  for (int i = 0; i < s->n && !s->no_memory; i++)
    if (s->subjects[i].shown && (s->subjects[i].kind != MEMCPY || s->subjects[i].half))
      add_row(s, &s->subjects[i], dtype, room);
  free(room);
}

/* For all that would have been timed. */
static void refuse_all(session *s, const timed_call *call) {
  for (int i = 0; i < s->n; i++)
    if (i != s->memcpy && !s->subjects[i].reason)
      s->no_memory |= asprintf(&s->subjects[i].reason, "not timed: there is no memory for tensors of %.3g GB",
                               fmax(timed_call_bytes(call), s->asked->rotated) / 1e9) < 0;
}

/* false: out of memory. */
static bool ready_loops(session *s, const timed_call *call) {
  bool done = true;
  for (int i = 0; i < s->n && done; i++)
    if (s->subjects[i].kind == LOOP && !s->subjects[i].reason)
      done = byte_loop_create(&s->subjects[i].loop, byte_mix_of(call), call->copies, s->asked->threads);
  return done;
}

/* Memory and data for the call. */
static bool ready(session *s, timed_call *call) {
  fl_status status = timed_call_fill(call, s->asked->rotated);
  if (!status && ready_memcpy(&s->subjects[s->memcpy]) && ready_loops(s, call))
    return true;
  if (status == FL_EINVAL) {
    cli_error("%s: with these sizes an argument has no values to take", fl_op_name(s->op));
    s->exit_status = EXIT_USAGE;
  } else {
    s->subjects[s->memcpy].half = 0;
    refuse_all(s, call);
  }
  return false;
}

static void time_call(session *s, timed_call *call, uint32_t dtype) {
  bool some = false;
  begin(s, call);
  for (int i = 0; i < s->n; i++)
    if (s->subjects[i].kind == IMPLEMENTATION || s->subjects[i].kind == TORCH)
      some |= !s->subjects[i].reason && !is_too_slow(s, &s->subjects[i]) && s->subjects[i].kind == IMPLEMENTATION;
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

/* --------------------------------------------------------------------------------------------------- in the child */

static char *keep_text(char *room, size_t size, const char *text) {
  if (text)
    snprintf(room, size, "%s", text);
  return text ? room : NULL;
}

/* What a call's rows were is the parent's. */
static void keep_rows(session *s) {
  shared *kept = s->shared;
  for (size_t i = 0; i < s->rows->n; i++) {
    const timing *row = &s->rows->items[i];
    shared_row *to = &kept->rows[kept->n_rows];
    kept->full |= kept->n_rows == ROWS_MOST;
    if (kept->full)
      return;
    to->row = *row;
    to->row.op = NULL;
    to->row.impl_id = keep_text(to->impl_id, sizeof to->impl_id, row->impl_id);
    to->row.shapes = keep_text(to->shapes, sizeof to->shapes, row->shapes);
    to->row.reason = keep_text(to->reason, sizeof to->reason, row->reason);
    to->row.no_graph = keep_text(to->no_graph, sizeof to->no_graph, row->no_graph);
    kept->n_rows++;
  }
  timings_free(s->rows);
}

static void announce(const timed_call *call) {
  char *shapes = timed_call_shapes(call);
  if (shapes)
    trial_doing("a call", shapes);
  free(shapes);
}

/* The next call: nobody has failed to come back from it. */
static void go_on(session *s) {
  keep_rows(s);
  for (int i = 0; i < s->n; i++)
    *s->shared->subjects[i].ended = *s->shared->subjects[i].no_graph = 0;
  s->shared->number++;
}

/* The calls of one op, from the one that the child before did not come back from. The exit status. */
static int time_op(session *s) {
  uint32_t dtype = s->asked->dtype ? s->asked->dtype : FL_BFLOAT16, n = s->shared->number + 1;
  for (uint32_t number; (number = s->shared->number) < n && !s->no_memory && !s->exit_status; go_on(s)) {
    timed_call call;
    fl_status status = timed_call_plan(&call, s->host, s->asked->device, s->op, dtype, s->asked->sizes, number);
    if (status == FL_ENOENT && !s->asked->dtype && dtype) { /* what most models use it does not take: anything */
      dtype = 0;
      status = timed_call_plan(&call, s->host, s->asked->device, s->op, dtype, s->asked->sizes, number);
    }
    if (status) {
      return status == FL_ENOENT ? EXIT_OK : cli_fail(status);
    }
    n = s->asked->small ? 1 : call.n_calls;
    if (!s->asked->large || number + 1 == n) {
      announce(&call);
      time_call(s, &call, dtype);
    }
    timed_call_free(&call);
  }
  return s->exit_status;
}

static void time_op_apart(void *context) {
  session *s = context;
  timings rows = {0};
  s->rows = &rows;
  s->exit_status = EXIT_OK;
  for (int i = 0; i < s->n; i++) {
    s->subjects[i].ns = s->shared->subjects[i].ns;
    s->subjects[i].cost = s->shared->subjects[i].cost;
  }
  s->shared->exit_status = time_op(s);
  s->shared->no_memory = s->no_memory;
  timings_free(&rows);
}

/* -------------------------------------------------------------------------------------------------- in the parent */

static bool take_text(char **to, const char *text) {
  *to = text ? strdup(text) : NULL;
  return !text || *to;
}

static bool take_rows(const session *s, timings *rows) {
  for (uint32_t i = 0; i < s->shared->n_rows; i++) {
    const timing *kept = &s->shared->rows[i].row;
    timing *grown = realloc(rows->items, (rows->n + 1) * sizeof *grown);
    if (!grown)
      return false;
    rows->items = grown;
    timing *row = &rows->items[rows->n++];
    rows->capacity = rows->n;
    *row = *kept;
    bool done = take_text(&row->op, fl_op_name(s->op));
    done = take_text(&row->impl_id, kept->impl_id) && done;
    done = take_text(&row->shapes, kept->shapes) && done;
    done = take_text(&row->reason, kept->reason) && done;
    done = take_text(&row->no_graph, kept->no_graph) && done;
    if (!done)
      return false;
  }
  return true;
}

/* One that did not come back is left out of this call, or its graph is, and the next process goes on with the others.
 * false: with it there is no telling who it was. */
static bool take_end(session *s, const trial_outcome *outcome) {
  int32_t current = s->shared->current;
  if (current < 0 || current >= s->n || *s->shared->subjects[current].ended)
    return false;
  bool in_graph = s->shared->subjects[current].in_graph;
  s->shared->subjects[current].in_graph = false;
  snprintf(in_graph ? s->shared->subjects[current].no_graph : s->shared->subjects[current].ended, TRIAL_WORDS, "%s",
           outcome->words);
  s->shared->current = -1;
  return true;
}

static int time_apart(session *s, timings *rows) {
  for (;;) {
    trial_outcome outcome = trial_run(&s->asked->limits, time_op_apart, s);
    if (!outcome.end)
      break;
    if (!take_end(s, &outcome)) {
      cli_error("%s: %s", fl_op_name(s->op), outcome.words);
      s->shared->exit_status = EXIT_USAGE;
      break;
    }
  }
  s->no_memory |= s->shared->no_memory || !take_rows(s, rows);
  return s->no_memory ? cli_no_memory() : s->shared->exit_status;
}

int bench_op(fl_host *host, const bench_request *asked, const fl_snapshot *snapshot, uint32_t index, timings *rows) {
  session s = {.host = host, .asked = asked, .op = fl_find_op(host, fl_snapshot_op_name(snapshot, index))};
  int status = EXIT_OK;
  if (!s.op)
    return EXIT_OK; /* withdrawn meanwhile */
  s.shared = trial_share(sizeof *s.shared);
  if (!s.shared)
    return cli_no_memory();
  s.shared->current = -1;
  for (int i = 0; i < SUBJECTS_MOST; i++)
    s.shared->subjects[i].ns = NAN;
  find_subjects(&s, snapshot, index);
  if (s.no_memory)
    status = cli_no_memory();
  else if (!asked->impl || s.memcpy > 0)
    status = time_apart(&s, rows);
  session_free(&s);
  trial_unshare(s.shared, sizeof *s.shared);
  return status;
}
