/*
 * flhost._core: what its files share.
 *
 * The GIL: held in every function unless its comment says otherwise. It is let go of around each function of the
 * library that may wait for a lock, load a plugin or run a kernel (FL_PY_WITHOUT_GIL), since another thread may hold
 * that lock and want the GIL.
 */
#ifndef FLHOST_PYTHON_CORE_H
#define FLHOST_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <flhost/flhost.h>
#include <stdatomic.h>
#include <string.h>

/* Runs a statement without the GIL. */
#define FL_PY_WITHOUT_GIL(statement_)                                                                                  \
  do {                                                                                                                 \
    PyThreadState *thread_ = PyEval_SaveThread();                                                                      \
    statement_;                                                                                                        \
    PyEval_RestoreThread(thread_);                                                                                     \
  } while (0)

/* ------------------------------------------------------------------------------------------------------------- log */

/* For fl_host_options.log. Any thread, with the GIL or without. */
void fl_py_log(void *user, int level, const char *line);

/* Lines that are not handed on to the module logging yet. */
extern _Atomic(struct fl_py_line *) fl_py_lines;

/* Hands them on. An exception that is set stays. */
void fl_py_log_flush(void);

/* From now on lines go to standard error: the interpreter ends. For atexit. */
PyObject *fl_py_log_end(PyObject *module, PyObject *none);
PyObject *fl_py_use_openmp(PyObject *module, PyObject *addresses); /* threads.c */

/* ---------------------------------------------------------------------------------------------------------- errors */

/* The exceptions, as attributes of the module. -1 with an exception set. */
int fl_py_errors_add(PyObject *module);

/* Raises the exception of a status with the library's message, which is this thread's last. NULL always. */
PyObject *fl_py_raise(fl_status status);

/* For behind a call of the library: hands on what it logged; false, with its exception raised, unless it went well. */
bool fl_py_end(fl_status status);
static inline bool fl_py_ok(fl_status status) {
  return (!status && !atomic_load_explicit(&fl_py_lines, memory_order_relaxed)) || fl_py_end(status);
}

/* The same with another message. */
PyObject *fl_py_raise_message(fl_status status, const char *message);

/* An argument's value is wrong, or its type: "rms_norm: argument 'x': a str, expected a tensor". NULL always. */
PyObject *fl_py_raise_value(const char *format, ...);
PyObject *fl_py_raise_type(const char *format, ...);

/* The name of an object's type for messages: "str", "torch.Tensor". A new reference, or NULL with an exception set. */
PyObject *fl_py_type_name(PyObject *object);

/* ------------------------------------------------------------------------------------------------------------ host */

/* _core.Host */
typedef struct fl_py_host {
  PyObject_HEAD fl_host *host; /* NULL: closed, or never made */
  bool owned;                  /* destroyed with this object */
  /* The policy of a context, a Policy or unset, and how many contexts were entered and not left: while that is 0 no
   * call asks for a policy. */
  PyObject *variable, *get_policy;
  Py_ssize_t entered;
} fl_py_host;

extern PyTypeObject *fl_py_host_type;

/* ---------------------------------------------------------------------------------------------------------- policy */

/* _core.Policy */
typedef struct fl_py_policy {
  PyObject_HEAD fl_policy *policy;
} fl_py_policy;

extern PyTypeObject *fl_py_policy_type;

/* Takes a count of the policy over. A new reference; NULL for NULL. */
PyObject *fl_py_policy_new(fl_policy *policy);

/* The Policy of this context, a new reference, or NULL where it has none. False with an exception set. */
bool fl_py_policy_look(fl_py_host *host, PyObject **policy);
static inline bool fl_py_policy_get(fl_py_host *host, PyObject **policy) {
  *policy = NULL;
  return !host->entered || fl_py_policy_look(host, policy);
}

/* Runs a statement that sets `status_` without the GIL, under the policy of this context; then as fl_py_ok. */
#define FL_PY_UNDER_POLICY(host_, ok_, status_, statement_)                                                            \
  do {                                                                                                                 \
    PyObject *policy_;                                                                                                 \
    ok_ = fl_py_policy_get(host_, &policy_);                                                                           \
    if (ok_) {                                                                                                         \
      PyThreadState *thread_ = PyEval_SaveThread();                                                                    \
      fl_scope scope_;                                                                                                 \
      status_ = policy_ ? fl_scope_enter((host_)->host, ((fl_py_policy *)policy_)->policy, &scope_) : FL_OK;           \
      if (!status_) {                                                                                                  \
        statement_;                                                                                                    \
        if (policy_)                                                                                                   \
          fl_scope_leave(&scope_);                                                                                     \
      }                                                                                                                \
      PyEval_RestoreThread(thread_);                                                                                   \
      ok_ = fl_py_ok(status_);                                                                                         \
      Py_XDECREF(policy_);                                                                                             \
    }                                                                                                                  \
  } while (0)

/* -------------------------------------------------------------------------------------------------------------- op */

/* _core.Op */
extern PyTypeObject *fl_py_op_type;

/* The op of that name. A new reference. */
PyObject *fl_py_op_find(fl_py_host *host, const char *name);

/* Functions of Host that describe, by file. */
extern PyMethodDef fl_py_describe_methods[];

/* Types and functions of each file, added to the module. -1 with an exception set. */
int fl_py_host_add(PyObject *module);
int fl_py_policy_add(PyObject *module);
int fl_py_op_add(PyObject *module);
int fl_py_tensor_add(PyObject *module);
int fl_py_torch_add(PyObject *module);

#endif /* FLHOST_PYTHON_CORE_H */
