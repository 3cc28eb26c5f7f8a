/* The rows: what each is, beside what, what it has to reach. And the report of them, as JSON and as tables. */
#include "bench/dispatch/dispatch.h"
#include "cli/trials/machine.h"

#include <math.h>
#include <string.h>

typedef enum row_kind { DIFFERENCE, RATIO, ABSOLUTE } row_kind;
static const char *const kind_names[] = {"difference", "ratio", "absolute"};

typedef struct row {
  const char *id, *what, *baseline;
  row_kind kind;
  const char *unit;
  double target; /* 0: none */
  bool at_least;
} row;

static const row rows[BENCH_ROWS] = {
    [ROW_HANDLE] = {"handle", "call by handle, one candidate", "the function through a pointer", DIFFERENCE, "ns", 2,
                    false},
    [ROW_LIBRARY] = {"library", "a library's function that only calls it", "the function through a pointer", DIFFERENCE,
                     "ns", 0, false},
    [ROW_HANDLE_LIBRARY] = {"handle_library", "call by handle", "a library's function that only calls it", DIFFERENCE,
                            "ns", 0, false},
    [ROW_HANDLE_ARCHIVE] = {"handle_archive", "call by handle, linked with libflhost.a",
                            "the function through a pointer", DIFFERENCE, "ns", 2, false},
    [ROW_TYPED] = {"typed", "fl_rms_norm(...)", "by handle, arguments stored", DIFFERENCE, "ns", 1, false},
    [ROW_SUPPORTS] = {"supports_args", "first candidate has supports_args", "predicate + call by handle", DIFFERENCE,
                      "ns", 1, false},
    [ROW_NAME] = {"name", "call by name", "by handle", DIFFERENCE, "ns", 10, false},
    [ROW_SCOPE] = {"scope", "call inside a scoped policy", "outside", DIFFERENCE, "ns", 2, false},
    [ROW_THREADS] = {"threads", "two threads, same op, same handle: calls/s", "one thread", RATIO, "ns", 1.9, true},
    [ROW_CHECKS] = {"checks", "rms_norm, arguments checked", "FL_HOST_NO_ARGUMENT_CHECKS", DIFFERENCE, "ns", 10, false},
    [ROW_CHECKS_RESIDUAL] = {"checks_residual", "rms_norm with residual, checked", "FL_HOST_NO_ARGUMENT_CHECKS",
                             DIFFERENCE, "ns", 0, false},
    [ROW_RESOLVE] = {"resolve", "first call of an op with 4 impls", "its second call", DIFFERENCE, "ns", 1000, false},
    [ROW_RESOLVE_LOGGED] = {"resolve_logged", "the same, first use logged (level INFO)", "its second call", DIFFERENCE,
                            "ns", 0, false},
    [ROW_MANY_CALL] = {"many_call", "by name, 10 000 ops x 8 impls", "10 ops", RATIO, "ns", 1.5, false},
    [ROW_MANY_CALL_ALL] = {"many_call_all", "the same, all 10 000 in random order", "10 ops", RATIO, "ns", 0, false},
    [ROW_MANY_TIME] = {"many_time", "registering and resolving 10 000 x 8", NULL, ABSOLUTE, "ms", 100, false},
    [ROW_MANY_PLUGIN] = {"many_plugin", "the same, registered by one plugin", NULL, ABSOLUTE, "ms", 100, false},
    [ROW_MANY_MEMORY] = {"many_memory", "memory of an impl beside its strings", NULL, ABSOLUTE, "bytes", 200, false},
    [ROW_MANY_OP_MEMORY] = {"many_op_memory", "memory of an op with its schema", NULL, ABSOLUTE, "bytes", 0, false},
    [ROW_OFF] = {"off", "tracing, statistics off: the call path", NULL, ABSOLUTE, "instructions", 0, false},
    [ROW_STATISTICS] = {"statistics", "statistics on", "off", DIFFERENCE, "ns", 3, false},
    [ROW_STATISTICS_THREADS] = {"statistics_threads", "statistics on, two threads: calls/s", "one thread", RATIO, "ns",
                                1.9, true},
    [ROW_START] = {"start", "fl_host_create with 4 plugins", "bare dlopen + dlsym", RATIO, "us", 1.3, false},
    [ROW_START_CALLED] = {"start_called", "the same, and the first call of rms_norm", "bare dlopen + dlsym", RATIO,
                          "us", 0, false},
    [ROW_START_EMPTY] = {"start_empty", "fl_host_create without plugins", NULL, ABSOLUTE, "us", 0, false},
    [ROW_START_MANY] = {"start_many", "start with 100 plugins, 2 needed", "those 2 alone", DIFFERENCE, "ms", 2, false},
    [ROW_START_TRIED] = {"start_tried", "start with 10 unchanged plugins, all needed", "VLLM_FL_PROBE=off", DIFFERENCE,
                         "ms", 1, false},
};

static const struct {
  const char *id, *name;
} costs[BENCH_COSTS] = {
    [COST_POINTER] = {"pointer", "function through a pointer"},
    [COST_LIBRARY] = {"library", "function through a library's function"},
    [COST_HANDLE] = {"handle", "flhost, by handle"},
    [COST_COUNTED] = {"counted", "flhost, by handle, statistics on"},
    [COST_NAME] = {"name", "flhost, by name"},
    [COST_CHECKED] = {"checked", "flhost, rms_norm, arguments checked"},
    [COST_REFCOUNT] = {"refcount", "handle counted at each call"},
    [COST_MUTEX] = {"mutex", "table behind a mutex"},
    [COST_RWLOCK] = {"rwlock", "table behind an rwlock"},
    [COST_OPENSSL] = {"openssl", "OpenSSL EVP_MD_fetch + free"},
};

/* ----------------------------------------------------------------------------------------------------------- JSON */

static json_t *spread_json(bench_spread spread) {
  return isnan(spread.median) ? json_null()
                              : json_pack("{s:f, s:f}", "median", spread.median, "minimum", spread.minimum);
}

/* Null where there is nothing to hold the figure against. */
static json_t *verdict(const row *what, const bench_result *result) {
  if (!result->measured || (!what->target && !result->verdict))
    return json_null();
  if (result->verdict)
    return json_boolean(result->verdict > 0);
  double value = result->value.median;
  return json_boolean(what->at_least ? value >= what->target : value <= what->target);
}

static json_t *row_json(const row *what, const bench_result *result) {
  const bench_spread none = {NAN, NAN};
  return json_pack(
      "{s:s, s:s, s:s?, s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:s}", "id", what->id, "what", what->what, "baseline",
      what->baseline, "kind", kind_names[what->kind], "unit", what->unit, "target",
      what->target ? json_real(what->target) : json_null(), "bound", what->at_least ? "at least" : "at most", "value",
      spread_json(result->measured ? result->value : none), "subject",
      spread_json(result->measured ? result->subject : none), "reference",
      spread_json(result->measured ? result->baseline : none), "met", verdict(what, result), "note", result->note);
}

json_t *bench_report(const bench *b) {
  const bench_spread none = {NAN, NAN};
  json_t *report = json_object(), *row_list = json_array(), *cost_list = json_array();
  for (int i = 0; i < BENCH_ROWS; i++)
    json_array_append_new(row_list, row_json(&rows[i], &b->rows[i]));
  for (int i = 0; i < BENCH_COSTS; i++) {
    const bench_cost_result *cost = &b->costs[i];
    json_array_append_new(cost_list,
                          json_pack("{s:s, s:s, s:o, s:o, s:s}", "id", costs[i].id, "name", costs[i].name, "one_thread",
                                    spread_json(cost->measured ? cost->one : none), "two_threads",
                                    spread_json(cost->has_two ? cost->two : none), "note", cost->note));
  }
  json_t *machine = machine_json();
  json_object_set_new(machine, "used", json_integer(b->n_processors));
  json_object_set_new(report, "machine", machine);
  json_object_set_new(report, "quick", json_boolean(b->quick));
  json_object_set_new(report, "rows", row_list);
  json_object_set_new(report, "costs", cost_list);
  json_object_set_new(report, "python", bench_python_peers(b));
  return report;
}

/* ---------------------------------------------------------------------------------------------------------- tables */

static const char *string_of(const json_t *object, const char *key) {
  const char *string = json_string_value(json_object_get(object, key));
  return string ? string : "";
}

/* "12.3 ns" into one of some buffers in turn; "" for null. `sign`: "+12.3 ns". */
static const char *number(const json_t *value, const char *unit, bool sign) {
  static char buffers[8][48];
  static int turn;
  char *buffer = buffers[turn++ % 8];
  double v = json_number_value(value);
  int digits = fabs(v) >= 99.95 || !strcmp(unit, "instructions") ? 0 : 2;
  if (!value || json_is_null(value))
    return "";
  snprintf(buffer, sizeof buffers[0], sign ? "%+.*f %s" : "%.*f %s", digits, v, unit);
  return buffer;
}

/* How the value is written: a ratio has no unit. */
static const char *value_of(const json_t *what, const char *key) {
  const char *kind = string_of(what, "kind");
  return number(json_object_get(json_object_get(what, "value"), key), *kind == 'r' ? "x" : string_of(what, "unit"),
                *kind == 'd');
}

static const char *target_of(const json_t *what) {
  static char buffer[48];
  const json_t *target = json_object_get(what, "target");
  const char *kind = string_of(what, "kind");
  if (json_is_null(target))
    return "";
  snprintf(buffer, sizeof buffer, "%s %g %s",
           strcmp(string_of(what, "bound"), "at most") ? ">=" : "<=", json_number_value(target),
           *kind == 'r' ? "x" : string_of(what, "unit"));
  return buffer;
}

static void print_rows(const json_t *list) {
  size_t i;
  json_t *what;
  printf("%-44s %12s   %-30s %12s  %14s %14s  %-12s %s\n", "row", "measured", "beside", "measured", "median",
         "of minima", "target", "met");
  json_array_foreach(list, i, what) {
    const json_t *met = json_object_get(what, "met");
    const char *unit = string_of(what, "unit");
    bool absolute = *string_of(what, "kind") == 'a';
    const char *subject = number(json_object_get(json_object_get(what, "subject"), "median"), unit, false);
    const char *reference = number(json_object_get(json_object_get(what, "reference"), "median"), unit, false);
    printf("%-44s %12s   %-30s %12s  %14s %14s  %-12s %s\n", string_of(what, "what"), absolute ? "" : subject,
           string_of(what, "baseline"), reference, value_of(what, "median"), value_of(what, "minimum"), target_of(what),
           json_is_null(met)   ? ""
           : json_is_true(met) ? "yes"
                               : "NO");
    if (*string_of(what, "note"))
      printf("    %s\n", string_of(what, "note"));
  }
}

static void print_costs(const json_t *list) {
  size_t i;
  json_t *cost;
  printf("\n%-44s %14s %14s\n", "one call costs each thread", "one thread", "two threads");
  json_array_foreach(list, i, cost) {
    const char *one = number(json_object_get(json_object_get(cost, "one_thread"), "median"), "ns", false);
    const char *two = number(json_object_get(json_object_get(cost, "two_threads"), "median"), "ns", false);
    printf("%-44s %14s %14s  %s\n", string_of(cost, "name"), one, two, string_of(cost, "note"));
  }
}

static void print_python(const json_t *list) {
  size_t i;
  json_t *peer;
  json_array_foreach(list, i, peer)
      printf("%-44s %14s %14s  %s\n", string_of(peer, "name"), number(json_object_get(peer, "ns"), "ns", false), "",
             string_of(peer, "note"));
}

void bench_print(const json_t *report) {
  const json_t *machine = json_object_get(report, "machine");
  printf("%s, %lld processors, %s, %s, flhost %s, %s\n\n", string_of(machine, "cpu"),
         (long long)json_integer_value(json_object_get(machine, "processors")), string_of(machine, "kernel"),
         string_of(machine, "compiler"), string_of(machine, "flhost"), string_of(machine, "date"));
  print_rows(json_object_get(report, "rows"));
  print_costs(json_object_get(report, "costs"));
  print_python(json_object_get(report, "python"));
}
