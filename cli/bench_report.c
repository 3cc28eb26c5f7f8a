/* What `flhost bench` measured: rows, as a table, as JSON. */
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

timing *timings_add(timings *rows, const timed_call *call, const char *impl_id, const char *dtype) {
  if (rows->n == rows->capacity) {
    size_t capacity = rows->capacity ? rows->capacity * 2 : 64;
    timing *grown = realloc(rows->items, capacity * sizeof *grown);
    if (!grown)
      return NULL;
    rows->items = grown;
    rows->capacity = capacity;
  }
  timing *row = &rows->items[rows->n];
  *row = (timing){.op = strdup(fl_op_name(call->op)),
                  .impl_id = strdup(impl_id),
                  .shapes = timed_call_shapes(call),
                  .dtype = dtype,
                  .bytes = call->cost.bytes,
                  .flops = call->cost.flops,
                  .us = NAN,
                  .as_reference = NAN,
                  .as_memcpy = NAN};
  if (row->op && row->impl_id && row->shapes) {
    rows->n++;
    return row;
  }
  free(row->op);
  free(row->impl_id);
  free(row->shapes);
  return NULL;
}

void timings_free(timings *rows) {
  for (size_t i = 0; i < rows->n; i++) {
    free(rows->items[i].op);
    free(rows->items[i].impl_id);
    free(rows->items[i].shapes);
    free(rows->items[i].reason);
  }
  free(rows->items);
  memset(rows, 0, sizeof *rows);
}

/* Billions a second of something of which a call has `n`; NAN: none, or not timed. */
static double giga(const timing *row, double n) {
  return n > 0 ? n / row->us / 1e3 : NAN;
}

static void add_number(cli_table *table, double value) {
  if (isnan(value))
    cli_table_add(table, NULL);
  else if (value < 99.95)
    cli_table_format(table, "%.3g", value);
  else
    cli_table_format(table, "%.0f", value);
}

int timings_print_table(const timings *rows) {
  static const char *const headers[] = {"OP",       "IMPL",         "DTYPE",     ">US",       ">GB/S",
                                        ">GFLOP/S", ">X REFERENCE", ">X MEMCPY", "ARGUMENTS", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (size_t i = 0; i < rows->n; i++) {
    const timing *row = &rows->items[i];
    cli_table_add(&table, row->op);
    cli_table_add(&table, row->impl_id);
    cli_table_add(&table, row->dtype);
    add_number(&table, row->us);
    add_number(&table, giga(row, row->bytes));
    add_number(&table, giga(row, row->flops));
    add_number(&table, row->as_reference);
    add_number(&table, row->as_memcpy);
    cli_table_add(&table, row->shapes);
    if (row->reason)
      cli_table_note(&table, row->reason);
  }
  return cli_table_print(&table);
}

/* JSON has no NaN: null. */
static json_t *number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

static json_t *row_json(const timing *row) {
  return json_pack(
      "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:b, s:o}", "op", cli_json_string(row->op),
      "impl_id", cli_json_string(row->impl_id), "dtype", cli_json_string(*row->dtype ? row->dtype : NULL), "arguments",
      cli_json_string(row->shapes), "bytes", number(row->bytes), "flops", number(row->flops < 0 ? NAN : row->flops),
      "us", number(row->us), "gb_per_s", number(giga(row, row->bytes)), "gflop_per_s", number(giga(row, row->flops)),
      "times_as_fast_as_reference", number(row->as_reference), "times_as_fast_as_memcpy", number(row->as_memcpy),
      "rounds", row->rounds, "failed", (int)row->failed, "reason", cli_json_string(row->reason));
}

int timings_print_json(const timings *rows, DLDevice device, double seconds) {
  char name[64];
  json_t *list = json_array();
  for (size_t i = 0; i < rows->n; i++)
    list = cli_json_append(list, row_json(&rows->items[i]));
  return cli_print_json(json_pack("{s:o, s:s, s:f, s:o}", "machine", machine_json(), "device",
                                  cli_device_text(device, name, sizeof name), "seconds", seconds, "timings", list));
}
