/* flhost lock: makes a plugins.lock of the plugins that are there, or says how they differ from one. */
#include "cli/cli.h"
#include "cli/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int print_json(const fl_lock_report *report) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_locked_plugin *plugin = fl_locked_plugin_at(report, i);
    list =
        cli_json_append(list, json_pack("{s:o, s:o, s:s, s:o, s:o, s:o}", "file", cli_json_string(plugin->file), "lock",
                                        cli_json_string(*plugin->lock ? plugin->lock : NULL), "status", plugin->status,
                                        "sha256", cli_json_string(*plugin->sha256 ? plugin->sha256 : NULL), "expected",
                                        cli_json_string(*plugin->expected ? plugin->expected : NULL), "reason",
                                        cli_json_string(plugin->reason)));
  }
  return cli_print_json(list);
}

static int print_table(const fl_lock_report *report) {
  static const char *const headers[] = {"STATUS", "FILE", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_locked_plugin *plugin = fl_locked_plugin_at(report, i);
    cli_table_add(&table, plugin->status);
    cli_table_add(&table, plugin->file);
    if (*plugin->reason)
      cli_table_note(&table, plugin->reason);
  }
  return cli_table_print(&table);
}

/* ------------------------------------------------------------------------------------------------------- making one */

static bool write_entry(FILE *file, const fl_locked_plugin *plugin) {
  json_t *name = json_string(plugin->file); /* what is a string in JSON is one in YAML */
  char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
  if (quoted)
    fprintf(file, "  - file: %s\n    sha256: %s\n    ops: all\n    kinds: all\n", quoted, plugin->sha256);
  free(quoted);
  json_decref(name);
  return quoted != NULL;
}

/* The text of a lock. What cannot be read, or named in YAML, is told of and left out. */
static int write_lock(FILE *file, const fl_lock_report *report) {
  int exit_status = EXIT_OK;
  fputs("# Plugin files that flhost loads, made by 'flhost lock'. What is not listed, or differs, is refused.\n"
        "# ops and kinds narrow what a file may register: ops: [rms_norm, silu_and_mul]; kinds: some of [flagos, "
        "vendor,\n"
        "# reference, platform, layer, communicator, attention_backend, mla_attention_backend, worker, model_runner].\n"
        "# allow: [executable-stack, text-relocations] makes exceptions.\n",
        file);
  fputs(report->n ? "plugins:\n" : "plugins: []\n", file);
  for (uint32_t i = 0; i < report->n; i++) {
    const fl_locked_plugin *plugin = fl_locked_plugin_at(report, i);
    if (*plugin->sha256 && write_entry(file, plugin))
      continue;
    cli_error("%s is left out: %s", plugin->file, *plugin->sha256 ? "its name is no UTF-8" : plugin->reason);
    exit_status = EXIT_MISMATCH;
  }
  return exit_status;
}

/* Puts the whole file in the place of the old one. */
static int write_file(const char *path, const fl_lock_report *report) {
  size_t size = strlen(path) + sizeof ".XXXXXX";
  char *beside = malloc(size);
  if (!beside)
    return cli_no_memory();
  snprintf(beside, size, "%s.XXXXXX", path);
  int fd = mkstemp(beside), exit_status = EXIT_USAGE;
  FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (file)
    exit_status = write_lock(file, report);
  bool written = file && !fchmod(fd, 0644) && !fflush(file) && !ferror(file) && !fsync(fd);
  if (file ? fclose(file) : fd >= 0 && close(fd))
    written = false;
  if (!written || rename(beside, path)) {
    cli_error("%s: %s", path, strerror(errno));
    if (fd >= 0)
      unlink(beside);
    exit_status = EXIT_USAGE;
  }
  free(beside);
  return exit_status;
}

static int make(const fl_lock_report *report, const char *output, bool json) {
  if (!report->n)
    cli_error("no plugin was found");
  int exit_status = json ? print_json(report) : output ? write_file(output, report) : write_lock(stdout, report);
  return exit_status ? exit_status : report->n ? EXIT_OK : EXIT_MISMATCH;
}

/* ----------------------------------------------------------------------------------------------------- checking one */

static int check(const fl_lock_report *report, bool json) {
  uint32_t differ = 0;
  for (uint32_t i = 0; i < report->n; i++)
    differ += strcmp(fl_locked_plugin_at(report, i)->status, "listed") != 0;
  int exit_status = json ? print_json(report) : report->n ? print_table(report) : EXIT_OK;
  if (exit_status)
    return exit_status;
  if (differ)
    cli_error("%u of %u plugin files are not what the lock lists", (unsigned)differ, (unsigned)report->n);
  return differ ? EXIT_MISMATCH : EXIT_OK;
}

int command_lock(int argc, char **argv) {
  bool is_check = false, json = false;
  const char *output = NULL;
  const cli_option options[] = {
      {"check", NULL, "say what differs from FILE, or from what is in force", &is_check, NULL},
      {"output", "FILE", "write there, in the place of what is there", NULL, &output},
      CLI_JSON(&json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[FILE]", 0, 1,
      "Prints a plugins.lock that lists every plugin file that would be loaded, with its SHA-256. With "
      "VLLM_FL_PLUGINS_LOCK=FILE, or as /etc/flhost/plugins.lock, nothing else is loaded. With --check it compares. "
      "Exit status 1: a file differs, is not listed or not there; or there was nothing to list.",
      options};
  fl_lock_report *report;
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  const char *path = first < argc ? argv[first] : NULL;
  if ((path && !is_check) || (output && (is_check || json))) {
    cli_error("%s", path && !is_check ? "a FILE to compare with needs --check; --output FILE is where one is written"
                                      : "--output excludes --check and --json");
    return EXIT_USAGE;
  }
  if (path || !is_check) /* what the setting's lock keeps out is asked for, too */
    unsetenv("VLLM_FL_PLUGINS_LOCK");
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  fl_status status = fl_check_plugins_lock(host, is_check ? path : "", &report);
  exit_status = status ? cli_fail(status) : is_check ? check(report, json) : make(report, output, json);
  if (!status)
    fl_lock_report_free(report);
  fl_host_destroy(host);
  return exit_status;
}
