/*
 * The groups resolve, call and tie of tests/conformance/dispatch.json: what the Python dispatcher decided, decided
 * again. Each row is a host of its own.
 */
#include "fixture.h"

#include "core/settings/policy.h"
#include <jansson.h>

enum { MAX_IMPLS = 8 };

static json_t *cases(const char *group) {
  json_error_t error;
  json_t *all = json_load_file("tests/conformance/dispatch.json", 0, &error);
  ck_assert_msg(all != NULL, "dispatch.json:%d: %s", error.line, error.text);
  json_t *rows = json_incref(json_object_get(all, group));
  json_decref(all);
  ck_assert_uint_gt(json_array_size(rows), 0);
  return rows;
}

/* Are the strings of a JSON array those of `ids`, in order? */
static bool same_list(const json_t *expected, const char *const *ids, uint32_t n) {
  if (json_array_size(expected) != n)
    return false;
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(json_string_value(json_array_get(expected, i)), ids[i]))
      return false;
  return true;
}

/* The text that the peer's exception carried; NULL if the value is no error. */
static const char *error_text(const json_t *value) {
  const json_t *error = json_object_get(value, "error");
  return error ? json_string_value(json_object_get(error, "text")) : NULL;
}

/* The peer's words come first; what we add (the reasons) follows on lines of their own. Behind the op's name (F3) stand
 * an implementation's own. */
static bool says(const char *message, const char *expected) {
  size_t length = strlen(expected);
  if (!strncmp(expected, "E:", 2) && strncmp(message, "op: ", 4) != 0)
    return false;
  message += !strncmp(expected, "E:", 2) ? 4 : 0;
  return !strncmp(message, expected, length) && (!message[length] || message[length] == '\n');
}

static const char **strings_of(const json_t *array, uint32_t *n) {
  *n = (uint32_t)json_array_size(array);
  const char **strings = calloc(*n + 1, sizeof *strings);
  for (uint32_t i = 0; i < *n; i++)
    strings[i] = json_string_value(json_array_get(array, i));
  return strings;
}

/* The policy of a row, as the peer's constructor takes it: tokens unchecked. */
static fl_policy *policy_of(const json_t *row) {
  fl_policy *policy = NULL;
  uint32_t n_deny, n_allow, n_tokens;
  const char **deny = strings_of(json_object_get(row, "deny"), &n_deny);
  const char **allow = strings_of(json_object_get(row, "allow"), &n_allow);
  const char **tokens = strings_of(json_object_get(row, "per_op"), &n_tokens);
  fl_op_order order = {"op", tokens, n_tokens};
  fl_policy_fields fields = {
      .size = sizeof fields,
      .prefer = json_string_value(json_object_get(row, "prefer")),
      .strict = json_is_true(json_object_get(row, "strict")),
      .deny_vendors = deny,
      .n_deny_vendors = n_deny,
      .allow_vendors = json_is_array(json_object_get(row, "allow")) ? allow : NULL,
      .n_allow_vendors = n_allow,
      .per_op = &order,
      .n_per_op = json_is_array(json_object_get(row, "per_op")),
      .per_op_size = sizeof(fl_op_order),
  };
  ck_ok(fl_policy_create_unchecked(&fields, &policy));
  free(deny);
  free(allow);
  free(tokens);
  return policy;
}

static bool in_list(const json_t *list, const char *id) {
  size_t i;
  json_t *item;
  json_array_foreach(list, i, item) if (!strcmp(json_string_value(item), id)) return true;
  return false;
}

/* Names of the candidates, in order. */
static uint32_t candidates(const fl_explanation *why, const char **ids) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < why->n_impls; i++)
    if (fl_explained_at(why, i)->verdict != FL_REJECTED)
      ids[n++] = fl_explained_at(why, i)->impl_id;
  return n;
}

static test_impl four[] = {
    {.id = "default.flagos"}, {.id = "vendor.cuda"}, {.id = "vendor.ascend"}, {.id = "reference.torch"}};

/* The peer's calls were made without vendor.ascend. */
static fl_host *host_of(bool with_ascend) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=INFO", NULL}, 0);
  test_op(host, "op");
  for (int i = 0; i < 4; i++)
    if (with_ascend || strcmp(four[i].id, "vendor.ascend"))
      test_register(host, "op", &four[i], 0, false);
  return host;
}

static void check_resolve(const json_t *row, const char *text) {
  const char *ids[MAX_IMPLS], *expected;
  const json_t *listed = json_object_get(row, "candidates"), *winner = json_object_get(row, "resolve");
  fl_explanation *why;
  fl_resolution resolution = {.size = sizeof resolution};
  for (int i = 0; i < 4; i++)
    four[i].unavailable = !in_list(json_object_get(row, "available"), four[i].id);
  fl_host *host = host_of(true);
  fl_policy *policy = policy_of(row);
  ck_ok(fl_set_global_policy(host, policy));
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  uint32_t n = candidates(why, ids);
  if ((expected = error_text(listed)))
    ck_assert_msg(n == 0, "%s: %u candidates", text, n);
  else
    ck_assert_msg(same_list(listed, ids, n), "%s: other candidates, the first %s", text, n ? ids[0] : "none");
  fl_status status = fl_resolve_op(host, "op", kDLCPU, &resolution);
  if ((expected = error_text(winner)))
    ck_assert_msg(status == FL_ENOIMPL && says(fl_error_message(), expected), "%s: '%s'", text, fl_error_message());
  else
    ck_assert_msg(!status && !strcmp(resolution.impl_id, json_string_value(winner)), "%s: %s", text,
                  status ? fl_error_message() : resolution.impl_id);
  fl_explanation_free(why);
  fl_policy_release(policy);
  fl_host_destroy(host);
}

START_TEST(S1_S2_S4_resolve_as_the_peer) {
  size_t i;
  json_t *row, *rows = cases("resolve");
  json_array_foreach(rows, i, row) {
    char *text = json_dumps(row, 0);
    check_resolve(row, text);
    free(text);
  }
  json_decref(rows);
}
END_TEST

START_TEST(S2_ties_as_the_peer) {
  size_t i, j;
  json_t *row, *item, *rows = cases("tie");
  json_array_foreach(rows, i, row) {
    fl_host *host = test_host(NULL, 0);
    const char *ids[MAX_IMPLS];
    test_impl impls[MAX_IMPLS];
    fl_explanation *why;
    test_op(host, "op");
    json_array_foreach(json_object_get(row, "impls"), j, item) {
      const char *kind = json_string_value(json_array_get(item, 1));
      impls[j] = (test_impl){.id = json_string_value(json_array_get(item, 0))};
      fl_impl impl = {
          .size = sizeof impl,
          .op_name = "op",
          .impl_id = impls[j].id,
          .kind = !strcmp(kind, "vendor")   ? FL_KIND_VENDOR
                  : !strcmp(kind, "flagos") ? FL_KIND_DEFAULT
                                            : FL_KIND_REFERENCE,
          .priority = (int32_t)json_integer_value(json_array_get(item, 2)),
          .flags = FL_IMPL_PRIORITY_ZERO,
          .vendor = json_string_value(json_array_get(item, 3)),
          .devices = FL_DEVICE_ANY,
          .fn = (fl_kernel_fn)(void *)abort,
      };
      ck_ok(fl_register_impl(host, &impl));
    }
    ck_ok(fl_explain(host, "op", kDLCPU, &why));
    uint32_t n = candidates(why, ids);
    ck_assert_msg(same_list(json_object_get(row, "candidates"), ids, n), "row %zu: the first is %s", i,
                  n ? ids[0] : "none");
    fl_explanation_free(why);
    fl_host_destroy(host);
  }
  json_decref(rows);
}
END_TEST

/* What a step gave: the impl that ran or was resolved, or the error. */
static fl_status do_step(fl_host *host, const char *step, const char **result, fl_resolution *resolution) {
  char prefer[32];
  int strict;
  fl_status status;
  *result = NULL;
  if (!strcmp(step, "resolve")) {
    status = fl_resolve_op(host, "op", kDLCPU, resolution);
    *result = status ? NULL : resolution->impl_id;
  } else if (!strcmp(step, "clear_failed_impls")) {
    fl_clear_failed_impls(host, NULL);
    status = FL_OK;
  } else if (!strcmp(step, "bump_policy_epoch")) {
    fl_bump_policy_epoch(host);
    status = FL_OK;
  } else if (sscanf(step, "call prefer=%31s strict=%d", prefer, &strict) == 2) {
    fl_policy_fields fields = {.size = sizeof fields, .prefer = prefer, .strict = strict};
    fl_policy *policy;
    fl_scope scope;
    ck_ok(fl_policy_create(&fields, &policy));
    ck_ok(fl_scope_enter(host, policy, &scope));
    status = test_call(host, "op", result);
    ck_ok(fl_scope_leave(&scope));
    fl_policy_release(policy);
  } else {
    ck_assert_msg(!strcmp(step, "call"), "unknown step '%s'", step);
    status = test_call(host, "op", result);
  }
  return status;
}

static void check_logs(const json_t *expected, const char *where) {
  char lines[8192] = "";
  size_t i, used = 0;
  json_t *line;
  json_array_foreach(expected, i, line) used +=
      (size_t)snprintf(lines + used, sizeof lines - used, "%s %s\n", json_string_value(json_array_get(line, 0)),
                       json_string_value(json_array_get(line, 1)));
  ck_assert_msg(!strcmp(lines, test_log.text), "%s: logged\n%sexpected\n%s", where, test_log.text, lines);
}

/* The memory of failures after a step, in any order. */
static void check_failed(fl_host *host, const json_t *expected, const char *where) {
  fl_failed_impls *failed;
  const json_t *ids = json_object_get(expected, "op");
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_msg(failed->n == json_array_size(ids), "%s: %u failed", where, failed->n);
  for (uint32_t i = 0; i < failed->n; i++)
    ck_assert_msg(in_list(ids, fl_failed_impl_at(failed, i)->impl_id), "%s: %s failed", where,
                  fl_failed_impl_at(failed, i)->impl_id);
  fl_failed_impls_free(failed);
}

static void check_call(const json_t *row, size_t number) {
  size_t i;
  json_t *step;
  for (int j = 0; j < 4; j++) {
    four[j].unavailable = false;
    four[j].status = in_list(json_object_get(row, "failing"), four[j].id) ? FL_EDEVICE : FL_OK;
  }
  fl_host *host = host_of(false);
  fl_policy *policy = policy_of(row);
  ck_ok(fl_set_global_policy(host, policy));
  json_array_foreach(json_object_get(row, "steps"), i, step) {
    char where[128];
    const char *result, *name = json_string_value(json_object_get(step, "step")), *expected = error_text(step);
    fl_resolution resolution = {.size = sizeof resolution};
    snprintf(where, sizeof where, "row %zu, step %zu (%s)", number, i, name);
    test_log_clear();
    fl_status status = do_step(host, name, &result, &resolution);
    if (expected)
      ck_assert_msg(status != FL_OK && says(fl_error_message(), expected), "%s: '%s', expected '%s'", where,
                    status ? fl_error_message() : result, expected);
    else
      ck_assert_msg(!status, "%s: %s", where, fl_error_message());
    const char *ok = json_string_value(json_object_get(step, "ok"));
    if (ok)
      ck_assert_msg(result && !strcmp(result, ok), "%s: %s, expected %s", where, result ? result : "nothing", ok);
    check_logs(json_object_get(step, "log"), where);
    check_failed(host, json_object_get(step, "failed"), where);
  }
  fl_policy_release(policy);
  fl_host_destroy(host);
}

START_TEST(F1_F2_F3_F4_calls_as_the_peer) {
  size_t i;
  json_t *row, *rows = cases("call");
  json_array_foreach(rows, i, row) check_call(row, i);
  json_decref(rows);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, S1_S2_S4_resolve_as_the_peer);
  tcase_add_test(tests, S2_ties_as_the_peer);
  tcase_add_test(tests, F1_F2_F3_F4_calls_as_the_peer);
}

int main(void) {
  return run_suite("conformance_dispatch", add_tests, 120);
}
