#include "fixture.h"

captured_log test_log = {.lock = PTHREAD_MUTEX_INITIALIZER};

void test_log_capture(void *user, int level, const char *line) {
  captured_log *log = user;
  const char *name = level >= FL_LOG_ERROR     ? "ERROR"
                     : level >= FL_LOG_WARNING ? "WARNING"
                     : level >= FL_LOG_INFO    ? "INFO"
                                               : "DEBUG";
  pthread_mutex_lock(&log->lock);
  size_t used = strlen(log->text);
  snprintf(log->text + used, sizeof log->text - used, "%s %s\n", name, line);
  pthread_mutex_unlock(&log->lock);
}

void test_log_clear(void) {
  pthread_mutex_lock(&test_log.lock);
  test_log.text[0] = 0;
  pthread_mutex_unlock(&test_log.lock);
}

int test_log_count(const char *line) {
  int n = 0;
  size_t length = strlen(line);
  pthread_mutex_lock(&test_log.lock);
  for (const char *at = test_log.text; *at;) {
    const char *end = strchr(at, '\n');
    n += (size_t)(end - at) == length && !strncmp(at, line, length);
    at = end + 1;
  }
  pthread_mutex_unlock(&test_log.lock);
  return n;
}

fl_host *test_host(const char *const *environment, uint32_t flags) {
  static const char *const none[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  fl_host_options options = {
      .size = sizeof options,
      .flags = flags | FL_HOST_NO_PLUGINS,
      .environment = environment ? environment : none,
      .config_dir = "/nonexistent",
      .log = test_log_capture,
      .log_user = &test_log,
  };
  fl_host *host = NULL;
  ck_ok(fl_host_create(&options, &host));
  test_log_clear();
  return host;
}

void test_op(fl_host *host, const char *name) {
  char schema[FL_NAME_MAX + 32];
  snprintf(schema, sizeof schema, "%s() -> str out", name);
  fl_op_def op = {.size = sizeof op, .schema = schema};
  ck_ok(fl_register_op(host, &op));
}

static fl_status run(void *self, fl_call *call) {
  test_impl *impl = self;
  impl->calls++;
  if (impl->status) {
    if (impl->message)
      return fl_fail(call, impl->status, "%s", impl->message);
    return fl_fail(call, impl->status, "E:%s", impl->id);
  }
  call->values[call->count - 1] = fl_string(impl->id);
  return FL_OK;
}

static bool is_available(void *self, const char **reason) {
  test_impl *impl = self;
  impl->asked++;
  *reason = impl->unavailable ? "no such device here" : NULL;
  return !impl->unavailable;
}

static bool supports_args(void *self, const fl_call *call, const char **reason) {
  test_impl *impl = self;
  (void)call;
  if (impl->unsupported && reason)
    *reason = "odd sizes only";
  return !impl->unsupported;
}

void test_register(fl_host *host, const char *op, test_impl *impl, int32_t priority, bool with_predicate) {
  bool vendor = !strncmp(impl->id, "vendor.", 7), reference = !strncmp(impl->id, "reference.", 10);
  fl_impl record = {
      .size = sizeof record,
      .op_name = op,
      .impl_id = impl->id,
      .kind = vendor      ? FL_KIND_VENDOR
              : reference ? FL_KIND_REFERENCE
                          : FL_KIND_DEFAULT,
      .vendor = vendor ? impl->id + 7 : NULL,
      .priority = priority,
      .devices = FL_DEVICE(kDLCPU),
      .fn = run,
      .self = impl,
      .is_available = is_available,
      .supports_args = with_predicate ? supports_args : NULL,
  };
  ck_ok(fl_register_impl(host, &record));
}

fl_status test_call(fl_host *host, const char *name, const char **result) {
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  fl_status status = fl_call_op(host, name, &call);
  if (result)
    *result = status ? NULL : values[0].v.s;
  return status;
}
