/* Messages, JSON and hosts: what every subcommand needs to speak. */
#include "cli/cli.h"

#include <errno.h>
#include <flhost/testing.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

size_t cli_character(const char *text) {
  uint32_t code;
  size_t length = fl_character(text, &code);
  return fl_is_printable(code) ? length : 0;
}

static void put_clean(FILE *file, const char *text, size_t length) {
  while (length) {
    size_t n = cli_character(text);
    if (n)
      fwrite(text, 1, n, file);
    else
      fprintf(file, "\\x%02x", (unsigned char)*text);
    n += !n;
    text += n;
    length -= n < length ? n : length;
  }
}

uint32_t cli_width(const char *text, size_t length) {
  uint32_t width = 0;
  for (size_t i = 0, n; i < length; i += n + !n) {
    n = cli_character(text + i);
    width += n ? 1 : 4;
  }
  return width;
}

void cli_put_text(FILE *file, const char *text) {
  put_clean(file, text, strlen(text));
}

static FILE *messages; /* NULL: standard error */

void cli_set_messages(FILE *file) {
  messages = file;
}

void cli_error(const char *format, ...) {
  FILE *to = messages ? messages : stderr;
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  fflush(stdout);
  flockfile(to);
  for (const char *line = length < 0 ? "out of memory" : text; *line;) {
    size_t end = strcspn(line, "\n");
    fputs("flhost: ", to);
    put_clean(to, line, end);
    putc('\n', to);
    line += end + (line[end] == '\n');
  }
  funlockfile(to);
  if (length >= 0)
    free(text);
}

bool cli_is_styled(FILE *file) {
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(fileno(file)) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

int cli_no_memory(void) {
  cli_error("out of memory");
  return EXIT_USAGE;
}

int cli_print_json(json_t *value) {
  char *text = json_dumps(value, JSON_INDENT(2));
  uint32_t code;
  json_decref(value);
  if (!text)
    return cli_no_memory();
  for (size_t n, at = 0; text[at]; at += n) { /* jansson's own words are ASCII, and strings are UTF-8 */
    n = fl_character(text + at, &code);
    if (fl_is_printable(code) || code == '\n')
      fwrite(text + at, 1, n, stdout);
    else
      printf("\\u%04x", (unsigned)code);
  }
  putchar('\n');
  free(text);
  return EXIT_OK;
}

json_t *cli_json_string(const char *text) {
  json_t *string = NULL;
  char *clean, *to;
  uint32_t code;
  if (!text)
    return json_null();
  to = clean = malloc(strlen(text) * 3 + 1);
  if (!clean)
    return NULL;
  for (size_t length; *text; text += length + !length) {
    length = fl_character(text, &code);
    to = mempcpy(to, length ? text : "\xef\xbf\xbd", length ? length : 3);
  }
  *to = 0;
  string = json_string(clean);
  free(clean);
  return string;
}

json_t *cli_json_append(json_t *list, json_t *value) {
  if (list && value && !json_array_append(list, value)) {
    json_decref(value);
    return list;
  }
  json_decref(value);
  json_decref(list);
  return NULL;
}

json_t *cli_json_words(const char *words) {
  json_t *list = json_array();
  while (words && *words) {
    size_t length = strcspn(words, ",");
    list = cli_json_append(list, json_stringn(words, length));
    words += length + (words[length] == ',');
  }
  return list;
}

int cli_check_output(int status) {
  errno = 0;
  bool failed = ferror(stdout) != 0;
  if (!fflush(stdout) && !failed)
    return status;
  cli_error("cannot write to standard output: %s", errno ? strerror(errno) : "write error");
  return EXIT_USAGE;
}

/* ------------------------------------------------------------------------------------------------------------ hosts */

static const struct {
  int level;
  const char *name;
} levels[] = {{FL_LOG_ERROR, "ERROR"}, {FL_LOG_WARNING, "WARNING"}, {FL_LOG_INFO, "INFO"}, {FL_LOG_DEBUG, "DEBUG"}};
enum { N_LEVELS = sizeof levels / sizeof *levels };

static const char *level_name(int level) {
  size_t i = 0;
  while (i + 1 < N_LEVELS && level < levels[i].level)
    i++;
  return levels[i].name;
}

/* `user` is the least level that is printed. */
static void print_log_line(void *user, int level, const char *line) {
  const int *least = user;
  if (level >= *least)
    cli_error("%s: %s", level_name(level), line);
}

/* Does VLLM_FL_LOG_LEVEL hold a level? The library refuses another word, and logs as if it were not there till then. */
static bool is_log_level_set(void) {
  const char *text = getenv("VLLM_FL_LOG_LEVEL");
  char word[8] = "", more[2];
  if (!text || sscanf(text, " %7s %1s", word, more) != 1)
    return false;
  for (size_t i = 0; i < N_LEVELS; i++)
    if (!strcasecmp(word, levels[i].name))
      return true;
  return false;
}

fl_host *cli_open_host(uint32_t flags, int *exit_status) {
  static const int everything = 0, warnings = FL_LOG_WARNING;
  fl_host *host = NULL;
  /* With the variable set the library has already left out what is below it. */
  fl_host_options options = {.size = sizeof options,
                             .flags = flags,
                             .log = print_log_line,
                             .log_user = (void *)(is_log_level_set() ? &everything : &warnings)};
  fl_status status = fl_host_create(&options, &host);
  if (status) {
    *exit_status = cli_fail(status);
    return NULL;
  }
  return host;
}

int cli_exit_status(fl_status status) {
  return status == FL_OK ? EXIT_OK : status == FL_ENOIMPL ? EXIT_NO_IMPL : EXIT_USAGE;
}

int cli_fail(fl_status status) {
  cli_error("%s", fl_error_message());
  return cli_exit_status(status);
}
