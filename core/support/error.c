/*
 * The thread's last error, so that no caller ever sees another thread's message. The buffer is allocated when a thread
 * first needs it: thread storage of a library that may be opened late has to stay small.
 */
#include "core/support/error.h"
#include "core/support/text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The functions themselves, where an analyser was told what they give back (tools/analysis/facts.h). */
#undef fl_error
#undef fl_error_no_memory

static _Thread_local char *message;
static _Thread_local bool no_memory;
static _Thread_local fl_status last_status;
static _Thread_local void (*at_end)(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void release(void *buffer) {
  if (at_end)
    at_end();
  at_end = NULL;
  message = NULL;
  free(buffer);
}

void fl_error_at_thread_end(void (*leave)(void)) {
  at_end = leave;
}

static void initialise(void) {
  pthread_key_create(&key, release);
}

char *fl_error_buffer(void) {
  if (!message) {
    pthread_once(&once, initialise);
    char *buffer = calloc(1, FL_ERROR_MAX + 1); /* it ends, whatever an implementation writes */
    if (!buffer || pthread_setspecific(key, buffer)) {
      free(buffer);
      return NULL;
    }
    message = buffer;
  }
  return message;
}

fl_status fl_error(fl_status status, const char *format, ...) {
  char text[FL_ERROR_MAX], *buffer = fl_error_buffer();
  va_list arguments;
  no_memory = !buffer;
  last_status = status;
  if (!buffer)
    return status;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fl_show(buffer, FL_ERROR_MAX, text, true);
  return status;
}

fl_status fl_error_no_memory(void) {
  return fl_error(FL_ENOMEM, "out of memory");
}

void fl_error_clear(void) {
  last_status = FL_OK;
  no_memory = false;
  if (message)
    *message = 0;
}

void fl_error_keep(fl_kept_error *kept) {
  kept->status = last_status;
  const char *now = fl_error_message();
  size_t length = strnlen(now, sizeof kept->message - 1);
  memcpy(kept->message, now, length);
  kept->message[length] = 0;
}

fl_status fl_error_restore(const fl_kept_error *kept) {
  if (!kept->status && !*kept->message) { /* mostly; and no memory is needed for that */
    fl_error_clear();
    return FL_OK;
  }
  return fl_error(kept->status, "%s", kept->message);
}

const char *fl_error_message(void) {
  return no_memory ? "out of memory" : message ? message : "";
}

fl_status fl_error_note(fl_status status) {
  return last_status = status;
}

fl_status fl_error_status(void) {
  return last_status;
}

const char *fl_status_name(fl_status status) {
  static const char *const names[] = {"FL_OK",      "FL_EINVAL",    "FL_ENOTSUP", "FL_ENOMEM",
                                      "FL_EDEVICE", "FL_EINTERNAL", "FL_ENOIMPL", "FL_ECONFIG",
                                      "FL_EPLUGIN", "FL_EEXIST",    "FL_ENOENT",  "FL_ESTATE"};
  if (status < 0 || (size_t)status >= sizeof names / sizeof names[0])
    return "unknown status";
  return names[status];
}
