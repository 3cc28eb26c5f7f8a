/* Problems with settings: see problems.h. */
#include "core/support/problems.h"
#include "core/support/error.h"

#include <stdlib.h>
#include <string.h>

/* The thread's message has an end; what does not fit is counted instead. */
enum { MESSAGE_ROOM = FL_ERROR_MAX - 64 };

static char *format_problem(fl_place place, const char *format, va_list arguments) {
  char words[2048];
  vsnprintf(words, sizeof words, format, arguments);
  if (!place.source)
    return fl_strdup(words);
  if (!place.line)
    return fl_format("%s: %s", place.source, words);
  return fl_format("%s:%u:%u: %s", place.source, place.line, place.column, words);
}

static void add_error(fl_problems *problems, const char *line) {
  problems->n_errors++;
  if (problems->errors.length + strlen(line) + 1 > MESSAGE_ROOM && problems->errors.length)
    return;
  fl_text_add(&problems->errors, "%s%s", problems->errors.length ? "\n" : "", line);
}

/* Nobody reads more lines than this about one set of settings; the rest is counted. */
enum { WARNINGS_MAX = 100 };

static void add_warning(fl_problems *problems, const char *line) {
  if (problems->log && problems->n_warnings++ < WARNINGS_MAX)
    fl_log_line(problems->log, FL_LOG_WARNING, "%s", line);
}

static void report(fl_problems *problems, bool fatal, fl_place place, const char *format, va_list arguments) {
  if (!fatal && problems->check == FL_CHECK_OFF)
    return;
  char *line = format_problem(place, format, arguments);
  if (!line)
    problems->no_memory = true;
  else if (fatal || problems->check == FL_CHECK_ERROR)
    add_error(problems, line);
  else
    add_warning(problems, line);
  free(line);
}

void fl_problem(fl_problems *problems, fl_place place, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(problems, false, place, format, arguments);
  va_end(arguments);
}

void fl_problem_fatal(fl_problems *problems, fl_place place, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(problems, true, place, format, arguments);
  va_end(arguments);
}

void fl_problems_warn(fl_problems *problems, const char *format, ...) {
  char words[2048];
  va_list arguments;
  if (problems->check == FL_CHECK_OFF)
    return;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  add_warning(problems, words);
}

const char fl_builtin_source[] = "built-in";

char *fl_place_origin(fl_problems *problems, fl_place place) {
  if (place.source == fl_builtin_source)
    return (char *)(uintptr_t)fl_builtin_source;
  char *origin = place.line ? fl_format("%s:%u", place.source, place.line) : fl_strdup(place.source);
  if (!origin)
    problems->no_memory = true;
  return origin;
}

void fl_origin_free(char *origin) {
  if (origin != fl_builtin_source)
    free(origin);
}

/* Lines that were left out because the message was full. */
static void add_rest(fl_problems *problems) {
  uint32_t shown = 1;
  for (const char *c = fl_text_get(&problems->errors); (c = strchr(c, '\n')); c++)
    shown++;
  if (shown < problems->n_errors)
    fl_text_add(&problems->errors, "\n… and %u more", problems->n_errors - shown);
}

fl_status fl_problems_finish(fl_problems *problems) {
  fl_status status = FL_OK;
  if (problems->n_errors)
    add_rest(problems);
  if (problems->n_warnings > WARNINGS_MAX)
    fl_log_line(problems->log, FL_LOG_WARNING, "… and %u warnings more about settings",
                problems->n_warnings - WARNINGS_MAX);
  if (problems->no_memory || problems->errors.failed)
    status = fl_error_no_memory();
  else if (problems->n_errors)
    status = fl_error(FL_ECONFIG, "%s", fl_text_get(&problems->errors));
  fl_text_free(&problems->errors);
  return status;
}
