/* What plugins say: reasons that they format, lines that they log after they registered, what a component points to. */
#include "core/registry/registration.h"
#include "tests/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------------------------- reasons */

static int64_t shape[] = {2, 4, 3};
static float data[2][24];
static DLTensor x = {.data = data[0], .device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLFloat, 32, 1}, .shape = shape};
static DLTensor out = {.data = data[1], .device = {kDLCPU, 0}, .ndim = 3, .dtype = {kDLFloat, 32, 1}, .shape = shape};

static int driver = 3, asked_with_room, asked_without;

static bool is_available(void *self, const char **reason) {
  (void)self;
  return fl_reason(reason, "needs driver 12, found %d", driver);
}

static bool takes_matrices(void *self, const fl_call *call, const char **reason) {
  (void)self;
  *(reason && *reason ? &asked_with_room : &asked_without) += 1;
  int ndim = call->values[0].v.tensor->ndim;
  return ndim == 2 || fl_reason(reason, "needs 2 dimensions, has %d", ndim);
}

/* Sets text of its own even where it says yes. */
static bool talks_too_much(void *self, const fl_call *call, const char **reason) {
  (void)self, (void)call;
  *reason = "static text, in memory that cannot be written";
  return true;
}

static fl_status do_nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

static fl_impl row(const char *op, const char *id) {
  return (fl_impl){.size = sizeof(fl_impl),
                   .op_name = op,
                   .impl_id = id,
                   .kind = FL_KIND_REFERENCE,
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = do_nothing};
}

static fl_host *host_with(const fl_impl *impl) {
  fl_host *host = test_host(NULL, 0);
  ck_ok(fl_register_op(host, &(fl_op_def){.size = sizeof(fl_op_def), .schema = "op(Tensor x) -> Tensor out"}));
  ck_ok(fl_register_impl(host, impl));
  return host;
}

START_TEST(R6_a_formatted_reason_is_shown_and_stays_where_it_was_read) {
  fl_impl impl = row("op", "reference.absent");
  impl.is_available = is_available;
  fl_host *host = host_with(&impl);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  ck_assert_int_eq(fl_call_op(host, "op", &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "needs driver 12, found 3");
  fl_snapshot *before = fl_registry_snapshot(host);
  driver = 5;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(fl_call_op(host, "op", &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "needs driver 12, found 5");
  for (uint32_t i = 0; i < fl_snapshot_op_count(before); i++)
    if (!strcmp(fl_snapshot_op_name(before, i), "op"))
      ck_assert_str_eq(fl_snapshot_impl(before, i, 0)->reason, "needs driver 12, found 3");
  fl_snapshot_release(before);
  fl_host_destroy(host);
}
END_TEST

/* On the way of a call nobody reads it. */
START_TEST(S3_a_predicate_formats_its_reason_where_somebody_reads_it) {
  fl_impl impl = row("op", "reference.matrix");
  impl.supports_args = takes_matrices;
  fl_host *host = host_with(&impl);
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  size_t bytes;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(fl_call_op(host, "op", &call), FL_ENOIMPL);
    ck_contains(fl_error_message(), "reference.matrix: not supported: needs 2 dimensions, has 3");
  }
  ck_assert_int_eq(fl_workspace_size(fl_find_op(host, "op"), &call, &bytes), FL_ENOIMPL);
  ck_contains(fl_error_message(), "needs 2 dimensions, has 3");
  x.ndim = out.ndim = 2;
  ck_ok(fl_call_op(host, "op", &call));
  asked_with_room = asked_without = 0;
  ck_ok(fl_call_op(host, "op", &call));
  ck_assert_int_eq(asked_with_room, 0);
  ck_assert_int_eq(asked_without, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_text_that_one_predicate_set_is_not_the_room_of_the_next) {
  fl_impl impl = row("op", "reference.talks"), picky = row("other", "reference.matrix");
  impl.supports_args = talks_too_much;
  picky.supports_args = takes_matrices;
  fl_host *host = host_with(&impl);
  ck_ok(fl_register_op(host, &(fl_op_def){.size = sizeof(fl_op_def), .schema = "other(Tensor x) -> Tensor out"}));
  ck_ok(fl_register_impl(host, &picky));
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  for (int i = 0; i < 3; i++) {
    ck_ok(fl_call_op(host, "op", &call));
    ck_assert_int_eq(fl_call_op(host, "other", &call), FL_ENOIMPL);
    ck_contains(fl_error_message(), "needs 2 dimensions, has 3");
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_long_reason_is_cut_and_may_be_made_of_itself) {
  char room[FL_REASON_MAX + 8], word[FL_REASON_MAX * 2];
  const char *reason = room;
  memset(room, 'x', sizeof room);
  memset(word, 'w', sizeof word);
  word[sizeof word - 1] = 0;
  ck_assert(!fl_reason(&reason, "%s", word));
  ck_assert_uint_eq(strlen(room), FL_REASON_MAX - 1);
  ck_assert_int_eq(room[FL_REASON_MAX], 'x');
  fl_reason(&reason, "first");
  fl_reason(&reason, "%s, then second", reason);
  ck_assert_str_eq(room, "first, then second");
  reason = NULL;
  ck_assert(!fl_reason(&reason, "nobody reads %d", 1));
  ck_assert_ptr_null(reason);
  ck_assert(!fl_reason(NULL, "nobody reads %d", 1));
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- components */

static bool is_active(void *self, const char **reason) {
  (void)self;
  return fl_reason(reason, "only %d of %d boards answer", 1, 4);
}

static fl_status properties(void *self, int32_t device, fl_device_properties *found) {
  (void)self, (void)device, (void)found;
  return FL_EDEVICE;
}

static fl_status device_is(void *self, int32_t *device) {
  (void)self;
  *device = 0;
  return FL_OK;
}

static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device, (void)size, (void)memory;
  return FL_ENOMEM;
}

static fl_status release(void *self, int32_t device, void *memory) {
  (void)self, (void)device, (void)memory;
  return FL_OK;
}

static fl_status copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  (void)self, (void)device, (void)to, (void)from, (void)size, (void)direction, (void)stream;
  return FL_OK;
}

static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream, (void)all;
  return FL_OK;
}

static const char *error(void *self) {
  (void)self;
  return "";
}

static const fl_platform platform = {.size = sizeof platform,
                                     .device_type = kDLExtDev,
                                     .is_active = is_active,
                                     .properties = properties,
                                     .current_device = device_is,
                                     .allocate = allocate,
                                     .release = release,
                                     .copy = copy,
                                     .synchronize = synchronize,
                                     .error = error};

START_TEST(a_platform_formats_why_it_is_not_active) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  const fl_component component = {.size = sizeof component,
                                  .type = "platform",
                                  .name = "acme",
                                  .functions = &platform,
                                  .functions_type = FL_FUNCTIONS_PLATFORM,
                                  .functions_size = sizeof platform};
  int32_t devices;
  ck_ok(registry->register_component(registry, &component));
  ck_ok(fl_stage_commit(stage, NULL));
  ck_assert_int_eq(fl_device_count(host, kDLExtDev, &devices), FL_ENOENT);
  ck_contains(fl_error_message(), "is not active: only 1 of 4 boards answer");
  fl_host_destroy(host);
}
END_TEST

static const char not_a_name[] = {'r', 'e', 'l', 'u'};

static const struct {
  fl_component component;
  const char *message; /* NULL: it is taken */
} components[] = {
    {{.type = "platform", .functions = &platform, .functions_type = FL_FUNCTIONS_PLATFORM, .functions_size = 16},
     "functions has 280 bytes, but functions_size is 16: does it point to a fl_platform?"},
    {{.type = "platform", .functions = "relu2", .functions_type = FL_FUNCTIONS_OP_NAME, .functions_size = 6},
     "functions_type is 2, expected 1 for platform"},
    {{.type = "platform", .functions = &platform, .functions_type = 9, .functions_size = sizeof platform},
     "functions_type is 9, expected 1 for platform"},
    {{.type = "platform", .functions_type = FL_FUNCTIONS_PLATFORM, .functions_size = 80}, "functions: a null pointer"},
    {{.type = "platform", .functions = &platform, .functions_type = FL_FUNCTIONS_PLATFORM},
     "functions: functions_size is missing"},
    {{.type = "layer", .functions = not_a_name, .functions_type = FL_FUNCTIONS_OP_NAME, .functions_size = 4},
     "functions has 5 bytes, but functions_size is 4: does it point to a string?"},
    {{.type = "layer", .functions = "relu2", .functions_type = FL_FUNCTIONS_OP_NAME, .functions_size = 6}, NULL},
    {{.type = "layer", .functions = "op", .functions_type = FL_FUNCTIONS_OP_NAME, .functions_size = 3}, "no op 'op'"},
    {{.type = "layer", .functions = "relu2"}, NULL},
};

START_TEST(a_component_points_to_what_it_says) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  fl_component component = components[_i].component;
  component.size = sizeof component;
  component.name = "Acme";
  ck_assert_int_eq(registry->register_component(registry, &component), !components[_i].message            ? FL_OK
                                                                       : components[_i].message[0] == 'n' ? FL_ENOENT
                                                                                                          : FL_EINVAL);
  if (components[_i].message)
    ck_contains(fl_error_message(), components[_i].message);
  fl_stage_abort(stage, NULL);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------- logs */

/* The logger that a plugin keeps. */
static fl_logger logger_in(fl_host *host) {
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_logger logger = fl_logger_of(fl_stage_table(stage));
  fl_stage_commit(stage, NULL);
  return logger;
}

START_TEST(a_plugin_logs_after_it_registered_until_the_host_has_ended) {
  fl_host *host = test_host(NULL, 0), *other = test_host(NULL, 0);
  fl_logger logger = logger_in(host), others = logger_in(other);
  test_log_clear();
  fl_logf(&logger, FL_LOG_WARNING, "%d boards are hot", 3);
  ck_assert_int_eq(test_log_count("WARNING plugin acme: 3 boards are hot"), 1);
  ck_ok(fl_set_log_level(host, "ERROR"));
  fl_logf(&logger, FL_LOG_WARNING, "%d boards are hot", 3);
  ck_assert_int_eq(test_log_count("WARNING plugin acme: 3 boards are hot"), 1);
  fl_host_destroy(host);
  host = test_host(NULL, 0); /* at the same place, perhaps */
  fl_logf(&logger, FL_LOG_ERROR, "nobody hears this");
  fl_logf(&others, FL_LOG_ERROR, "the other host does");
  ck_assert_ptr_null(strstr(test_log.text, "nobody"));
  ck_assert_int_eq(test_log_count("ERROR plugin acme: the other host does"), 1);
  fl_host_destroy(other);
  fl_host_destroy(host);
}
END_TEST

static fl_logger shared;
static _Atomic bool stop;

static void *log_until_stopped(void *unused) {
  while (!stop)
    fl_logf(&shared, FL_LOG_DEBUG, "from a thread");
  return unused;
}

/* What a host ends with is not there any more when this returns: the callback's own data. */
static void log_slowly(void *user, int level, const char *line) {
  (void)level, (void)line;
  _Atomic int *running = user;
  *running += 1;
  usleep(200);
  *running -= 1;
}

START_TEST(threads_of_plugins_log_while_the_host_ends) {
  enum { THREADS = 4 };
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  pthread_t threads[THREADS];
  for (int i = 0; i < rounds(50); i++) {
    _Atomic int running = 0;
    fl_host_options options = {.size = sizeof options,
                               .flags = FL_HOST_NO_PLUGINS,
                               .environment = environment,
                               .config_dir = "/nonexistent",
                               .log = log_slowly,
                               .log_user = (void *)&running};
    fl_host *host;
    ck_ok(fl_host_create(&options, &host));
    shared = logger_in(host);
    stop = false;
    for (int t = 0; t < THREADS; t++)
      ck_assert_int_eq(pthread_create(&threads[t], NULL, log_until_stopped, NULL), 0);
    usleep(1000);
    fl_host_destroy(host);
    ck_assert_int_eq(running, 0);
    stop = true;
    for (int t = 0; t < THREADS; t++)
      pthread_join(threads[t], NULL);
  }
}
END_TEST

START_TEST(X1_a_plugin_logs_in_a_forked_child) {
  fl_host *host = test_host(NULL, 0);
  pthread_t thread;
  int status;
  shared = logger_in(host);
  ck_assert_int_eq(pthread_create(&thread, NULL, log_until_stopped, NULL), 0);
  for (int i = 0; i < rounds(100); i++) {
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
      fl_set_log_level(host, "ERROR"); /* the capture's lock may be the thread's that is gone */
      shared.log(&shared, FL_LOG_DEBUG, "in the child");
      fl_host_destroy(host);
      _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    test_log_clear();
  }
  stop = true;
  pthread_join(thread, NULL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(where_the_host_is_older_a_plugin_logs_nothing) {
  fl_registry older = {.size = offsetof(fl_registry, logger)};
  memset(&older.logger, 0x55, sizeof older.logger);
  fl_logger logger = fl_logger_of(&older);
  ck_assert_ptr_null((void *)(uintptr_t)logger.log);
  fl_logf(&logger, FL_LOG_ERROR, "into the void");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, R6_a_formatted_reason_is_shown_and_stays_where_it_was_read);
  tcase_add_test(tests, S3_a_predicate_formats_its_reason_where_somebody_reads_it);
  tcase_add_test(tests, S3_text_that_one_predicate_set_is_not_the_room_of_the_next);
  tcase_add_test(tests, a_long_reason_is_cut_and_may_be_made_of_itself);
  tcase_add_test(tests, a_platform_formats_why_it_is_not_active);
  tcase_add_loop_test(tests, a_component_points_to_what_it_says, 0, sizeof components / sizeof *components);
  tcase_add_test(tests, a_plugin_logs_after_it_registered_until_the_host_has_ended);
  tcase_add_test(tests, threads_of_plugins_log_while_the_host_ends);
  tcase_add_test(tests, X1_a_plugin_logs_in_a_forked_child);
  tcase_add_test(tests, where_the_host_is_older_a_plugin_logs_nothing);
}

int main(void) {
  return run_suite("plugin_words", add_tests, 30);
}
