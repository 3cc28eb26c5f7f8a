/* flhost ops: the operators that are known and what is registered for them. */
#include "cli/cli.h"
#include "cli/table.h"

#include <flhost/vllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element types whose tolerance is shown. */
static const struct {
  const char *name;
  DLDataType dtype;
} tolerance_types[] = {
    {"float32", {kDLFloat, 32, 1}},
    {"float16", {kDLFloat, 16, 1}},
    {"bfloat16", {kDLBfloat, 16, 1}},
};

/* ------------------------------------------------------------------------------------------------------------ JSON */

static json_t *impl_json(fl_host *host, const fl_impl_info *impl) {
  char uuid[65];
  bool has_uuid = !fl_impl_uuid(host, impl->op_name, impl->impl_id, uuid);
  char *devices = cli_device_names(impl->devices), *dtypes = cli_dtype_names(impl->dtypes);
  json_t *object = json_pack(
      "{s:o, s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "impl_id", cli_json_string(impl->impl_id),
      "kind", cli_kind_name(impl->kind), "vendor", cli_json_string(impl->vendor), "priority", impl->priority, "plugin",
      cli_json_string(impl->plugin), "devices", cli_json_words(devices), "dtypes", cli_json_words(dtypes), "min_arch",
      cli_json_string(impl->min_arch), "variant", cli_json_string(impl->variant), "available",
      impl->asked ? json_boolean(impl->available) : json_null(), "reason", cli_json_string(impl->reason), "barred",
      cli_json_string(impl->barred), "uuid", cli_json_string(has_uuid ? uuid : NULL));
  free(devices);
  free(dtypes);
  return object;
}

static json_t *op_json(fl_host *host, const fl_op *op, const fl_snapshot *snapshot, uint32_t index) {
  json_t *impls = json_array(), *tolerance = json_object();
  for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, index); i++)
    impls = cli_json_append(impls, impl_json(host, fl_snapshot_impl(snapshot, index, i)));
  for (size_t i = 0; i < sizeof tolerance_types / sizeof *tolerance_types; i++) {
    fl_tolerance bound = cli_tolerance(op, tolerance_types[i].dtype);
    json_object_set_new(tolerance, tolerance_types[i].name,
                        json_pack("{s:f, s:f}", "atol", bound.atol, "rtol", bound.rtol));
  }
  return json_pack(
      "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", cli_json_string(fl_op_name(op)),
      "signature", cli_json_string(fl_op_schema(op)), "rules", cli_json_string(fl_op_rules(op)), "category",
      cli_json_string(fl_op_category(op)), "doc", cli_json_string(fl_op_doc(op)), "formula",
      cli_json_string(fl_op_formula(op)), "parts", cli_json_string(*fl_op_parts(op) ? fl_op_parts(op) : NULL), "ranks",
      cli_json_string(*fl_op_ranks(op) ? fl_op_ranks(op) : NULL), "bytes", cli_json_string(cli_op_bytes(op)), "flops",
      cli_json_string(*fl_op_flops(op) ? fl_op_flops(op) : NULL), "tolerance", tolerance, "impls", impls);
}

/* The op of that number, or all (index = number of ops). */
static int print_json(fl_host *host, const fl_snapshot *snapshot, uint32_t index) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    const fl_op *op = fl_find_op(host, fl_snapshot_op_name(snapshot, i));
    if (index != i && index != fl_snapshot_op_count(snapshot))
      continue;
    if (op)
      list = cli_json_append(list, op_json(host, op, snapshot, i));
  }
  return cli_print_json(list);
}

/* ---------------------------------------------------------------------------------------------------------- tables */

static int print_ops(fl_host *host, const fl_snapshot *snapshot) {
  static const char *const headers[] = {"OP", "CATEGORY", ">IMPLS", "WHAT IT COMPUTES", NULL};
  uint32_t enabled, disabled;
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    const fl_op *op = fl_find_op(host, fl_snapshot_op_name(snapshot, i));
    if (!op)
      continue;
    cli_table_add(&table, fl_op_name(op));
    cli_table_add(&table, fl_op_category(op));
    cli_table_format(&table, "%u", fl_snapshot_impl_count(snapshot, i));
    cli_table_add(&table, fl_op_doc(op));
  }
  int exit_status = cli_table_print(&table);
  fl_custom_op_counts(host, &enabled, &disabled);
  if (!exit_status && disabled)
    printf("\ncustom_ops: %u enabled, %u disabled, which run their reference\n", enabled, disabled);
  return exit_status;
}

static void add_impl(cli_table *table, const fl_impl_info *impl) {
  char *devices = cli_device_names(impl->devices), *dtypes = cli_dtype_names(impl->dtypes);
  cli_table_add(table, impl->impl_id);
  cli_table_add(table, cli_kind_name(impl->kind));
  cli_table_add(table, impl->vendor);
  cli_table_format(table, "%d", impl->priority);
  cli_table_format(table, impl->variant ? "%s (%s)" : "%s", impl->plugin, impl->variant);
  cli_table_add(table, devices);
  cli_table_add(table, dtypes && *dtypes ? dtypes : "all");
  cli_table_add(table, impl->min_arch);
  cli_table_format(table, "%s%s%s%s%s",
                   impl->available ? "yes"
                   : impl->asked   ? "no"
                                   : "not asked",
                   impl->reason ? ": " : "", impl->reason ? impl->reason : "", impl->barred ? "; barred: " : "",
                   impl->barred ? impl->barred : "");
  free(devices);
  free(dtypes);
}

static int print_impls(const fl_snapshot *snapshot) {
  static const char *const headers[] = {"OP",      "IMPL",   "KIND",     "VENDOR",    ">PRIORITY", "PLUGIN",
                                        "DEVICES", "DTYPES", "MIN ARCH", "AVAILABLE", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t op = 0; op < fl_snapshot_op_count(snapshot); op++)
    for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, op); i++) {
      cli_table_add(&table, fl_snapshot_op_name(snapshot, op));
      add_impl(&table, fl_snapshot_impl(snapshot, op, i));
    }
  return cli_table_print(&table);
}

static void add_fact(cli_table *table, const char *name, const char *text) {
  if (*text) {
    cli_table_add(table, name);
    cli_table_add(table, text);
  }
}

static int print_op(const fl_op *op, const fl_snapshot *snapshot, uint32_t index) {
  static const char *const headers[] = {"IMPL",    "KIND",   "VENDOR",   ">PRIORITY", "PLUGIN",
                                        "DEVICES", "DTYPES", "MIN ARCH", "AVAILABLE", NULL};
  cli_table facts, impls;
  cli_print_title(fl_op_name(op));
  cli_table_begin(&facts, NULL, 2);
  add_fact(&facts, "signature:", fl_op_schema(op));
  add_fact(&facts, "shapes:", fl_op_rules(op));
  add_fact(&facts, "category:", fl_op_category(op));
  add_fact(&facts, "computes:", fl_op_doc(op));
  add_fact(&facts, "formula:", fl_op_formula(op));
  add_fact(&facts, "parts:", fl_op_parts(op));
  add_fact(&facts, "over ranks:", fl_op_ranks(op));
  add_fact(&facts, "bytes:", cli_op_bytes(op));
  add_fact(&facts, "operations:", fl_op_flops(op));
  for (size_t i = 0; i < sizeof tolerance_types / sizeof *tolerance_types; i++) {
    fl_tolerance bound = cli_tolerance(op, tolerance_types[i].dtype);
    cli_table_add(&facts, i ? " " : "tolerance:");
    cli_table_format(&facts, "%s: atol %g, rtol %g", tolerance_types[i].name, bound.atol, bound.rtol);
  }
  int exit_status = cli_table_print(&facts);
  if (exit_status || !fl_snapshot_impl_count(snapshot, index))
    return exit_status;
  putchar('\n');
  cli_table_begin(&impls, headers, 0);
  for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, index); i++)
    add_impl(&impls, fl_snapshot_impl(snapshot, index, i));
  return cli_table_print(&impls);
}

/* --------------------------------------------------------------------------------------------------------- command */

static int show(fl_host *host, const char *name, bool with_impls, bool json, const char *pages) {
  int exit_status;
  const fl_op *op = name ? fl_find_op(host, name) : NULL;
  if (name && !op)
    return cli_fail(FL_ENOENT);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return cli_no_memory();
  uint32_t n = fl_snapshot_op_count(snapshot), index = 0;
  while (index < n && (!name || strcmp(fl_snapshot_op_name(snapshot, index), name) != 0))
    index++;
  if (pages)
    exit_status = cli_write_pages(host, snapshot, pages);
  else if (json)
    exit_status = print_json(host, snapshot, index);
  else if (op)
    exit_status = print_op(op, snapshot, index);
  else
    exit_status = with_impls ? print_impls(snapshot) : print_ops(host, snapshot);
  fl_snapshot_release(snapshot);
  return exit_status;
}

int command_ops(int argc, char **argv) {
  bool json = false, with_impls = false;
  const char *pages = NULL;
  const cli_option options[] = {
      {"impls", NULL, "one line for each implementation", &with_impls, NULL},
      {"pages", "DIR", "write the manual's pages of operators into a directory", NULL, &pages},
      CLI_JSON(&json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP]", 0, 1,
      "Lists the operators, or tells one's signature, shapes, formula, costs, tolerances and implementations.",
      options};
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  exit_status = show(host, first < argc ? argv[first] : NULL, with_impls, json, pages);
  fl_host_destroy(host);
  return exit_status;
}
