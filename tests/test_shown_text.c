/* Text of others, plugins, files and variables, as it is shown: bounded, and without commands to a terminal. */
#include "core/support.h"
#include "tests/fixture.h"

#include <jansson.h>

#define OVERRIDE "\xe2\x80\xae" /* U+202E: what follows is written from right to left */

static const char *shown(const char *text, size_t size, bool lines) {
  static char room[64];
  ck_assert_uint_le(size, sizeof room);
  size_t length = fl_show(room, size, text, lines);
  ck_assert_uint_eq(length, size ? strlen(room) : 0);
  return room;
}

START_TEST(what_is_not_printable_is_shown_by_its_bytes) {
  static const struct {
    const char *text, *shown;
  } cases[] = {
      {"", ""},
      {"plain, r\u00e9d, \u4e2d, \U0001f600 and \\x1b", "plain, r\u00e9d, \u4e2d, \U0001f600 and \\x1b"},
      {"a\033[31m", "a\\x1b[31m"},
      {"a\nb\t\x7f", "a\\x0ab\\x09\\x7f"},
      {"a\xc2\x9b"
       "b",
       "a\\xc2\\x9bb"},
      {OVERRIDE "lair", "\\xe2\\x80\\xaelair"},
      {"\u2066x\u2069\u061c", "\\xe2\\x81\\xa6x\\xe2\\x81\\xa9\\xd8\\x9c"},
      {"\u2028", "\\xe2\\x80\\xa8"},
      {"\xff\xc0\x80", "\\xff\\xc0\\x80"}, /* no UTF-8, and NUL in two bytes */
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* half of a surrogate pair */
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
      {"\xe2\x80", "\\xe2\\x80"}, /* cut */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_str_eq(shown(cases[i].text, 64, false), cases[i].shown);
    char again[64];
    strcpy(again, shown(cases[i].text, 64, false));
    fl_show(again, sizeof again, again, false);
    ck_assert_str_eq(again, cases[i].shown);
  }
  ck_assert_str_eq(shown("a\nb\r", 64, true), "a\nb\\x0d");
}
END_TEST

START_TEST(what_does_not_fit_is_left_out_between_characters) {
  ck_assert_str_eq(shown("123456789", 10, false), "123456789");
  ck_assert_str_eq(shown("1234567890", 10, false), "123456\u2026");
  ck_assert_str_eq(shown("\u4e2d\u4e2d\u4e2d\u4e2d", 10, false), "\u4e2d\u4e2d\u2026");
  ck_assert_str_eq(shown("12\033\033", 10, false), "12\\x1b\u2026");
  ck_assert_str_eq(shown("12345", 3, false), "12");
  ck_assert_str_eq(shown("12345", 1, false), "");
  shown("12345", 0, false);
}
END_TEST

START_TEST(a_message_and_a_log_line_are_shown_text) {
  fl_log log = {.fn = test_log_capture, .user = &test_log};
  fl_error(FL_EINVAL, "line 1\nname '%s'", "\033]0;x\a" OVERRIDE);
  ck_assert_str_eq(fl_error_message(), "line 1\nname '\\x1b]0;x\\x07\\xe2\\x80\\xae'");
  fl_error(FL_EINVAL, "once more: %s", fl_error_message());
  ck_assert_str_eq(fl_error_message(), "once more: line 1\nname '\\x1b]0;x\\x07\\xe2\\x80\\xae'");
  test_log_clear();
  fl_log_line(&log, FL_LOG_ERROR, "a\r\xff");
  ck_assert_str_eq(test_log.text, "ERROR a\\x0d\\xff\n");
}
END_TEST

START_TEST(what_a_plugin_logs_is_one_line_of_its_own) {
  fl_log log = {.fn = test_log_capture, .user = &test_log};
  test_log_clear();
  fl_log_of_plugin(&log, FL_LOG_INFO, "acme", "ready\nERROR plugin cuda failed");
  fl_log_of_plugin(&log, FL_LOG_INFO, "acme", NULL);
  ck_assert_str_eq(test_log.text, "INFO plugin acme: ready\\x0aERROR plugin cuda failed\nINFO plugin acme: \n");
}
END_TEST

START_TEST(json_of_any_bytes_is_json_that_shows_nothing_else) {
  fl_text json = {0};
  json_error_t error;
  fl_text_add_json(&json, "\"\\\xff" OVERRIDE "\x7f\n\u4e2d\xe2\x80");
  ck_assert_str_eq(fl_text_get(&json), "\"\\\"\\\\\\ufffd\\u202e\\u007f\\u000a\u4e2d\\ufffd\\ufffd\"");
  json_t *value = json_loads(fl_text_get(&json), JSON_DECODE_ANY, &error);
  ck_assert_msg(value != NULL, "%s", error.text);
  ck_assert_str_eq(json_string_value(value), "\"\\\ufffd" OVERRIDE "\x7f\n\u4e2d\ufffd\ufffd");
  json_decref(value);
  fl_text_free(&json);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- what plugins say */

static char *endless;

static bool says_too_much(void *self, const char **reason) {
  (void)self;
  *reason = endless;
  return false;
}

static fl_status do_nothing(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

START_TEST(a_reason_of_16_megabytes_is_cut_and_shown) {
  enum { SIZE = 16 << 20 };
  fl_explanation *explanation;
  fl_host *host = test_host(NULL, 0);
  endless = malloc(SIZE + 1);
  ck_assert_ptr_nonnull(endless);
  memset(endless, 'x', SIZE);
  memcpy(endless, OVERRIDE, 3);
  endless[SIZE] = 0;
  ck_ok(fl_register_op(host, &(fl_op_def){.size = sizeof(fl_op_def), .schema = "op(Tensor x) -> Tensor out"}));
  ck_ok(fl_register_impl(host, &(fl_impl){.size = sizeof(fl_impl),
                                          .op_name = "op",
                                          .impl_id = "reference.loud",
                                          .kind = FL_KIND_REFERENCE,
                                          .devices = FL_DEVICE(kDLCPU),
                                          .is_available = says_too_much,
                                          .fn = do_nothing}));
  ck_ok(fl_explain(host, "op", kDLCPU, &explanation));
  const char *reason = fl_explained_at(explanation, 0)->reason;
  ck_contains(reason, "\\xe2\\x80\\xaexxx");
  ck_contains(reason, "x\u2026");
  ck_assert_uint_lt(strlen(reason), 1024);
  fl_explanation_free(explanation);
  fl_host_destroy(host);
  free(endless);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, what_is_not_printable_is_shown_by_its_bytes);
  tcase_add_test(tests, what_does_not_fit_is_left_out_between_characters);
  tcase_add_test(tests, a_message_and_a_log_line_are_shown_text);
  tcase_add_test(tests, what_a_plugin_logs_is_one_line_of_its_own);
  tcase_add_test(tests, json_of_any_bytes_is_json_that_shows_nothing_else);
  tcase_add_test(tests, a_reason_of_16_megabytes_is_cut_and_shown);
}

int main(void) {
  return run_suite("shown text", add_tests, 30);
}
