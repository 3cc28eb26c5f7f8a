/* Messages, JSON and hosts: what every subcommand needs to speak. */
#include "cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Length of the UTF-8 sequence at `s` if it is a valid one, else 0. */
static size_t utf8_length(const unsigned char *s) {
  size_t length = *s < 0x80                 ? 1
                  : *s >= 0xc2 && *s < 0xe0 ? 2
                  : (*s & 0xf0) == 0xe0     ? 3
                  : *s >= 0xf0 && *s < 0xf5 ? 4
                                            : 0;
  for (size_t i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) ||
      (*s == 0xf4 && s[1] > 0x8f))
    return 0;
  return length;
}

size_t cli_character(const char *text) {
  const unsigned char *s = (const unsigned char *)text;
  bool is_control = *s < 0x20 || *s == 0x7f || (*s == 0xc2 && s[1] < 0xa0);
  return is_control ? 0 : utf8_length(s);
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
  if (!value)
    return cli_no_memory();
  json_dumpf(value, stdout, JSON_INDENT(2));
  putchar('\n');
  json_decref(value);
  return EXIT_OK;
}

json_t *cli_json_string(const char *text) {
  json_t *string = NULL;
  char *clean, *to;
  if (!text)
    return json_null();
  to = clean = malloc(strlen(text) * 3 + 1);
  if (!clean)
    return NULL;
  while (*text) {
    size_t length = utf8_length((const unsigned char *)text);
    const char *from = length ? text : "\xef\xbf\xbd";
    size_t size = length ? length : 3;
    memcpy(to, from, size);
    to += size;
    text += length ? length : 1;
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
