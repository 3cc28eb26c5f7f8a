/*
 * The hosts' log, handed to Python's module logging: logger "flhost" for what the host says, "flhost.plugin.NAME" for
 * what a plugin does.
 *
 * A line may come from any thread, one without Python, one that holds locks of the library or one that must not wait.
 * So the callback takes no lock and no GIL: it puts the line on a list. Who called the library hands it on when the
 * call is back, so that a line is there before its call returns; what other threads say the main thread hands on.
 */
#include "python/extension/core.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One line. */
typedef struct fl_py_line {
  struct fl_py_line *before; /* the one that came before it */
  int level;
  char text[];
} fl_py_line;

_Atomic(fl_py_line *) fl_py_lines;
static atomic_bool ended;

static int flush_later(void *none) {
  (void)none;
  fl_py_log_flush();
  return 0;
}

void fl_py_log(void *user, int level, const char *text) {
  (void)user;
  size_t length = strlen(text);
  fl_py_line *line = atomic_load(&ended) ? NULL : malloc(sizeof *line + length + 1);
  if (!line) {
    fprintf(stderr, "flhost: %s\n", text);
    return;
  }
  line->level = level;
  memcpy(line->text, text, length + 1);
  line->before = atomic_load(&fl_py_lines);
  while (!atomic_compare_exchange_weak(&fl_py_lines, &line->before, line))
    ;
  if (!line->before)
    Py_AddPendingCall(flush_later, NULL); /* where there is no room somebody else flushes */
}

/* "plugin acme: text" is logged by "flhost.plugin.acme" as "text". */
static PyObject *logger_of(PyObject *logging, const char **text) {
  const char *word = *text, *colon;
  char name[160] = "flhost";
  if (!strncmp(word, "plugin ", 7) && (colon = strstr(word, ": ")) && colon - word < 135 &&
      (size_t)(colon - word - 7) == strcspn(word + 7, " :")) {
    snprintf(name, sizeof name, "flhost.plugin.%.*s", (int)(colon - word - 7), word + 7);
    *text = colon + 2;
  }
  return PyObject_CallMethod(logging, "getLogger", "s", name);
}

static void hand_on(PyObject *logging, int level, const char *text) {
  PyObject *logger = logger_of(logging, &text);
  PyObject *line = logger ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : NULL;
  PyObject *result = line ? PyObject_CallMethod(logger, "log", "isO", level, "%s", line) : NULL;
  if (!result)
    PyErr_WriteUnraisable(logger);
  Py_XDECREF(result);
  Py_XDECREF(line);
  Py_XDECREF(logger);
}

void fl_py_log_flush(void) {
  fl_py_line *line = atomic_exchange(&fl_py_lines, NULL), *first = NULL;
  PyObject *type, *value, *traceback;
  if (!line)
    return;
  while (line) { /* the list has the last line first */
    fl_py_line *before = line->before;
    line->before = first;
    first = line;
    line = before;
  }
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *logging = PyImport_ImportModule("logging");
  if (!logging)
    PyErr_WriteUnraisable(NULL);
  while (first) {
    line = first;
    first = line->before;
    if (logging)
      hand_on(logging, line->level, line->text);
    free(line);
  }
  Py_XDECREF(logging);
  PyErr_Restore(type, value, traceback);
}

PyObject *fl_py_log_end(PyObject *module, PyObject *none) {
  (void)module;
  (void)none;
  fl_py_log_flush();
  atomic_store(&ended, true);
  Py_RETURN_NONE;
}
