/* Looking for ops that a plugin lists from several threads, around a fork, from inside a call, and by handles. */
#include "core/registry.h"

#include <flhost/ops.h>
#include <flhost/testing.h>
#include <sys/wait.h>

/* after ops.h, whose parameters are named like its host */
#include "tests/listed.h"

static void *look_for_it(void *argument) {
  (void)argument;
  return fl_find_op(host, "lazy_a");
}

START_TEST(two_threads_that_look_for_an_op_load_its_plugin_once) {
  pthread_t threads[2];
  void *ops[2];
  start_with("lazy_slow lazy_better");
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, look_for_it, NULL), 0);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], &ops[i]);
  ck_assert_ptr_nonnull(ops[0]);
  ck_assert_ptr_eq(ops[0], ops[1]);
  ck_assert_int_eq(registrations("lazy_slow"), 1);
  expect_run("lazy_a", "lazy_better");
}
END_TEST

/* The fork falls into the plugin's initialiser, or into its register_builtins. */
static const char *const slow[] = {"lazy_slow_start", "lazy_slow"};

START_TEST(X1_a_fork_while_a_plugin_is_loaded_leaves_both_able_to_call) {
  pthread_t thread;
  const char *ran;
  void *op;
  int status;
  start_with(slow[_i]);
  ck_assert_int_eq(pthread_create(&thread, NULL, look_for_it, NULL), 0);
  usleep(100000);
  pid_t child = fork();
  if (!child) {
    alarm(10);
    if (!test_call(host, "lazy_a", &ran) && !strcmp(ran, slow[_i]))
      kill(getpid(), SIGKILL); /* what another thread of the parent owns is no leak of the child */
    _exit(1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child failed: status %x", (unsigned)status);
  pthread_join(thread, &op);
  ck_assert_ptr_nonnull(op);
  expect_run("lazy_a", slow[_i]);
}
END_TEST

/* Runs while the plugin registers, in its thread. */
static fl_op *found_inside[2];

static void look_inside(void *user, int level, const char *line) {
  if (host && !strcmp(line, "plugin lazy_better: registers")) {
    found_inside[0] = fl_find_op(host, "lazy_again_b"); /* of another plugin that waits */
    found_inside[1] = fl_find_op(host, "lazy_c");       /* of the very plugin */
  }
  test_log_capture(user, level, line);
}

START_TEST(an_op_may_be_looked_for_while_a_plugin_registers) {
  ck_ok(create(modules_of("lazy_better lazy_again"), NULL, look_inside, &host));
  expect_run("lazy_a", "lazy_better");
  ck_assert_ptr_nonnull(found_inside[0]);
  ck_assert_ptr_null(found_inside[1]); /* it is not registered yet, and not for ever unknown */
  expect_run("lazy_c", "lazy_better");
  expect_run("lazy_again_b", "lazy_again");
  ck_assert_int_eq(registrations("lazy_better"), 1);
  ck_assert_int_eq(registrations("lazy_again"), 1);
}
END_TEST

/* An engine's implementation that calls an op by name. */
static fl_status call_lazy(void *self, fl_call *call) {
  fl_call inner = {.size = sizeof inner, .count = 1, .values = &call->values[call->count - 1]};
  (void)self;
  return fl_call_op(host, "lazy_a", &inner);
}

START_TEST(an_op_may_be_looked_for_from_inside_a_call) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "outer",
                        .impl_id = "default.outer",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = call_lazy};
  start_with("lazy_fails lazy_a");
  test_op(host, "outer");
  ck_ok(fl_register_impl(host, &impl));
  expect_run("outer", "lazy_a");
}
END_TEST

static float numbers[2][4] = {{-1, 2, -3, 4}};
static int64_t four[] = {4};
static DLTensor from = {
    .data = numbers[0], .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = four};
static DLTensor to = {.data = numbers[1], .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = four};

START_TEST(typed_calls_load_the_plugins_of_an_op_at_its_first_call) {
  fl_ops ops;
  start_with("lazy_a lazy_builtin");
  ck_ok(fl_ops_init(&ops, host));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert(!is_open(listed("lazy_builtin")));
  for (int i = 0; i < 3; i++)
    ck_ok(fl_relu2(&ops, NULL, &from, &to));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_ptr_eq(ops.relu2, fl_find_op(host, "relu2"));
  ck_assert_int_eq(test_log_count("INFO Op 'relu2' using 'vendor.lazy_builtin' (kind=vendor, vendor=lazy_builtin)"), 1);
}
END_TEST

/* Whatever is asked of a handle first. */
typedef fl_status (*first_use)(fl_op *op, fl_call *call);

static fl_status use_scoped(fl_op *op, fl_call *call) {
  fl_scope scope;
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  fl_status status = fl_invoke(op, call);
  ck_ok(fl_scope_leave(&scope));
  return status;
}

static fl_status use_in_a_call(void *self, fl_call *call) {
  (void)call;
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call inner = FL_CALL(values);
  return fl_invoke(self, &inner);
}

static fl_status use_nested(fl_op *op, fl_call *call) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "outer",
                        .impl_id = "default.x",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE_ANY,
                        .fn = use_in_a_call,
                        .self = op};
  fl_value none[] = {fl_none()};
  fl_call outer = FL_CALL(none);
  (void)call;
  test_op(host, "outer");
  ck_ok(fl_register_impl(host, &impl));
  return fl_call_op(host, "outer", &outer);
}

static fl_status use_check(fl_op *op, fl_call *call) {
  return fl_check(op, call);
}

static fl_status use_infer(fl_op *op, fl_call *call) {
  fl_tensor_spec spec;
  return fl_infer(op, call, &spec, 1, sizeof spec);
}

static fl_status use_cost(fl_op *op, fl_call *call) {
  fl_cost cost = {.size = sizeof cost};
  return fl_op_cost(op, call, &cost);
}

static fl_status use_workspace(fl_op *op, fl_call *call) {
  size_t size;
  return fl_workspace_size(op, call, &size);
}

static fl_status use_schema(fl_op *op, fl_call *call) {
  (void)call;
  ck_assert_str_eq(fl_op_schema(op), "relu2(Tensor(a!) x) -> Tensor(a) out");
  return FL_OK;
}

static fl_status use_argument(fl_op *op, fl_call *call) {
  (void)call;
  ck_assert_str_eq(fl_op_argument(op, 1)->name, "out");
  return FL_OK;
}

static fl_status use_inputs(fl_op *op, fl_call *call) {
  fl_input input;
  (void)call;
  return fl_generate_inputs(op, 0, 1, 0, &input, 1, sizeof input);
}

static const first_use first_uses[] = {fl_invoke, use_scoped,    use_nested, use_check,    use_infer,
                                       use_cost,  use_workspace, use_schema, use_argument, use_inputs};

START_TEST(any_first_use_of_a_handle_looks_for_its_op) {
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  start_with("lazy_builtin");
  fl_op *op = fl_op_handle(host, "relu2");
  ck_assert_ptr_nonnull(op);
  ck_assert_str_eq(fl_op_name(op), "relu2");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_ok(first_uses[_i](op, &call));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
}
END_TEST

START_TEST(a_handle_of_an_op_that_is_not_known_is_none) {
  start_with("lazy_a");
  ck_assert_ptr_null(fl_op_handle(host, "relu3"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op 'relu3'; did you mean 'relu2'?");
  ck_assert_ptr_null(fl_op_handle(host, "lazy_a"));
}
END_TEST

static fl_ops racing;
static pthread_barrier_t start;

/* NULL, or what it was given: a call failed. */
static void *call_at_once(void *failed) {
  float own[2][4] = {{1}};
  DLTensor x = from, out = to;
  x.data = own[0];
  out.data = own[1];
  pthread_barrier_wait(&start);
  for (int i = 0; i < 3; i++)
    if (fl_relu2(&racing, NULL, &x, &out))
      return failed;
  return NULL;
}

START_TEST(threads_that_make_the_first_typed_call_load_a_plugin_once) {
  enum { THREADS = 6 };
  pthread_t threads[THREADS];
  for (int round = 0; round < rounds(20); round++) {
    const char *environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=INFO", NULL};
    const fl_host_options options = {
        .size = sizeof options,
        .flags = _i ? FL_HOST_NO_ARGUMENT_CHECKS : 0,
        .environment = environment,
        .config_dir = "/nonexistent",
        .plugin_path = in_scratch("plugins"),
        .plugin_modules = modules_of("lazy_builtin"),
        .log = test_log_capture,
        .log_user = &test_log,
    };
    test_log_clear();
    ck_ok(fl_host_create(&options, &host));
    ck_ok(fl_ops_init(&racing, host));
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
      ck_assert_int_eq(pthread_create(&threads[i], NULL, call_at_once, &racing), 0);
    for (int i = 0; i < THREADS; i++) {
      void *failed;
      pthread_join(threads[i], &failed);
      ck_assert_ptr_null(failed);
    }
    pthread_barrier_destroy(&start);
    ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
    ck_assert_int_eq(registrations("lazy_builtin"), 1);
    fl_host_destroy(host);
    host = NULL;
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, two_threads_that_look_for_an_op_load_its_plugin_once);
  tcase_add_loop_test(tests, X1_a_fork_while_a_plugin_is_loaded_leaves_both_able_to_call, 0, 2);
  tcase_add_test(tests, an_op_may_be_looked_for_while_a_plugin_registers);
  tcase_add_test(tests, an_op_may_be_looked_for_from_inside_a_call);
  tcase_add_test(tests, typed_calls_load_the_plugins_of_an_op_at_its_first_call);
  tcase_add_loop_test(tests, any_first_use_of_a_handle_looks_for_its_op, 0, sizeof first_uses / sizeof *first_uses);
  tcase_add_test(tests, a_handle_of_an_op_that_is_not_known_is_none);
  tcase_add_loop_test(tests, threads_that_make_the_first_typed_call_load_a_plugin_once, 0, 2);
}

int main(void) {
  return run_suite("lazy_calls", add_tests, 20);
}
