/* A host without plugins and environment, an op "op() -> str" whose result is the impl_id that ran, and captured logs.
 */
#ifndef FLHOST_TESTS_FIXTURE_H
#define FLHOST_TESTS_FIXTURE_H

#include "suite.h"
#include <flhost/flhost.h>
#include <pthread.h>

/* Log lines as "LEVEL text\n", of all threads. */
typedef struct captured_log {
  pthread_mutex_t lock;
  char text[65536];
} captured_log;

extern captured_log test_log;
/* What test_host gives its hosts as their log. */
void test_log_capture(void *log, int level, const char *line);
void test_log_clear(void);
/* Is the line there, in full? How often? */
int test_log_count(const char *line);

/* An implementation under the test's control. */
typedef struct test_impl {
  const char *id;      /* the impl_id; its kind and vendor follow from it: default.x, vendor.x, reference.x */
  fl_status status;    /* what it returns; FL_OK: its id is the result */
  const char *message; /* with a status that is not FL_OK; NULL: "E:ID" */
  bool unavailable;
  bool unsupported; /* supports_args says no */
  _Atomic int calls, asked;
} test_impl;

/* A host that reads only the given environment (NAME=VALUE…, ended by NULL; NULL: empty). Fails the test on error. */
fl_host *test_host(const char *const *environment, uint32_t flags);

/* Registers "op() -> str out". */
void test_op(fl_host *host, const char *name);
/* Registers an implementation of it; with_predicate gives it a supports_args. */
void test_register(fl_host *host, const char *op, test_impl *impl, int32_t priority, bool with_predicate);

/* Calls "NAME() -> str"; *result is the impl that ran. */
fl_status test_call(fl_host *host, const char *name, const char **result);

/* Asserts the status and, on failure, shows the message. */
#define ck_ok(expression) ck_assert_msg((expression) == FL_OK, "%s: %s", #expression, fl_error_message())
#define ck_contains(text, part)                                                                                        \
  ck_assert_msg(strstr((text), (part)) != NULL, "'%s' does not contain '%s'", (text), (part))

#endif
