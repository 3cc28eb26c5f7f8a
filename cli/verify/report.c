/* What `flhost verify` found: as a table, as JSON, as a JUnit report. */
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const status_names[] = {
    [VERIFY_OK] = "ok", [VERIFY_FAILED] = "failed", [VERIFY_SKIPPED] = "skipped"};
enum { N_STATUSES = sizeof status_names / sizeof status_names[0] };

verify_status verify_row_status(const verify_row *row) {
  return row->problem ? VERIFY_FAILED : row->calls ? VERIFY_OK : VERIFY_SKIPPED;
}

verify_row *verify_rows_add(verify_rows *rows, const char *op, const char *impl_id, const char *dtype) {
  if (rows->n == rows->capacity) {
    size_t capacity = rows->capacity ? rows->capacity * 2 : 64;
    verify_row *grown = realloc(rows->items, capacity * sizeof *grown);
    if (!grown)
      return NULL;
    rows->items = grown;
    rows->capacity = capacity;
  }
  verify_row *row = &rows->items[rows->n];
  *row = (verify_row){.op = strdup(op), .impl_id = strdup(impl_id), .dtype = dtype};
  if (row->op && row->impl_id) {
    rows->n++;
    return row;
  }
  free(row->op);
  free(row->impl_id);
  return NULL;
}

void verify_rows_free(verify_rows *rows) {
  for (size_t i = 0; i < rows->n; i++) {
    free(rows->items[i].op);
    free(rows->items[i].impl_id);
    free(rows->items[i].problem);
    free(rows->items[i].reason);
    free(rows->items[i].worst);
    free(rows->items[i].saved);
  }
  free(rows->items);
  memset(rows, 0, sizeof *rows);
}

static void count(const verify_rows *rows, size_t counts[N_STATUSES]) {
  memset(counts, 0, N_STATUSES * sizeof *counts);
  for (size_t i = 0; i < rows->n; i++)
    counts[verify_row_status(&rows->items[i])]++;
}

/* -------------------------------------------------------------------------------------------------------- the table */

/* The worst error and where it is; "-" where nothing was compared. */
static void add_worst(cli_table *table, const verify_row *row) {
  if (!row->compared) {
    cli_table_add(table, NULL);
    cli_table_add(table, NULL);
    return;
  }
  cli_table_format(table, "%.3g", row->max_abs_err);
  if (row->worst)
    cli_table_format(table, "%.2g", row->share);
  else
    cli_table_add(table, "0");
}

/* "12 of 32 calls do not suit: …" */
static void note_skips(cli_table *table, const verify_row *row) {
  char *note;
  if (!row->reason)
    return;
  int length = row->skipped ? asprintf(&note, "%" PRIu32 " call%s not taken: %s", row->skipped,
                                       row->skipped == 1 ? "" : "s", row->reason)
                            : asprintf(&note, "not tested: %s", row->reason);
  if (length >= 0)
    cli_table_note(table, note);
  table->failed |= length < 0;
  if (length >= 0)
    free(note);
}

/* How to repeat it. */
static void note_saved(cli_table *table, const verify_row *row) {
  char *note;
  if (!row->saved)
    return;
  if (asprintf(&note, "repeat it: VLLM_FL_PER_OP='%s=impl:%s' flhost run %s", row->op, row->impl_id, row->saved) < 0) {
    table->failed = true;
    return;
  }
  cli_table_note(table, note);
  free(note);
}

/* Is there a test on another device than the processor? */
static bool has_devices(const verify_rows *rows) {
  for (size_t i = 0; i < rows->n; i++)
    if (*rows->items[i].device && strcmp(rows->items[i].device, "cpu") != 0)
      return true;
  return false;
}

static void add_row(cli_table *table, const verify_row *row, bool with_device) {
  char *note;
  cli_table_add(table, row->op);
  cli_table_add(table, row->impl_id);
  if (with_device)
    cli_table_add(table, row->device);
  cli_table_add(table, row->dtype);
  cli_table_format(table, "%" PRIu32, row->calls);
  add_worst(table, row);
  cli_table_add(table, row->end ? trial_end_name(row->end) : status_names[verify_row_status(row)]);
  note_skips(table, row);
  if (!row->problem)
    return;
  if (row->end || !row->calls) {
    cli_table_note(table, row->problem);
    note_saved(table, row);
    return;
  }
  if (asprintf(&note, "%" PRIu32 " of %" PRIu32 " calls failed, the first: %s", row->failures, row->calls,
               row->problem) < 0) {
    table->failed = true;
    return;
  }
  cli_table_note(table, note);
  free(note);
  note_saved(table, row);
}

/* The worst error of all that passed, with its values. */
static void print_worst(const verify_rows *rows) {
  const verify_row *worst = NULL;
  for (size_t i = 0; i < rows->n; i++) {
    const verify_row *row = &rows->items[i];
    if (row->worst && !row->problem && (!worst || row->share > worst->share))
      worst = row;
  }
  if (!worst)
    return;
  printf("\nNearest to its tolerance: %s, %s, ", worst->op, worst->impl_id);
  cli_put_text(stdout, worst->worst);
  printf(":\n%.9g, the reference gives %.9g, atol %g, rtol %g.\n", worst->got, worst->wanted, worst->atol, worst->rtol);
}

int verify_print_table(const verify_rows *rows) {
  static const char *const headers[] = {"OP", "IMPL", "DTYPE", ">CALLS", ">MAX ERROR", ">OF ALLOWED", "STATUS", NULL};
  static const char *const with_devices[] = {"OP",         "IMPL",        "DEVICE", "DTYPE", ">CALLS",
                                             ">MAX ERROR", ">OF ALLOWED", "STATUS", NULL};
  bool devices = has_devices(rows);
  cli_table table;
  size_t counts[N_STATUSES];
  const char *separator = ": ";
  cli_table_begin(&table, devices ? with_devices : headers, 0);
  for (size_t i = 0; i < rows->n; i++)
    add_row(&table, &rows->items[i], devices);
  int status = cli_table_print(&table);
  if (status)
    return status;
  print_worst(rows);
  count(rows, counts);
  printf("\n%zu test%s", rows->n, rows->n == 1 ? "" : "s");
  for (int i = 0; i < N_STATUSES; i++)
    if (counts[i]) {
      printf("%s%zu %s", separator, counts[i], status_names[i]);
      separator = ", ";
    }
  putchar('\n');
  return EXIT_OK;
}

/* ------------------------------------------------------------------------------------------------------------- JSON */

/* JSON has no infinity and no NaN: null. */
static json_t *number(bool known, double value) {
  return known && isfinite(value) ? json_real(value) : json_null();
}

static json_t *worst_json(const verify_row *row) {
  if (!row->worst)
    return json_null();
  return json_pack("{s:o, s:o, s:o, s:o, s:f, s:f}", "where", cli_json_string(row->worst), "share_of_tolerance",
                   number(true, row->share), "got", number(true, row->got), "expected", number(true, row->wanted),
                   "atol", row->atol, "rtol", row->rtol);
}

static json_t *row_json(const verify_row *row) {
  return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:f}", "op",
                   cli_json_string(row->op), "impl_id", cli_json_string(row->impl_id), "device",
                   cli_json_string(*row->device ? row->device : NULL), "dtype",
                   cli_json_string(*row->dtype ? row->dtype : NULL), "status", status_names[verify_row_status(row)],
                   "ended", cli_json_string(row->end ? trial_end_name(row->end) : NULL), "calls",
                   (json_int_t)row->calls, "failures", (json_int_t)row->failures, "skipped_calls",
                   (json_int_t)row->skipped, "max_abs_err", number(row->compared, row->max_abs_err), "max_rel_err",
                   number(row->compared, row->max_rel_err), "worst", worst_json(row), "problem",
                   cli_json_string(row->problem), "reason", cli_json_string(row->reason), "saved",
                   cli_json_string(row->saved), "seconds", row->seconds);
}

int verify_print_json(const verify_rows *rows, uint64_t seed) {
  json_t *list = json_array();
  for (size_t i = 0; i < rows->n; i++)
    list = cli_json_append(list, row_json(&rows->items[i]));
  return cli_print_json(json_pack("{s:I, s:o}", "seed", (json_int_t)seed, "tests", list));
}

/* ------------------------------------------------------------------------------------------------------------ JUnit */

/* Text of an XML attribute. What XML cannot hold becomes '?': a vendor's words may be in any encoding. */
static void put_xml(FILE *file, const char *text) {
  for (size_t n; *text; text += n + !n) {
    n = cli_character(text);
    if (strchr("&<>\"", *text))
      fprintf(file, "&#%d;", *text);
    else if (n)
      fwrite(text, 1, n, file);
    else
      putc('?', file);
  }
}

static void put_attribute(FILE *file, const char *name, const char *text) {
  fprintf(file, " %s=\"", name);
  put_xml(file, text);
  putc('"', file);
}

static void put_case(FILE *file, const verify_row *row) {
  fputs("  <testcase", file);
  put_attribute(file, "classname", row->op);
  fputs(" name=\"", file);
  put_xml(file, row->impl_id);
  if (*row->device && strcmp(row->device, "cpu") != 0)
    fprintf(file, " %s", row->device);
  fprintf(file, "%s%s\" time=\"%.3f\">", *row->dtype ? " " : "", row->dtype, row->seconds);
  if (row->problem) {
    fputs(row->end ? "<error" : "<failure", file);
    if (row->end)
      put_attribute(file, "type", trial_end_name(row->end));
    put_attribute(file, "message", row->problem);
    fputs("/>", file);
  } else if (!row->calls) {
    fputs("<skipped", file);
    put_attribute(file, "message", row->reason ? row->reason : "");
    fputs("/>", file);
  }
  fputs("</testcase>\n", file);
}

/* A test of everything takes minutes: too late to hear that the report cannot be written. */
int verify_check_junit(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    cli_error("--junit: %s: %s", path, strerror(errno));
    return EXIT_USAGE;
  }
  close(fd);
  return EXIT_OK;
}

int verify_write_junit(const verify_rows *rows, const char *path) {
  size_t counts[N_STATUSES], ended = 0;
  double seconds = 0;
  FILE *file = fopen(path, "we");
  if (!file) {
    cli_error("--junit: %s: %s", path, strerror(errno));
    return EXIT_USAGE;
  }
  count(rows, counts);
  for (size_t i = 0; i < rows->n; i++)
    seconds += rows->items[i].seconds, ended += rows->items[i].end != TRIAL_DONE;
  fprintf(file,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
          "<testsuite name=\"flhost verify\" tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\" "
          "time=\"%.3f\">\n",
          rows->n, counts[VERIFY_FAILED] - ended, ended, counts[VERIFY_SKIPPED], seconds);
  for (size_t i = 0; i < rows->n; i++)
    put_case(file, &rows->items[i]);
  fputs("</testsuite>\n", file);
  bool written = !ferror(file);
  if (fclose(file) || !written) {
    cli_error("--junit: %s: %s", path, strerror(errno));
    return EXIT_USAGE;
  }
  return EXIT_OK;
}
