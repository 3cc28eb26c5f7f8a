/* flhost probe: tries plugins, each in a process of its own. The library runs it, too, before it loads what is new. */
#include "cli/cli.h"
#include "cli/table.h"

#include <flhost/testing.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* What a plugin leaves running is ended by the process between; where that was killed it is this one's to do. */
static fl_status try_plugin(const char *file, fl_probe_fn watch, fl_probed *probed) {
  prctl(PR_SET_CHILD_SUBREAPER, 1UL);
  fl_status status = fl_probe_plugin(file, watch, NULL, probed);
  fl_end_children();
  return status;
}

/* ------------------------------------------------------------------------------------------------------ the channel */

/* The library reads this (core/plugins/judge.h). It is gone when the pipe is. */
static void say(const char *format, ...) FL_PRINTF(1, 2);
static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vdprintf(FL_CHILD_CHANNEL, format, arguments);
  va_end(arguments);
  if (written < 0)
    _exit(EXIT_USAGE);
}

static void follow(void *user, const char *phase) {
  (void)user;
  say("in %s\n", phase);
}

static int answer(int n, char **files) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  say("flhost-probe 1\n");
  for (int i = 0; i < n; i++) {
    fl_probed probed = {.size = sizeof probed};
    say("try %d\n", i);
    fl_status status = try_plugin(files[i], follow, &probed);
    if (status) {
      say("untried %s\n", fl_error_message());
      return EXIT_USAGE;
    }
    if (*probed.changed)
      say("changed %s\n", probed.changed);
    if (probed.failed)
      say("failed %d %s\n", i, probed.words);
    else
      say("%s %d\n", probed.refused ? "refused" : "ok", i);
  }
  return EXIT_OK;
}

/* --------------------------------------------------------------------------------------------------------- people */

static const char *verdict_of(const fl_probed *probed) {
  return probed->failed ? "failed" : probed->refused ? "refused" : "ok";
}

static int print_json(int n, char **files, const fl_probed *probed) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++)
    list =
        cli_json_append(list, json_pack("{s:o, s:s, s:o, s:o, s:f}", "file", cli_json_string(files[i]), "verdict",
                                        verdict_of(&probed[i]), "reason", cli_json_string(probed[i].words), "changed",
                                        cli_json_string(probed[i].changed), "seconds", probed[i].seconds));
  return cli_print_json(list);
}

static int print_table(int n, char **files, const fl_probed *probed) {
  static const char *const headers[] = {"VERDICT", ">MS", "FILE", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (int i = 0; i < n; i++) {
    char changed[sizeof probed->changed + 32];
    cli_table_add(&table, verdict_of(&probed[i]));
    cli_table_format(&table, "%.1f", probed[i].seconds * 1e3);
    cli_table_add(&table, files[i]);
    if (*probed[i].words)
      cli_table_note(&table, probed[i].words);
    snprintf(changed, sizeof changed, "it changed %s", probed[i].changed);
    if (*probed[i].changed)
      cli_table_note(&table, changed);
  }
  return cli_table_print(&table);
}

/* 2: one could not be tried; 1: one did harm or is refused. */
static int probe(int n, char **files, bool json) {
  fl_probed *probed = calloc((size_t)n, sizeof *probed);
  int exit_status = EXIT_OK;
  bool failed = false;
  if (!probed)
    return cli_no_memory();
  for (int i = 0; i < n && !exit_status; i++) {
    probed[i].size = sizeof *probed;
    fl_status status = try_plugin(files[i], NULL, &probed[i]);
    if (status)
      exit_status = cli_fail(status);
    failed |= probed[i].failed || probed[i].refused;
  }
  if (!exit_status)
    exit_status = json ? print_json(n, files, probed) : print_table(n, files, probed);
  free(probed);
  return exit_status ? exit_status : failed ? EXIT_MISMATCH : EXIT_OK;
}

int command_probe(int argc, char **argv) {
  bool json = false, channel = false;
  const cli_option options[] = {
      CLI_JSON(&json),
      {"channel", NULL, "tell the library that started this, by descriptor 3", &channel, NULL},
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "FILE...", 1, -1,
      "Tries plugins: loads each in a process of its own, registers what it brings, asks whether that is available, "
      "and ends the process. Says whether it crashed, hung, ended the process or took all memory, and where; and what "
      "it left changed there. Exit status 1: a plugin did harm, or no host can use it.",
      options};
  int exit_status, first = cli_parse(&syntax, argc, argv, &exit_status);
  if (first < 0)
    return exit_status;
  return channel ? answer(argc - first, argv + first) : probe(argc - first, argv + first, json);
}
