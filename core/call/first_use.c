/* First uses of implementations (rule F1): see first_use.h. */
#include "core/call/first_use.h"

#include "core/registry.h"
#include "core/support.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *vendor_text(const fl_impl_record *record) {
  return record->vendor ? record->vendor : "None";
}

/* The peer's file of ops that kind default serves: one line for each (op, impl), never through a link. */
static void list_op(fl_host *host, const fl_impl_record *record) {
  char line[2 * FL_NAME_MAX + 64];
  char *path = NULL;
  if (record->kind != FL_KIND_DEFAULT)
    return;
  pthread_mutex_lock(&host->lock);
  const char *wanted = host->config->values[FL_SETTING_OPLIST_PATH].word;
  if (wanted)
    snprintf(line, sizeof line, "[DEBUG] vllm_fl.dispatch.ops.%s: %s\n", record->op->name, record->impl_id);
  if (wanted && !fl_strings_has(&host->oplist, line) && fl_strings_add(&host->oplist, line))
    path = fl_strdup(wanted);
  pthread_mutex_unlock(&host->lock);
  if (!path)
    return;
  /* Not blocking: a call must not wait for somebody to read a pipe. */
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, line, strlen(line)) < 0)
    fl_log_line(&host->log, FL_LOG_WARNING, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write '%s': %m", path);
  if (fd >= 0)
    close(fd);
  free(path);
}

/*
 * A use is noted when a binding is made, so that no call has to look. For a scope that comes and goes to be noted each
 * time, a change unbinds the op wherever it was bound otherwise; but only so often, lest threads under different
 * policies unbind each other for ever.
 */
enum { SWITCHES_NOTED = 16 };

static void unbind_others(fl_op *op, const fl_impl_record *record) {
  if (op->switches++ < SWITCHES_NOTED)
    fl_unbind(op, NULL, record);
}

/* Remembers what the op uses; `before` gets what it used (malloc'ed). False: no change. */
static bool change_use(fl_op *op, const fl_impl_record *record, char **before) {
  bool changed = false;
  *before = NULL;
  pthread_mutex_lock(&op->host->lock);
  if (!op->last_used || strcmp(op->last_used, record->impl_id)) {
    char *copy = fl_strdup(record->impl_id);
    if (copy) {
      *before = op->last_used;
      op->last_used = copy;
      changed = true;
      unbind_others(op, record);
    }
  }
  pthread_mutex_unlock(&op->host->lock);
  return changed;
}

void fl_note_use(fl_op *op, const fl_impl_record *record) {
  fl_log *log = &op->host->log;
  const char *kind = fl_kind_name((fl_kind)record->kind);
  char *before;
  if (!change_use(op, record, &before))
    return;
  if (before)
    fl_log_line(log, FL_LOG_INFO, "Op '%s' switched from '%s' to '%s' (kind=%s, vendor=%s)", op->name, before,
                record->impl_id, kind, vendor_text(record));
  else
    fl_log_line(log, FL_LOG_INFO, "Op '%s' using '%s' (kind=%s, vendor=%s)", op->name, record->impl_id, kind,
                vendor_text(record));
  free(before);
  list_op(op->host, record);
}

void fl_note_ahead(fl_op *op, const fl_impl_record *record) {
  pthread_mutex_lock(&op->host->lock);
  bool first = !op->last_used;
  pthread_mutex_unlock(&op->host->lock);
  if (first)
    fl_note_use(op, record);
  else
    list_op(op->host, record);
}

void fl_note_fallback(fl_op *op, const fl_impl_record *record) {
  char *before;
  change_use(op, record, &before);
  free(before);
  list_op(op->host, record);
}
