/* flhost manifest: what calls for one device type run, all operators resolved ahead, and a digest of it. */
#include "cli/cli.h"
#include "cli/table.h"

#include <stdio.h>
#include <string.h>

static json_t *row_json(const fl_manifest_row *row) {
  return json_pack("{s:o, s:i, s:o, s:s, s:o, s:o, s:o, s:o}", "op", cli_json_string(row->op), "place", (int)row->place,
                   "impl_id", cli_json_string(row->impl_id), "kind", cli_kind_name(row->kind), "vendor",
                   cli_json_string(row->vendor), "plugin", cli_json_string(row->plugin), "version",
                   cli_json_string(row->version), "build_id", cli_json_string(*row->build_id ? row->build_id : NULL));
}

static int print_json(const fl_manifest *manifest, uint32_t n_resolved) {
  json_t *rows = json_array(), *without = json_array();
  for (uint32_t i = 0; i < manifest->n_rows; i++)
    rows = cli_json_append(rows, row_json(fl_manifest_row_at(manifest, i)));
  for (uint32_t i = 0; i < manifest->n_without; i++)
    without = cli_json_append(without, cli_json_string(manifest->without[i]));
  return cli_print_json(json_pack("{s:o, s:s, s:o, s:o, s:o, s:i, s:o, s:o}", "library",
                                  cli_json_string(manifest->library), "device", cli_device_name(manifest->device_type),
                                  "policy", cli_json_string(manifest->policy), "sha256",
                                  cli_json_string(manifest->sha256), "problem", cli_json_string(manifest->problem),
                                  "resolved", (int)n_resolved, "without", without, "rows", rows));
}

/* Exactly the bytes of the digest. */
static int print_text(const fl_manifest *manifest) {
  fwrite(manifest->text, 1, strlen(manifest->text), stdout); /* main() sees to errors */
  return EXIT_OK;
}

static int print_rows(const fl_manifest *manifest) {
  static const char *const headers[] = {"OP",     ">PLACE",  "IMPL",     "KIND", "VENDOR",
                                        "PLUGIN", "VERSION", "BUILD ID", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < manifest->n_rows; i++) {
    const fl_manifest_row *row = fl_manifest_row_at(manifest, i);
    cli_table_add(&table, row->op);
    cli_table_format(&table, "%u", row->place);
    cli_table_add(&table, row->impl_id);
    cli_table_add(&table, cli_kind_name(row->kind));
    cli_table_add(&table, row->vendor);
    cli_table_add(&table, row->plugin);
    cli_table_add(&table, row->version);
    cli_table_add(&table, row->build_id);
  }
  return cli_table_print(&table);
}

static int print_facts(const fl_manifest *manifest, uint32_t n_resolved) {
  char words[CLI_DEVICE_WORDS];
  cli_table table;
  cli_table_begin(&table, NULL, 2);
  cli_table_add(&table, "library:");
  cli_table_add(&table, manifest->library);
  cli_table_add(&table, "policy:");
  cli_table_add(&table, manifest->policy);
  cli_table_add(&table, "resolved:");
  cli_table_format(&table, "%u operator%s on %s", n_resolved, n_resolved == 1 ? "" : "s",
                   cli_device_name(manifest->device_type));
  for (uint32_t i = 0; i < manifest->n_without; i++) {
    cli_table_add(&table, i ? " " : "without:");
    cli_table_format(&table, "%s: none of its implementations may run; 'flhost explain %s%s' says why",
                     manifest->without[i], cli_device_words(manifest->device_type, words), manifest->without[i]);
  }
  cli_table_add(&table, "sha256:");
  cli_table_add(&table, manifest->sha256);
  return cli_table_print(&table);
}

static int print_tables(const fl_manifest *manifest, uint32_t n_resolved) {
  int exit_status = print_rows(manifest);
  if (exit_status)
    return exit_status;
  putchar('\n');
  return print_facts(manifest, n_resolved);
}

/* What is missing, said to a person and by the exit status. */
static int judge(const fl_manifest *manifest) {
  if (!manifest->n_rows) {
    cli_error("no operator has an implementation that may run on %s", cli_device_name(manifest->device_type));
    return EXIT_NO_IMPL;
  }
  if (!manifest->sha256) {
    cli_error("no digest: %s", manifest->problem);
    return EXIT_MISMATCH;
  }
  return EXIT_OK;
}

static int show(fl_host *host, int32_t device_type, bool text, bool json) {
  uint32_t n_resolved;
  fl_manifest *manifest;
  fl_status status = fl_freeze(host, "flhost manifest");
  if (!status)
    status = fl_warm_up(host, device_type, &n_resolved, NULL);
  if (!status)
    status = fl_get_manifest(host, device_type, &manifest);
  if (status)
    return cli_fail(status);
  int exit_status = text   ? print_text(manifest)
                    : json ? print_json(manifest, n_resolved)
                           : print_tables(manifest, n_resolved);
  if (!exit_status)
    exit_status = judge(manifest);
  fl_manifest_free(manifest);
  return exit_status;
}

int command_manifest(int argc, char **argv) {
  const char *device = "cpu";
  bool json = false, text = false;
  const cli_option options[] = {CLI_DEVICE(&device),
                                {"text", NULL, "print the text that sha256 is the digest of", &text, NULL},
                                CLI_JSON(&json),
                                {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "", 0, 0,
      "Resolves every operator, as an engine's warm-up does, and lists what calls run in a frozen host: the "
      "implementation that is tried first and, where it may turn a call down, those behind it; and one digest of "
      "it all, for the key of a compile cache.\n"
      "Exit status 1: a plugin's file has no build id, so that there is no digest; 3: no operator has an "
      "implementation that may run.",
      options};
  int32_t device_type;
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  if (text && json) {
    cli_error("--text and --json exclude each other");
    return EXIT_USAGE;
  }
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  exit_status = cli_device_type(host, device, &device_type) ? show(host, device_type, text, json) : EXIT_USAGE;
  fl_host_destroy(host);
  return exit_status;
}
