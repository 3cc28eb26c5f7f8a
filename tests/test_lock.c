/* plugins.lock: what it does not list, or lists otherwise, is not loaded; and what makes and checks one. */
#include "core/plugins/lock.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum { NO_MOUNT = 10 };

static fl_host *host;
static fl_plugins *plugins;
static char log_text[65536];

static void collect(void *user, int level, const char *line) {
  (void)user, (void)level;
  size_t length = strlen(log_text);
  snprintf(log_text + length, sizeof log_text - length, "%s\n", line);
}

static void set_up(void) {
  scratch_make();
  ck_assert_int_eq(mkdir(in_scratch("plugins"), 0755), 0);
}

static void tear_down(void) {
  fl_plugins_free(plugins);
  fl_host_destroy(host);
  scratch_remove();
}

static void put(const char *plugin, const char *name) {
  char from[64], to[64];
  snprintf(from, sizeof from, "tests/plugins/%s.so", plugin);
  snprintf(to, sizeof to, "plugins/%s.so", name);
  copy_to_scratch(built(from), to);
}

static const char *digest_of(const char *name) {
  static char sha256[FL_SHA256_TEXT];
  char file[64];
  snprintf(file, sizeof file, "plugins/%s.so", name);
  ck_ok(fl_digest_file(in_scratch(file), 0, 0, sha256));
  return sha256;
}

/* Adds an entry to the lock, which begins with the first; `more` are further keys. */
static void list(const char *name, const char *more) {
  FILE *file = fopen(in_scratch("plugins.lock"), "a");
  ck_assert_ptr_nonnull(file);
  fprintf(file, "%s  - file: plugins/%s.so\n    sha256: %s\n%s", ftell(file) ? "" : "plugins:\n", name, digest_of(name),
          more);
  ck_assert_int_eq(fclose(file), 0);
}

/* A host that looks into the plugins' directory, and into the lock if there is a variable for it. */
static fl_status create(bool with_lock) {
  char path[2 * PATH_MAX], lock[2 * PATH_MAX];
  snprintf(path, sizeof path, "VLLM_FL_PLUGIN_PATH=%s", in_scratch("plugins"));
  snprintf(lock, sizeof lock, "VLLM_FL_PLUGINS_LOCK=%s", in_scratch("plugins.lock"));
  const char *environment[] = {path, "VLLM_FL_PLATFORM=cpu", with_lock ? lock : NULL, NULL};
  fl_host_options options = {.size = sizeof options, .environment = environment, .log = collect};
  return fl_host_create(&options, &host);
}

static const fl_plugin_info *info_of(const char *file) {
  fl_plugins_free(plugins);
  plugins = NULL;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  for (uint32_t i = 0; i < plugins->n; i++)
    if (!strcmp(strrchr(fl_plugin_at(plugins, i)->file, '/') + 1, file))
      return fl_plugin_at(plugins, i);
  ck_abort_msg("no plugin %s", file);
  return NULL;
}

static void expect(const char *file, const char *status, const char *reason) {
  const fl_plugin_info *info = info_of(file);
  ck_assert_str_eq(info->status, status);
  ck_contains(info->reason, reason);
}

/* -------------------------------------------------------------------------------------------------------- judging */

START_TEST(without_a_lock_everything_is_loaded) {
  put("good", "good");
  ck_ok(create(false));
  expect("good.so", "loaded", "");
}
END_TEST

START_TEST(D8_what_a_lock_does_not_list_is_not_loaded) {
  char words[3 * PATH_MAX];
  put("good", "good");
  put("unavailable", "other");
  list("good", "");
  ck_ok(create(true));
  expect("good.so", "loaded", "");
  snprintf(words, sizeof words,
           "plugins.lock '%s' does not list it, so it is not loaded; 'flhost lock' prints what is there now",
           in_scratch("plugins.lock"));
  expect("other.so", "failed", words);
}
END_TEST

START_TEST(D8_what_differs_from_a_lock_is_refused_with_both_digests) {
  char before[FL_SHA256_TEXT], words[3 * PATH_MAX];
  put("good", "good");
  list("good", "");
  strcpy(before, digest_of("good"));
  put("good_rebuilt", "good");
  ck_ok(create(true));
  snprintf(words, sizeof words,
           "it is another file than plugins.lock expects: its SHA-256 is %s, '%s', line 2, has %s; 'flhost lock' "
           "prints what is there now",
           digest_of("good"), in_scratch("plugins.lock"), before);
  expect("good.so", "failed", words);
  ck_assert_ptr_null(fl_find_op(host, "test_scale"));
}
END_TEST

START_TEST(a_link_is_listed_by_what_it_leads_to) {
  put("good", "good");
  list("good", "");
  ck_assert_int_eq(rename(in_scratch("plugins/good.so"), in_scratch("good.so.1")), 0);
  ck_assert_int_eq(symlink("../good.so.1", in_scratch("plugins/good.so")), 0);
  ck_ok(create(true));
  expect("good.so", "loaded", "");
}
END_TEST

START_TEST(D8_a_deferred_plugins_digest_is_compared_when_it_is_loaded) {
  put("listed/lazy_a", "lazy");
  list("lazy", "");
  ck_ok(create(true));
  expect("lazy.so", "deferred", "until one of its ops");
  put("listed/lazy_better", "lazy");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  expect("lazy.so", "failed", "it is another file than plugins.lock expects");
}
END_TEST

/* Also when it was put there only after the host had started. */
START_TEST(a_lock_counts_for_what_is_loaded_from_then_on) {
  put("listed/lazy_a", "lazy");
  put("good", "good");
  list("good", "");
  list("lazy", "");
  ck_ok(create(true));
  ck_assert_int_eq(truncate(in_scratch("plugins.lock"), 0), 0);
  list("good", "");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  expect("lazy.so", "failed", "does not list it");
}
END_TEST

START_TEST(D8_ops_that_are_not_allowed_are_refused_rows) {
  put("good", "good");
  list("good", "    ops: [rms_norm, gelu]\n");
  ck_ok(create(true));
  expect("good.so", "failed", "op 'test_scale': plugins.lock '");
  expect("good.so", "failed", "does not allow it the op 'test_scale'; its ops there are: rms_norm,gelu");
}
END_TEST

START_TEST(kinds_that_are_not_allowed_are_refused_rows) {
  put("duplicate_skip", "some");
  put("platform_a", "platform");
  list("some", "    ops: [test_scale]\n    kinds: [vendor]\n");
  list("platform", "    kinds: [flagos, vendor, reference, layer]\n");
  ck_ok(create(true));
  expect("some.so", "loaded", "impl 'reference.once' of op 'test_scale': plugins.lock '");
  expect("some.so", "loaded", "does not allow it the kind 'reference'");
  expect("platform.so", "failed", "does not allow it the kind 'platform'");
}
END_TEST

START_TEST(all_ops_and_kinds_are_allowed_by_a_word) {
  put("good", "good");
  list("good", "    ops: all\n    kinds: all\n");
  ck_ok(create(true));
  expect("good.so", "loaded", "");
  ck_assert_uint_eq(info_of("good.so")->impls, 2);
}
END_TEST

START_TEST(an_exception_for_memory_has_to_be_listed) {
  put("executable_stack", "stack");
  list("stack", "    allow: [text-relocations]\n");
  ck_ok(create(true));
  expect("stack.so", "failed", "it asks for an executable stack");
  fl_host_destroy(host);
  host = NULL;
  ck_assert_int_eq(truncate(in_scratch("plugins.lock"), 0), 0);
  list("stack", "    allow: [executable-stack]\n");
  fl_lock lock;
  ck_ok(fl_lock_read(in_scratch("plugins.lock"), &lock));
  ck_assert(lock.entries[0].executable_stack && !lock.entries[0].text_relocations);
  fl_lock_free(&lock);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- a broken lock */

#define DIGEST "0000000000000000000000000000000000000000000000000000000000000000"

static const struct {
  const char *text, *words;
} broken[] = {
    {"", ":1:1: expected a mapping: 'plugins:' and a list; 'flhost lock' writes one"},
    {"- a\n", ":1:1: expected a mapping"},
    {"plugin: []\n", ":1:1: unknown key 'plugin', expected 'plugins'"},
    {"plugins: 3\n", ":1:10: 'plugins': expected a list"},
    {"plugins: []\nplugins: []\n", ":2:1: a second key 'plugins'"},
    {"plugins: [a]\n", ":1:11: found a string, expected a mapping: file, sha256, ops, kinds"},
    {"plugins:\n- sha256: " DIGEST "\n", ":2:3: 'file' is missing"},
    {"plugins:\n- file: a.so\n", ":2:3: 'sha256' is missing"},
    {"plugins:\n- {file: [a], sha256: " DIGEST "}\n", ":2:10: 'file': expected a non-empty string"},
    {"plugins:\n- {file: a, sha256: abc}\n",
     ":2:21: 'sha256': found 'abc', expected 64 of the digits 0-9 and a-f, as 'sha256sum FILE' prints them"},
    {"plugins:\n- {file: a, sha257: " DIGEST "}\n",
     ":2:13: unknown key 'sha257', expected file, sha256, ops, kinds or allow; did you mean 'sha256'?"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", file: b}\n", "'file' stands twice"},
    {"plugins:\n- {file: a, sha256: " DIGEST "}\n- {file: a, sha256: " DIGEST "}\n",
     ":3:10: 'a' is listed before, in line 2"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", ops: rms_norm}\n", "'ops': expected a list, or the word all"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", ops: ['a,b']}\n", "'ops': 'a,b' is not the name of an op"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", kinds: [vendors]}\n",
     "'kinds': found 'vendors', expected \"flagos\", \"vendor\", \"reference\", \"platform\", \"layer\", "
     "\"communicator\", \"attention_backend\", \"mla_attention_backend\", \"worker\" or \"model_runner\"; did you mean "
     "'vendor'?"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", allow: all}\n", "'allow': expected a list"},
    {"plugins:\n- {file: a, sha256: " DIGEST ", allow: [stack]}\n",
     "'allow': found 'stack', expected executable-stack or text-relocations"},
    {"plugins: [\n", "plugins.lock:"},
};
enum { N_BROKEN = sizeof broken / sizeof *broken };

/* An operator who wrote a lock wants nothing loaded that it does not list. */
START_TEST(D8_a_broken_lock_stops_the_start_and_says_where) {
  put("good", "good");
  write_text("plugins.lock", broken[_i].text);
  ck_assert_int_eq(create(true), FL_ECONFIG);
  ck_assert_msg(strstr(fl_error_message(), in_scratch("plugins.lock")) == fl_error_message(), "%s", fl_error_message());
  ck_contains(fl_error_message(), broken[_i].words);
}
END_TEST

START_TEST(a_lock_that_others_may_write_stops_the_start) {
  put("good", "good");
  list("good", "");
  ck_assert_int_eq(chmod(in_scratch("plugins.lock"), 0666), 0);
  ck_assert_int_eq(create(true), FL_ECONFIG);
  ck_contains(fl_error_message(), "it is world-writable (mode 0666)");
}
END_TEST

START_TEST(a_lock_that_is_not_there_stops_the_start) {
  put("good", "good");
  ck_assert_int_eq(create(true), FL_ECONFIG);
  ck_contains(fl_error_message(), "VLLM_FL_PLUGINS_LOCK: there is no file '");
  ck_assert_int_eq(symlink("nowhere", in_scratch("plugins.lock")), 0);
  ck_assert_int_eq(create(true), FL_ECONFIG);
  ck_contains(fl_error_message(), "cannot be opened: No such file or directory");
}
END_TEST

START_TEST(a_lock_that_breaks_later_lets_nothing_in) {
  put("listed/lazy_a", "lazy");
  list("lazy", "");
  ck_ok(create(true));
  write_text("plugins.lock", "plugins: 3\n");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  expect("lazy.so", "failed", "'plugins': expected a list");
}
END_TEST

START_TEST(a_relative_path_of_a_lock_is_refused) {
  static const char *const environment[] = {"VLLM_FL_PLUGINS_LOCK=plugins.lock", NULL};
  fl_host_options options = {.size = sizeof options, .environment = environment, .log = collect};
  ck_assert_int_eq(fl_host_create(&options, &host), FL_ECONFIG);
  ck_assert_str_eq(fl_error_message(), "VLLM_FL_PLUGINS_LOCK: 'plugins.lock' is relative to wherever the program "
                                       "starts, expected an absolute path");
}
END_TEST

START_TEST(a_lock_of_many_is_read_in_no_time) {
  char *text = malloc(1 << 20), *at = text + sprintf(text, "plugins:\n");
  for (int i = 0; i < 4000; i++)
    at += sprintf(at, "- {file: %d.so, sha256: %064d, ops: [a%d, b%d]}\n", i, i, i, i);
  write_text("plugins.lock", text);
  fl_lock lock;
  ck_ok(fl_lock_read(in_scratch("plugins.lock"), &lock));
  ck_assert_uint_eq(lock.n, 4000);
  ck_assert_str_eq(lock.entries[3999].allowed.ops, "a3999,b3999");
  fl_lock_free(&lock);
  for (int i = 4000; i < 5000; i++)
    at += sprintf(at, "- {file: %d.so, sha256: %064d}\n", i, i);
  write_text("plugins.lock", text);
  free(text);
  ck_assert_int_eq(fl_lock_read(in_scratch("plugins.lock"), &lock), FL_ECONFIG);
  ck_contains(fl_error_message(), "5000 plugins, 4096 at most");
}
END_TEST

/* ------------------------------------------------------------------------------------------------ the system's lock */

/* With a directory /etc of its own, and in it what the scratch directory has as "system.lock". */
static int with_system_lock(bool with_setting) {
  if (unshare(CLONE_NEWNS) || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) ||
      mount("none", "/etc", "tmpfs", 0, "mode=0755") || mkdir("/etc/flhost", 0755))
    return NO_MOUNT;
  size_t length;
  unsigned char *bytes = read_file(in_scratch("system.lock"), &length);
  FILE *file = fopen(FL_SYSTEM_LOCK, "w");
  if (!file || fwrite(bytes, 1, length, file) != length || fclose(file))
    return NO_MOUNT;
  free(bytes);
  if (create(with_setting))
    return EXIT_FAILURE;
  bool good = !strcmp(info_of("good.so")->status, "loaded"), other = !strcmp(info_of("other.so")->status, "loaded");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
  return 20 + good + 2 * other;
}

static int in_child(bool with_setting) {
  int status = 0;
  fflush(stdout);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child)
    _exit(with_system_lock(with_setting));
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(D8_the_systems_lock_counts_and_a_setting_only_narrows_it) {
  put("good", "good");
  put("unavailable", "other");
  char text[4 * PATH_MAX];
  snprintf(text, sizeof text, "plugins:\n- {file: '%s', sha256: %s}\n", in_scratch("plugins/good.so"),
           digest_of("good"));
  write_text("system.lock", text);
  list("good", "");
  list("other", "");
  int status = geteuid() ? NO_MOUNT : in_child(false);
  if (status == NO_MOUNT) {
    puts("skip: D8_the_systems_lock_counts_and_a_setting_only_narrows_it: no /etc of its own can be made");
    return;
  }
  ck_assert_int_eq(status, 21); /* good alone */
  ck_assert_int_eq(in_child(true), 21);
  write_text("system.lock", "plugins: []\n");
  ck_assert_int_eq(in_child(true), 20);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- report */

START_TEST(a_report_tells_what_differs) {
  fl_lock_report *report;
  static const char *const expected[][3] = {{"good.so", "changed", "its SHA-256 is "},
                                            {"other.so", "unlisted", "plugins.lock does not list it"},
                                            {"gone.so", "missing", "cannot be read: No such file or directory"}};
  put("good", "good");
  put("unavailable", "gone");
  list("good", "");
  list("gone", "");
  ck_assert_int_eq(remove(in_scratch("plugins/gone.so")), 0);
  put("unavailable", "other");
  put("good_rebuilt", "good");
  write_text("plugins/text.so", "a plugin that fails for another reason\n");
  ck_ok(create(true));
  ck_ok(fl_check_plugins_lock(host, NULL, &report));
  ck_assert_uint_eq(report->n, 4);
  for (uint32_t i = 0, j = 0; j < 3; i++) {
    const fl_locked_plugin *plugin = fl_locked_plugin_at(report, i);
    if (strstr(plugin->file, "text.so"))
      continue;
    ck_assert_str_eq(strrchr(plugin->file, '/') + 1, expected[j][0]);
    ck_assert_str_eq(plugin->status, expected[j][1]);
    ck_contains(plugin->reason, expected[j++][2]);
    ck_assert_str_eq(plugin->lock, in_scratch("plugins.lock"));
  }
  fl_lock_report_free(report);
}
END_TEST

START_TEST(without_a_lock_a_report_has_the_digests) {
  fl_lock_report *report;
  put("good", "good");
  write_text("plugins/text.so", "no plugin\n");
  ck_ok(create(false));
  ck_ok(fl_check_plugins_lock(host, "", &report));
  ck_assert_uint_eq(report->n, 1);
  ck_assert_str_eq(fl_locked_plugin_at(report, 0)->sha256, digest_of("good"));
  ck_assert_str_eq(fl_locked_plugin_at(report, 0)->status, "unlisted");
  ck_assert_ptr_null(fl_locked_plugin_at(report, 1));
  fl_lock_report_free(report);
  ck_assert_int_eq(fl_check_plugins_lock(host, NULL, &report), FL_ENOENT);
  ck_contains(fl_error_message(), "no plugins.lock is in force");
  ck_assert_int_eq(fl_check_plugins_lock(host, in_scratch("nowhere"), &report), FL_ENOENT);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, without_a_lock_everything_is_loaded);
  tcase_add_test(tests, D8_what_a_lock_does_not_list_is_not_loaded);
  tcase_add_test(tests, D8_what_differs_from_a_lock_is_refused_with_both_digests);
  tcase_add_test(tests, a_link_is_listed_by_what_it_leads_to);
  tcase_add_test(tests, D8_a_deferred_plugins_digest_is_compared_when_it_is_loaded);
  tcase_add_test(tests, a_lock_counts_for_what_is_loaded_from_then_on);
  tcase_add_test(tests, D8_ops_that_are_not_allowed_are_refused_rows);
  tcase_add_test(tests, kinds_that_are_not_allowed_are_refused_rows);
  tcase_add_test(tests, all_ops_and_kinds_are_allowed_by_a_word);
  tcase_add_test(tests, an_exception_for_memory_has_to_be_listed);
  tcase_add_loop_test(tests, D8_a_broken_lock_stops_the_start_and_says_where, 0, N_BROKEN);
  tcase_add_test(tests, a_lock_that_others_may_write_stops_the_start);
  tcase_add_test(tests, a_lock_that_is_not_there_stops_the_start);
  tcase_add_test(tests, a_lock_that_breaks_later_lets_nothing_in);
  tcase_add_test(tests, a_relative_path_of_a_lock_is_refused);
  tcase_add_test(tests, a_lock_of_many_is_read_in_no_time);
  tcase_add_test(tests, D8_the_systems_lock_counts_and_a_setting_only_narrows_it);
  tcase_add_test(tests, a_report_tells_what_differs);
  tcase_add_test(tests, without_a_lock_a_report_has_the_digests);
}

int main(void) {
  return run_suite("lock", add_tests, 60);
}
