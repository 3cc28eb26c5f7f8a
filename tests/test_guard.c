/*
 * Guarded mode and canary mode: implementations that write where they must not, leave something unwritten or compute
 * something else than the reference, and what the engine gets all the same.
 */
#include "cli/safetensors.h"
#include "core/call.h"
#include "core/guard.h"
#include "tests/device.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <flhost/freeze.h>
#include <flhost/testing.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

/* What an implementation of "twice" does besides. */
typedef enum fault {
  NONE,
  BEHIND,       /* writes the float behind its result */
  FAR_BEHIND,   /* writes 100 floats behind it */
  BEFORE,       /* writes the float before it */
  INPUT,        /* writes its input */
  SAME_INPUT,   /* writes into its input what stands there */
  UNWRITTEN,    /* leaves all rows but the first */
  GAP,          /* writes between the rows */
  NOT_A_NUMBER, /* gives NaN */
  WRONG,        /* adds one */
  THIRD_WRONG,  /* does so in its third call */
  PATTERN       /* gives what guarded mode fills memory with */
} fault;

typedef struct subject {
  const char *id;
  fault fault;
  _Atomic int calls;
} subject;

static float *row_of(const DLTensor *tensor, int64_t row) {
  return (float *)fl_data(tensor) + row * fl_stride(tensor, 0);
}

static void misbehave(const subject *s, const DLTensor *x, const DLTensor *out, int call) {
  int64_t rows = x->shape[0], columns = x->shape[1];
  volatile float *first = row_of(out, 0), *end = row_of(out, rows - 1) + columns, *input = row_of(x, 0);
  switch (s->fault) {
  case BEHIND:
    end[0] = 1;
    break;
  case FAR_BEHIND:
    end[100] = 1;
    break;
  case BEFORE:
    first[-1] = 1;
    break;
  case INPUT:
    input[1] = -1;
    break;
  case SAME_INPUT:
    input[1] = input[1];
    break;
  case GAP:
    first[columns] = 1;
    break;
  case NOT_A_NUMBER:
    first[0] = NAN;
    break;
  case PATTERN:
    memset((float *)first, 0xfb, sizeof *first);
    break;
  case THIRD_WRONG:
    first[0] += call == 3;
    break;
  case WRONG:
    first[0] += 1;
    break;
  default:;
  }
}

/* "twice": out = 2 x */
static fl_status twice(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  int number = ++s->calls;
  for (int64_t i = 0; i < (s->fault == UNWRITTEN ? 1 : x->shape[0]); i++)
    for (int64_t j = 0; j < x->shape[1]; j++)
      row_of(out, i)[j] = 2 * row_of(x, i)[j];
  misbehave(s, x, out, number);
  return FL_OK;
}

static void add(fl_host *host, const char *op, subject *s, fl_kernel_fn fn, int32_t device_type) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = op,
                  .impl_id = s->id,
                  .kind = strncmp(s->id, "reference.", 10) ? FL_KIND_DEFAULT : FL_KIND_REFERENCE,
                  .devices = FL_DEVICE(device_type),
                  .fn = fn,
                  .self = s};
  ck_ok(fl_register_impl(host, &impl));
}

static void add_op(fl_host *host, const char *schema, const char *rules) {
  fl_op_def op = {.size = sizeof op, .schema = schema, .rules = rules};
  ck_ok(fl_register_op(host, &op));
}

static subject bad, good;

static fl_host *host_with(fault what, const char *setting) {
  char evidence[PATH_MAX + 64];
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=DEBUG", setting, evidence, NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  bad = (subject){.id = "default.bad", .fault = what};
  good = (subject){.id = "reference.good"};
  add(host, "twice", &bad, twice, kDLCPU);
  add(host, "twice", &good, twice, kDLCPU);
  return host;
}

/* Rows of 8 with room between them, so that a tensor ends where a page may end. */
typedef struct data {
  _Alignas(256) float x[64], out[64];
  int64_t shape[2], strides[2];
  DLTensor x_tensor, out_tensor;
} data;

enum { ROWS = 4, COLUMNS = 8 };

static void fill(data *d, int64_t stride) {
  *d = (data){.shape = {ROWS, COLUMNS}, .strides = {stride, 1}};
  for (int i = 0; i < 64; i++)
    d->x[i] = (float)i;
  d->x_tensor = (DLTensor){d->x, {kDLCPU, 0}, 2, float32, d->shape, d->strides, 0};
  d->out_tensor = (DLTensor){d->out, {kDLCPU, 0}, 2, float32, d->shape, d->strides, 0};
}

static fl_status call_twice(fl_host *host, data *d) {
  fl_value values[] = {fl_tensor(&d->x_tensor), fl_tensor(&d->out_tensor)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "twice", &call);
}

static void check_right(const data *d) {
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < COLUMNS; j++) {
      float x = (float)(i * d->strides[0] + j);
      ck_assert_float_eq(row_of(&d->x_tensor, i)[j], x);
      ck_assert_float_eq(row_of(&d->out_tensor, i)[j], 2 * x);
    }
}

/* A call that goes right, whoever misbehaved. */
static void call_right(fl_host *host, int64_t stride) {
  data d;
  fill(&d, stride);
  ck_ok(call_twice(host, &d));
  check_right(&d);
}

static fl_counters counters_of(fl_host *host, const char *id) {
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "twice", id, &counters));
  return counters;
}

/* Why the implementation is skipped. */
static void check_failed(fl_host *host, const char *reason) {
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, "twice", &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "default.bad");
  ck_contains(fl_failed_impl_at(failed, 0)->reason, reason);
  fl_failed_impls_free(failed);
  fl_counters counters = counters_of(host, "default.bad");
  ck_assert_uint_eq(counters.failures, 1);
  ck_assert_uint_eq(counters.fallbacks_failed, 1);
}

/* Standard error goes into a file of the scratch directory from now on. */
static void catch_stderr(void) {
  int fd = open(in_scratch("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
  close(fd);
}

static void check_stderr(const char *expected) {
  size_t length;
  char *text = (char *)read_file(in_scratch("stderr"), &length);
  text[length] = 0;
  ck_assert_str_eq(text, expected);
  free(text);
}

/* valgrind takes each touch of a guard page for an error of its own. */
static bool cannot_touch(const char *test) {
  const char *preloaded = getenv("LD_PRELOAD");
  bool valgrind = preloaded && strstr(preloaded, "vgpreload");
  if (valgrind)
    printf("skip: %s: valgrind reports each touch of a guard page\n", test);
  return valgrind;
}

/* ---------------------------------------------------------------------------------------------------- guarded mode */

START_TEST(without_the_mode_a_call_goes_straight_into_the_kernel) {
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=0");
  call_right(host, COLUMNS);
  call_right(host, COLUMNS);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice);
  ck_assert_ptr_null(host->watch);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_implementation_that_keeps_to_its_contract_runs_as_ever) {
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  for (int i = 0; i < 4; i++)
    call_right(host, i % 2 ? COLUMNS : COLUMNS + 3);
  ck_assert_int_eq(bad.calls, 4);
  ck_assert_int_eq(good.calls, 0);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results) {
  if (cannot_touch("a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results"))
    return;
  fl_host *host = host_with(FAR_BEHIND, "VLLM_FL_GUARD=1");
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr("flhost: guarded mode: op 'twice', implementation 'default.bad': result 'out' (float32[4, 8]): touched "
               "401 bytes behind its end; the call's results are thrown away\n");
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was touched 401 bytes behind its end");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages) {
  if (cannot_touch("a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages"))
    return;
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS); /* at the end */
  bad.fault = BEFORE;
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr(
      "flhost: guarded mode: op 'twice', implementation 'default.bad': result 'out' (float32[4, 8]): touched 4 "
      "bytes before its beginning; the call's results are thrown away\n");
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was touched 4 bytes before its beginning");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_close_to_a_result_is_found_without_a_guard_page) {
  static const fault faults[] = {BEHIND, BEFORE};
  static const char *const words[] = {"was touched 1 bytes behind its end", "bytes before its beginning"};
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  if (_i == 0)
    call_right(host, COLUMNS); /* the next lies at the beginning of its pages, and has room behind it */
  bad.fault = faults[_i];
  call_right(host, COLUMNS);
  check_failed(host, words[_i]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_input_that_is_written_is_the_callers_no_more_than_before) {
  if (cannot_touch("an_input_that_is_written_is_the_callers_no_more_than_before"))
    return;
  fl_host *host = host_with(_i ? SAME_INPUT : INPUT, "VLLM_FL_GUARD=1");
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr(
      "flhost: guarded mode: op 'twice', implementation 'default.bad': argument 'x' (float32[4, 8]): an input, "
      "written at byte 4; the call's results are thrown away\n");
  check_failed(host, "guarded mode: argument 'x' (float32[4, 8]) is an input and was written at byte 4");
  fl_host_destroy(host);
}
END_TEST

START_TEST(elements_that_are_left_unwritten_are_found) {
  fl_host *host = host_with(UNWRITTEN, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS);
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]): 24 of 32 elements are left unwritten, the first at "
                     "[1, 0]");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_element_that_happens_to_be_the_pattern_is_not_taken_for_unwritten) {
  data d;
  fl_host *host = host_with(PATTERN, "VLLM_FL_GUARD=1");
  fill(&d, COLUMNS);
  ck_ok(call_twice(host, &d));
  ck_assert_int_eq(((unsigned char *)d.out)[0], 0xfb);
  ck_assert_float_eq(d.out[1], 2);
  ck_assert_int_eq(good.calls, 0);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_between_the_rows_of_a_result_is_found) {
  fl_host *host = host_with(GAP, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS + 3);
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was written between its rows, at byte 32");
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_is_not_finite_though_the_inputs_are_is_warned_of_once) {
  static const char line[] = "WARNING Implementation 'default.bad' of op 'twice' was given finite numbers only: result "
                             "'out' (float32[4, 8]) is not finite at [0, 0]";
  data d;
  fl_host *host = host_with(NOT_A_NUMBER, "VLLM_FL_GUARD=1");
  for (int i = 0; i < 3; i++) {
    fill(&d, COLUMNS);
    ck_ok(call_twice(host, &d));
    ck_assert(isnan(d.out[0]));
  }
  ck_assert_int_eq(test_log_count(line), 1);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_strict_mode_the_failure_is_the_calls) {
  static const fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  fl_policy *policy;
  data d;
  fl_host *host = host_with(UNWRITTEN, "VLLM_FL_GUARD=1");
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: guarded mode: result 'out' (float32[4, 8]): 24 of 32 elements");
  ck_assert_int_eq(good.calls, 0);
  fl_host_destroy(host);
}
END_TEST

/* "halve": in place, or not. */
static fl_status halve(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  s->calls++;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
    row_of(out, 0)[i] = row_of(x, 0)[i] / 2;
  if (s->fault == NONE)
    return FL_OK;
  row_of(x, 0)[0] = 77;
  return fl_fail(call, FL_EDEVICE, "half way");
}

START_TEST(a_call_in_place_falls_back_from_what_the_caller_gave) {
  static subject failing = {.id = "default.failing", .fault = INPUT}, reference = {.id = "reference.right"};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "halve(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "halve", &failing, halve, kDLCPU);
  add(host, "halve", &reference, halve, kDLCPU);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.x_tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "halve", &call));
  for (int i = 0; i < ROWS * COLUMNS; i++)
    ck_assert_float_eq(d.x[i], (float)i / 2);
  ck_assert_int_eq(failing.calls, 1);
  ck_assert_int_eq(reference.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* "store": the first row of the cache becomes x's. */
static fl_status store(void *self, fl_call *call) {
  (void)self;
  memcpy(row_of(call->values[1].v.tensor, 0), row_of(call->values[0].v.tensor, 0), COLUMNS * sizeof(float));
  if (call->stream) /* meanwhile another thread of the engine writes another row */
    *(float *)call->stream = 99;
  call->values[2] = fl_string("stored");
  return FL_OK;
}

START_TEST(of_a_state_only_what_changed_is_given_back) {
  static subject storing = {.id = "default.storing"};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "store(Tensor x, Tensor(a!) cache) -> str done", "x: float32[n, m]; cache: float32[n, m]");
  add(host, "store", &storing, store, kDLCPU);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.out_tensor), fl_none()};
  fl_call call = FL_CALL(values);
  call.stream = &d.out[COLUMNS + 1];
  ck_ok(fl_call_op(host, "store", &call));
  ck_assert_str_eq(values[2].v.s, "stored");
  ck_assert_mem_eq(d.out, d.x, COLUMNS * sizeof(float));
  ck_assert_float_eq(d.out[COLUMNS + 1], 99);
  fl_host_destroy(host);
}
END_TEST

static fl_status twice_without_end(void *self, fl_call *call) {
  twice(self, call);
  pthread_exit(NULL);
}

static void *call_without_end(void *host) {
  data d;
  fill(&d, COLUMNS);
  call_twice(host, &d);
  return host;
}

START_TEST(of_a_call_whose_thread_ends_in_it_nothing_is_left) {
  static subject leaving = {.id = "default.bad"}, staying = {.id = "reference.good"};
  pthread_t thread;
  void *returned;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &leaving, twice_without_end, kDLCPU);
  add(host, "twice", &staying, twice, kDLCPU);
  ck_assert(!pthread_create(&thread, NULL, call_without_end, host));
  pthread_join(thread, &returned);
  ck_assert_ptr_null(returned);
  call_right(host, COLUMNS);
  ck_assert_int_eq(leaving.calls, 1);
  ck_assert_int_eq(staying.calls, 1);
  fl_host_destroy(host); /* a leak is the sanitizer's to find, and valgrind's */
}
END_TEST

/* Uses a byte more of the workspace than there is. */
static fl_status twice_with_workspace(void *self, fl_call *call) {
  memset(call->workspace, 0, call->workspace_size + 1);
  return twice(self, call);
}

START_TEST(a_workspace_is_watched_as_tensors_are) {
  static subject greedy = {.id = "default.bad"}, modest = {.id = "reference.good"};
  _Alignas(256) char workspace[128];
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &greedy, twice_with_workspace, kDLCPU);
  add(host, "twice", &modest, twice, kDLCPU);
  memset(workspace, 5, sizeof workspace);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.out_tensor)};
  fl_call call = FL_CALL(values);
  call.workspace = workspace;
  call.workspace_size = 100;
  ck_ok(fl_call_op(host, "twice", &call));
  check_right(&d);
  check_failed(host, "guarded mode: the workspace (uint8[100]) was touched 1 bytes behind its end");
  ck_assert_int_eq(workspace[100], 5);
  fl_host_destroy(host);
}
END_TEST

START_TEST(both_modes_go_with_in_place_only_implementations_scopes_copies_and_counters) {
  static subject only = {.id = "default.only"}, reference = {.id = "reference.right"};
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", "VLLM_FL_CANARY=2", NULL}, FL_HOST_STATISTICS);
  fl_policy_fields fields = {.size = sizeof fields, .preserve_inputs = true};
  fl_policy *policy;
  fl_scope scope;
  data d;
  add_op(host, "halve(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "halve",
                  .impl_id = only.id,
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .flags = FL_IMPL_INPLACE_ONLY,
                  .fn = halve,
                  .self = &only};
  ck_ok(fl_register_impl(host, &impl));
  add(host, "halve", &reference, halve, kDLCPU);
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  for (int i = 0; i < 6; i++) {
    bool in_place = i % 2, scoped = i >= 4;
    fill(&d, COLUMNS);
    fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(in_place ? &d.x_tensor : &d.out_tensor)};
    fl_call call = FL_CALL(values);
    if (scoped)
      ck_ok(fl_scope_prefer(host, "reference", &scope));
    ck_ok(fl_call_op(host, "halve", &call));
    if (scoped)
      ck_ok(fl_scope_leave(&scope));
    for (int j = 0; j < ROWS * COLUMNS; j++) {
      ck_assert_float_eq((in_place ? d.x : d.out)[j], (float)j / 2);
      ck_assert_float_eq(d.x[j], in_place ? (float)j / 2 : (float)j);
    }
  }
  ck_assert_int_eq(only.calls, 4);
  ck_assert_int_eq(reference.calls, 2 + 2); /* two beside those, two in its scope */
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "halve", only.id, &counters));
  ck_assert_uint_eq(counters.calls, 4);
  ck_assert_uint_eq(counters.failures, 0);
  fl_host_destroy(host);
}
END_TEST

static void leave(int number) {
  (void)number;
  _exit(7);
}

START_TEST(a_fault_elsewhere_goes_to_the_handler_that_was_there_before) {
  if (cannot_touch("a_fault_elsewhere_goes_to_the_handler_that_was_there_before"))
    return;
  struct sigaction action = {.sa_handler = leave};
  int status;
  volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(page != MAP_FAILED);
  ck_assert(!sigaction(SIGSEGV, &action, NULL));
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS);
  pid_t child = fork();
  if (!child) {
    *page = 1;
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status));
  ck_assert_int_eq(WEXITSTATUS(status), 7);
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- canary mode */

static const char *evidence_file(void) {
  static char path[2 * PATH_MAX];
  struct dirent **entries;
  int n = scandir(in_scratch("evidence"), &entries, NULL, alphasort);
  ck_assert_int_eq(n, 3); /* ., .. and the file */
  snprintf(path, sizeof path, "%s/evidence/%s", scratch, entries[2]->d_name);
  for (int i = 0; i < n; i++)
    free(entries[i]);
  free(entries);
  return path;
}

START_TEST(who_is_wrong_in_the_third_call_is_barred_and_the_engine_gets_the_references_result) {
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=5");
  for (int i = 0; i < 6; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 3);
  ck_assert_int_eq(good.calls, 3 + 3); /* beside the three, and in place of it */
  check_failed(host, "canary mode: 'out' is not what 'reference.good' gives: 1 of 32 elements differ, worst at 0: 1, "
                     "expected 0");
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_double_lt(fl_failed_impl_at(failed, 0)->retry_in, 0);
  fl_failed_impls_free(failed);
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "twice", kDLCPU, &explanation));
  ck_contains(fl_explained_at(explanation, 0)->reason, "; barred (canary mode: ");
  ck_contains(fl_explained_at(explanation, 0)->reason, ", skipped until it is cleared");
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_call_that_went_wrong_is_saved_with_what_the_reference_gives) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors file;
  struct stat about;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  const char *path = evidence_file();
  ck_contains(test_log.text, path);
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  ck_assert_str_eq(safetensors_metadata(&file, "op"), "twice");
  ck_contains(safetensors_metadata(&file, "note"), "'out' is not what 'reference.good' gives");
  const DLTensor *x = safetensors_find(&file, "x"), *out = safetensors_find(&file, "out.out");
  ck_assert_ptr_nonnull(x);
  ck_assert_ptr_nonnull(out);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    ck_assert_float_eq(((float *)out->data)[i], 2 * ((float *)x->data)[i]);
  safetensors_free(&file);
  ck_assert(!stat(in_scratch("evidence"), &about));
  ck_assert_uint_eq(about.st_mode & 0777, 0700);
  fl_host_destroy(host);
}
END_TEST

/* Rows that lie apart, and (second turn) the result in the place of the argument. */
START_TEST(the_file_has_strides_and_what_was_in_place) {
  data d;
  char error[SAFETENSORS_ERROR_MAX], evidence[PATH_MAX + 64];
  safetensors file;
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = test_host((const char *const[]){"VLLM_FL_CANARY=1", evidence, NULL}, 0);
  add_op(host, "twice(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  bad = (subject){.id = "default.bad", .fault = WRONG};
  good = (subject){.id = "reference.good"};
  add(host, "twice", &bad, twice, kDLCPU);
  add(host, "twice", &good, twice, kDLCPU);
  fill(&d, COLUMNS + 3);
  if (_i)
    d.out_tensor = d.x_tensor;
  ck_ok(call_twice(host, &d));
  ck_assert_msg(safetensors_read(evidence_file(), &file, error), "%s", error);
  json_t *layout = json_loads(safetensors_metadata(&file, "layout"), 0, NULL);
  json_t *x = json_object_get(layout, "x"), *out = json_object_get(layout, "out.out");
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(x, "strides"), 0)), COLUMNS + 3);
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(out, "strides"), 0)), COLUMNS + 3);
  ck_assert_int_eq(json_object_get(x, "memory") && json_object_get(out, "memory"), _i);
  json_decref(layout);
  safetensors_free(&file);
  fl_host_destroy(host);
}
END_TEST

START_TEST(evidence_that_cannot_be_saved_does_not_change_the_call) {
  ck_assert(!mkdir(in_scratch("evidence"), 0777) && !chmod(in_scratch("evidence"), 0777));
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  check_failed(host, "; the call is not saved: ");
  check_failed(host, "/evidence: expected a directory of one's own that nobody else may write to");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_full_directory_is_not_filled_any_further) {
  char name[32];
  ck_assert(!mkdir(in_scratch("evidence"), 0700));
  for (int i = 0; i < 64; i++) {
    snprintf(name, sizeof name, "evidence/%d", i);
    write_text(name, "");
  }
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  check_failed(host, "/evidence holds 64 files, and is not filled any further");
  fl_host_destroy(host);
}
END_TEST

START_TEST(after_the_first_calls_the_kernel_itself_is_bound) {
  fl_host *host = host_with(NONE, "VLLM_FL_CANARY=3");
  for (int i = 0; i < 5; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 5);
  ck_assert_int_eq(good.calls, 3);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice && target->self == &bad);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_strict_mode_nothing_takes_the_place_of_one_that_is_barred) {
  static const fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  fl_policy *policy;
  data d;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: canary mode: 'out' is not what 'reference.good' gives");
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: 'default.bad' is barred: canary mode: ");
  ck_assert_int_eq(bad.calls, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_bar_outlasts_an_epoch_and_a_fork_and_ends_when_somebody_asks) {
  int status;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  fl_bump_policy_epoch(host);
  call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 1);
  pid_t child = fork();
  if (!child) {
    data d;
    fill(&d, COLUMNS);
    _exit(call_twice(host, &d) || bad.calls != 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  fl_clear_failed_impls(host, "twice");
  call_right(host, COLUMNS); /* checked again, and barred again */
  ck_assert_int_eq(bad.calls, 2);
  call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 2);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_a_frozen_host_a_wrong_result_is_an_error_and_nothing_else_changes) {
  data d;
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=9");
  call_right(host, COLUMNS);
  call_right(host, COLUMNS);
  ck_ok(fl_freeze(host, "test"));
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "'out' is not what 'reference.good' gives");
  for (int i = 0; i < 9; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 12);
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  ck_ok(fl_thaw(host, "test"));
  for (int i = 0; i < 2; i++)
    call_right(host, COLUMNS);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice); /* all that was to be checked is checked */
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_without_a_reference_is_not_checked_and_that_is_said_once) {
  static subject alone = {.id = "default.alone", .fault = WRONG};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=DEBUG", "VLLM_FL_CANARY=3", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &alone, twice, kDLCPU);
  for (int i = 0; i < 4; i++) {
    fill(&d, COLUMNS);
    ck_ok(call_twice(host, &d));
    ck_assert_float_eq(d.out[0], 1);
  }
  ck_assert_int_eq(
      test_log_count("INFO Implementation 'default.alone' of op 'twice' is not checked by canary mode: the "
                     "op has no reference on the host"),
      1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(both_modes_at_once_check_a_call_once) {
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=5");
  host->watch->guarded = true;
  for (int i = 0; i < 4; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 3);
  check_failed(host, "canary mode: ");
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ many threads
 */

static void *call_often(void *user) {
  for (int i = 0; i < rounds(200); i++)
    call_right(user, i % 2 ? COLUMNS : COLUMNS + 1);
  return NULL;
}

START_TEST(threads_that_call_at_the_same_time_are_all_watched) {
  pthread_t threads[4];
  fl_host *host = host_with(_i ? THIRD_WRONG : NONE, "VLLM_FL_CANARY=100");
  host->watch->guarded = _i != 2;
  for (int i = 0; i < 4; i++)
    ck_assert(!pthread_create(&threads[i], NULL, call_often, host));
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  if (_i)
    check_failed(host, "canary mode: ");
  else
    ck_assert_int_eq(bad.calls, 4 * rounds(200));
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- a device */

static fl_host *on_host; /* of the device's test, for its kernels */

/* Writes to the device's memory as its own kernels do. */
static fl_status twice_there(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  float values[ROWS * COLUMNS];
  float *to = (float *)fl_data(out) + (s->fault == BEHIND);
  s->calls++;
  fl_device_copy(on_host, x->device, values, fl_data(x), sizeof values, FL_COPY_TO_HOST, NULL);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    values[i] *= 2;
  if (s->fault == WRONG)
    values[5] += 1;
  return fl_device_copy(on_host, out->device, to, values, sizeof values, FL_COPY_TO_DEVICE, NULL);
}

static void check_on_device(fault what, const char *setting, bool fallback, const char *reason) {
  static subject there = {.id = "default.bad"}, right = {.id = "default.a_right"}, reference = {.id = "reference.good"};
  char evidence[PATH_MAX + 64];
  float values[ROWS * COLUMNS], expected[ROWS * COLUMNS];
  matrix x, out;
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = on_host = device_host((const char *const[]){setting, evidence, NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  there.fault = what;
  add(host, "twice", &there, twice_there, kDLExtDev);
  if (fallback)
    add(host, "twice", &right, twice_there, kDLExtDev);
  add(host, "twice", &reference, twice, kDLCPU);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    expected[i] = 2 * (values[i] = (float)i);
  matrix_make(&x, host, device0, ROWS, COLUMNS, values);
  matrix_make(&out, host, device0, ROWS, COLUMNS, NULL);
  fl_value call_values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(call_values);
  ck_ok(fl_call_op(host, "twice", &call));
  matrix_check(&out, expected, ROWS * COLUMNS);
  if (reason)
    check_failed(host, reason);
  else
    ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  matrix_free(&x);
  matrix_free(&out);
  ck_assert_uint_eq(test_device->allocations, 0);
  fl_host_destroy(host);
}

START_TEST(on_a_device_the_margins_around_tensors_are_looked_at) {
  check_on_device(NONE, "VLLM_FL_GUARD=1", false, NULL);
}
END_TEST

START_TEST(a_kernel_that_writes_behind_its_result_on_a_device_is_replaced) {
  check_on_device(BEHIND, "VLLM_FL_GUARD=1", true,
                  "guarded mode: result 'out' (float32[4, 8]) was touched 1 bytes behind its end");
}
END_TEST

START_TEST(what_a_device_computes_is_compared_with_the_reference_on_the_host) {
  check_on_device(WRONG, "VLLM_FL_CANARY=2", false,
                  "canary mode: 'out' is not what 'reference.good' gives: 1 of 32 elements differ, worst at 5");
}
END_TEST

START_TEST(what_cannot_be_watched_is_said_and_runs_as_ever) {
  static subject there = {.id = "default.bad"};
  float values[ROWS * COLUMNS] = {0};
  matrix x, out;
  fl_host *host = on_host = device_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  there.fault = NONE;
  add(host, "twice", &there, twice_there, kDLExtDev);
  matrix_make(&x, host, device0, ROWS, COLUMNS, values);
  matrix_make(&out, host, device0, ROWS, COLUMNS, NULL);
  fl_value call_values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(call_values);
  test_device->full = true;
  for (int i = 0; i < 2; i++)
    ck_ok(fl_call_op(host, "twice", &call));
  test_device->full = false;
  const char *said = strstr(test_log.text, "WARNING Implementation 'default.bad' of op 'twice' is not watched: ");
  ck_assert_ptr_nonnull(said);
  ck_assert_ptr_null(strstr(strchr(said, '\n'), " is not watched: "));
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
  tcase_add_test(tests, without_the_mode_a_call_goes_straight_into_the_kernel);
  tcase_add_test(tests, an_implementation_that_keeps_to_its_contract_runs_as_ever);
  tcase_add_test(tests, a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results);
  tcase_add_test(tests, a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages);
  tcase_add_loop_test(tests, a_write_close_to_a_result_is_found_without_a_guard_page, 0, 2);
  tcase_add_loop_test(tests, an_input_that_is_written_is_the_callers_no_more_than_before, 0, 2);
  tcase_add_test(tests, elements_that_are_left_unwritten_are_found);
  tcase_add_test(tests, an_element_that_happens_to_be_the_pattern_is_not_taken_for_unwritten);
  tcase_add_test(tests, a_write_between_the_rows_of_a_result_is_found);
  tcase_add_test(tests, what_is_not_finite_though_the_inputs_are_is_warned_of_once);
  tcase_add_test(tests, in_strict_mode_the_failure_is_the_calls);
  tcase_add_test(tests, a_call_in_place_falls_back_from_what_the_caller_gave);
  tcase_add_test(tests, both_modes_go_with_in_place_only_implementations_scopes_copies_and_counters);
  tcase_add_test(tests, of_a_call_whose_thread_ends_in_it_nothing_is_left);
  tcase_add_test(tests, a_workspace_is_watched_as_tensors_are);
  tcase_add_test(tests, of_a_state_only_what_changed_is_given_back);
  tcase_add_test(tests, a_fault_elsewhere_goes_to_the_handler_that_was_there_before);
  tcase_add_test(tests, who_is_wrong_in_the_third_call_is_barred_and_the_engine_gets_the_references_result);
  tcase_add_test(tests, the_call_that_went_wrong_is_saved_with_what_the_reference_gives);
  tcase_add_loop_test(tests, the_file_has_strides_and_what_was_in_place, 0, 2);
  tcase_add_test(tests, evidence_that_cannot_be_saved_does_not_change_the_call);
  tcase_add_test(tests, a_full_directory_is_not_filled_any_further);
  tcase_add_test(tests, after_the_first_calls_the_kernel_itself_is_bound);
  tcase_add_test(tests, in_strict_mode_nothing_takes_the_place_of_one_that_is_barred);
  tcase_add_test(tests, a_bar_outlasts_an_epoch_and_a_fork_and_ends_when_somebody_asks);
  tcase_add_test(tests, in_a_frozen_host_a_wrong_result_is_an_error_and_nothing_else_changes);
  tcase_add_test(tests, an_op_without_a_reference_is_not_checked_and_that_is_said_once);
  tcase_add_test(tests, both_modes_at_once_check_a_call_once);
  tcase_add_test(tests, on_a_device_the_margins_around_tensors_are_looked_at);
  tcase_add_test(tests, a_kernel_that_writes_behind_its_result_on_a_device_is_replaced);
  tcase_add_test(tests, what_a_device_computes_is_compared_with_the_reference_on_the_host);
  tcase_add_test(tests, what_cannot_be_watched_is_said_and_runs_as_ever);
  tcase_add_loop_test(tests, threads_that_call_at_the_same_time_are_all_watched, 0, 3);
}

int main(void) {
  return run_suite("guard", add_tests, 120);
}
