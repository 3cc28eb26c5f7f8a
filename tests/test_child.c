/* fl_child_run: a child process with limits, in whatever circumstances the engine around it makes. */
#include "scratch.h"
#include "tests/fixture.h"

#include <errno.h>
#include <flhost/testing.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

/* What came through the channel. */
typedef struct heard {
  char text[4096];
  size_t length;
  int mode;
} heard;

static void receive(void *user, const void *data, size_t length) {
  heard *h = user;
  ck_assert_uint_lt(h->length + length, sizeof h->text);
  memcpy(h->text + h->length, data, length);
  h->length += length;
  h->text[h->length] = 0;
}

static fl_child_result result = {.size = sizeof result};
/* Limits of files hold from a moment after the start on, this one last. */
#define WHEN_LIMITED "while [ $(ulimit -n) != 20 ]; do :; done; "
static char output[256];

/* A shell's script, with limits that are the test's own. */
static fl_status run_script(const char *script, fl_child_options options) {
  const char *argv[] = {"/bin/sh", "-c", script, NULL};
  options.size = sizeof options;
  options.argv = argv;
  options.output = output;
  options.output_size = sizeof output;
  if (!options.timeout_ms)
    options.timeout_ms = 60000;
  memset(&result, 0, sizeof result);
  result.size = sizeof result;
  return fl_child_run(&options, &result);
}

static void script(const char *text, fl_child_options options) {
  ck_ok(run_script(text, options));
}

/* A number that the child printed. */
static long printed(void) {
  return strtol(output, NULL, 0);
}

static void has_ended(fl_child_end end, int code, const char *words) {
  ck_assert_msg(result.end == end && result.code == code && !strcmp(result.words, words),
                "end %d, code %d, '%s'; expected %d, %d, '%s'", result.end, result.code, result.words, end, code,
                words);
}

START_TEST(the_exit_status_of_a_program_is_told) {
  script("exit 0", (fl_child_options){0});
  has_ended(FL_CHILD_EXITED, 0, "exited with status 0");
  script("exit 3", (fl_child_options){0});
  has_ended(FL_CHILD_EXITED, 3, "exited with status 3");
}
END_TEST

START_TEST(the_signal_that_killed_it_is_told_by_name) {
  script("kill -SEGV $$", (fl_child_options){0});
  has_ended(FL_CHILD_KILLED, SIGSEGV, "killed by SIGSEGV (Segmentation fault)");
  ck_assert_uint_eq(result.signal, SIGSEGV);
}
END_TEST

START_TEST(one_that_hangs_is_killed_with_all_of_its_group_when_its_time_is_over) {
  script("sleep 1000 & echo $!; wait", (fl_child_options){.timeout_ms = 500});
  has_ended(FL_CHILD_HUNG, 0, "did not end within 0.5 s");
  ck_assert(result.seconds >= 0.5);
  ck_assert_int_gt(printed(), 0);
  for (int i = 0; i < 1000 && !kill((pid_t)printed(), 0); i++) { /* the group's others are reaped by somebody else */
    char path[64], state[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", printed());
    FILE *file = fopen(path, "r");
    bool zombie = !file || (fgets(state, sizeof state, file) && strstr(state, ") Z"));
    if (file)
      fclose(file);
    if (zombie)
      return;
    usleep(10000);
  }
  ck_assert_int_ne(kill((pid_t)printed(), 0), 0);
}
END_TEST

START_TEST(what_a_child_left_running_is_killed_when_it_ends) {
  script("sleep 1000 >/dev/null 2>&1 & echo $!", (fl_child_options){0});
  has_ended(FL_CHILD_EXITED, 0, "exited with status 0");
  ck_assert(result.seconds < 60);
  script("sleep 1000 &", (fl_child_options){0}); /* it holds the pipe's end */
  has_ended(FL_CHILD_EXITED, 0, "exited with status 0");
}
END_TEST

START_TEST(one_that_stops_itself_is_told_from_one_that_hangs) {
  script("kill -STOP $$", (fl_child_options){.timeout_ms = 1500});
  has_ended(FL_CHILD_HUNG, SIGSTOP, "stopped itself with SIGSTOP (Stopped (signal))");
}
END_TEST

START_TEST(one_that_takes_too_much_memory_is_killed) {
  script("x=0123456789abcdef; while :; do x=$x$x; done", (fl_child_options){.max_memory = 64 << 20});
  has_ended(FL_CHILD_MEMORY, 0, "used more than 64 MiB of memory");
  ck_assert_uint_gt(result.peak_memory, 64 << 20);
}
END_TEST

START_TEST(a_file_grows_to_its_limit_and_no_further) {
  char text[PATH_MAX + 200];
  scratch_make();
  snprintf(text, sizeof text, WHEN_LIMITED "exec dd if=/dev/zero of=%s bs=4096 count=100 2>/dev/null",
           in_scratch("file"));
  script(text, (fl_child_options){.max_file_size = 8192, .max_files = 20});
  struct stat status;
  ck_assert_int_eq(stat(in_scratch("file"), &status), 0);
  scratch_remove();
  ck_assert_int_eq(result.end, FL_CHILD_KILLED);
  ck_assert_uint_eq(result.signal, SIGXFSZ);
  ck_assert_int_eq(status.st_size, 8192);
}
END_TEST

START_TEST(it_has_no_more_files_than_allowed_and_no_core_file) {
  script(WHEN_LIMITED "ulimit -Hn; ulimit -c", (fl_child_options){.max_files = 20});
  ck_assert_str_eq(output, "20\n0\n"); /* in blocks: of 1 byte */
}
END_TEST

START_TEST(what_it_printed_is_kept_as_far_as_there_is_room) {
  script("echo out; echo err >&2", (fl_child_options){0});
  ck_assert_str_eq(output, "out\nerr\n");
  ck_assert_uint_eq(result.output, 8);
  script("yes | head -c 1000000", (fl_child_options){0});
  has_ended(FL_CHILD_EXITED, 0, "exited with status 0");
  ck_assert_uint_eq(strlen(output), sizeof output - 1);
  ck_assert_uint_eq(result.output, 1000000);
}
END_TEST

START_TEST(what_it_said_last_comes_through_the_channel_though_it_crashes) {
  heard h = {.length = 0};
  script("echo one >&3; echo two >&3; kill -ABRT $$", (fl_child_options){.receive = receive, .user = &h});
  ck_assert_str_eq(h.text, "one\ntwo\n");
  has_ended(FL_CHILD_KILLED, SIGABRT, "killed by SIGABRT (Aborted)");
}
END_TEST

START_TEST(silence_is_limited_from_one_message_to_the_next) {
  heard h = {.length = 0};
  fl_child_options options = {.receive = receive, .user = &h, .silence_ms = 1500};
  script("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >&3; sleep 0.2; done", options);
  has_ended(FL_CHILD_EXITED, 0, "exited with status 0");
  ck_assert(result.seconds > 1.5);
  options.silence_ms = 400;
  script("echo begun >&3; sleep 1000", options);
  has_ended(FL_CHILD_HUNG, 0, "did not go on within 0.4 s");
}
END_TEST

START_TEST(no_descriptor_gets_into_the_child_and_none_stays_here) {
  heard h = {.length = 0};
  int fd = open("/dev/null", O_RDONLY), high = fcntl(fd, F_DUPFD, 100);
  script("ls /proc/self/fd | sort -n | tr '\\n' ' '", (fl_child_options){.receive = receive, .user = &h});
  ck_assert_str_eq(output, "0 1 2 3 4 "); /* 4: of ls itself */
  script("ls /proc/self/fd | sort -n | tr '\\n' ' '", (fl_child_options){0});
  ck_assert_str_eq(output, "0 1 2 3 ");
  int next = open("/dev/null", O_RDONLY);
  ck_assert_int_eq(next, fd + 1);
  close(high);
}
END_TEST

START_TEST(it_works_where_all_standard_streams_are_closed) {
  heard h = {.length = 0};
  int kept[3];
  for (int i = 0; i < 3; i++) {
    kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 50);
    close(i);
  }
  fl_status status =
      run_script("echo out; echo err >&2; echo said >&3; cat", (fl_child_options){.receive = receive, .user = &h});
  bool closed = true;
  for (int i = 0; i < 3; i++) {
    closed &= fcntl(i, F_GETFD) < 0;
    dup2(kept[i], i);
    close(kept[i]);
  }
  ck_ok(status);
  ck_assert(closed);
  ck_assert_str_eq(output, "out\nerr\n");
  ck_assert_str_eq(h.text, "said\n");
}
END_TEST

static void on_child(int number) {
  int before = errno;
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0)
    continue;
  errno = before;
}

/* An engine's own ways with SIGCHLD. */
static const struct { void (*handler)(int number); } engines[] = {{SIG_IGN}, {on_child}};

START_TEST(an_engine_that_ignores_or_reaps_all_children_costs_no_more_than_the_status) {
  heard h = {.length = 0};
  signal(SIGCHLD, engines[_i].handler);
  script("echo said >&3; exit 7", (fl_child_options){.receive = receive, .user = &h});
  ck_assert_str_eq(h.text, "said\n");
  ck_assert(result.end == FL_CHILD_UNKNOWN || (result.end == FL_CHILD_EXITED && result.code == 7));
  script("sleep 1000", (fl_child_options){.timeout_ms = 300});
  ck_assert_int_eq(result.end, FL_CHILD_HUNG);
}
END_TEST

START_TEST(neither_mask_nor_handlers_are_handed_on) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  signal(SIGTERM, SIG_IGN);
  unsigned long long blocked, ignored;
  script("grep -E '^Sig(Blk|Ign)' /proc/self/status", (fl_child_options){0});
  ck_assert_int_eq(sscanf(output, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
  ck_assert_uint_eq(blocked, 0);
  ck_assert_uint_eq(ignored & 0x7fffffff, 0); /* the C library's own may be, since before this process */
  script("kill -TERM $$", (fl_child_options){0});
  has_ended(FL_CHILD_KILLED, SIGTERM, "killed by SIGTERM (Terminated)");
}
END_TEST

static void on_alarm(int number) {
  (void)number;
}

START_TEST(interrupting_signals_do_not_disturb) {
  struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
  struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  fl_status status = run_script("sleep 0.3; echo done; exit 5", (fl_child_options){0});
  setitimer(ITIMER_REAL, &never, NULL);
  ck_ok(status);
  has_ended(FL_CHILD_EXITED, 5, "exited with status 5");
  ck_assert_str_eq(output, "done\n");
}
END_TEST

START_TEST(no_zombie_stays_and_other_children_are_left_alone) {
  char *argv[] = {"/bin/sh", "-c", "exit 9", NULL};
  pid_t own;
  int status;
  ck_assert_int_eq(posix_spawn(&own, argv[0], NULL, NULL, argv, environ), 0);
  script("exit 0", (fl_child_options){0});
  script("sleep 1000", (fl_child_options){.timeout_ms = 200});
  ck_assert_int_eq(waitpid(own, &status, 0), own);
  ck_assert_int_eq(WEXITSTATUS(status), 9);
  ck_assert_int_eq(waitpid(-1, &status, WNOHANG), -1);
  ck_assert_int_eq(errno, ECHILD);
}
END_TEST

START_TEST(it_sees_the_environment_that_it_is_given) {
  const char *environment[] = {"ACME=own", NULL};
  setenv("ACME", "inherited", 1);
  script("echo $ACME", (fl_child_options){0});
  ck_assert_str_eq(output, "inherited\n");
  script("echo $ACME", (fl_child_options){.environment = environment});
  ck_assert_str_eq(output, "own\n");
}
END_TEST

START_TEST(a_program_that_is_not_there_is_an_error) {
  const char *argv[] = {"/nonexistent/acme", NULL};
  fl_child_options options = {.size = sizeof options, .argv = argv};
  result = (fl_child_result){.size = sizeof result};
  fl_status status = fl_child_run(&options, &result);
  if (!status) { /* valgrind has started a process by then */
    has_ended(FL_CHILD_EXITED, 127, "exited with status 127");
  } else {
    ck_assert_int_eq(status, FL_ENOENT);
    ck_assert_str_eq(fl_error_message(), "cannot start /nonexistent/acme: No such file or directory");
  }
  options.argv = NULL;
  ck_assert_int_eq(fl_child_run(&options, &result), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "fl_child_run: the options have neither argv nor run, expected either argv or run");
}
END_TEST

START_TEST(without_descriptors_nothing_is_started_and_none_is_lost) {
  heard h = {.length = 0};
  struct rlimit few;
  getrlimit(RLIMIT_NOFILE, &few);
  rlim_t before = few.rlim_cur;
  int next = open("/dev/null", O_RDONLY);
  for (rlim_t spare = 0; spare < 12; spare++) {
    few.rlim_cur = (rlim_t)next + 1 + spare;
    setrlimit(RLIMIT_NOFILE, &few);
    fl_status status = run_script("echo said >&3", (fl_child_options){.receive = receive, .user = &h});
    ck_assert_msg(!status || (status == FL_ESTATE && strstr(fl_error_message(), "cannot start /bin/sh: ")), "%s",
                  fl_error_message());
  }
  few.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &few);
  ck_assert_int_eq(open("/dev/null", O_RDONLY), next + 1);
}
END_TEST

static int function(void *user, int channel) {
  const heard *h = user;
  if (write(channel, "said", 4) != 4)
    return 1;
  if (h->mode == 1)
    abort();
  if (h->mode == 2)
    pause();
  printf("kept");
  fflush(stdout);
  return 42;
}

START_TEST(a_function_runs_in_a_copy_of_this_process) {
  static const struct {
    fl_child_end end;
    int code;
    const char *words;
  } expected[] = {{FL_CHILD_EXITED, 42, "exited with status 42"},
                  {FL_CHILD_KILLED, SIGABRT, "killed by SIGABRT (Aborted)"},
                  {FL_CHILD_HUNG, 0, "did not end within 2 s"}};
  for (int mode = 0; mode < 3; mode++) {
    heard h = {.mode = mode};
    fl_child_options options = {.size = sizeof options,
                                .run = function,
                                .receive = receive,
                                .user = &h,
                                .timeout_ms = mode == 2 ? 2000 : 60000,
                                .output = output,
                                .output_size = sizeof output};
    ck_ok(fl_child_run(&options, &result));
    ck_assert_str_eq(h.text, "said");
    has_ended(expected[mode].end, expected[mode].code, expected[mode].words);
    ck_assert_str_eq(output, mode ? "" : "kept");
  }
}
END_TEST

static _Atomic int wrong;

static void *many(void *unused) {
  for (int i = 0; i < 5; i++) {
    const char *argv[] = {"/bin/sh", "-c", i % 2 ? "echo a >&3; exit 4" : "echo a >&3; kill -KILL $$", NULL};
    heard h = {.length = 0};
    fl_child_result own = {.size = sizeof own};
    fl_child_options options = {
        .size = sizeof options, .argv = argv, .receive = receive, .user = &h, .timeout_ms = 60000};
    if (fl_child_run(&options, &own) || strcmp(h.text, "a\n") || own.end != (i % 2 ? FL_CHILD_EXITED : FL_CHILD_KILLED))
      wrong++;
  }
  return unused;
}

START_TEST(threads_run_children_at_the_same_time) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, many, NULL);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(wrong, 0);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, the_exit_status_of_a_program_is_told);
  tcase_add_test(tests, the_signal_that_killed_it_is_told_by_name);
  tcase_add_test(tests, one_that_hangs_is_killed_with_all_of_its_group_when_its_time_is_over);
  tcase_add_test(tests, what_a_child_left_running_is_killed_when_it_ends);
  tcase_add_test(tests, one_that_stops_itself_is_told_from_one_that_hangs);
  tcase_add_test(tests, one_that_takes_too_much_memory_is_killed);
  tcase_add_test(tests, a_file_grows_to_its_limit_and_no_further);
  tcase_add_test(tests, it_has_no_more_files_than_allowed_and_no_core_file);
  tcase_add_test(tests, what_it_printed_is_kept_as_far_as_there_is_room);
  tcase_add_test(tests, what_it_said_last_comes_through_the_channel_though_it_crashes);
  tcase_add_test(tests, silence_is_limited_from_one_message_to_the_next);
  tcase_add_test(tests, no_descriptor_gets_into_the_child_and_none_stays_here);
  tcase_add_test(tests, it_works_where_all_standard_streams_are_closed);
  tcase_add_loop_test(tests, an_engine_that_ignores_or_reaps_all_children_costs_no_more_than_the_status, 0, 2);
  tcase_add_test(tests, neither_mask_nor_handlers_are_handed_on);
  tcase_add_test(tests, interrupting_signals_do_not_disturb);
  tcase_add_test(tests, no_zombie_stays_and_other_children_are_left_alone);
  tcase_add_test(tests, it_sees_the_environment_that_it_is_given);
  tcase_add_test(tests, a_program_that_is_not_there_is_an_error);
  tcase_add_test(tests, without_descriptors_nothing_is_started_and_none_is_lost);
  tcase_add_test(tests, a_function_runs_in_a_copy_of_this_process);
  tcase_add_test(tests, threads_run_children_at_the_same_time);
}

int main(void) {
  return run_suite("child", add_tests, 60);
}
