/* flhost doctor: looks at everything that decides what runs, and says what to do about what is wrong. */
#include "cli/commands/doctor.h"

#include "cli/cli.h"
#include "cli/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

static const char *const severity_names[] = {"ok", "note", "warning", "problem"};

void finding_add(findings *list, finding_level severity, const char *area, const char *advice, const char *format,
                 ...) {
  char *what = NULL, *copy = strdup(advice);
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&what, format, arguments);
  va_end(arguments);
  for (size_t i = 0; length >= 0 && i < list->n; i++)
    if (!strcmp(list->items[i].what, what))
      goto out;
  if (list->n == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 32;
    finding *grown = realloc(list->items, capacity * sizeof *grown);
    list->failed |= !grown;
    if (grown) {
      list->items = grown;
      list->capacity = capacity;
    }
  }
  list->failed |= length < 0 || !copy;
  if (!list->failed) {
    list->items[list->n++] = (finding){severity, area, what, copy};
    return;
  }
out:
  if (length >= 0)
    free(what);
  free(copy);
}

/* --------------------------------------------------------------------------------------------------- the host's log */

/* Lines from WARNING up that the host logs while it starts. */
static void collect_line(void *user, int level, const char *line) {
  if (level == FL_LOG_WARNING) /* errors are failed plugins, which check_plugins reports, or invalid settings */
    finding_add(user, FINDING_WARNING, "host", "correct what it names", "%s", line);
}

static void ignore_line(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Is it NAME=... ? */
static bool defines(const char *entry, const char *name) {
  size_t length = strlen(name);
  return !strncmp(entry, name, length) && entry[length] == '=';
}

static bool is_word(const char *variable, const char *word) {
  const char *value = getenv(variable);
  return value && !strcasecmp(value, word);
}

/* The environment without what would hide warnings here, the log level and VLLM_FL_CHECK=off, and, if asked, with
 * invalid settings turned into warnings. The entries stay those of the process. */
static const char **altered_environment(bool tolerant) {
  bool hides_warnings = is_word("VLLM_FL_LOG_LEVEL", "ERROR");
  size_t n = 0, kept = 0;
  tolerant |= is_word("VLLM_FL_CHECK", "off");
  while (environ[n])
    n++;
  const char **altered = calloc(n + 2, sizeof *altered);
  for (size_t i = 0; altered && i < n; i++)
    if (!(hides_warnings && defines(environ[i], "VLLM_FL_LOG_LEVEL")) &&
        !(tolerant && defines(environ[i], "VLLM_FL_CHECK")))
      altered[kept++] = environ[i];
  if (altered && tolerant)
    altered[kept] = "VLLM_FL_CHECK=warn";
  return altered;
}

/* The host uses *environment as long as it lives. */
static fl_status create(bool tolerant, fl_log_fn log, findings *list, const char ***environment, fl_host **host) {
  fl_host_options options = {.size = sizeof options, .log = log, .log_user = list};
  free(*environment);
  /* A program with more rights than its caller does not look at the environment. */
  *environment = getauxval(AT_SECURE) ? NULL : altered_environment(tolerant);
  options.environment = *environment;
  return fl_host_create(&options, host);
}

/* Each line of the message why no host could be created. */
static void add_message(findings *list, fl_status status) {
  const char *area = status == FL_ECONFIG ? "settings" : status == FL_EPLUGIN ? "plugins" : "host";
  const char *advice = status == FL_ECONFIG
                           ? "correct or remove it; until then no engine starts with these settings"
                           : "the plugin's manifest calls it critical: repair it or remove the manifest";
  for (const char *line = fl_error_message(); *line;) {
    int length = (int)strcspn(line, "\n");
    finding_add(list, FINDING_PROBLEM, area, status == FL_ECONFIG || status == FL_EPLUGIN ? advice : "", "%.*s", length,
                line);
    line += length + (line[length] == '\n');
  }
}

/* A host for the other checks, also when the settings are invalid; NULL if there is no way. */
static fl_host *open_host(findings *list, const char ***environment) {
  fl_host *host = NULL;
  fl_status status = create(false, collect_line, list, environment, &host);
  if (!status)
    return host;
  add_message(list, status);
  if (create(true, ignore_line, list, environment, &host))
    return NULL;
  finding_add(list, FINDING_NOTE, "settings", "", "what follows was found with the invalid settings left out");
  return host;
}

/* ---------------------------------------------------------------------------------------------------------- output */

static int print_json(const findings *list) {
  json_t *array = json_array();
  for (size_t i = 0; i < list->n; i++)
    array =
        cli_json_append(array, json_pack("{s:s, s:s, s:o, s:o}", "severity", severity_names[list->items[i].severity],
                                         "area", list->items[i].area, "what", cli_json_string(list->items[i].what),
                                         "advice", cli_json_string(list->items[i].advice)));
  return cli_print_json(array);
}

static int print_table(const findings *list) {
  static const char *const headers[] = {"STATE", "AREA", "FINDING", NULL};
  cli_table table;
  cli_table_begin(&table, headers, 0);
  for (size_t i = 0; i < list->n; i++) {
    cli_table_add(&table, severity_names[list->items[i].severity]);
    cli_table_add(&table, list->items[i].area);
    cli_table_add(&table, list->items[i].what);
    if (*list->items[i].advice)
      cli_table_note(&table, list->items[i].advice);
  }
  return cli_table_print(&table);
}

static void findings_free(findings *list) {
  for (size_t i = 0; i < list->n; i++) {
    free(list->items[i].what);
    free(list->items[i].advice);
  }
  free(list->items);
}

int command_doctor(int argc, char **argv) {
  bool json = false, problem = false;
  const cli_option options[] = {CLI_JSON(&json), {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "", 0, 0,
      "Checks settings, plugin directories, plugins, hardware, drivers and operators, and says what to do about "
      "what is wrong.\n"
      "Exit status 2: a problem was found.",
      options};
  static void (*const checks[])(fl_host *, findings *) = {check_settings, check_directories,   check_plugins,
                                                          check_platform, check_communicators, check_ops};
  findings list = {0};
  int exit_status;
  if (cli_parse(&syntax, argc, argv, &exit_status) < 0)
    return exit_status;
  const char **environment = NULL;
  fl_host *host = open_host(&list, &environment);
  for (size_t i = 0; host && i < sizeof checks / sizeof *checks; i++)
    checks[i](host, &list);
  for (size_t i = 0; i < list.n; i++)
    problem |= list.items[i].severity == FINDING_PROBLEM;
  exit_status = list.failed ? cli_no_memory() : json ? print_json(&list) : print_table(&list);
  if (!exit_status && problem)
    exit_status = EXIT_USAGE;
  findings_free(&list);
  fl_host_destroy(host);
  free(environment);
  return exit_status;
}
