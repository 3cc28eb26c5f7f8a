/* What `flhost run` prints: see print.h. */
#include "cli/run/print.h"
#include "cli/cli.h"
#include "cli/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {[RUN_OK] = "ok",
                                           [RUN_WRITTEN] = "written",
                                           [RUN_FAILED] = "failed",
                                           [RUN_NO_IMPL] = "no_impl",
                                           [RUN_ERROR] = "error"};

/* JSON has no infinity: an error that is not a finite number is null. */
static json_t *number(bool known, double value) {
  return known && isfinite(value) ? json_real(value) : json_null();
}

static json_t *report_json(const run_report *report) {
  json_t *tolerance =
      report->compared ? json_pack("{s:f, s:f}", "atol", report->atol, "rtol", report->rtol) : json_null();
  return json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "file", cli_json_string(report->path),
                   "op", cli_json_string(report->op), "impl_id", cli_json_string(report->impl_id), "status",
                   status_names[report->status], "max_abs_err", number(report->compared, report->max_abs_err),
                   "max_rel_err", number(report->compared, report->max_rel_err), "tolerance", tolerance, "time_us",
                   number(report->time_us >= 0, report->time_us), "why", cli_json_string(report->why), "source",
                   cli_json_string(report->source), "problem", cli_json_string(report->problem));
}

static int print_json(const run_report *reports, size_t n) {
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++)
    list = cli_json_append(list, report_json(&reports[i]));
  return cli_print_json(list);
}

/* -------------------------------------------------------------------------------------------------- a line a file */

static void add_row(cli_table *table, const run_report *report) {
  cli_table_add(table, report->path);
  cli_table_add(table, report->op);
  cli_table_add(table, report->impl_id);
  if (report->compared && report->atol == 0 && report->rtol == 0 && report->max_abs_err == 0)
    cli_table_add(table, "0, same bits");
  else if (report->compared)
    cli_table_format(table, "%.3g", report->max_abs_err);
  else
    cli_table_add(table, NULL);
  if (report->time_us >= 0)
    cli_table_format(table, "%.1f", report->time_us);
  else
    cli_table_add(table, NULL);
  cli_table_add(table, status_names[report->status]);
  cli_table_add(table, report->why);
}

/* Has an earlier report the same source? */
static bool is_repeated(const run_report *reports, size_t index) {
  for (size_t i = 0; i < index; i++)
    if (reports[i].expected && reports[i].source && !strcmp(reports[i].source, reports[index].source))
      return true;
  return false;
}

/* What the columns mean, and the sources of the expected results, each once. */
static void print_legend(const run_report *reports, size_t n, int repeat) {
  printf("\nTIME US is the fastest of %d call%s, in microseconds, after one to warm up.\n", repeat,
         repeat == 1 ? "" : "s");
  puts("MAX ERROR is the largest difference from the results in the file. Where they come from:");
  for (size_t i = 0; i < n; i++) {
    if (!reports[i].expected || (reports[i].source && is_repeated(reports, i)))
      continue;
    fputs("  ", stdout);
    cli_put_text(stdout, reports[i].source ? reports[i].source : "(a file does not say)");
    putchar('\n');
  }
}

static int print_files(const run_report *reports, size_t n, int repeat) {
  static const char *const headers[] = {"FILE", "OP", "IMPL", ">MAX ERROR", ">TIME US", "STATUS", "WHY", NULL};
  cli_table table;
  bool expected = false;
  cli_table_begin(&table, headers, 0);
  for (size_t i = 0; i < n; i++) {
    add_row(&table, &reports[i]);
    expected = expected || reports[i].expected;
  }
  int status = cli_table_print(&table);
  if (!status && expected)
    print_legend(reports, n, repeat);
  return status;
}

/* --------------------------------------------------------------------------------------------------- a line an op */

/* The reports of one op together. */
typedef struct op_summary {
  const char *op; /* NULL: of files that name none */
  const char *impl_id;
  bool several; /* implementations */
  bool compared;
  size_t files;
  size_t bad;       /* of them */
  run_status worst; /* of these */
  double share;     /* the worst error as a share of what is allowed */
  double time_us;   /* of all files together */
} op_summary;

typedef struct op_summaries {
  op_summary *items;
  size_t n;
} op_summaries;

static bool same_text(const char *a, const char *b) {
  return a && b ? !strcmp(a, b) : a == b;
}

static op_summary *summary_of(op_summaries *summaries, const char *op) {
  for (size_t i = 0; i < summaries->n; i++)
    if (same_text(summaries->items[i].op, op))
      return &summaries->items[i];
  op_summary *added = &summaries->items[summaries->n++];
  *added = (op_summary){.op = op};
  return added;
}

static void add_to_summary(op_summary *summary, const run_report *report) {
  bool bad = report->status != RUN_OK && report->status != RUN_WRITTEN;
  summary->files++;
  summary->bad += bad;
  if (bad && report->status > summary->worst)
    summary->worst = report->status;
  if (!summary->impl_id)
    summary->impl_id = report->impl_id;
  summary->several |= report->impl_id && strcmp(summary->impl_id, report->impl_id);
  summary->compared |= report->compared;
  summary->share = fmax(summary->share, report->share);
  summary->time_us += fmax(report->time_us, 0);
}

/* In the order in which the ops first come. False: out of memory. */
static bool summarise(const run_report *reports, size_t n, op_summaries *summaries) {
  *summaries = (op_summaries){.items = calloc(n + 1, sizeof *summaries->items)};
  for (size_t i = 0; summaries->items && i < n; i++)
    add_to_summary(summary_of(summaries, reports[i].op), &reports[i]);
  return summaries->items != NULL;
}

static void add_summary(cli_table *table, const op_summary *summary) {
  cli_table_add(table, summary->op);
  cli_table_format(table, "%zu", summary->files);
  if (summary->compared)
    cli_table_format(table, "%.2g", summary->share);
  else
    cli_table_add(table, NULL);
  cli_table_format(table, "%.1f", summary->time_us);
  cli_table_add(table, summary->several ? "(several)" : summary->impl_id);
  if (summary->bad)
    cli_table_format(table, "%zu %s", summary->bad, status_names[summary->worst]);
  else
    cli_table_add(table, status_names[RUN_OK]);
}

static int print_summaries(const op_summaries *summaries) {
  static const char *const headers[] = {"OP", ">FILES", ">ERROR", ">TIME US", "IMPL", "STATUS", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (size_t i = 0; i < summaries->n; i++)
    add_summary(&table, &summaries->items[i]);
  int status = cli_table_print(&table);
  if (!status)
    puts("\nERROR: the worst, 1 being all that the tolerance allows. TIME US: the fastest\n"
         "calls of the files, in microseconds, added up.");
  return status;
}

/* ------------------------------------------------------------------------------------------------ a few lines an op */

static int explain_all(fl_host *host, DLDevice device, const op_summaries *summaries) {
  int status = EXIT_OK;
  for (size_t i = 0; i < summaries->n && !status; i++)
    if (summaries->items[i].op && fl_find_op(host, summaries->items[i].op))
      status = cli_explain_briefly(host, summaries->items[i].op, (int32_t)device.device_type);
  return status == EXIT_NO_IMPL ? EXIT_OK : status; /* the files say so */
}

/* ------------------------------------------------------------------------------------------------------------ all */

/* "131 files: 130 ok, 1 failed" */
static void print_counts(const run_report *reports, size_t n) {
  size_t counts[RUN_ERROR + 1] = {0};
  const char *separator = ": ";
  for (size_t i = 0; i < n; i++)
    counts[reports[i].status]++;
  printf("\n%zu file%s", n, n == 1 ? "" : "s");
  for (int status = 0; status <= RUN_ERROR; status++)
    if (counts[status]) {
      printf("%s%zu %s", separator, counts[status], status_names[status]);
      separator = ", ";
    }
  putchar('\n');
}

int run_print(fl_host *host, DLDevice device, const run_report *reports, size_t n, int repeat, run_forms forms) {
  op_summaries summaries;
  int status = EXIT_OK;
  if (forms.json)
    return print_json(reports, n);
  if (!summarise(reports, n, &summaries))
    return cli_no_memory();
  if (!forms.summary && !forms.explain)
    status = print_files(reports, n, repeat);
  if (!status && forms.summary)
    status = print_summaries(&summaries);
  if (!status && forms.explain)
    status = explain_all(host, device, &summaries);
  if (!status)
    print_counts(reports, n);
  free(summaries.items);
  return status;
}
