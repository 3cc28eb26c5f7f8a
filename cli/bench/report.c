/* What `flhost bench` measured: rows, as a table, as JSON. */
#include "cli/bench/bench.h"
#include "cli/bench/peer.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/trials/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

timing *timings_add_row(timings *rows, const char *op, const char *impl_id, const char *dtype, char *shapes) {
  if (rows->n == rows->capacity) {
    size_t capacity = rows->capacity ? rows->capacity * 2 : 64;
    timing *grown = realloc(rows->items, capacity * sizeof *grown);
    if (!grown) {
      free(shapes);
      return NULL;
    }
    rows->items = grown;
    rows->capacity = capacity;
  }
  timing *row = &rows->items[rows->n];
  *row = (timing){.op = strdup(op),
                  .impl_id = strdup(impl_id),
                  .shapes = shapes,
                  .dtype = dtype,
                  .bytes = NAN,
                  .flops = NAN,
                  .us = NAN,
                  .graph_us = NAN,
                  .as_reference = NAN,
                  .as_memcpy = NAN,
                  .prepared = NAN,
                  .earlier_us = NAN};
  for (int i = 0; i < BENCH_PEERS_MOST; i++)
    row->as_peer[i] = NAN;
  if (row->op && row->impl_id && row->shapes) {
    rows->n++;
    return row;
  }
  free(row->op);
  free(row->impl_id);
  free(row->shapes);
  return NULL;
}

timing *timings_add(timings *rows, const timed_call *call, const char *impl_id, const char *dtype) {
  timing *row = timings_add_row(rows, fl_op_name(call->op), impl_id, dtype, timed_call_shapes(call));
  if (row) {
    row->bytes = call->cost.bytes;
    row->flops = call->cost.flops;
  }
  return row;
}

void timings_free(timings *rows) {
  for (size_t i = 0; i < rows->n; i++) {
    free(rows->items[i].op);
    free(rows->items[i].impl_id);
    free(rows->items[i].shapes);
    free(rows->items[i].reason);
    free(rows->items[i].no_graph);
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

enum { MOST_COLUMNS = 19 };

bool bench_has_graphs(const bench_request *asked) {
  return asked->device.device_type != kDLCPU;
}

/* The columns that all runs have, then those that were asked for; ARGUMENTS is last, as it is folded. */
static void begin_table(cli_table *table, const char **headers, const bench_request *asked,
                        const earlier_run *earlier) {
  static const char *const always[] = {"OP", "IMPL", "DTYPE", ">US", ">GB/S", ">GFLOP/S", ">X REFERENCE", ">X MEMCPY"};
  int n = 0;
  for (size_t i = 0; i < sizeof always / sizeof *always; i++)
    headers[n++] = always[i];
  for (int i = 0; i < asked->n_peers; i++)
    headers[n++] = bench_peer_title(asked->peers[i]);
  if (bench_has_graphs(asked))
    headers[n++] = ">GRAPH US";
  if (asked->prepared)
    headers[n++] = ">PREPARED MB";
  if (earlier) {
    headers[n++] = ">OLD US";
    headers[n++] = ">X OLD";
  }
  headers[n++] = "ARGUMENTS";
  headers[n] = NULL;
  cli_table_begin(table, headers, 0);
}

static void note_path(cli_table *table, const char *words, const earlier_run *earlier) {
  char *note = NULL;
  if (asprintf(&note, "%s %s", words, earlier->path) < 0)
    note = NULL;
  cli_table_note(table, note ? note : words);
  free(note);
}

static void add_table_row(cli_table *table, const timing *row, const bench_request *asked, const earlier_run *earlier) {
  cli_table_add(table, row->op);
  cli_table_add(table, row->impl_id);
  cli_table_add(table, row->dtype);
  add_number(table, row->us);
  add_number(table, giga(row, row->bytes));
  add_number(table, giga(row, row->flops));
  add_number(table, row->as_reference);
  add_number(table, row->as_memcpy);
  for (int i = 0; i < asked->n_peers; i++)
    add_number(table, row->as_peer[i]);
  if (bench_has_graphs(asked))
    add_number(table, row->graph_us);
  if (asked->prepared)
    add_number(table, row->prepared / 1e6);
  if (earlier) {
    add_number(table, row->earlier_us);
    add_number(table, row->earlier_us / row->us);
  }
  cli_table_add(table, row->shapes);
  if (row->reason || row->no_graph)
    cli_table_note(table, row->reason ? row->reason : row->no_graph);
}

int timings_print_table(const timings *rows, const bench_request *asked, const earlier_run *earlier) {
  const char *headers[MOST_COLUMNS];
  cli_table table;
  begin_table(&table, headers, asked, earlier);
  for (size_t i = 0; i < rows->n; i++) {
    add_table_row(&table, &rows->items[i], asked, earlier);
    if (earlier && rows->items[i].is_new)
      note_path(&table, "not in", earlier);
  }
  for (size_t i = 0; earlier && i < earlier->left.n; i++) {
    add_table_row(&table, &earlier->left.items[i], asked, earlier);
    note_path(&table, "only in", earlier);
  }
  return cli_table_print(&table);
}

/* JSON has no NaN: null. */
static json_t *number(double value) {
  return isfinite(value) ? json_real(value) : json_null();
}

/* Takes the value over. false: out of memory. */
static bool set(json_t *object, const char *key, json_t *value) {
  return object && value ? !json_object_set_new(object, key, value) : (json_decref(value), false);
}

static json_t *peers_of_row(const timing *row, const bench_request *asked) {
  json_t *peers = json_object();
  bool done = peers != NULL;
  for (int i = 0; i < asked->n_peers && done; i++)
    done = set(peers, asked->peers[i], number(row->as_peer[i]));
  if (done)
    return peers;
  json_decref(peers);
  return NULL;
}

static json_t *row_json(const timing *row, const bench_request *asked) {
  return json_pack(
      "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:b, s:o, s:o, s:o, s:o, s:o}", "op",
      cli_json_string(row->op), "impl_id", cli_json_string(row->impl_id), "dtype",
      cli_json_string(*row->dtype ? row->dtype : NULL), "arguments", cli_json_string(row->shapes), "bytes",
      number(row->bytes), "flops", number(row->flops < 0 ? NAN : row->flops), "us", number(row->us), "gb_per_s",
      number(giga(row, row->bytes)), "gflop_per_s", number(giga(row, row->flops)), "times_as_fast_as_reference",
      number(row->as_reference), "times_as_fast_as_memcpy", number(row->as_memcpy), "times_as_fast_as_peers",
      peers_of_row(row, asked), "prepared_bytes", number(row->prepared), "rounds", row->rounds, "failed",
      (int)row->failed, "reason", cli_json_string(row->reason), "old_us", number(row->earlier_us),
      "times_as_fast_as_old", number(row->earlier_us / row->us), "graph_us", number(row->graph_us), "no_graph",
      cli_json_string(row->no_graph));
}

/* Their versions, null for what has none. */
static json_t *peers_json(const bench_request *asked) {
  json_t *peers = json_object();
  bool done = peers != NULL;
  for (int i = 0; i < asked->n_peers && done; i++)
    done = set(peers, asked->peers[i],
               cli_json_string(bench_peer_is_loop(asked->peers[i]) ? NULL : torch_peer_version(asked->torch)));
  if (done)
    return peers;
  json_decref(peers);
  return NULL;
}

/* The file that this run is compared with; null: none. */
static json_t *earlier_json(const earlier_run *earlier) {
  json_t *list = json_array();
  if (!earlier) {
    json_decref(list);
    return json_null();
  }
  for (size_t i = 0; i < earlier->left.n; i++) {
    const timing *row = &earlier->left.items[i];
    list = cli_json_append(list, json_pack("{s:o, s:o, s:o, s:o, s:o}", "op", cli_json_string(row->op), "impl_id",
                                           cli_json_string(row->impl_id), "dtype",
                                           cli_json_string(*row->dtype ? row->dtype : NULL), "arguments",
                                           cli_json_string(row->shapes), "us", number(row->earlier_us)));
  }
  return json_pack("{s:o, s:O?, s:O?, s:o}", "file", cli_json_string(earlier->path), "machine",
                   json_object_get(earlier->report, "machine"), "device", json_object_get(earlier->report, "device"),
                   "only_there", list);
}

int timings_print_json(const timings *rows, const bench_request *asked, const earlier_run *earlier) {
  char name[64];
  json_t *list = json_array();
  for (size_t i = 0; i < rows->n; i++)
    list = cli_json_append(list, row_json(&rows->items[i], asked));
  return cli_print_json(json_pack("{s:o, s:s, s:i, s:f, s:f, s:o, s:o, s:o}", "machine", machine_json(), "device",
                                  cli_device_text(asked->device, name, sizeof name), "threads", asked->threads,
                                  "seconds", asked->seconds, "rotated", asked->rotated, "peers", peers_json(asked),
                                  "old", earlier_json(earlier), "timings", list));
}
