/*
 * Plugins that do harm are found out in another process (tests/plugins/hostile.c: WHEN-WHAT) and never get into this
 * one; what came of it is kept, and asked again when it may have changed.
 */
#include "core/plugins/verdicts.h"
#include "tests/command.h"
#include "tests/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <flhost/testing.h>
#include <limits.h>
#include <sha2.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

enum { STEP_MS = 2500, STEP_MS_SLOW = 4000, MEMORY_MB = 300 };

/* A tool that makes all slower. */
static int step_ms(void) {
  const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER");
  return multiplier && atof(multiplier) > 2 ? STEP_MS_SLOW : STEP_MS;
}

/* Absolute, and each in a place of its own. */
__attribute__((format(printf, 1, 0))) static const char *built_file(const char *format, const char *name) {
  static char paths[128][PATH_MAX + 128];
  static int turn;
  char directory[PATH_MAX], file[128], *path = paths[turn++ % 128];
  ck_assert_ptr_nonnull(realpath(build_dir(), directory));
  snprintf(file, sizeof file, format, name);
  snprintf(path, sizeof paths[0], "%s/%s", directory, file);
  return path;
}

static const char *hostile(const char *name) {
  return built_file("tests/plugins/hostile/%s.so", name);
}

static void set_up(void) {
  char text[24];
  snprintf(text, sizeof text, "%d", step_ms());
  setenv("FLHOST_PROBE_TIMEOUT_MS", text, 1);
  snprintf(text, sizeof text, "%d", MEMORY_MB);
  setenv("FLHOST_PROBE_MEMORY_MB", text, 1);
  setenv("TEST_COUNT", scratch("count"), 1);
}

/* ------------------------------------------------------------------------------------------------- the verdicts */

/* What each is told of: the verdict, and words of its reason or of what it changed. */
static const struct {
  const char *plugin, *verdict, *words;
} cases[] = {
    {"opened-nothing", "ok", ""},
    {"opened-crash", "failed", "crashed in its initialisers (SIGSEGV)"},
    {"opened-divide", "failed", "crashed in its initialisers (SIGFPE)"},
    {"opened-exit_0", "failed", "ended the process in its initialisers (exit status 0)"},
    {"opened-exit_at_once", "failed", "ended the process in its initialisers (exit status 0)"},
    {"opened-end_thread", "failed", " in its initialisers ("},
    {"opened-sleep_on", "failed", "hung in its initialisers (no end within "},
    {"opened-close_all", "failed", "ended the process in its initialisers (exit status 1)"},
    {"opened-kill_parent", "failed", "crashed in its initialisers (SIGKILL)"},
    {"opened-crash_in_thread", "failed", "crashed in its initialisers (SIGSEGV)"},
    {"opened-fork_one", "ok", "processes (it left some behind)"},
    {"registers-crash", "failed", "crashed in register_builtins (SIGSEGV)"},
    {"registers-illegal", "failed", "crashed in register_builtins (SIGILL)"},
    {"registers-abort_with_words", "failed", "crashed in register_builtins (SIGABRT); it said: acme: assertion failed"},
    {"registers-throw_out", "failed", "crashed in register_builtins (SIGABRT)"},
    {"registers-exit_0", "failed", "ended the process in register_builtins (exit status 0)"},
    {"registers-exit_3", "failed", "ended the process in register_builtins (exit status 3)"},
    {"registers-exit_at_once", "failed", "ended the process in register_builtins (exit status 0)"},
    {"registers-exec_other", "failed", "ended the process in register_builtins (exit status 0)"},
    {"registers-end_thread", "failed", " in register_builtins ("},
    {"registers-spin", "failed", "hung in register_builtins (no end within "},
    {"registers-allocate", "failed", "used more than 300 MiB of memory in register_builtins"},
    {"registers-reserve", "ok", ""},
    {"registers-close_all", "failed", "ended the process in register_builtins (exit status 1)"},
    {"registers-close_streams", "ok", "standard input, output or error"},
    {"registers-open_files", "ok", "descriptors (5 more, 0 closed, 0 exchanged)"},
    {"registers-daemonise", "ok", "processes (it left some behind)"},
    {"registers-crash_and_leave_daemon", "failed", "crashed in register_builtins (SIGSEGV)"},
    {"registers-kill_parent", "failed", "crashed in register_builtins (SIGKILL)"},
    {"registers-kill_self", "failed", "crashed in register_builtins (SIGKILL)"},
    {"registers-kill_group", "failed", "crashed in register_builtins (SIGTERM)"},
    {"registers-stop", "failed", "stopped the process in register_builtins (SIGSTOP)"},
    {"registers-change_directory", "ok", "the working directory"},
    {"registers-change_locale", "ok", "the locale"},
    {"registers-handle", "ok", "signal handlers"},
    {"registers-block", "ok", "the signal mask"},
    {"registers-round_down", "ok", "the floating-point mode"},
    {"registers-print", "ok", "standard output or error (it wrote there)"},
    {"registers-set_variable", "ok", "the environment (ACME_MODE)"},
    {"registers-jump", "failed", "crashed in register_builtins (SIG"},
    {"registers-overflow", "failed", "crashed in register_builtins (SIGSEGV)"},
    {"registers-break_heap", "failed", "crashed in register_builtins (SIGABRT)"},
    {"registers-leave_thread", "ok", " that go on running)"},
    {"registers-crash_in_thread", "failed", "crashed in register_builtins (SIGSEGV)"},
    {"registers-alarm_soon", "failed", "crashed in register_builtins (SIGALRM)"},
    {"registers-crash_at_exit", "failed", "crashed in its destructors (SIGSEGV)"},
    {"asked-crash", "failed", "crashed in is_available (SIGSEGV)"},
    {"asked-abort_with_words", "failed", "crashed in is_available (SIGABRT); it said: acme: assertion failed"},
    {"asked-exit_0", "failed", "ended the process in is_available (exit status 0)"},
    {"asked-end_thread", "failed", " in is_available ("},
    {"asked-sleep_on", "failed", "hung in is_available (no end within "},
    {"asked-allocate", "failed", "used more than 300 MiB of memory in is_available"},
    {"asked-open_files", "ok", "descriptors (5 more, 0 closed, 0 exchanged)"},
    {"asked-kill_parent", "failed", "crashed in is_available (SIGKILL)"},
    {"asked-overflow", "failed", "crashed in is_available (SIGSEGV)"},
    {"asked-leave_thread", "ok", " that go on running)"},
    {"ends-crash", "failed", "crashed in its destructors (SIGSEGV)"},
    {"ends-exit_at_once", "ok", ""},
    {"ends-sleep_on", "failed", "hung in its destructors (no end within "},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* A sanitizer's own handlers end the process otherwise than by the signal. */
static bool is_sanitized(void) {
  const char *flags = getenv("SANITIZE");
  return flags && *flags;
}

static bool is_about_a_signal(const char *words) {
  return strstr(words, "(SIG") != NULL && !strstr(words, "SIGKILL") && !strstr(words, "SIGSTOP");
}

/* All of them in one run: whatever one does, the others are tried. */
START_TEST(D9_each_plugin_gets_the_verdict_that_it_deserves) {
  const char *words[N_CASES + 4] = {"probe", "--json"};
  for (size_t i = 0; i < N_CASES; i++)
    words[2 + i] = hostile(cases[i].plugin);
  setting("FLHOST_PROBE_TIMEOUT_MS=%d", step_ms());
  setting("FLHOST_PROBE_MEMORY_MB=%d", MEMORY_MB);
  outcome run = run_flhost(words);
  ck_assert_msg(run.status == 1 && !*run.err, "%d %s", run.status, run.err);
  json_t *list = parse_json(run.out, JSON_ARRAY);
  ck_assert_uint_eq(json_array_size(list), N_CASES);
  for (size_t i = 0; i < N_CASES; i++) {
    const json_t *one = json_array_get(list, i);
    const char *verdict = json_string_value(json_object_get(one, "verdict"));
    const char *reason = json_string_value(json_object_get(one, "reason"));
    const char *changed = json_string_value(json_object_get(one, "changed"));
    bool told = strstr(reason, cases[i].words) || strstr(changed, cases[i].words) ||
                (is_sanitized() && is_about_a_signal(cases[i].words));
    ck_each(!strcmp(verdict, cases[i].verdict) && told, "%s is %s: '%s', changed '%s'; expected %s: '%s'",
            cases[i].plugin, verdict, reason, changed, cases[i].verdict, cases[i].words);
    if (!*cases[i].words)
      ck_each(!*reason && !*changed, "%s: '%s', '%s'", cases[i].plugin, reason, changed);
  }
}
END_TEST

START_TEST(a_plugin_that_no_host_can_use_is_refused_with_the_reason) {
  fl_probed probed = {.size = sizeof probed};
  ck_ok(fl_probe_plugin(built_file("tests/plugins/%s.so", "wrong_abi"), NULL, NULL, &probed));
  ck_assert(probed.refused && !probed.failed);
  ck_contains(probed.words, "built for ABI ");
  ck_ok(fl_probe_plugin("/nonexistent.so", NULL, NULL, &probed));
  ck_contains(probed.words, "no file '/nonexistent.so'");
}
END_TEST

static void follow(void *user, const char *phase) {
  strcat(user, phase);
  strcat(user, ";");
}

START_TEST(a_trial_is_followed_step_by_step) {
  char steps[256] = "";
  fl_probed probed = {.size = sizeof probed};
  ck_ok(fl_probe_plugin(hostile("opened-nothing"), follow, steps, &probed));
  ck_assert_str_eq(steps, "its initialisers;register_builtins;is_available;its destructors;");
  ck_assert(!probed.failed && !probed.refused);
  ck_assert_str_eq(probed.words, "");
  ck_assert_str_eq(probed.changed, "");
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- in an engine */

/* A host that keeps verdicts in the scratch directory. */
static fl_host *host_with(const char *setting) {
  char cache[PATH_MAX + 32];
  snprintf(cache, sizeof cache, "XDG_CACHE_HOME=%s", scratch("cache"));
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", cache, setting, NULL};
  mkdir(scratch("cache"), 0700);
  return test_host(environment, 0);
}

static int count_descriptors(void) {
  int n = 0;
  for (int i = 0; i < 256; i++)
    n += fcntl(i, F_GETFD) >= 0;
  return n;
}

static const char *const barred[] = {
    "opened-crash",      "opened-exit_0",      "opened-end_thread",    "opened-close_all",     "opened-kill_parent",
    "registers-crash",   "registers-exit_0",   "registers-end_thread", "registers-exec_other", "registers-kill_parent",
    "registers-stop",    "registers-overflow", "registers-spin",       "registers-kill_group", "asked-crash",
    "asked-kill_parent", "ends-crash"};
enum { N_BARRED = sizeof barred / sizeof *barred };

START_TEST(D9_a_plugin_that_does_harm_never_gets_into_the_engine) {
  fl_host *host = host_with(NULL);
  fl_plugins *plugins;
  int before = count_descriptors();
  ck_assert_int_eq(fl_load_plugin(host, hostile(barred[_i])), FL_EPLUGIN);
  ck_contains(fl_error_message(), " when tried in another process, and is not loaded");
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_uint_eq(plugins->n, 1);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "failed");
  ck_contains(fl_plugin_at(plugins, 0)->reason, " when tried in another process, and is not loaded");
  ck_assert_uint_eq(fl_plugin_at(plugins, 0)->impls, 0);
  fl_plugins_free(plugins);
  ck_assert_ptr_null(fl_find_op(host, "hostile"));
  ck_assert_int_eq(count_descriptors(), before);
  ck_assert(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
  ck_ok(fl_load_plugin(host, hostile("opened-nothing")));
  ck_assert_ptr_nonnull(fl_find_op(host, "hostile"));
  fl_host_destroy(host);
}
END_TEST

/* A process's, as /proc says it; 0: there is none. Z: it has ended, and whoever inherited it was not told so far. */
static char state_of(int pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  FILE *file = fopen(path, "r");
  if (file && fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
    state = 0;
  if (file)
    fclose(file);
  return state;
}

/* Its process is gone before the verdict is there. */
START_TEST(a_daemon_whose_guard_was_killed_does_not_get_away) {
  int pid = 0;
  setting("TEST_DAEMON=%s", scratch("daemon"));
  outcome run = FLHOST("probe", hostile("registers-kill_guard_and_leave_daemon"));
  ck_assert_int_eq(run.status, 1);
  ck_contains(run.out, "crashed in register_builtins (SIGKILL)");
  FILE *file = fopen(scratch("daemon"), "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fscanf(file, "%d", &pid), 1);
  fclose(file);
  ck_assert_int_gt(pid, 1);
  char state = state_of(pid);
  if (state != 'Z')
    kill(pid, SIGKILL);
  ck_assert_msg(!state || state == 'Z', "process %d was running still (%c)", pid, state);
}
END_TEST

/* Copies of plugins in a directory of the scratch directory, to be discovered. */
static void install(const char *name, const char *as) {
  char command[3 * PATH_MAX];
  mkdir(scratch("plugins"), 0755);
  snprintf(command, sizeof command, "cp %s %s/%s.so", hostile(name), scratch("plugins"), as);
  ck_assert_int_eq(system(command), 0);
}

static fl_plugins *discover(fl_host **host, const char *setting) {
  char cache[PATH_MAX + 32];
  fl_plugins *plugins;
  snprintf(cache, sizeof cache, "XDG_CACHE_HOME=%s", scratch("cache"));
  mkdir(scratch("cache"), 0700);
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", cache, setting, NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .environment = environment,
                                   .plugin_path = scratch("plugins"),
                                   .config_dir = "/nonexistent",
                                   .log = test_log_capture,
                                   .log_user = &test_log};
  test_log_clear();
  ck_ok(fl_host_create(&options, host));
  ck_ok(fl_get_discovered_plugins(*host, &plugins));
  return plugins;
}

static const char *status_of(const fl_plugins *plugins, uint32_t i) {
  return fl_plugin_at(plugins, i)->status;
}

START_TEST(what_one_plugin_does_is_not_held_against_the_others) {
  fl_host *host;
  install("opened-nothing", "a");
  install("opened-kill_parent", "b");
  install("opened-nothing", "c");
  install("registers-crash", "d");
  install("registers-nothing", "e");
  fl_plugins *plugins = discover(&host, NULL);
  ck_assert_uint_eq(plugins->n, 5);
  ck_assert_str_eq(status_of(plugins, 0), "loaded");
  ck_assert_str_eq(status_of(plugins, 1), "failed");
  ck_assert_str_eq(status_of(plugins, 2), "failed"); /* it has the name and op of the first */
  ck_contains(fl_plugin_at(plugins, 2)->reason, "register_builtins returned FL_EEXIST");
  ck_assert_str_eq(status_of(plugins, 3), "failed");
  ck_contains(fl_plugin_at(plugins, 3)->reason, "crashed in register_builtins (SIG");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- what is kept */

/* How often the plugin's code ran, in any process. */
static int count(void) {
  struct stat status;
  return stat(scratch("count"), &status) ? 0 : (int)status.st_size;
}

/* Loads the copy of the plugin that counts into a new host: how often its code ran for that. */
static int loads(const char *setting) {
  int before = count();
  fl_host *host = host_with(setting);
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/counts.so", scratch("plugins"));
  ck_ok(fl_load_plugin(host, path));
  fl_host_destroy(host);
  return count() - before;
}

/* In a process of its own, since a file that is mapped runs no initialisers again. */
static int runs(const char *setting) {
  int before = count(), status;
  pid_t pid = fork();
  if (!pid) {
    loads(setting);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
  return count() - before;
}

/* Loads the copy here; the message if it fails. */
static const char *load_here(void) {
  static char message[1024];
  fl_host *host = host_with(NULL);
  message[0] = 0;
  if (fl_load_plugin(host, scratch("plugins/counts.so")))
    snprintf(message, sizeof message, "%s", fl_error_message());
  fl_host_destroy(host);
  return message;
}

enum { LOADED = 1, TRIED_AND_LOADED = 2 };

/* A file that was changed a moment ago is only recognised by its content. */
static void make_old(const char *path) {
  struct utimbuf old = {.actime = time(NULL) - 100, .modtime = time(NULL) - 100};
  ck_assert_int_eq(utime(path, &old), 0);
}

static const char *counting(void) {
  install("opened-count", "counts");
  make_old(scratch("plugins/counts.so"));
  return scratch("plugins/counts.so");
}

START_TEST(D9_a_plugin_is_tried_once_and_again_when_it_changes) {
  const char *path = counting();
  ck_assert_int_eq(runs(NULL), TRIED_AND_LOADED);
  ck_assert_int_eq(runs(NULL), LOADED);
  utime(path, NULL); /* the same content */
  ck_assert_int_eq(runs(NULL), LOADED);
  FILE *file = fopen(path, "a");
  fputc('x', file);
  fclose(file);
  ck_assert_int_eq(runs(NULL), TRIED_AND_LOADED);
  ck_assert_int_eq(runs(NULL), LOADED);
  setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
  ck_assert_int_eq(runs(NULL), TRIED_AND_LOADED);
  unsetenv("LD_LIBRARY_PATH");
  ck_assert_int_eq(runs(NULL), LOADED); /* both are known by now */
}
END_TEST

/* What code of its would run when it is not refused is unknown. */
START_TEST(a_plugin_that_is_refused_is_tried_again) {
  counting();
  setenv("TEST_REFUSE", "1", 1);
  for (int i = 0; i < 2; i++) {
    ck_contains(load_here(), "register_builtins returned FL_EPLUGIN");
    ck_assert_int_eq(count(), i + 2); /* here it is opened once */
  }
  unsetenv("TEST_REFUSE");
  ck_assert_str_eq(load_here(), "");
  ck_assert_int_eq(count(), 4);
  ck_assert_str_eq(load_here(), "");
  ck_assert_int_eq(count(), 4);
}
END_TEST

/* A colon in a path is none before a symbol. */
START_TEST(a_plugin_is_tried_whatever_its_path) {
  install("opened-crash", "with:colon");
  fl_host *host;
  fl_plugins *plugins = discover(&host, NULL);
  ck_contains(fl_plugin_at(plugins, 0)->reason, "crashed in its initialisers (SIGSEGV) when tried");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_setting_says_when_plugins_are_tried) {
  counting();
  ck_assert_int_eq(runs("VLLM_FL_PROBE=off"), LOADED);
  ck_assert_int_eq(runs("VLLM_FL_PROBE=always"), TRIED_AND_LOADED);
  ck_assert_int_eq(runs("VLLM_FL_PROBE=always"), TRIED_AND_LOADED);
  ck_assert_int_eq(runs("VLLM_FL_PROBE= New "), LOADED);
}
END_TEST

/* What may have happened to the file of verdicts. */
static void cut(const char *path) {
  ck_assert_int_eq(truncate(path, 100), 0);
}

static void empty(const char *path) {
  ck_assert_int_eq(truncate(path, 0), 0);
}

static void alter(const char *path) {
  FILE *file = fopen(path, "r+");
  fseek(file, 40, SEEK_SET);
  int byte = fgetc(file);
  fseek(file, 40, SEEK_SET);
  fputc(byte == '1' ? '2' : '1', file);
  fclose(file);
}

static void let_all_write(const char *path) {
  ck_assert_int_eq(chmod(path, 0666), 0);
}

static void let_all_write_beside(const char *path) {
  (void)path;
  ck_assert_int_eq(chmod(scratch("cache/flhost"), 0777), 0);
}

static void make_link(const char *path) {
  ck_assert_int_eq(rename(path, scratch("elsewhere")), 0);
  ck_assert_int_eq(symlink(scratch("elsewhere"), path), 0);
}

static void make_fifo(const char *path) {
  unlink(path);
  ck_assert_int_eq(mkfifo(path, 0600), 0);
}

static void make_huge(const char *path) {
  ck_assert_int_eq(truncate(path, 1 << 30), 0);
}

static void hand_over(const char *path) {
  if (geteuid() || chown(path, 12345, 12345))
    unlink(path);
}

static const struct {
  void (*harm)(const char *path);
  bool is_mended; /* by being written anew */
} harms[] = {
    {cut, true},       {empty, true},     {alter, true},     {let_all_write, true}, {let_all_write_beside, false},
    {make_link, true}, {make_fifo, true}, {make_huge, true}, {hand_over, true}};
enum { N_HARMS = sizeof harms / sizeof *harms };

START_TEST(verdicts_that_are_broken_or_not_the_users_own_count_for_nothing) {
  counting();
  ck_assert_int_eq(runs(NULL), TRIED_AND_LOADED);
  ck_assert_int_eq(runs(NULL), LOADED);
  harms[_i].harm(scratch("cache/flhost/verdicts"));
  ck_assert_int_eq(runs(NULL), TRIED_AND_LOADED);
  ck_assert_int_eq(runs(NULL), harms[_i].is_mended ? LOADED : TRIED_AND_LOADED);
}
END_TEST

/* Replaces a verdict's time, and the digest behind all of them. */
static void set_age(int64_t seconds) {
  const char *path = scratch("cache/flhost/verdicts");
  char text[8192], out[8192], digest[FL_SHA256_SIZE], when[24];
  FILE *file = fopen(path, "r");
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = 0;
  char *start = strstr(text, "failed\t"), *end = strstr(text, "sha256 ");
  ck_assert(start && end);
  start += strlen("failed\t");
  snprintf(when, sizeof when, "%lld", (long long)(time(NULL) - seconds));
  ck_assert_uint_eq(strlen(when), strcspn(start, "\t"));
  memcpy(start, when, strlen(when));
  SHA256Data((const uint8_t *)text, (size_t)(end - text), digest);
  snprintf(out, sizeof out, "%.*ssha256 %s\n", (int)(end - text), text, digest);
  file = fopen(path, "w");
  fputs(out, file);
  fclose(file);
}

START_TEST(D9_harm_is_remembered_for_a_day) {
  install("registers-count_and_crash", "counts");
  make_old(scratch("plugins/counts.so"));
  ck_contains(load_here(), "crashed in register_builtins (SIG");
  set_age(FL_VERDICT_LASTS_SECONDS - 100);
  ck_contains(load_here(), "crashed in register_builtins (SIG");
  ck_assert_int_eq(count(), 1);
  set_age(FL_VERDICT_LASTS_SECONDS + 1);
  ck_contains(load_here(), "crashed in register_builtins (SIG");
  ck_assert_int_eq(count(), 2);
  install("opened-nothing", "counts"); /* it is mended */
  ck_assert_str_eq(load_here(), "");
}
END_TEST

START_TEST(processes_that_keep_verdicts_at_the_same_time_lose_none) {
  enum { PROCESSES = 8 };
  pid_t pids[PROCESSES];
  int status;
  char name[16];
  for (int i = 0; i < PROCESSES; i++) {
    snprintf(name, sizeof name, "p%d", i);
    install("opened-nothing", name);
  }
  for (int i = 0; i < PROCESSES; i++) {
    pids[i] = fork();
    if (!pids[i]) {
      char path[PATH_MAX];
      snprintf(path, sizeof path, "%s/p%d.so", scratch("plugins"), i);
      fl_host *host = host_with(NULL);
      _exit(fl_load_plugin(host, path) != FL_OK);
    }
  }
  for (int i = 0; i < PROCESSES; i++) {
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  fl_verdicts list = {0};
  char cache[PATH_MAX + 32];
  snprintf(cache, sizeof cache, "XDG_CACHE_HOME=%s", scratch("cache"));
  const char *const environment[] = {cache, NULL};
  const fl_config_sources sources = {.environment = environment};
  fl_log log = {.fn = test_log_capture, .user = &test_log};
  fl_verdicts_open(&list, &sources, &log);
  ck_assert_uint_eq(list.n, PROCESSES);
  fl_verdicts_close(&list);
}
END_TEST

/* Commands that are no command, or none that speaks of plugins. */
static const struct {
  const char *command, *words;
} commands[] = {{"/nonexistent/flhost", "cannot start /nonexistent/flhost: No such file or directory"},
                {"/bin/false", "'/bin/false probe' cannot be used: it exited with status 1"},
                {"/bin/echo", "'/bin/echo probe' cannot be used: it exited with status 0, and said: probe --channel"}};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

START_TEST(D9_where_none_can_be_tried_it_is_said_once_and_plugins_are_loaded) {
  char line[512];
  setenv("FLHOST_COMMAND", commands[_i].command, 1);
  fl_host *host = host_with(NULL);
  ck_ok(fl_load_plugin(host, hostile("opened-nothing")));
  ck_ok(fl_load_plugin(host, hostile("registers-nothing")));
  snprintf(line, sizeof line, "WARNING plugins are loaded without being tried in another process first: %s",
           commands[_i].words);
  char *said = strstr(test_log.text, line);
  ck_assert_msg(said != NULL, "no '%s' in:\n%s", line, test_log.text);
  ck_assert_ptr_null(strstr(said + strlen(line), "without being tried"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_engine_that_ignores_its_children_is_told_the_same) {
  signal(SIGCHLD, SIG_IGN);
  fl_host *host = host_with(NULL);
  ck_assert_int_eq(fl_load_plugin(host, hostile("registers-crash")), FL_EPLUGIN);
  ck_contains(fl_error_message(), "crashed in register_builtins (SIG");
  ck_ok(fl_load_plugin(host, hostile("opened-nothing")));
  fl_host_destroy(host);
}
END_TEST

/* Milliseconds of the fastest start of twenty. */
static double fastest_start(const char *setting) {
  double best = 1e9;
  fl_host *host;
  for (int i = 0; i < 20; i++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    fl_plugins_free(discover(&host, setting));
    clock_gettime(CLOCK_MONOTONIC, &b);
    fl_host_destroy(host);
    double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
    best = ms < best ? ms : best;
  }
  return best;
}

/* A process that is started takes longer than a file that is read. */
START_TEST(ten_unchanged_plugins_start_no_process) {
  char name[16];
  for (int i = 0; i < 10; i++) {
    snprintf(name, sizeof name, "p%d", i);
    install("opened-count", name);
  }
  fl_host *host;
  fl_plugins_free(discover(&host, NULL));
  fl_host_destroy(host);
  ck_assert_int_eq(count(), 2 * 10);
  double without = fastest_start("VLLM_FL_PROBE=off"), with = fastest_start(NULL);
  ck_assert_int_eq(count(), 2 * 10); /* what is mapped already is not initialised again */
  ck_assert_msg(with < without + 20, "%.3f ms, without %.3f ms", with, without);
  if (getenv("FLHOST_SHOW_TIMES"))
    printf("%.3f ms, without %.3f ms\n", with, without);
}
END_TEST

/* A command that leaves a mark when it is started. */
static void count_processes(void) {
  char text[2 * PATH_MAX + 64];
  snprintf(text, sizeof text, "#!/bin/sh\nprintf x >>'%s'\nexec '%s' \"$@\"\n", scratch("processes"),
           built_file("%s", "flhost"));
  ck_assert_int_eq(chmod(scratch_file("counting", text), 0755), 0);
  ck_assert_int_eq(setenv("FLHOST_COMMAND", scratch("counting"), 1), 0);
}

static int processes(void) {
  struct stat status;
  return stat(scratch("processes"), &status) ? 0 : (int)status.st_size;
}

START_TEST(deferred_plugins_that_are_wanted_together_are_tried_by_one_process) {
  static const char *const names[] = {"lazy_a", "lazy_better", "lazy_missing", "lazy_again", "lazy_builtin"};
  fl_host *host;
  mkdir(scratch("plugins"), 0755);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s", built_file("tests/plugins/listed/%s.so", names[i]),
             scratch("plugins"));
    ck_assert_int_eq(system(command), 0);
  }
  install("opened-crash", "lazy_0"); /* what is opened at once */
  count_processes();
  fl_plugins_free(discover(&host, NULL));
  ck_assert_int_eq(processes(), 1);
  ck_assert_ptr_nonnull(fl_find_op(host, "lazy_a")); /* which three list */
  ck_assert_int_eq(processes(), 2);
  fl_snapshot_release(fl_registry_snapshot(host)); /* the other two */
  ck_assert_int_eq(processes(), 3);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- commands */

START_TEST(a_rescan_tries_plugins_anew) {
  counting();
  mkdir(scratch("cache"), 0700);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("XDG_CACHE_HOME=%s", scratch("cache"));
  setting("TEST_COUNT=%s", scratch("count"));
  setting("HWLOC_COMPONENTS=-pci,-x86");
  ck_assert_int_eq(FLHOST("plugins").status, 0);
  ck_assert_int_eq(count(), TRIED_AND_LOADED);
  ck_assert_int_eq(FLHOST("plugins").status, 0);
  ck_assert_int_eq(count(), TRIED_AND_LOADED + LOADED);
  ck_assert_int_eq(FLHOST("plugins", "--rescan").status, 0);
  ck_assert_int_eq(count(), 2 * TRIED_AND_LOADED + LOADED);
  install("opened-crash", "crashes");
  assert_contains(FLHOST("plugins").out, "crashed in its initialisers (SIG");
  assert_contains(FLHOST("doctor").out, "crashed in its initialisers (SIG");
  unlink(scratch("plugins/crashes.so"));
  setting("VLLM_FL_PROBE=off");
  assert_contains(FLHOST("doctor").out, "plugins are not tried in another process first (VLLM_FL_PROBE)");
}
END_TEST

/* Neither loaded in vain nor kept: with as few as that a trial does not even begin, or ends anyhow. */
START_TEST(too_few_descriptors_are_no_verdict_about_a_plugin) {
  install("opened-count", "fine");
  mkdir(scratch("cache"), 0700);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("XDG_CACHE_HOME=%s", scratch("cache"));
  setting("TEST_COUNT=%s", scratch("count"));
  for (unsigned files = 4; files < 16; files++) {
    files_at_most(files);
    outcome run = FLHOST("plugins");
    ck_assert_msg(!strstr(run.out, "tried in another process") && !strstr(run.err, "failed: "), "%u: %s%s", files,
                  run.out, run.err);
  }
  files_at_most(0);
  assert_contains(FLHOST("plugins").out, "loaded");
}
END_TEST

static void tear_down(void) {
  files_at_most(0);
  end_scenario();
}

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D9_each_plugin_gets_the_verdict_that_it_deserves);
  tcase_add_test(tests, a_daemon_whose_guard_was_killed_does_not_get_away);
  tcase_add_test(tests, a_plugin_that_no_host_can_use_is_refused_with_the_reason);
  tcase_add_test(tests, a_trial_is_followed_step_by_step);
  tcase_add_loop_test(tests, D9_a_plugin_that_does_harm_never_gets_into_the_engine, 0, N_BARRED);
  tcase_add_test(tests, what_one_plugin_does_is_not_held_against_the_others);
  tcase_add_test(tests, D9_a_plugin_is_tried_once_and_again_when_it_changes);
  tcase_add_test(tests, a_plugin_that_is_refused_is_tried_again);
  tcase_add_test(tests, a_plugin_is_tried_whatever_its_path);
  tcase_add_test(tests, the_setting_says_when_plugins_are_tried);
  tcase_add_loop_test(tests, verdicts_that_are_broken_or_not_the_users_own_count_for_nothing, 0, N_HARMS);
  tcase_add_test(tests, D9_harm_is_remembered_for_a_day);
  tcase_add_test(tests, processes_that_keep_verdicts_at_the_same_time_lose_none);
  tcase_add_loop_test(tests, D9_where_none_can_be_tried_it_is_said_once_and_plugins_are_loaded, 0, N_COMMANDS);
  tcase_add_test(tests, an_engine_that_ignores_its_children_is_told_the_same);
  tcase_add_test(tests, deferred_plugins_that_are_wanted_together_are_tried_by_one_process);
  tcase_add_test(tests, ten_unchanged_plugins_start_no_process);
  tcase_add_test(tests, a_rescan_tries_plugins_anew);
  tcase_add_test(tests, too_few_descriptors_are_no_verdict_about_a_plugin);
}

int main(void) {
  return run_suite("judge", add_tests, 120);
}
