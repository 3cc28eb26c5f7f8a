/* The thread's last error. Thread-local, so that no caller ever sees another thread's message. */
#include "core/error.h"

#include <string.h>

static _Thread_local char message[FL_ERROR_MAX];

fl_status fl_error(fl_status status, const char *format, ...) {
  char text[FL_ERROR_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(message, text, strlen(text) + 1);
  return status;
}

fl_status fl_error_no_memory(void) {
  return fl_error(FL_ENOMEM, "out of memory");
}

char *fl_error_buffer(void) {
  return message;
}

const char *fl_error_message(void) {
  return message;
}

const char *fl_status_name(fl_status status) {
  static const char *const names[] = {"FL_OK",      "FL_EINVAL",    "FL_ENOTSUP", "FL_ENOMEM",
                                      "FL_EDEVICE", "FL_EINTERNAL", "FL_ENOIMPL", "FL_ECONFIG",
                                      "FL_EPLUGIN", "FL_EEXIST",    "FL_ENOENT",  "FL_ESTATE"};
  if (status < 0 || (size_t)status >= sizeof names / sizeof names[0])
    return "unknown status";
  return names[status];
}
