/*
 * flhost verify: tests every implementation that is available against the op's reference, on calls that are generated
 * from the op's schema entry. A client of the public API: a particular implementation is called under a policy that
 * names no other.
 */
#include "cli/verify.h"

#include "cli/cli.h"
#include "cli/device.h"
#include "cli/subjects.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICE_TYPES = 20 };

/* Of one op with one element type: calls that are made, numbers that are tried for them, elements of all calls and of
 * one. With these an op takes about a second. */
enum { CALLS = 48, NUMBERS = 1000, ELEMENTS = 8000000, ELEMENTS_OF_ONE = 2000000 };

/* What the command line asks for. */
typedef struct request {
  const char *impl; /* --impl, or NULL */
  uint32_t dtype;   /* --dtype, or 0 */
  bool has_device;  /* --device */
  DLDevice device;
  uint64_t seed;
  const char *junit;
  bool json;
} request;

/* One op while it is tested. */
typedef struct session {
  fl_host *host;
  const request *asked;
  fl_op *op;
  verify_impl reference; /* info NULL: there is none */
  verify_impl *impls;
  uint32_t n_impls;
  size_t first_row; /* of the present element type: a row for each impl */
  verify_rows *rows;
  bool no_memory;
} session;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* ---------------------------------------------------------------------------------------------------- implementations
 */

/* By its name; without one, a device leaves out those that are not for it. */
static bool is_asked(const session *s, const fl_impl_info *info) {
  if (s->asked->impl)
    return !strcmp(s->asked->impl, info->impl_id);
  return !s->asked->has_device || info->devices & FL_DEVICE(s->asked->device.device_type);
}

static bool is_on_cpu(const fl_impl_info *info) {
  return info->devices & FL_DEVICE(kDLCPU);
}

/* A row for an implementation that cannot be tested. */
static void add_untested(session *s, const char *impl_id, const char *format, const char *why) {
  verify_row *row = verify_rows_add(s->rows, fl_op_name(s->op), impl_id, "");
  if (!row || asprintf(&row->reason, format, why) < 0) {
    if (row)
      row->reason = NULL;
    s->no_memory = true;
  }
}

/* The device to test an implementation on: the one asked for, the processor, or the first of another type that is
 * there. */
static bool choose_device(const session *s, const fl_impl_info *info, DLDevice *device) {
  if (s->asked->has_device) {
    *device = s->asked->device;
    return info->devices & FL_DEVICE(device->device_type);
  }
  for (int32_t type = kDLCPU; type < DEVICE_TYPES; type++) {
    int32_t count = 0;
    if (info->devices & FL_DEVICE(type) && !fl_device_count(s->host, type, &count) && count > 0) {
      *device = (DLDevice){(DLDeviceType)type, 0};
      return true;
    }
  }
  return false;
}

/* Can it be tested here, and on which device? Says in a row why not. */
static bool is_testable(session *s, const fl_impl_info *info, place *at) {
  if (!info->available) {
    char *reason = cli_unavailable_reason(info);
    s->no_memory |= !reason;
    add_untested(s, info->impl_id, "%s", reason ? reason : "");
    free(reason);
    return false;
  }
  at->host = s->host;
  if (choose_device(s, info, &at->device))
    return true;
  char *devices = cli_device_names(info->devices);
  add_untested(s, info->impl_id,
               s->asked->has_device ? "it is for tensors on %s"
                                    : "it is for tensors on %s, and no plugin has such a device",
               devices ? devices : "another device");
  free(devices);
  return false;
}

/* Sorts out what can be tested, and against what: the reference of highest priority. */
static void find_impls(session *s, const fl_snapshot *snapshot, uint32_t index) {
  uint32_t n = fl_snapshot_impl_count(snapshot, index);
  s->impls = calloc(n + 1, sizeof *s->impls);
  s->no_memory |= !s->impls;
  for (uint32_t i = 0; i < n && !s->no_memory; i++) {
    const fl_impl_info *info = fl_snapshot_impl(snapshot, index, i);
    bool is_better = !s->reference.info || info->priority > s->reference.info->priority;
    if (info->kind == FL_KIND_REFERENCE && info->available && is_on_cpu(info) && is_better)
      s->reference = (verify_impl){.info = info, .at = {s->host, {kDLCPU, 0}}};
    place at;
    if (is_asked(s, info) && is_testable(s, info, &at))
      s->impls[s->n_impls++] = (verify_impl){.info = info, .at = at};
  }
  if (s->no_memory || !s->reference.info)
    return;
  s->no_memory = !cli_create_policy(s->host, fl_op_name(s->op), s->reference.info->impl_id, &s->reference.policy);
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++)
    s->no_memory = !cli_create_policy(s->host, fl_op_name(s->op), s->impls[i].info->impl_id, &s->impls[i].policy);
}

static void session_free(session *s) {
  fl_policy_release(s->reference.policy);
  for (uint32_t i = 0; s->impls && i < s->n_impls; i++)
    fl_policy_release(s->impls[i].policy);
  free(s->impls);
}

/* --------------------------------------------------------------------------------------------------------------- tests
 */

/* What the reference makes of the call, on the processor and on compact tensors. false: the call is of no use. */
static bool expect(session *s, test_call *call) {
  attempt made;
  bool useful = false;
  if (!attempt_create(&made, s->reference.at, call, false)) {
    s->no_memory = true;
    return false;
  }
  if (attempt_is_allowed(&made)) {
    attempt_run(&made, s->reference.policy);
    useful = made.status != FL_ENOIMPL && made.status != FL_ENOTSUP;
    s->no_memory |= useful && !attempt_keep(&made, call);
  }
  attempt_free(&made);
  return useful && !s->no_memory;
}

/* One call, all implementations. */
static void test_impls(session *s, const test_call *call) {
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++) {
    verify_row *row = &s->rows->items[s->first_row + i];
    double begin = now();
    s->no_memory = !verify_with_call(&s->impls[i], call, row);
    row->seconds += now() - begin;
  }
}

/* Rows of tests that no call was found for: that must not look like success. */
static void fail_without_calls(session *s) {
  for (uint32_t i = 0; i < s->n_impls; i++) {
    verify_row *row = &s->rows->items[s->first_row + i];
    s->no_memory |= asprintf(&row->problem,
                             "no call to test it with: of %d generated ones none passes the op's checks "
                             "and the reference; the last: %s",
                             NUMBERS, fl_error_message()) < 0;
    if (s->no_memory)
      row->problem = NULL;
  }
}

static verify_row *add_row(session *s, const verify_impl *impl, const char *dtype) {
  verify_row *row = verify_rows_add(s->rows, fl_op_name(s->op), impl->info->impl_id, dtype);
  if (row)
    cli_device_text(impl->at.device, row->device, sizeof row->device);
  return row;
}

static void test_dtype(session *s, uint32_t dtype, const char *name) {
  int64_t elements = ELEMENTS;
  int calls = 0;
  s->first_row = s->rows->n;
  for (uint32_t i = 0; i < s->n_impls && !s->no_memory; i++)
    s->no_memory = !add_row(s, &s->impls[i], name);
  for (uint64_t number = 0; number < NUMBERS && calls < CALLS && !s->no_memory; number++) {
    test_call call;
    int64_t budget = elements < ELEMENTS_OF_ONE ? elements : ELEMENTS_OF_ONE, given = budget;
    call_outcome outcome = test_call_create(&call, s->op, dtype, s->asked->seed, number, &budget);
    s->no_memory = outcome == CALL_NO_MEMORY;
    if (outcome != CALL_MADE)
      continue;
    if (expect(s, &call)) {
      elements -= given - budget;
      calls++;
      test_impls(s, &call);
    }
    test_call_free(&call);
  }
  if (!calls && !s->no_memory)
    fail_without_calls(s);
}

/* Does the op take that element type? 0: it has no tensors. */
static bool takes_dtype(session *s, uint32_t dtype) {
  uint32_t n = fl_op_argument_count(s->op);
  fl_input *inputs = calloc(n + 1, sizeof *inputs);
  fl_status status =
      inputs ? fl_generate_inputs(s->op, dtype, s->asked->seed, 0, inputs, n, sizeof(fl_input)) : FL_ENOMEM;
  s->no_memory |= !inputs;
  free(inputs);
  return inputs && status != FL_ENOENT;
}

/* One op with each element type that it takes and that is asked for. */
static void test_op(session *s) {
  if (!s->reference.info) {
    for (uint32_t i = 0; i < s->n_impls; i++)
      add_untested(s, s->impls[i].info->impl_id, "no reference implementation of %s is available", fl_op_name(s->op));
    return;
  }
  if (!cli_has_tensors(s->op) && !s->asked->dtype)
    test_dtype(s, 0, "");
  const fl_element_type *type;
  for (uint32_t i = 0; (type = fl_element_type_at(i)) && type->bit && !s->no_memory; i++) {
    uint32_t dtype = type->bit;
    if ((!s->asked->dtype || s->asked->dtype == dtype) && cli_has_tensors(s->op) && takes_dtype(s, dtype))
      test_dtype(s, dtype, type->name);
  }
}

/* ----------------------------------------------------------------------------------------------------------- the
 * command
 */

static int test_all(fl_host *host, const request *asked, const fl_snapshot *snapshot, int n, char **ops,
                    verify_rows *rows) {
  uint32_t all = 0, done = 0;
  bool no_memory = false;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    all += cli_is_selected(fl_snapshot_op_name(snapshot, i), n, ops);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot) && !no_memory; i++) {
    const char *name = fl_snapshot_op_name(snapshot, i);
    if (!cli_is_selected(name, n, ops))
      continue;
    cli_show_progress(done++, all, name);
    session s = {.host = host, .asked = asked, .op = fl_find_op(host, name), .rows = rows};
    if (!s.op)
      continue; /* withdrawn meanwhile */
    find_impls(&s, snapshot, i);
    if (!s.no_memory)
      test_op(&s);
    no_memory = s.no_memory;
    session_free(&s);
  }
  cli_show_progress(done, all, NULL);
  return no_memory ? cli_no_memory() : EXIT_OK;
}

static int exit_status_of(const verify_rows *rows) {
  bool tested = false;
  for (size_t i = 0; i < rows->n; i++) {
    if (verify_row_status(&rows->items[i]) == VERIFY_FAILED)
      return EXIT_MISMATCH;
    tested |= verify_row_status(&rows->items[i]) == VERIFY_OK;
  }
  return tested ? EXIT_OK : EXIT_NO_IMPL;
}

static int verify(fl_host *host, const request *asked, int n, char **ops) {
  verify_rows rows = {0};
  fl_snapshot *snapshot = NULL;
  int status = EXIT_OK;
  for (int i = 0; i < n; i++)
    if (!fl_find_op(host, ops[i]))
      return cli_fail(FL_ENOENT);
  snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return cli_no_memory();
  status = cli_check_impl(snapshot, asked->impl, n, ops);
  if (!status && asked->junit)
    status = verify_check_junit(asked->junit);
  if (!status)
    status = test_all(host, asked, snapshot, n, ops, &rows);
  if (!status && !rows.n)
    cli_error("nothing to verify: no implementation of these operators takes what was asked for");
  if (!status)
    status = asked->json ? verify_print_json(&rows, asked->seed) : verify_print_table(&rows);
  if (!status && asked->junit)
    status = verify_write_junit(&rows, asked->junit);
  if (!status)
    status = exit_status_of(&rows);
  verify_rows_free(&rows);
  fl_snapshot_release(snapshot);
  return status;
}

static int parse_seed(const char *text, uint64_t *seed) {
  char *end;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno || end == text || *end || *text == '-' || value > INT64_MAX) {
    cli_error("--seed: '%s' is not a number from 0 to %" PRId64, text, INT64_MAX);
    return EXIT_USAGE;
  }
  *seed = value;
  return EXIT_OK;
}

int command_verify(int argc, char **argv) {
  request asked = {.seed = 1};
  const char *device = NULL, *dtype = NULL, *seed = NULL;
  const cli_option options[] = {
      CLI_DEVICE_INDEX(&device),
      {"impl", "ID", "only implementations of that identifier", NULL, &asked.impl},
      {"dtype", "NAME", "only calls of that element type (float32, bfloat16…)", NULL, &dtype},
      {"seed", "N", "other calls with other data (1); the same ones for the same N", NULL, &seed},
      {"junit", "FILE", "also write a report in JUnit's form", NULL, &asked.junit},
      CLI_JSON(&asked.json),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "[OP…]", 0, -1,
      "Tests each available implementation (of all operators, or of those named) against the operator's "
      "reference implementation, on calls that are generated from the operator's schema: sizes from nothing to "
      "thousands of tokens, strided tensors, results in place and not, optional arguments there and not, zeros, "
      "infinities, NaN and the like. Results must agree within the operator's tolerance. It also looks whether "
      "the implementation keeps its contract: writes its results and nothing else, leaves arguments alone, gives "
      "the same bits again and, if it is declared deterministic, from several threads at once, and takes what "
      "its supports_args says it takes. One for another device than the processor is tested on the first of "
      "these, or on that of --device, which leaves out what is not for it; the reference computes on the "
      "processor.\n"
      "Exit status 0: all well. 1: a difference, or a broken contract. 2: bad usage or settings. 3: nothing to "
      "verify.",
      options};
  int status, first = cli_parse(&syntax, argc, argv, &status);
  if (first < 0)
    return status;
  if (dtype && !cli_dtype(dtype, &asked.dtype))
    return EXIT_USAGE;
  if (seed && (status = parse_seed(seed, &asked.seed)))
    return status;
  asked.has_device = device != NULL;
  fl_host *host = cli_open_host(0, &status);
  if (!host)
    return status;
  status = !device                                   ? EXIT_OK
           : cli_device(host, device, &asked.device) ? cli_check_device(host, asked.device)
                                                     : EXIT_USAGE;
  if (!status)
    status = verify(host, &asked, argc - first, argv + first);
  fl_host_destroy(host);
  return status;
}
