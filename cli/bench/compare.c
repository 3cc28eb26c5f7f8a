/*
 * What an earlier `flhost bench --json` measured, beside this run. A row is the same when op, implementation, device,
 * element type and arguments are; of several that are alike the first belongs to the first.
 */
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "cli/trials/machine.h"
#include "cli/trials/subjects.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What every row has, as text or null. */
static const char *const keys[] = {"op", "impl_id", "dtype", "arguments"};
enum { KEYS = sizeof keys / sizeof *keys };

static const char *text_of(const json_t *row, const char *key) {
  const char *text = json_string_value(json_object_get(row, key));
  return text ? text : "";
}

static bool is_text_or_null(const json_t *value) {
  return json_is_string(value) || json_is_null(value);
}

/* What is wrong with a row, NULL: nothing. */
static const char *fault_of(const json_t *row) {
  const json_t *us = json_object_get(row, "us");
  for (int i = 0; i < KEYS; i++)
    if (!is_text_or_null(json_object_get(row, keys[i])))
      return keys[i];
  return json_is_null(us) || (json_is_number(us) && json_number_value(us) > 0) ? NULL : "us";
}

/* Is it a report of this command? Else says why not. */
static bool check(const char *path, const json_t *report) {
  const json_t *rows = json_object_get(report, "timings");
  size_t i;
  json_t *row;
  if (!json_is_array(rows) || !json_is_string(json_object_get(report, "device"))) {
    cli_error("--compare: %s is JSON, but no report of 'flhost bench --json': it has no %s", path,
              json_is_array(rows) ? "device" : "list 'timings'");
    return false;
  }
  json_array_foreach(rows, i, row) {
    const char *fault = fault_of(row);
    if (!fault)
      continue;
    cli_error("--compare: %s: timings[%zu] has no good '%s', expected %s", path, i, fault,
              strcmp(fault, "us") ? "a string" : "a number above 0, or null");
    return false;
  }
  return true;
}

bool earlier_read(earlier_run *earlier, const char *path) {
  json_error_t error;
  FILE *file = fopen(path, "re");
  *earlier = (earlier_run){.path = path};
  if (!file) {
    cli_error("--compare: cannot read %s: %s", path, strerror(errno));
    return false;
  }
  json_t *report = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
  fclose(file);
  if (!report) {
    cli_error("--compare: %s, line %d, column %d: %s, expected the JSON of 'flhost bench --json'", path, error.line,
              error.column, error.text);
    return false;
  }
  size_t n = json_array_size(json_object_get(report, "timings"));
  bool done = check(path, report);
  if (done) {
    earlier->taken = calloc(n + 1, sizeof *earlier->taken);
    done = earlier->taken != NULL;
    if (!done)
      cli_no_memory();
  }
  if (!done) {
    json_decref(report);
    return false;
  }
  earlier->report = report;
  earlier->n = n;
  return true;
}

void earlier_free(earlier_run *earlier) {
  timings_free(&earlier->left);
  json_decref(earlier->report);
  free(earlier->taken);
  *earlier = (earlier_run){0};
}

static const json_t *row_at(const earlier_run *earlier, size_t i) {
  return json_array_get(json_object_get(earlier->report, "timings"), i);
}

static double us_of(const json_t *row) {
  const json_t *us = json_object_get(row, "us");
  return json_is_number(us) ? json_number_value(us) : NAN;
}

/* Of the same call by the same implementation; NULL: there is none, or no other any more. */
static const json_t *take(earlier_run *earlier, const timing *row) {
  const char *const wanted[] = {row->op, row->impl_id, row->dtype, row->shapes};
  for (size_t i = 0; i < earlier->n; i++) {
    int same = 0;
    while (same < KEYS && !strcmp(text_of(row_at(earlier, i), keys[same]), wanted[same]))
      same++;
    if (same < KEYS || earlier->taken[i])
      continue;
    earlier->taken[i] = true;
    return row_at(earlier, i);
  }
  return NULL;
}

/* Would this run have had the row, but for its calls? */
static bool is_asked_for(const json_t *row, const bench_request *asked, int n_ops, char **ops) {
  return cli_is_selected(text_of(row, "op"), n_ops, ops) &&
         (!asked->impl || !strcmp(text_of(row, "impl_id"), asked->impl)) &&
         (!asked->dtype || !strcmp(text_of(row, "dtype"), cli_dtype_bit_name(asked->dtype)));
}

/* Keeps what is in the file alone. */
static bool keep_left(earlier_run *earlier, size_t i) {
  const json_t *row = row_at(earlier, i);
  timing *left = timings_add_row(&earlier->left, text_of(row, keys[0]), text_of(row, keys[1]), text_of(row, keys[2]),
                                 strdup(text_of(row, keys[3])));
  if (left)
    left->earlier_us = us_of(row);
  return left != NULL;
}

/* Figures of two machines differ whatever the code does. */
static void warn_of_other_machine(const earlier_run *earlier) {
  json_t *machine = machine_json();
  const char *here = text_of(machine, "cpu"), *there = text_of(json_object_get(earlier->report, "machine"), "cpu");
  if (strcmp(here, there) != 0)
    cli_error("%s was measured on another machine: '%s', this is '%s'", earlier->path, there, here);
  json_decref(machine);
}

bool earlier_match(earlier_run *earlier, timings *rows, const bench_request *asked, int n_ops, char **ops) {
  char device[64];
  bool done = true,
       same_device = !strcmp(text_of(earlier->report, "device"), cli_device_text(asked->device, device, sizeof device));
  warn_of_other_machine(earlier);
  for (size_t i = 0; i < rows->n; i++) {
    const json_t *old = same_device ? take(earlier, &rows->items[i]) : NULL;
    rows->items[i].earlier_us = us_of(old);
    rows->items[i].is_new = !old;
  }
  for (size_t i = 0; i < earlier->n && done; i++)
    if (!earlier->taken[i] && is_asked_for(row_at(earlier, i), asked, n_ops, ops))
      done = keep_left(earlier, i);
  return done;
}
