/* Log lines of one host: to the engine's callback, or to standard error as "[time] [LEVEL] [flhost] text". */
#ifndef FLHOST_CORE_SUPPORT_LOG_H
#define FLHOST_CORE_SUPPORT_LOG_H

#include <flhost/flhost.h>
#include <stdatomic.h>

typedef struct fl_log {
  fl_log_fn fn; /* NULL: standard error */
  void *user;
  _Atomic int level; /* least severe level that is logged */
} fl_log;

/* Cheap when the level is off: nothing is formatted. */
void fl_log_line(fl_log *log, int level, const char *format, ...) FL_PRINTF(3, 4);

/* What a plugin logs (may be NULL): one line, whatever it holds, so that nobody speaks in another's name. */
void fl_log_of_plugin(fl_log *log, int level, const char *plugin, const char *message);

static inline bool fl_log_enabled(const fl_log *log, int level) {
  return level >= atomic_load_explicit(&log->level, memory_order_relaxed);
}

/* "DEBUG", "INFO", "WARNING", "ERROR", in any case; 0 for another word. */
int fl_log_level_from_name(const char *name);
const char *fl_log_level_name(int level);

#endif
