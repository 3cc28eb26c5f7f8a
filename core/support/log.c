#include "core/support/log.h"
#include "core/support/text.h"

#include <string.h>
#include <strings.h>
#include <time.h>

static const struct {
  int level;
  const char *name;
} levels[] = {{FL_LOG_DEBUG, "DEBUG"}, {FL_LOG_INFO, "INFO"}, {FL_LOG_WARNING, "WARNING"}, {FL_LOG_ERROR, "ERROR"}};

int fl_log_level_from_name(const char *name) {
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
    if (!strcasecmp(name, levels[i].name))
      return levels[i].level;
  return 0;
}

const char *fl_log_level_name(int level) {
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
    if (level <= levels[i].level)
      return levels[i].name;
  return "ERROR";
}

/* Apart: a frame as large as this one costs something, also where nothing is logged. */
static __attribute__((noinline)) void write_line(fl_log *log, int level, const char *format, va_list arguments) {
  char words[8192], text[8192], stamp[32];
  struct tm broken_down;
  vsnprintf(words, sizeof words, format, arguments);
  fl_show(text, sizeof text, words, true);
  if (log->fn) {
    log->fn(log->user, level, text);
    return;
  }
  time_t now = time(NULL);
  localtime_r(&now, &broken_down);
  strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &broken_down);
  /* One write a line, so that lines of several threads do not mix. */
  fprintf(stderr, "[%s] [%s] [flhost] %s\n", stamp, fl_log_level_name(level), text);
}

void fl_log_line(fl_log *log, int level, const char *format, ...) {
  va_list arguments;
  if (!fl_log_enabled(log, level))
    return;
  va_start(arguments, format);
  write_line(log, level, format, arguments);
  va_end(arguments);
}

void fl_log_of_plugin(fl_log *log, int level, const char *plugin, const char *message) {
  char shown[FL_SHOWN_IN_PLACE];
  fl_show(shown, sizeof shown, message ? message : "", false);
  fl_log_line(log, level, "plugin %s: %s", plugin, shown);
}
