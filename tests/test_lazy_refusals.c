/* Plugins with a list (FL_PLUGIN_OPS) that does not hold what it says, or that fail when they are loaded at last. */
#include "tests/listed.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

START_TEST(R3_a_row_of_an_op_that_is_not_listed_is_refused) {
  start_with("lazy_other");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_other"), "failed");
  ck_contains(reason, "op 'lazy_b': its FL_PLUGIN_OPS does not list 'lazy_b', so the host would not look for it there; "
                      "did you mean 'lazy_a'?");
}
END_TEST

START_TEST(a_component_of_a_plugin_with_a_list_is_refused) {
  start_with("lazy_layer");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_layer"), "failed");
  ck_contains(reason,
              "component 'AcmeAttention': a plugin with FL_PLUGIN_OPS brings ops alone: the host would not look "
              "for layer 'AcmeAttention' there");
}
END_TEST

START_TEST(a_platform_that_the_file_does_not_speak_of_is_refused) {
  start_with("lazy_platform_unsaid");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_platform_unsaid"), "failed");
  ck_contains(reason, "component 'lazynpu': a plugin with FL_PLUGIN_OPS brings ops alone: the host would not look for "
                      "platform 'lazynpu' there; say so with FL_PLUGIN_PLATFORM");
}
END_TEST

START_TEST(a_platform_of_another_name_than_the_file_says_is_refused) {
  start_with("lazy_platform_other");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains((status_of("lazy_platform_other"), reason),
              "component 'other': a plugin with FL_PLUGIN_OPS brings ops and the platform 'lazynpu' alone: the host "
              "would not look for platform 'other' there");
}
END_TEST

START_TEST(an_op_that_is_listed_in_vain_is_warned_of) {
  start_with("lazy_missing");
  ck_assert_ptr_null(fl_find_op(host, "lazy_b"));
  ck_assert_str_eq(fl_error_message(), "no op 'lazy_b'; did you mean 'lazy_a'?");
  ck_assert_int_eq(
      test_log_count("WARNING plugin lazy_missing: its FL_PLUGIN_OPS lists 'lazy_b', of which it registered "
                     "nothing"),
      1);
  expect_run("lazy_a", "lazy_missing");
}
END_TEST

START_TEST(D4_a_plugin_that_fails_late_is_recorded_and_named) {
  start_with("lazy_fails lazy_builtin");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains(fl_error_message(),
              "no op 'lazy_a': plugin 'lazy_fails', which lists it, failed: register_builtins returned "
              "FL_EINTERNAL: no licence");
  ck_assert_str_eq(status_of("lazy_fails"), "failed");
  ck_contains(test_log.text, "ERROR plugin lazy_fails failed: ");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_int_eq(registrations("lazy_fails"), 1); /* it is not tried again and again */
}
END_TEST

/* Others have the op: who asks for it does not hear of the failure. */
START_TEST(D4_a_plugin_that_fails_late_does_not_harm_the_others) {
  start_with("lazy_fails lazy_a");
  ck_assert_ptr_nonnull(fl_find_op(host, "lazy_a"));
  ck_assert_int_eq(fl_error_status(), FL_OK);
  ck_assert_str_eq(fl_error_message(), "");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

START_TEST(a_file_that_became_writable_for_everyone_is_refused_when_it_is_loaded) {
  const char *copy = copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_int_eq(chmod(copy, 0666), 0);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains(fl_error_message(), "it is world-writable (mode 0666)");
  ck_assert(!is_open(copy));
}
END_TEST

START_TEST(a_file_that_is_gone_is_named) {
  const char *copy = copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_int_eq(unlink(copy), 0);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_a"), "failed");
  ck_contains(reason, "cannot be opened: No such file or directory");
}
END_TEST

/* An upgrade while the process runs: what counts is the file that is opened. */
START_TEST(a_file_that_came_back_is_loaded_after_it_is_discovered) {
  copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_int_eq(rename(in_scratch("plugins/lazy_a.so"), in_scratch("away.so")), 0);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_a"), "failed");
  ck_assert_int_eq(rename(in_scratch("away.so"), in_scratch("plugins/lazy_a.so")), 0);
  ck_ok(fl_discover_plugins(host, NULL));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

START_TEST(a_file_that_was_replaced_is_judged_anew) {
  copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_int_eq(unlink(in_scratch("plugins/lazy_a.so")), 0);
  copy_to_scratch(listed("lazy_better"), "plugins/lazy_a.so");
  expect_run("lazy_a", "lazy_better");
  ck_assert_str_eq(status_of("lazy_better"), "loaded");
}
END_TEST

static const struct {
  const char *name, *reason;
} bad_lists[] = {
    {"lazy_empty", "damaged 'flhost' note: name 1 of FL_PLUGIN_OPS, '', is empty"},
    {"lazy_gap", "damaged 'flhost' note: name 2 of FL_PLUGIN_OPS, '', is empty"},
    {"lazy_twice", "damaged 'flhost' note: name 3 of FL_PLUGIN_OPS, 'lazy_a', stands there twice"},
    {"lazy_odd", "damaged 'flhost' note: name 2 of FL_PLUGIN_OPS, 'lazy-b', is not the name of an op"},
    {"lazy_signs_none",
     "damaged 'flhost' note: FL_PLUGIN_PLATFORM is not the name of a platform, a colon, and signs of "
     "it (4096 bytes at most)"},
    {"lazy_signs_unnamed",
     "damaged 'flhost' note: FL_PLUGIN_PLATFORM is not the name of a platform, a colon, and signs "
     "of it (4096 bytes at most)"},
    {"lazy_signs_twice", "damaged 'flhost' note: it has FL_PLUGIN_PLATFORM twice"},
    {"lazy_huge", "damaged 'flhost' note: FL_PLUGIN_OPS has 69999 bytes, 65536 at most"},
};

START_TEST(D4_a_bad_list_is_a_failed_plugin_before_its_code_runs) {
  start_with(bad_lists[_i].name);
  ck_assert_str_eq(status_of(bad_lists[_i].name), "failed");
  ck_assert_str_eq(reason, bad_lists[_i].reason);
  ck_assert(!is_open(listed(bad_lists[_i].name)));
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
}
END_TEST

/* -------------------------------------------------------------------------------------------- failed for the moment */

static struct rlimit all_descriptors;

/* No descriptor is free until this is called with false. */
static void use_up_descriptors(bool none) {
  struct rlimit limit;
  if (none) {
    int first = dup(STDIN_FILENO);
    close(first);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all_descriptors), 0);
    limit = all_descriptors;
    limit.rlim_cur = (rlim_t)first;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  } else {
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all_descriptors), 0);
  }
}

START_TEST(D4_a_plugin_that_lacked_descriptors_is_tried_again_at_the_next_look) {
  start_with("lazy_a");
  use_up_descriptors(true);
  for (int i = 0; i < 3; i++) {
    ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
    ck_contains(fl_error_message(), "no op 'lazy_a': plugin 'lazy_a', which lists it, failed: not loaded so far");
  }
  use_up_descriptors(false);
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_contains(reason, "not loaded so far, and tried again when one of its ops is looked for: ");
  ck_contains(reason, "Too many open files");
  expect_run("lazy_a", "lazy_a");
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_assert_str_eq(reason, "");
  const char *first = strstr(test_log.text, "WARNING plugin lazy_a is not loaded so far");
  ck_assert_ptr_nonnull(first);
  ck_assert_ptr_null(strstr(strchr(first, '\n'), "is not loaded so far"));
}
END_TEST

/* The host's own op exists without it, and is not taken for complete. */
START_TEST(D4_a_built_in_op_gets_the_plugin_that_lacked_descriptors_later) {
  start_with("lazy_builtin");
  use_up_descriptors(true);
  ck_assert_ptr_nonnull(fl_find_op(host, "relu2"));
  use_up_descriptors(false);
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert_ptr_nonnull(fl_find_op(host, "relu2"));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
}
END_TEST

/* Its note could not be read, so any op may be one of it. */
START_TEST(D4_a_plugin_that_could_not_be_read_for_want_of_descriptors_is_tried_again) {
  start_with("lazy_again");
  use_up_descriptors(true);
  ck_assert_int_eq(fl_load_plugin(host, listed("lazy_a")), FL_EPLUGIN);
  use_up_descriptors(false);
  ck_contains(fl_error_message(), "Too many open files");
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

START_TEST(D4_a_plugin_that_lacked_memory_is_tried_again) {
  start_with("lazy_poor");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_poor"), "deferred");
  ck_contains(reason, "register_builtins returned FL_ENOMEM");
  expect_run("lazy_a", "lazy_poor");
}
END_TEST

/* ------------------------------------------------------------------------------------------ what does not come back */

/* In the engine, as where no process can be started to judge plugins. */
static void start_without_judging(const char *names, fl_log_fn log) {
  ck_ok(create(modules_of(names), (const char *const[]){"VLLM_FL_PROBE=off", NULL}, log, &host));
}

static void *look_for_lazy_a(void *argument) {
  (void)argument;
  fl_find_op(host, "lazy_a");
  return host;
}

static void look_in_a_thread_that_ends(void) {
  void *came_back = host;
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, look_for_lazy_a, NULL), 0);
  ck_assert_int_eq(pthread_join(thread, &came_back), 0);
  ck_assert_ptr_null(came_back);
}

/* The lock of loading is not that thread's for ever. */
START_TEST(D4_a_plugin_that_ends_the_thread_while_it_registers_is_a_failed_one) {
  start_without_judging("lazy_ends lazy_again", test_log_capture);
  look_in_a_thread_that_ends();
  ck_assert_str_eq(status_of("lazy_ends"), "failed");
  ck_assert_str_eq(reason,
                   "register_builtins did not return: it ended the thread (pthread_exit) or threw an exception");
  expect_run("lazy_again_a", "lazy_again");
  ck_ok(fl_load_plugin(host, listed("lazy_a")));
  expect_run("lazy_a", "lazy_a");
}
END_TEST

/* In a process of its own: it can open no library any more, and not even exit as others do. */
START_TEST(D4_a_plugin_that_ends_the_thread_in_an_initialiser_is_a_failed_one) {
  pid_t child = fork();
  if (!child) {
    alarm(30);
    start_without_judging("lazy_ends_at_start lazy_again", test_log_capture);
    look_in_a_thread_that_ends();
    bool failed = !strcmp(status_of("lazy_ends_at_start"), "failed") &&
                  strstr(reason, "an initialiser of it did not return") && !fl_find_op(host, "lazy_again_a") &&
                  strstr(fl_error_message(), "no library can be opened in this process any more");
    kill(getpid(), failed ? SIGKILL : SIGABRT);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child failed: status %x", (unsigned)status);
}
END_TEST

/* What a process that looks for lazy_a of a plugin wrote to its standard error. */
static const char *words_of_process_with(const char *name) {
  static char words[4096];
  int log = open(in_scratch("log"), O_RDWR | O_CREAT, 0644), status;
  pid_t child = fork();
  if (!child) {
    dup2(log, STDERR_FILENO);
    start_without_judging(name, NULL);
    fl_find_op(host, "lazy_a");
    kill(getpid(), SIGKILL); /* it came back */
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(WIFEXITED(status), !strcmp(name, "lazy_exits"));
  ssize_t n = pread(log, words, sizeof words - 1, 0);
  close(log);
  words[n > 0 ? n : 0] = 0;
  return words;
}

/* With a status that says that all is well, and no word of its own. */
START_TEST(D4_a_plugin_that_ends_the_process_while_it_is_loaded_is_named) {
  ck_contains(words_of_process_with("lazy_exits"),
              "[ERROR] [flhost] plugin lazy_exits ends the process (exit) while it is being loaded\n");
}
END_TEST

START_TEST(a_plugin_that_ends_a_process_of_its_own_is_not_named) {
  const char *words = words_of_process_with("lazy_forks");
  ck_contains(words, "plugin lazy_forks loaded.");
  ck_assert_ptr_null(strstr(words, "ends the process"));
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, R3_a_row_of_an_op_that_is_not_listed_is_refused);
  tcase_add_test(tests, a_component_of_a_plugin_with_a_list_is_refused);
  tcase_add_test(tests, a_platform_that_the_file_does_not_speak_of_is_refused);
  tcase_add_test(tests, a_platform_of_another_name_than_the_file_says_is_refused);
  tcase_add_test(tests, an_op_that_is_listed_in_vain_is_warned_of);
  tcase_add_test(tests, D4_a_plugin_that_fails_late_is_recorded_and_named);
  tcase_add_test(tests, D4_a_plugin_that_fails_late_does_not_harm_the_others);
  tcase_add_test(tests, a_file_that_became_writable_for_everyone_is_refused_when_it_is_loaded);
  tcase_add_test(tests, a_file_that_is_gone_is_named);
  tcase_add_test(tests, a_file_that_came_back_is_loaded_after_it_is_discovered);
  tcase_add_test(tests, a_file_that_was_replaced_is_judged_anew);
  tcase_add_loop_test(tests, D4_a_bad_list_is_a_failed_plugin_before_its_code_runs, 0,
                      sizeof bad_lists / sizeof *bad_lists);
  tcase_add_test(tests, D4_a_plugin_that_lacked_descriptors_is_tried_again_at_the_next_look);
  tcase_add_test(tests, D4_a_built_in_op_gets_the_plugin_that_lacked_descriptors_later);
  tcase_add_test(tests, D4_a_plugin_that_could_not_be_read_for_want_of_descriptors_is_tried_again);
  tcase_add_test(tests, D4_a_plugin_that_lacked_memory_is_tried_again);
  tcase_add_test(tests, D4_a_plugin_that_ends_the_thread_while_it_registers_is_a_failed_one);
  tcase_add_test(tests, D4_a_plugin_that_ends_the_thread_in_an_initialiser_is_a_failed_one);
  tcase_add_test(tests, D4_a_plugin_that_ends_the_process_while_it_is_loaded_is_named);
  tcase_add_test(tests, a_plugin_that_ends_a_process_of_its_own_is_not_named);
}

int main(void) {
  return run_suite("lazy_refusals", add_tests, 20);
}
