/* flhost plugins: every plugin that was found, and what became of it. */
#include "cli/cli.h"
#include "cli/table.h"

#include <stdlib.h>
#include <string.h>

/* The variants of a plugin's implementations, each once. */
static json_t *variants_of(const fl_snapshot *snapshot, const char *plugin) {
  json_t *names = json_object(), *list = json_array();
  const char *name;
  json_t *unused;
  for (uint32_t op = 0; op < fl_snapshot_op_count(snapshot); op++)
    for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, op); i++) {
      const fl_impl_info *impl = fl_snapshot_impl(snapshot, op, i);
      if (impl->variant && !strcmp(impl->plugin, plugin))
        json_object_set_new(names, impl->variant, json_null());
    }
  json_object_foreach(names, name, unused) list = cli_json_append(list, cli_json_string(name));
  json_decref(names);
  return list;
}

static int print_json(const fl_plugins *plugins, const fl_snapshot *snapshot) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < plugins->n; i++) {
    const fl_plugin_info *plugin = fl_plugin_at(plugins, i);
    json_t *entry =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:I, s:o, s:o}", "name",
                  cli_json_string(plugin->name), "file", cli_json_string(plugin->file), "version",
                  cli_json_string(plugin->version), "vendor", cli_json_string(plugin->vendor), "licence",
                  cli_json_string(plugin->licence), "abi", cli_json_string(plugin->abi), "route",
                  cli_json_string(plugin->route), "status", cli_json_string(plugin->status), "reason",
                  cli_json_string(plugin->reason), "load_us", plugin->load_us, "impls", (json_int_t)plugin->impls,
                  "impl_vendor", cli_json_string(plugin->impl_vendor), "variants", variants_of(snapshot, plugin->name));
    list = cli_json_append(list, entry);
  }
  return cli_print_json(list);
}

static void print_variants(cli_table *table, const fl_snapshot *snapshot, const char *plugin) {
  json_t *variants = variants_of(snapshot, plugin);
  for (size_t i = 0; i < json_array_size(variants); i++) {
    char note[FL_NAME_MAX + 16];
    snprintf(note, sizeof note, "variant: %s", json_string_value(json_array_get(variants, i)));
    cli_table_note(table, note);
  }
  json_decref(variants);
}

static int print_table(const fl_plugins *plugins, const fl_snapshot *snapshot) {
  static const char *const headers[] = {"NAME",   "STATUS",   "VERSION", "VENDOR", "ABI",
                                        ">IMPLS", ">LOAD MS", "ROUTE",   "FILE",   NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < plugins->n; i++) {
    const fl_plugin_info *plugin = fl_plugin_at(plugins, i);
    cli_table_add(&table, plugin->name);
    cli_table_add(&table, plugin->status);
    cli_table_add(&table, plugin->version);
    cli_table_add(&table, plugin->vendor);
    cli_table_add(&table, plugin->abi);
    cli_table_format(&table, "%u", plugin->impls);
    cli_table_format(&table, "%.1f", plugin->load_us / 1000);
    cli_table_add(&table, plugin->route);
    cli_table_add(&table, plugin->file);
    if (*plugin->reason)
      cli_table_note(&table, plugin->reason);
    print_variants(&table, snapshot, plugin->name);
  }
  return cli_table_print(&table);
}

/* An empty table says nothing: where was looked? */
static void report_none(fl_host *host) {
  cli_error("no plugin was found; directories that were searched:");
  for (const char *const *directory = fl_plugin_directories(host); *directory; directory++)
    cli_error("  %s", *directory);
}

int command_plugins(int argc, char **argv) {
  bool json = false, rescan = false;
  const cli_option options[] = {{"rescan", NULL, "try each anew, whatever is known of it", &rescan, NULL},
                                CLI_JSON(&json),
                                {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "", 0, 0,
      "Loads and lists every plugin that was found: loaded, unavailable (its implementations cannot run here), "
      "skipped or failed, with the reason. One that crashed, hung or ended the process when it was tried in another "
      "has failed, and is not loaded.",
      options};
  int exit_status;
  fl_plugins *plugins;
  if (cli_parse(&syntax, argc, argv, &exit_status) < 0)
    return exit_status;
  if (rescan && setenv("VLLM_FL_PROBE", "always", 1))
    return cli_no_memory();
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  fl_snapshot *all = fl_registry_snapshot(host); /* loads what waits: whoever asks wants to know what becomes of it */
  fl_status status = all ? fl_get_discovered_plugins(host, &plugins) : fl_error_status();
  if (status) {
    exit_status = cli_fail(status);
  } else {
    if (!plugins->n)
      report_none(host);
    exit_status = json ? print_json(plugins, all) : plugins->n ? print_table(plugins, all) : EXIT_OK;
    fl_plugins_free(plugins);
  }
  fl_snapshot_release(all);
  fl_host_destroy(host);
  return exit_status;
}
