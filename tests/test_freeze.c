/* Freezing a host: what it refuses, what calls in it do, and resolving ahead. */
#include "fixture.h"

#include "tests/scratch.h"
#include <flhost/vllm.h>
#include <sys/wait.h>
#include <time.h>

static test_impl flagos, acme, bolt, reference;

/* An op with four implementations; those of kind flagos and of acme look at their arguments. */
static void add_op(fl_host *host, const char *op) {
  test_op(host, op);
  test_register(host, op, &flagos, 0, true);
  test_register(host, op, &acme, 0, true);
  test_register(host, op, &bolt, 0, false);
  test_register(host, op, &reference, 0, false);
}

static fl_host *host_with(const char *const *environment) {
  fl_host *host = test_host(environment, 0);
  flagos = (test_impl){.id = "default.flagos"};
  acme = (test_impl){.id = "vendor.acme"};
  bolt = (test_impl){.id = "vendor.bolt"};
  reference = (test_impl){.id = "reference.c"};
  add_op(host, "op");
  return host;
}

static const char *called(fl_host *host, const char *op) {
  const char *ran;
  ck_ok(test_call(host, op, &ran));
  return ran;
}

static fl_policy *preferring(const char *prefer, bool strict) {
  fl_policy_fields fields = {.size = sizeof fields, .prefer = prefer, .strict = strict};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  return policy;
}

/* ------------------------------------------------------------------------------------------------- what is refused */

static fl_policy *other_policy;
static fl_scope refused_scope;
static const char *const acme_only[] = {"acme"}, *const reference_only[] = {"reference"};

static fl_status register_op(fl_host *host) {
  fl_op_def op = {.size = sizeof op, .schema = "late() -> str out"};
  return fl_register_op(host, &op);
}

static fl_status kernel(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "must not run");
}

static fl_status register_impl(fl_host *host) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "op",
                  .impl_id = "default.late",
                  .kind = FL_KIND_DEFAULT,
                  .priority = 999,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = kernel};
  return fl_register_impl(host, &impl);
}

static fl_status withdraw(fl_host *host) {
  return fl_withdraw_plugin(host, "engine");
}

static fl_status load(fl_host *host) {
  return fl_load_plugin(host, built("tests/plugins/good.so"));
}

static fl_status discover(fl_host *host) {
  uint32_t n;
  return fl_discover_plugins(host, &n);
}

static fl_status set_policy(fl_host *host) {
  return fl_set_global_policy(host, other_policy);
}

static fl_status enforce(fl_host *host) {
  return fl_op_enforce_enable(fl_find_op(host, "op"), true);
}

static fl_status enter(fl_host *host) {
  return fl_scope_enter(host, other_policy, &refused_scope);
}

static fl_status enter_strict(fl_host *host) {
  return fl_scope_strict(host, &refused_scope);
}

static fl_status enter_prefer(fl_host *host) {
  return fl_scope_prefer(host, "reference", &refused_scope);
}

static fl_status enter_allow(fl_host *host) {
  return fl_scope_allow_vendors(host, acme_only, 1, &refused_scope);
}

static fl_status enter_deny(fl_host *host) {
  return fl_scope_deny_vendors(host, acme_only, 1, &refused_scope);
}

static fl_status enter_order(fl_host *host) {
  return fl_scope_op_order(host, "op", reference_only, 1, &refused_scope);
}

static const struct {
  fl_status (*change)(fl_host *host);
  const char *what;
} changes[] = {
    {register_op, "registering"},
    {register_impl, "registering"},
    {withdraw, "withdrawing a plugin"},
    {load, "loading a plugin"},
    {discover, "discovering plugins"},
    {set_policy, "setting the global policy"},
    {fl_reset_global_policy, "resetting the global policy"},
    {enforce, "enforcing an op (fl_op_enforce_enable)"},
    {enter, "entering a scope"},
    {enter_strict, "entering a scope"},
    {enter_prefer, "entering a scope"},
    {enter_allow, "entering a scope"},
    {enter_deny, "entering a scope"},
    {enter_order, "entering a scope"},
};
enum { N_CHANGES = sizeof changes / sizeof *changes };

START_TEST(a_change_is_refused_with_who_froze_and_how_to_thaw) {
  char message[256];
  fl_host *host = host_with(NULL);
  other_policy = preferring("reference", false);
  ck_ok(fl_freeze(host, "graph capture"));
  fl_plugins *before, *after;
  ck_ok(fl_get_discovered_plugins(host, &before));
  ck_assert_int_eq(changes[_i].change(host), FL_ESTATE);
  snprintf(message, sizeof message,
           "%s is refused: the host is frozen by 'graph capture'; fl_thaw(host, \"graph capture\") thaws it",
           changes[_i].what);
  ck_assert_str_eq(fl_error_message(), message);
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  ck_ok(fl_get_discovered_plugins(host, &after)); /* nothing was recorded as failed either */
  ck_assert_uint_eq(before->n, after->n);
  ck_assert_int_eq(fl_scope_leave(&refused_scope), FL_ESTATE);
  fl_plugins_free(before);
  fl_plugins_free(after);
  fl_policy_release(other_policy);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_same_change_is_made_once_the_host_is_thawed) {
  fl_host *host = host_with(NULL);
  other_policy = preferring("reference", false);
  ck_ok(fl_freeze(host, "graph capture"));
  ck_assert_int_eq(changes[_i].change(host), FL_ESTATE);
  ck_ok(fl_thaw(host, "graph capture"));
  ck_ok(changes[_i].change(host));
  if (fl_scope_leave(&refused_scope) == FL_OK)
    ck_assert_int_ge(_i, N_CHANGES - 6);
  fl_policy_release(other_policy);
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_cannot_return_an_error_does_nothing_and_warns) {
  fl_failed_impls *failed;
  fl_host *host = host_with(NULL);
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_ok(fl_freeze(host, "aot"));
  fl_clear_failed_impls(host, NULL);
  fl_clear_failed_impls(host, "op");
  ck_assert_int_eq(test_log_count("WARNING clearing failed implementations is refused: the host is frozen by 'aot'; "
                                  "fl_thaw(host, \"aot\") thaws it"),
                   2);
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(test_log_count("WARNING bumping the policy epoch is refused: the host is frozen by 'aot'; "
                                  "fl_thaw(host, \"aot\") thaws it"),
                   1);
  ck_ok(fl_get_failed_impls(host, "op", &failed));
  ck_assert_uint_eq(failed->n, 1);
  fl_failed_impls_free(failed);
  int asked = bolt.asked;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_assert_int_eq(bolt.asked, asked);
  ck_ok(fl_thaw(host, "aot"));
  flagos.status = FL_OK;
  fl_clear_failed_impls(host, "op");
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------- who, and how often */

START_TEST(freezes_overlap_and_the_last_to_thaw_ends_them) {
  char who[64];
  fl_host *host = host_with(NULL);
  other_policy = preferring("reference", false);
  ck_assert(!fl_is_frozen(host, who, sizeof who));
  ck_assert_str_eq(who, "");
  ck_ok(fl_freeze(host, "capture"));
  ck_ok(fl_freeze(host, "compiler"));
  ck_ok(fl_freeze(host, "capture"));
  ck_assert(fl_is_frozen(host, who, sizeof who));
  ck_assert_str_eq(who, "'capture', 'compiler', 'capture'");
  ck_ok(fl_thaw(host, "capture"));
  ck_assert_int_eq(set_policy(host), FL_ESTATE);
  ck_assert_str_eq(fl_error_message(), "setting the global policy is refused: the host is frozen by 'compiler', "
                                       "'capture'; fl_thaw(host, NAME) with each of these names thaws it");
  ck_ok(fl_thaw(host, "compiler"));
  ck_assert(fl_is_frozen(host, NULL, 0));
  ck_assert(fl_is_frozen(host, who, 5));
  ck_assert_str_eq(who, "'cap");
  ck_ok(fl_thaw(host, "capture"));
  ck_assert(!fl_is_frozen(host, NULL, 0));
  ck_ok(set_policy(host));
  ck_assert_int_eq(test_log_count("INFO Bindings are frozen by 'capture'"), 2);
  ck_assert_int_eq(test_log_count("INFO 'capture' has thawed the bindings; others keep them frozen"), 1);
  ck_assert_int_eq(test_log_count("INFO 'capture' has thawed the bindings"), 1);
  fl_policy_release(other_policy);
  fl_host_destroy(host);
}
END_TEST

START_TEST(only_who_froze_can_thaw) {
  char long_name[FL_NAME_MAX + 2];
  fl_host *host = host_with(NULL);
  memset(long_name, 'x', sizeof long_name);
  long_name[FL_NAME_MAX + 1] = 0;
  ck_assert_int_eq(fl_thaw(host, "capture"), FL_ESTATE);
  ck_assert_str_eq(fl_error_message(), "fl_thaw: 'capture' has not frozen the host; nobody has");
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_int_eq(fl_thaw(host, "captrue"), FL_ESTATE);
  ck_assert_str_eq(fl_error_message(), "fl_thaw: 'captrue' has not frozen the host; did you mean 'capture'?; the host "
                                       "is frozen by 'capture'; fl_thaw(host, \"capture\") thaws it");
  ck_assert_int_eq(fl_freeze(host, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_freeze(host, ""), FL_EINVAL);
  ck_contains(fl_error_message(), "empty");
  ck_assert_int_eq(fl_freeze(host, long_name), FL_EINVAL);
  ck_contains(fl_error_message(), "at most 127 bytes");
  ck_assert_int_eq(fl_thaw(host, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_freeze(host, long_name + 1), FL_OK);
  ck_ok(fl_thaw(host, long_name + 1));
  ck_assert(fl_is_frozen(host, NULL, 0));
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_frozen_host_freezes_no_other) {
  fl_host *host = host_with(NULL), *other = test_host(NULL, 0);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert(!fl_is_frozen(other, NULL, 0));
  test_op(other, "free");
  fl_host_destroy(host);
  fl_host_destroy(other);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ calls */

static const char kept[] = "\n  Op 'op' keeps to 'default.flagos': the host is frozen by 'capture'; "
                           "fl_thaw(host, \"capture\") thaws it";

START_TEST(a_failure_is_not_replaced_and_not_remembered) {
  char message[256];
  fl_failed_impls *failed;
  fl_counters counters = {.size = sizeof counters};
  fl_host *host = host_with(NULL);
  if (_i) /* bound by a call, or not at all */
    ck_assert_str_eq(called(host, "op"), "default.flagos");
  ck_ok(fl_freeze(host, "capture"));
  test_log_clear();
  flagos.status = FL_EDEVICE;
  flagos.message = "the device fell off";
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  snprintf(message, sizeof message, "the device fell off%s", kept);
  ck_assert_str_eq(fl_error_message(), message);
  ck_assert_int_eq(fl_error_status(), FL_EDEVICE);
  ck_assert_int_eq(bolt.calls + acme.calls + reference.calls, 0);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  flagos.status = FL_OK;
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  ck_assert_ptr_null(strstr(test_log.text, "fallback"));
  flagos.status = FL_EDEVICE;
  ck_ok(fl_thaw(host, "capture"));
  acme.unsupported = true;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_implementation_without_predicate_fails_in_the_same_way) {
  fl_host *host = host_with(NULL);
  static test_impl plain, other;
  plain = (test_impl){.id = "default.plain", .status = FL_EINTERNAL};
  other = (test_impl){.id = "reference.other"};
  test_op(host, "plain");
  test_register(host, "plain", &plain, 0, false);
  test_register(host, "plain", &other, 0, false);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_int_eq(test_call(host, "plain", NULL), FL_EINTERNAL);
  ck_contains(fl_error_message(), "E:default.plain\n  Op 'plain' keeps to 'default.plain': the host is frozen by");
  ck_assert_int_eq(other.calls, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(not_supported_after_the_call_began_is_not_replaced_either) {
  fl_host *host = host_with(NULL);
  ck_ok(fl_freeze(host, "capture"));
  flagos.status = FL_ENOTSUP;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOTSUP);
  ck_contains(fl_error_message(), kept);
  ck_assert_int_eq(bolt.calls, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_arguments_still_pass_over_a_candidate) {
  fl_host *host = host_with(NULL);
  ck_ok(fl_freeze(host, "capture"));
  flagos.unsupported = acme.unsupported = true;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  flagos.unsupported = false;
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F3_a_strict_policy_gives_the_error_unchanged) {
  static const char *const environment[] = {"VLLM_FL_STRICT=1", NULL};
  fl_host *host = host_with(environment);
  ck_ok(fl_freeze(host, "capture"));
  flagos.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "op: E:default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(bad_arguments_are_told_as_ever) {
  fl_host *host = host_with(NULL);
  fl_call call = {.size = sizeof call};
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_int_eq(fl_call_op(host, "op", &call), FL_EINVAL);
  ck_assert_ptr_null(strstr(fl_error_message(), "frozen"));
  flagos.status = FL_EINVAL;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EINVAL);
  ck_assert_ptr_null(strstr(fl_error_message(), "frozen"));
  fl_host_destroy(host);
}
END_TEST

/* An op that nobody has called, and whose availability nobody has asked, is as it was at the freeze. */
START_TEST(what_is_not_bound_is_resolved_as_at_the_freeze) {
  fl_host *host = host_with(NULL);
  ck_ok(fl_freeze(host, "capture"));
  int asked = flagos.asked;
  ck_assert_int_eq(asked, 1);
  flagos.unavailable = true;
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  ck_assert_int_eq(flagos.asked, asked);
  fl_host_destroy(host);
}
END_TEST

static void wait_for(double seconds) {
  struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
  nanosleep(&time, NULL);
}

/* A host whose failed implementations are tried again after half a second. */
static fl_host *impatient_host(void) {
  char variable[PATH_MAX + 32];
  const char *const environment[] = {variable, NULL};
  scratch_make();
  snprintf(variable, sizeof variable, "VLLM_FL_CONFIG=%s", write_text("policy.yaml", "retry_first_s: 0.5\n"));
  fl_host *host = host_with(environment);
  scratch_remove();
  return host;
}

START_TEST(F4_what_is_skipped_stays_out_until_thawed) {
  fl_failed_impls *failed;
  fl_host *host = impatient_host();
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  flagos.status = FL_OK;
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_ok(fl_get_failed_impls(host, "op", &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert(fl_failed_impl_at(failed, 0)->retry_in < 0);
  fl_failed_impls_free(failed);
  wait_for(0.7);
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_ok(fl_thaw(host, "capture"));
  wait_for(0.7);
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F4_what_was_due_is_back_for_good) {
  fl_host *host = impatient_host();
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  flagos.status = FL_OK;
  wait_for(0.7);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  flagos.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F4_when_all_have_failed_the_error_says_that_the_host_is_frozen) {
  fl_host *host = host_with(NULL);
  flagos.status = acme.status = bolt.status = reference.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(),
              "None is tried again: the host is frozen by 'capture'; fl_thaw(host, \"capture\") thaws it");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_a_scope_entered_before_stays_and_can_be_left) {
  fl_scope outer, inner;
  fl_host *host = host_with(NULL);
  add_op(host, "other");
  ck_ok(fl_scope_prefer(host, "vendor", &outer));
  ck_ok(fl_scope_prefer(host, "reference", &inner));
  ck_assert_str_eq(called(host, "op"), "reference.c");
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_str_eq(called(host, "op"), "reference.c");
  ck_assert_str_eq(called(host, "other"), "reference.c");
  reference.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_ok(fl_scope_leave(&inner));
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_ok(fl_scope_leave(&outer));
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

static void after_fork(fl_host *host) {
  char who[32];
  fl_failed_impls *failed;
  int asked = flagos.asked;
  ck_assert(fl_is_frozen(host, who, sizeof who));
  ck_assert_str_eq(who, "'capture'");
  ck_assert_int_eq(fl_reset_global_policy(host), FL_ESTATE);
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_assert_str_eq(called(host, "other"), "default.flagos");
  ck_assert_int_eq(flagos.asked, asked);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 1);
  fl_failed_impls_free(failed);
  ck_ok(fl_thaw(host, "capture"));
  fl_clear_failed_impls(host, NULL);
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  fl_host_destroy(host);
}

START_TEST(X1_a_forked_child_is_frozen_too) {
  fl_host *host = host_with(NULL);
  add_op(host, "other");
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  flagos.status = FL_OK;
  ck_ok(fl_freeze(host, "capture"));
  int status = -1;
  pid_t pid = fork();
  if (!pid) {
    after_fork(host);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
  ck_assert(fl_is_frozen(host, NULL, 0));
  fl_host_destroy(host);
}
END_TEST

/* Calls while another thread freezes and thaws: one that began in a frozen host is answered by what is bound there. */
typedef struct contest {
  fl_host *host;
  _Atomic bool stop;
  _Atomic int calls, wrong;
} contest;

static void *call_on(void *argument) {
  contest *c = argument;
  while (!c->stop) {
    const char *ran;
    fl_status status = test_call(c->host, "op", &ran);
    if (status && (status != FL_EDEVICE || !strstr(fl_error_message(), "keeps to 'default.flagos'")))
      c->wrong++;
    c->calls++;
  }
  return NULL;
}

START_TEST(calls_and_changes_of_other_threads_go_on_around_a_freeze) {
  contest c = {.host = host_with(NULL)};
  pthread_t threads[2];
  fl_policy *policies[] = {preferring("reference", false), preferring("flagos", false)};
  flagos.status = FL_EDEVICE;
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_on, &c), 0);
  for (int i = 0, n = rounds(500); i < n || c.calls < 1000; i++) {
    ck_ok(fl_set_global_policy(c.host, policies[i % 2]));
    fl_clear_failed_impls(c.host, NULL);
    ck_ok(fl_freeze(c.host, "capture"));
    fl_status first = test_call(c.host, "op", NULL);
    for (int j = 0; j < 8; j++)
      ck_assert_int_eq(test_call(c.host, "op", NULL), first);
    ck_assert_int_eq(fl_set_global_policy(c.host, policies[0]), FL_ESTATE);
    ck_ok(fl_thaw(c.host, "capture"));
  }
  c.stop = true;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(c.wrong, 0);
  for (int i = 0; i < 2; i++)
    fl_policy_release(policies[i]);
  fl_host_destroy(c.host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- warm-up */

/* Each making of a binding logs a line. */
static fl_host *talking_host(void) {
  static const char *const environment[] = {"VLLM_FL_DISPATCH_DEBUG=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  fl_host *host = host_with(environment);
  test_log_clear();
  return host;
}

static int bound(void) {
  int n = 0;
  for (const char *at = test_log.text; (at = strstr(at, "[DISPATCH] Op ")); at++)
    n++;
  return n;
}

static fl_status register_on(fl_host *host, const char *op, test_impl *impl, int32_t device) {
  fl_impl record = {.size = sizeof record,
                    .op_name = op,
                    .impl_id = impl->id,
                    .kind = FL_KIND_DEFAULT,
                    .devices = FL_DEVICE(device),
                    .fn = kernel,
                    .self = impl};
  return fl_register_impl(host, &record);
}

static void add_tensor_op(fl_host *host, const char *name) {
  char schema[64];
  snprintf(schema, sizeof schema, "%s(Tensor x) -> Tensor out", name);
  fl_op_def op = {.size = sizeof op, .schema = schema};
  ck_ok(fl_register_op(host, &op));
}

START_TEST(after_a_warm_up_no_call_resolves) {
  uint32_t resolved, without;
  fl_host *host = talking_host();
  add_op(host, "other");
  test_op(host, "empty");
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_eq(resolved, 2);
  ck_assert_uint_eq(without, 0);
  ck_assert_int_eq(bound(), 2);
  called(host, "op");
  called(host, "other");
  ck_assert_int_eq(bound(), 2);
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_assert_int_eq(bound(), 2);
  fl_host_destroy(host);
}
END_TEST

START_TEST(freezing_and_thawing_unbind_nothing) {
  fl_host *host = talking_host();
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_assert_int_eq(bound(), 1);
  ck_ok(fl_freeze(host, "capture"));
  called(host, "op");
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_ok(fl_thaw(host, "capture"));
  called(host, "op");
  ck_assert_int_eq(bound(), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_frozen_host_can_be_warmed_up) {
  uint32_t resolved;
  fl_host *host = talking_host();
  ck_ok(fl_freeze(host, "capture"));
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, NULL));
  ck_assert_uint_eq(resolved, 1);
  ck_assert_int_eq(bound(), 1);
  called(host, "op");
  ck_assert_int_eq(bound(), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_warm_up_is_of_one_device_type_and_leaves_the_others) {
  static test_impl on_cpu = {.id = "default.cpu"}, on_cuda = {.id = "default.cuda"};
  uint32_t resolved;
  fl_host *host = talking_host();
  add_tensor_op(host, "both");
  add_tensor_op(host, "card");
  ck_ok(register_on(host, "both", &on_cpu, kDLCPU));
  ck_ok(register_on(host, "both", &on_cuda, kDLCUDA));
  ck_ok(register_on(host, "card", &on_cuda, kDLCUDA));
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, NULL));
  ck_assert_uint_eq(resolved, 2); /* and the op without tensors */
  ck_assert_int_eq(test_log_count("INFO Op 'both' using 'default.cpu' (kind=flagos, vendor=None)"), 1);
  int before = bound();
  ck_ok(fl_warm_up(host, kDLCUDA, &resolved, NULL));
  ck_assert_uint_eq(resolved, 3);
  ck_assert_int_eq(bound(), before + 2);
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, NULL));
  ck_assert_int_eq(bound(), before + 2);
  ck_assert_ptr_null(strstr(test_log.text, "switched"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_of_which_nothing_may_run_is_counted) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=op=vendor:cuda", NULL};
  uint32_t resolved, without;
  fl_host *host = host_with(environment);
  add_op(host, "other");
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_eq(resolved, 1);
  ck_assert_uint_eq(without, 1);
  ck_assert_str_eq(fl_error_message(), "");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_warm_up_is_under_the_policy_of_its_thread) {
  fl_scope scope;
  fl_host *host = talking_host();
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_contains(test_log.text, "[DISPATCH] Op 'op' -> 'vendor.bolt'");
  ck_assert_str_eq(called(host, "op"), "vendor.bolt");
  ck_assert_int_eq(bound(), 1);
  ck_ok(fl_scope_leave(&scope));
  ck_assert_str_eq(called(host, "op"), "default.flagos");
  ck_assert_int_eq(bound(), 2);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_fused_op_that_runs_by_parts_is_resolved_too) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=fused_add_rms_norm=unfused", NULL};
  uint32_t resolved, without;
  fl_host *host = test_host(environment, 0);
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_eq(resolved, 0);
  ck_assert_uint_eq(without, 0);
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_eq(without, 0);
  ck_assert_int_eq(test_log_count("INFO Op 'fused_add_rms_norm' using 'reference.parts' (kind=reference, vendor=None)"),
                   0);
  ck_ok(fl_withdraw_plugin(host, "cpu"));
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_eq(resolved, 0);
  ck_assert_uint_eq(without, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_unknown_device_type_is_an_error) {
  fl_host *host = host_with(NULL);
  static const int32_t wrong[] = {0, -1, 20, 1000};
  uint32_t resolved = 7;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_eq(fl_warm_up(host, wrong[i], &resolved, NULL), FL_EINVAL);
    ck_contains(fl_error_message(), "is not known");
    ck_assert_uint_eq(resolved, 7);
  }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, a_change_is_refused_with_who_froze_and_how_to_thaw, 0, N_CHANGES);
  tcase_add_loop_test(tests, the_same_change_is_made_once_the_host_is_thawed, 0, N_CHANGES);
  tcase_add_test(tests, what_cannot_return_an_error_does_nothing_and_warns);
  tcase_add_test(tests, freezes_overlap_and_the_last_to_thaw_ends_them);
  tcase_add_test(tests, only_who_froze_can_thaw);
  tcase_add_test(tests, a_frozen_host_freezes_no_other);
  tcase_add_loop_test(tests, a_failure_is_not_replaced_and_not_remembered, 0, 2);
  tcase_add_test(tests, an_implementation_without_predicate_fails_in_the_same_way);
  tcase_add_test(tests, not_supported_after_the_call_began_is_not_replaced_either);
  tcase_add_test(tests, S3_arguments_still_pass_over_a_candidate);
  tcase_add_test(tests, F3_a_strict_policy_gives_the_error_unchanged);
  tcase_add_test(tests, bad_arguments_are_told_as_ever);
  tcase_add_test(tests, what_is_not_bound_is_resolved_as_at_the_freeze);
  tcase_add_test(tests, F4_what_is_skipped_stays_out_until_thawed);
  tcase_add_test(tests, F4_what_was_due_is_back_for_good);
  tcase_add_test(tests, F4_when_all_have_failed_the_error_says_that_the_host_is_frozen);
  tcase_add_test(tests, P5_a_scope_entered_before_stays_and_can_be_left);
  tcase_add_test(tests, X1_a_forked_child_is_frozen_too);
  tcase_add_test(tests, calls_and_changes_of_other_threads_go_on_around_a_freeze);
  tcase_add_test(tests, after_a_warm_up_no_call_resolves);
  tcase_add_test(tests, freezing_and_thawing_unbind_nothing);
  tcase_add_test(tests, a_frozen_host_can_be_warmed_up);
  tcase_add_test(tests, a_warm_up_is_of_one_device_type_and_leaves_the_others);
  tcase_add_test(tests, an_op_of_which_nothing_may_run_is_counted);
  tcase_add_test(tests, a_warm_up_is_under_the_policy_of_its_thread);
  tcase_add_test(tests, a_fused_op_that_runs_by_parts_is_resolved_too);
  tcase_add_test(tests, an_unknown_device_type_is_an_error);
}

int main(void) {
  return run_suite("freeze", add_tests, 20);
}
