/* Loading one file: each way to be wrong is refused with its reason (D4), registers nothing (R3) and harms nobody. */
#include "core/plugins/shortage.h"
#include "core/registry.h"
#include "tests/loaded.h"

#include <dlfcn.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>

static void set_up(void) {
  scratch_make();
  host = test_host(NULL, FL_HOST_NO_PLUGINS);
}

/* As it was built. */
static const char *plugin(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "tests/plugins/%s.so", name);
  return built(path);
}

/* The whole reason; nothing of the plugin is registered. */
static void expect_failure(const char *path, const char *symbol, const char *reason) {
  ck_assert_int_eq(load(path, symbol), FL_EPLUGIN);
  ck_assert_str_eq(record.reason, reason);
  ck_assert_str_eq(fl_error_message(), reason);
  ck_assert_int_eq(record.status, FL_PLUGIN_FAILED);
  ck_assert_uint_eq(record.impls, 0);
  ck_assert_str_eq(record.file, path);
  ck_assert_ptr_null(fl_find_op(host, "test_scale"));
}

static void expect_failure_of(const char *name, const char *format, ...) {
  char reason[2 * PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  expect_failure(plugin(name), NULL, reason);
}

/* Calls test_scale under a policy that prefers vendors: [1, 2, 3] * 2. */
static fl_status scale(float out[3]) {
  float x[] = {1, 2, 3};
  int64_t shape[] = {3};
  DLTensor from = {.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}, to = from;
  fl_value values[] = {fl_tensor(&from), fl_float(2), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  fl_scope scope;
  to.data = out;
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  fl_status status = fl_call_op(host, "test_scale", &call);
  ck_ok(fl_scope_leave(&scope));
  return status;
}

static void expect_scaled(const char *impl_id) {
  float out[3] = {0};
  char selected[FL_NAME_MAX + 1];
  fl_scope scope;
  ck_ok(scale(out));
  ck_assert_float_eq(out[0], 2);
  ck_assert_float_eq(out[2], 6);
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  ck_ok(fl_get_selected_impl_id(host, "test_scale", kDLCPU, selected, sizeof selected));
  ck_ok(fl_scope_leave(&scope));
  ck_assert_str_eq(selected, impl_id);
}

/* ------------------------------------------------------------------------------------------------ plugins in order */

START_TEST(D4_a_good_plugin_is_loaded_and_called) {
  struct stat status;
  ck_ok(load(plugin("good"), NULL));
  ck_assert_int_eq(record.status, FL_PLUGIN_LOADED);
  ck_assert_str_eq(record.name, "good");
  ck_assert_str_eq(record.version, "1.2.3");
  ck_assert_str_eq(record.vendor, "Good GmbH");
  ck_assert_str_eq(record.licence, "MIT");
  ck_assert_str_eq(record.abi, "0.3");
  ck_assert_str_eq(record.reason, "");
  ck_assert_str_eq(record.build_id, "00c0ffee");
  ck_assert_uint_eq(record.impls, 2);
  ck_assert_double_gt(record.load_us, 0);
  ck_assert_double_lt(record.load_us, 5e6);
  ck_assert_int_eq(stat(plugin("good"), &status), 0);
  ck_assert(record.device == status.st_dev && record.inode == status.st_ino);
  expect_scaled("vendor.good");
}
END_TEST

/* Structs that grew, note that grew; the first header; another language. */
static const struct {
  const char *name, *impl_id, *abi;
} compatible[] = {
    {"frozen", "vendor.frozen", "0.1"}, {"new_minor", "vendor.new_minor", "0.99"}, {"cxx", "vendor.cxx", "0.3"}};

START_TEST(plugins_of_other_headers_and_languages_run) {
  ck_ok(load(plugin(compatible[_i].name), NULL));
  ck_assert_str_eq(record.abi, compatible[_i].abi);
  ck_assert_str_eq(record.reason, "");
  expect_scaled(compatible[_i].impl_id);
}
END_TEST

START_TEST(D3_another_entry_symbol_is_called) {
  ck_ok(load(plugin("entries"), "acme_entry"));
  expect_scaled("vendor.entries");
}
END_TEST

START_TEST(the_vendors_template_computes) {
  float x[] = {1, -2, 3, 4}, out[2] = {0};
  int64_t in_shape[] = {1, 4}, out_shape[] = {1, 2};
  DLTensor from = {.data = x, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLFloat, 32, 1}, .shape = in_shape};
  DLTensor to = from;
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  to.data = out;
  to.shape = out_shape;
  ck_ok(load(plugin("template"), NULL));
  ck_assert_str_eq(record.name, "acme");
  ck_ok(fl_call_op(host, "silu_and_mul", &call));
  ck_assert_float_eq_tol(out[0], 2.1931758f, 1e-6f);  /* 3 * 1 / (1 + e^-1) */
  ck_assert_float_eq_tol(out[1], -0.9536235f, 1e-6f); /* 4 * -2 / (1 + e^2) */
  from.ndim = to.ndim = 1;                            /* supports_args says no, and nobody else is there */
  from.shape = in_shape + 1;
  to.shape = out_shape + 1;
  ck_assert_int_ne(fl_call_op(host, "silu_and_mul", &call), FL_OK);
  ck_contains(fl_error_message(), "takes tensors of 2 dimensions, not 1");
}
END_TEST

/* So that the log of a process that it crashes names it. */
START_TEST(a_plugin_is_named_before_its_code_runs) {
  char line[PATH_MAX + 64];
  ck_ok(fl_set_log_level(host, "debug"));
  test_log_clear();
  ck_assert_int_eq(load(plugin("error"), NULL), FL_EPLUGIN);
  snprintf(line, sizeof line, "DEBUG plugin error: opening %s", plugin("error"));
  ck_assert_int_eq(test_log_count(line), 1);
}
END_TEST

START_TEST(several_hosts_load_the_same_file) {
  fl_host *other = test_host(NULL, FL_HOST_NO_PLUGINS), *first = host;
  ck_ok(load(plugin("good"), NULL));
  host = other;
  ck_ok(load(plugin("good"), NULL));
  expect_scaled("vendor.good");
  fl_host_destroy(other);
  host = first;
  expect_scaled("vendor.good");
}
END_TEST

START_TEST(D6_plugins_stay_mapped) {
  ck_ok(load(plugin("good"), NULL));
  fl_host_destroy(host);
  void *handle = dlopen(plugin("good"), RTLD_LAZY | RTLD_NOLOAD);
  ck_assert_ptr_nonnull(handle);
  ck_assert_ptr_nonnull(dlsym(handle, "register_builtins"));
  ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "register_builtins")); /* RTLD_LOCAL */
  dlclose(handle);
  host = test_host(NULL, FL_HOST_NO_PLUGINS);
}
END_TEST

START_TEST(relative_paths_are_not_searched_for_in_the_library_path) {
  char back[PATH_MAX];
  ck_assert_ptr_nonnull(getcwd(back, sizeof back));
  copy_to_scratch(plugin("good"), "libm.so.6"); /* a name that the loader would find elsewhere */
  ck_assert_int_eq(chdir(scratch), 0);
  ck_ok(load("libm.so.6", NULL));
  ck_assert_str_eq(record.name, "good");
  ck_assert_int_eq(chdir(back), 0);
}
END_TEST

/* ------------------------------------------------------------------------------------------- judged before they run */

START_TEST(D4_another_abi_major_is_refused_before_its_code_runs) {
  expect_failure_of("wrong_abi", "built for ABI 7.0, this host has 0.3; it needs a newer flhost");
  ck_assert_str_eq(record.abi, "7.0");
  ck_assert_str_eq(record.name, "wrong_abi"); /* of the file: its note is not believed */
  ck_assert_str_eq(record.version, "");
}
END_TEST

START_TEST(D4_an_unknown_instruction_set_is_refused_before_its_code_runs) {
#ifdef __x86_64__
  expect_failure_of("isa", "needs the instruction sets 'sse2, xop,fma4', and this machine lacks xop");
  expect_failure_of("isa_unknown", "needs the instruction sets 'avx513f', and this machine lacks avx513f (unknown "
                                   "instruction set; did you mean 'avx512f'?)");
#endif
  ck_assert_str_eq(record.name, "isa_unknown");
}
END_TEST

START_TEST(D4_a_file_without_note_is_no_plugin) {
  expect_failure_of("no_note",
                    "not an flhost plugin: it has no 'flhost' note, though it exports register_builtins; add "
                    "FL_PLUGIN(...) to one of its files");
}
END_TEST

START_TEST(D4_not_an_elf_file_is_named) {
  expect_failure(write_text("x.so", "#include <flhost/plugin.h>\n"), NULL,
                 "not a shared library (no ELF file): it is text");
  expect_failure(in_scratch("none.so"), NULL, "cannot be opened: No such file or directory");
  ck_assert_str_eq(record.name, "none");
}
END_TEST

START_TEST(D4_a_truncated_file_is_named) {
  char reason[160];
  struct stat status;
  const char *path = copy_to_scratch(plugin("good"), "cut.so");
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_eq(truncate(path, status.st_size / 2), 0);
  ck_assert_int_eq(load(path, NULL), FL_EPLUGIN);
  snprintf(reason, sizeof reason, "truncated: the file has %lld bytes, its headers speak of ",
           (long long)status.st_size / 2);
  ck_contains(record.reason, reason);
}
END_TEST

START_TEST(D4_another_architecture_is_named) {
  const char *path = copy_to_scratch(plugin("good"), "arm.so");
  int fd = open(path, O_WRONLY);
#ifdef __aarch64__
  unsigned char machine = 62;
  const char *reason = "built for x86-64, this host is aarch64";
#else
  unsigned char machine = 183;
  const char *reason = "built for aarch64, this host is x86-64";
#endif
  ck_assert_int_eq(pwrite(fd, &machine, 1, 18), 1);
  close(fd);
  expect_failure(path, NULL, reason);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- permissions */

static void expect_untrusted(const char *path, const char *format, ...) {
  char reason[3 * PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  expect_failure(path, NULL, reason);
}

START_TEST(world_writable_files_are_refused) {
  const char *path = copy_to_scratch(plugin("good"), "w.so");
  ck_assert_int_eq(chmod(path, 0666), 0);
  expect_untrusted(
      path, "it is world-writable (mode 0666), and nothing is loaded from such a file; 'chmod o-w %s' mends it", path);
  ck_assert_int_eq(chmod(path, 0664), 0);
  ck_ok(load(path, NULL));
}
END_TEST

START_TEST(world_writable_directories_are_refused) {
  const char *path = copy_to_scratch(plugin("good"), "w.so");
  ck_assert_int_eq(chmod(scratch, 0777), 0);
  expect_untrusted(path,
                   "the directory '%s' is world-writable (mode 0777), and nothing is loaded from there; 'chmod o-w %s' "
                   "mends it",
                   scratch, scratch);
  ck_assert_int_eq(chmod(scratch, 01777), 0); /* as /tmp: ours cannot be replaced by others */
  ck_ok(load(path, NULL));
}
END_TEST

START_TEST(other_peoples_files_in_a_shared_directory_are_refused) {
  const char *path = copy_to_scratch(plugin("good"), "w.so");
  if (geteuid()) {
    puts("skip: other_peoples_files_in_a_shared_directory_are_refused: only root can give files away");
    return;
  }
  ck_assert_int_eq(chmod(scratch, 01777), 0);
  ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
  expect_untrusted(path,
                   "it belongs to user 12345, and what is loaded must belong to root; 'chown 0 %s' mends it, if you "
                   "trust what is there",
                   path);
}
END_TEST

START_TEST(a_links_target_is_judged_too) {
  ck_assert_int_eq(mkdir(in_scratch("open"), 0755), 0);
  copy_to_scratch(plugin("good"), "open/good.so");
  ck_assert_int_eq(chmod(in_scratch("open"), 0777), 0);
  ck_assert_int_eq(symlink(in_scratch("open/good.so"), in_scratch("link.so")), 0);
  const char *open_directory = in_scratch("open");
  expect_untrusted(in_scratch("link.so"),
                   "the directory '%s' is world-writable (mode 0777), and nothing is loaded from there; 'chmod o-w %s' "
                   "mends it",
                   open_directory, open_directory);
}
END_TEST

/* ----------------------------------------------------------------------------------------------- the loader's words */

START_TEST(D4_a_missing_library_is_named_with_who_needs_it) {
  expect_failure_of("absent", "libfltest_absent.so.1: cannot open shared object file: No such file or directory (the "
                              "plugin needs 'libfltest_absent.so.1': install it, or name its directory in "
                              "LD_LIBRARY_PATH)");
  ck_assert_int_eq(load(plugin("absent_middle"), NULL), FL_EPLUGIN);
  ck_contains(record.reason, "libfltest_absent.so.1: cannot open shared object file: No such file or directory "
                             "('libfltest_absent.so.1' is needed by one of the libraries that the plugin needs (");
  ck_contains(record.reason, "libfltest_middle.so");
}
END_TEST

START_TEST(D4_an_undefined_symbol_is_named) {
  ck_assert_int_eq(load(plugin("undefined"), NULL), FL_EPLUGIN);
  ck_contains(record.reason,
              "undefined.so: undefined symbol: acme_missing (neither the plugin nor the libraries that it "
              "names (");
  expect_failure_of("undefined_host",
                    "%s: undefined symbol: fl_get_the_registry (a plugin links nothing of the host: it uses the "
                    "functions that register_builtins is handed)",
                    plugin("undefined_host"));
}
END_TEST

START_TEST(D4_a_missing_entry_is_named_with_the_nearest) {
  expect_failure_of("no_entry",
                    "%s: undefined symbol: register_builtins (it must export 'FL_EXPORT fl_status "
                    "register_builtins(fl_registry *registry)', in C++ within extern \"C\"; did you mean "
                    "'register_builtin'?)",
                    plugin("no_entry"));
}
END_TEST

START_TEST(an_entry_of_a_needed_library_is_not_taken) {
  expect_failure_of("needs_good",
                    "it does not export 'register_builtins' itself: the one found is in '%s', which it needs",
                    plugin("good"));
}
END_TEST

START_TEST(an_entry_that_is_a_variable_is_not_called) {
  expect_failure(plugin("entries"), "variable_entry", "'variable_entry' is a variable, expected a function");
}
END_TEST

/* ------------------------------------------------------------------------------------------------ register_builtins */

START_TEST(R3_an_error_registers_nothing_and_gives_its_reason) {
  expect_failure_of("error", "register_builtins returned FL_EDEVICE: no licence for device 3");
  ck_ok(load(plugin("good"), NULL)); /* the others go on */
  expect_scaled("vendor.good");
}
END_TEST

START_TEST(an_unknown_status_without_message_is_an_error) {
  expect_failure(plugin("entries"), "silent_entry", "silent_entry returned status 77 and gave no reason");
}
END_TEST

START_TEST(R3_a_refused_row_that_is_passed_on_gives_the_reason) {
  expect_failure(plugin("entries"), "refused_entry",
                 "refused_entry returned FL_EINVAL: refused rows:\nimpl '' of op 'test_scale': impl_id is empty");
}
END_TEST

START_TEST(R3_a_refused_row_spoils_the_plugin) {
  expect_failure_of("duplicate", "refused rows, so nothing of it is registered:\nimpl 'vendor.twice' of op "
                                 "'test_scale': Duplicate impl_id 'vendor.twice' for op='test_scale': plugin "
                                 "'duplicate' registers it twice");
}
END_TEST

START_TEST(R3_a_refused_row_does_not_spoil_the_others_if_the_note_says_so) {
  ck_ok(load(plugin("duplicate_skip"), NULL));
  ck_assert_uint_eq(record.impls, 2);
  ck_assert_str_eq(record.reason, "refused rows:\nimpl 'vendor.twice' of op 'test_scale': Duplicate impl_id "
                                  "'vendor.twice' for op='test_scale': plugin 'duplicate_skip' registers it twice");
  expect_scaled("vendor.twice");
}
END_TEST

START_TEST(D4_a_plugin_that_registers_nothing_says_so) {
  static const char nothing[] = "it registered nothing: no implementation, no component, no op that is new";
  fl_plugins *plugins;
  char module[PATH_MAX], line[256];
  snprintf(module, sizeof module, "%s:nothing_entry", plugin("entries"));
  snprintf(line, sizeof line, "WARNING plugin entries: %s", nothing);
  test_log_clear();
  ck_ok(fl_load_plugin(host, module));
  ck_assert_int_eq(test_log_count(line), 1);
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "unavailable");
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->reason, nothing);
  fl_plugins_free(plugins);
}
END_TEST

START_TEST(an_error_that_is_given_and_not_returned_is_warned_of) {
  test_log_clear();
  ck_ok(load(plugin("entries"), "contradicting_entry"));
  ck_assert_str_eq(record.reason, "");
  ck_assert_int_eq(test_log_count("WARNING plugin entries: it gave an error, but returned FL_OK: no firmware"), 1);
  expect_scaled("vendor.entries");
}
END_TEST

/* Else its two platforms would both claim to be active, and no host could be created. */
START_TEST(H2_a_platform_that_is_registered_twice_spoils_its_plugin_alone) {
  expect_failure(plugin("entries"), "twin_platform_entry",
                 "refused rows, so nothing of it is registered:\ncomponent 'acme': plugin 'entries' registers the "
                 "platform 'acme' twice");
}
END_TEST

START_TEST(a_platform_of_no_device_type_is_refused) {
  expect_failure(plugin("entries"), "typeless_platform_entry",
                 "typeless_platform_entry returned FL_EINVAL: refused rows:\ncomponent 'acme': device_type is 0, "
                 "expected a DLDeviceType from 1 to 19");
}
END_TEST

START_TEST(names_that_stand_for_no_plugin_are_reserved) {
  expect_failure_of("named_engine", "the plugin's name 'engine' is reserved: under it stands what an engine itself "
                                    "registers; give it another in FL_PLUGIN");
  expect_failure_of("named_flhost", "the plugin's name 'flhost' is reserved: under it stands what the host itself "
                                    "registers; give it another in FL_PLUGIN");
}
END_TEST

/* The reason names one; how many there are, the number. */
START_TEST(D4_a_plugin_of_which_something_is_missing_says_what) {
  fl_plugins *plugins;
  char module[PATH_MAX];
  snprintf(module, sizeof module, "%s:partial_entry", plugin("entries"));
  ck_ok(fl_load_plugin(host, module));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "loaded");
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->reason, "2 of 3 not available: no Acme device found");
  fl_plugins_free(plugins);
}
END_TEST

START_TEST(an_unknown_implementation_or_plugin_is_answered_with_the_nearest) {
  fl_counters counters = {.size = sizeof counters};
  char uuid[65];
  ck_ok(fl_load_plugin(host, plugin("good")));
  ck_assert_int_eq(fl_get_counters(host, "test_scale", "vendor.goof", &counters), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "op 'test_scale' has no implementation 'vendor.goof'; did you mean 'vendor.good'?");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scale", "vendor.goof", uuid), FL_ENOENT);
  ck_contains(fl_error_message(), "did you mean 'vendor.good'?");
  ck_assert_int_eq(fl_withdraw_plugin(host, "goof"), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no plugin 'goof' is loaded; did you mean 'good'?");
}
END_TEST

START_TEST(R2_a_row_of_another_plugin_stays) {
  const char *copy = copy_to_scratch(plugin("good"), "copy.so");
  ck_ok(load(plugin("good"), NULL));
  ck_assert_int_eq(load(copy, NULL), FL_EPLUGIN);
  ck_contains(record.reason, "Duplicate impl_id 'vendor.good' for op='test_scale'");
  expect_scaled("vendor.good");
}
END_TEST

START_TEST(failing_implementations_load_and_fail) {
  float out[3];
  ck_ok(load(plugin("failing"), NULL));
  ck_assert_uint_eq(record.impls, 7);
  ck_assert_int_eq(scale(out), FL_EINVAL);
  ck_contains(fl_error_message(), "failing on purpose with status 1");
}
END_TEST

START_TEST(H1_a_platform_that_is_not_active_says_why) {
  ck_ok(load(plugin("platform_asleep"), NULL));
  ck_assert_str_eq(record.reason, "platform 'platform_asleep' is not active: its device is asleep");
  ck_ok(load(plugin("platform_a"), NULL));
  ck_assert_str_eq(record.reason, "");
}
END_TEST

/* Why nothing of the loaded plugin can be used; "" if something can. */
static void why_unusable(char *reason, size_t size) {
  snprintf(reason, size, "%s", record.reason);
  if (!record.impls)
    return;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++)
      if (!strcmp(fl_snapshot_impl(snapshot, i, j)->plugin, record.name) &&
          !fl_snapshot_impl(snapshot, i, j)->available)
        snprintf(reason, size, "%s", fl_snapshot_impl(snapshot, i, j)->reason);
  fl_snapshot_release(snapshot);
}

/* The device plugins load everywhere. */
START_TEST(H1_device_plugins_name_the_device_node_or_the_driver_that_is_missing) {
  static const struct {
    const char *plugin, *nodes[2];
  } backends[] = {{"plugins/cuda.so", {"/dev/nvidiactl", "/dev/dxg"}},
                  {"plugins/rocm.so", {"/dev/kfd", "/dev/kfd"}},
                  {"plugins/ascend.so", {"/dev/davinci_manager", "/dev/davinci_manager"}}};
  char reason[512], expected[128];
  ck_ok(load(built(backends[_i].plugin), NULL));
  ck_assert_int_eq(record.status, FL_PLUGIN_LOADED);
  ck_assert_str_eq(record.version, fl_version());
  why_unusable(reason, sizeof reason);
  if (access(backends[_i].nodes[0], F_OK) && access(backends[_i].nodes[1], F_OK)) {
    snprintf(expected, sizeof expected, "no device node %s", backends[_i].nodes[0]);
    ck_contains(reason, expected);
  } else if (*reason) { /* this machine has the device, so it is the driver, the permission or the kernels that lack */
    ck_assert_msg(strstr(reason, "permission") || strstr(reason, ".so") || strstr(reason, "kernels"), "%s", reason);
  }
}
END_TEST

/* --------------------------------------------------------------------------------------------------- process state */

static void expect_warning(const char *format, const char *what) {
  char line[200];
  snprintf(line, sizeof line, format, what);
  ck_assert_msg(test_log_count(line) == 1, "'%s' is not in the log:\n%s", line, test_log.text);
}

START_TEST(D4_loading_restores_what_is_the_loading_threads_own) {
  static const char *const changed[] = {"the floating-point mode", "the signal mask", "the thread's locale"};
  sigset_t blocked;
  ck_ok(load(plugin("changes"), NULL));
  ck_assert_int_eq(fegetround(), FE_TONEAREST);
  ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
  ck_assert_int_eq(sigismember(&blocked, SIGUSR2), 0);
  ck_assert(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
  for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
    expect_warning("WARNING plugin changes changed %s while loading; restored", changed[i]);
}
END_TEST

/* Whoever changed it: another thread may have. */
START_TEST(D4_loading_reports_what_changed_of_the_process_and_leaves_it) {
  static const char *const changed[] = {"signal handlers", "the locale", "the working directory",
                                        "standard input, output or error"};
  char before[PATH_MAX], after[PATH_MAX];
  struct stat out, null;
  struct sigaction action;
  int spare = dup(STDOUT_FILENO);
  ck_assert_ptr_nonnull(getcwd(before, sizeof before));
  ck_ok(load(plugin("changes"), NULL));
  ck_assert_str_eq(getcwd(after, sizeof after), "/");
  ck_assert_int_eq(sigaction(SIGUSR1, NULL, &action), 0);
  ck_assert(action.sa_handler != SIG_DFL);
  ck_assert_str_eq(setlocale(LC_ALL, NULL), "C.UTF-8");
  ck_assert_int_eq(fstat(STDOUT_FILENO, &out), 0);
  ck_assert_int_eq(stat("/dev/null", &null), 0);
  dup2(spare, STDOUT_FILENO);
  close(spare);
  ck_assert(out.st_dev == null.st_dev && out.st_ino == null.st_ino);
  for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++)
    expect_warning("WARNING changed while plugin changes was being loaded: %s; it is left so, since another thread may "
                   "have done it",
                   changed[i]);
  signal(SIGUSR1, SIG_DFL);
  setlocale(LC_ALL, "C");
  ck_assert_int_eq(chdir(before), 0);
}
END_TEST

/* A rounding mode, handlers, closed streams that the engine itself set are not touched. */
START_TEST(loading_respects_what_the_engine_set) {
  struct sigaction action = {.sa_handler = SIG_IGN}, after;
  struct stat status;
  int spare = dup(STDIN_FILENO);
  fesetround(FE_UPWARD);
  ck_assert_int_eq(sigaction(SIGUSR1, &action, NULL), 0);
  ck_assert_ptr_nonnull(setlocale(LC_ALL, "C.UTF-8"));
  close(STDIN_FILENO);
  ck_ok(load(plugin("good"), NULL));
  ck_assert_int_eq(fegetround(), FE_UPWARD);
  ck_assert_int_eq(sigaction(SIGUSR1, NULL, &after), 0);
  ck_assert(after.sa_handler == SIG_IGN);
  ck_assert_str_eq(setlocale(LC_ALL, NULL), "C.UTF-8");
  ck_assert_int_ne(fstat(STDIN_FILENO, &status), 0);
  ck_assert_ptr_null(strstr(test_log.text, "WARNING"));
  dup2(spare, STDIN_FILENO);
  close(spare);
  fesetround(FE_TONEAREST);
  setlocale(LC_ALL, "C");
}
END_TEST

/* With any number of free descriptors, none included. */
START_TEST(standard_streams_stay_as_they_are_when_descriptors_run_short) {
  struct stat before[3], after;
  struct rlimit limit, most;
  int first = dup(STDIN_FILENO);
  close(first);
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &most), 0);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(fstat(i, &before[i]), 0);
  for (int spare = 0; spare < 7; spare++) {
    limit = most;
    limit.rlim_cur = (rlim_t)(first + spare);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    load(plugin("good"), NULL);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
    for (int i = 0; i < 3; i++)
      ck_assert_msg(!fstat(i, &after) && after.st_dev == before[i].st_dev && after.st_ino == before[i].st_ino,
                    "with %d free descriptors stream %d is another", spare, i);
    fl_withdraw_plugin(host, "good");
  }
}
END_TEST

/* No descriptor is left open, whatever happens. */
START_TEST(loading_leaks_no_descriptor) {
  static const char *const names[] = {"good", "wrong_abi", "undefined", "error", "no_note"};
  int before = dup(STDIN_FILENO);
  close(before);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    load(plugin(names[i]), NULL);
  int after = dup(STDIN_FILENO);
  close(after);
  ck_assert_int_eq(after, before);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ names */

START_TEST(names_of_files_lose_what_is_common) {
  static const char *const names[][2] = {
      {"/a/acme.so", "acme"}, {"libacme.so", "acme"}, {"/x/libflhost_acme.so", "acme"},
      {"lib.so", "lib"},      {"/a/b/odd", "odd"},    {".so", ".so"}};
  fl_arena arena = {0};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    ck_assert_str_eq(fl_plugin_name_of_file(&arena, names[i][0]), names[i][1]);
  fl_arena_free(&arena);
}
END_TEST

/* What the C libraries in use say, and plugins. */
static const struct {
  const char *reason;
  bool is_shortage;
} reasons[] = {
    /* glibc, with the number of the error */
    {"/opt/acme.so: cannot open shared object file: Too many open files", true},
    {"libacme.so.1: cannot open shared object file: Too many open files in system (install it)", true},
    {"/opt/acme.so: failed to map segment from shared object: Cannot allocate memory", true},
    {"/opt/acme.so: cannot create shared object descriptor: Cannot allocate memory", true},
    {"/opt/acme.so: cannot allocate dependency list: Cannot allocate memory", true},
    {"/opt/acme.so: cannot map zero-fill pages: Cannot allocate memory", true},
    {"/opt/acme.so: cannot stat shared object: Cannot allocate memory", true},
    {"/opt/acme.so: cannot change memory protections: Cannot allocate memory", true},
    {"/opt/acme.so: cannot open shared object file: No such file or directory", false},
    {"/opt/acme.so: cannot open shared object file: Permission denied", false},
    {"/opt/acme.so: failed to map segment from shared object: Operation not permitted", false},
    {"/opt/acme.so: cannot read file data: Input/output error", false},
    {"/opt/acme.so: cannot read file data: Is a directory", false},
    /* without */
    {"cannot create cache for search path", true},
    {"cannot create TLS data structures", true},
    {"/opt/acme.so: cannot allocate symbol search list", true},
    {"cannot allocate version reference table", true},
    {"/opt/acme.so: cannot open shared object file", true},
    {"out of memory", true},
    {"/opt/acme.so: cannot allocate memory in static TLS block", false},
    {"/opt/acme.so: undefined symbol: acme_init", false},
    {"/opt/acme.so: invalid ELF header", false},
    {"/opt/acme.so: file too short", false},
    /* musl */
    {"Error loading shared library libacme.so.1: Too many open files (needed by /opt/acme.so)", true},
    {"Error loading shared library libacme.so.1: No such file or directory (needed by /opt/acme.so)", false},
    {"Error relocating /opt/acme.so: acme_init: symbol not found", false},
    /* the host's own */
    {"cannot be opened: Too many open files", true},
    {"register_builtins returned FL_ENOMEM: no room for tables", true},
    {"register_builtins returned FL_EDEVICE: device 0 is out of memory", false},
};

START_TEST(a_shortage_is_told_from_what_does_not_mend_itself) {
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    ck_each(fl_is_shortage(reasons[i].reason) == reasons[i].is_shortage, "%s: %s", reasons[i].reason,
            reasons[i].is_shortage ? "a shortage" : "none");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, a_shortage_is_told_from_what_does_not_mend_itself);
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D4_a_good_plugin_is_loaded_and_called);
  tcase_add_loop_test(tests, plugins_of_other_headers_and_languages_run, 0, 3);
  tcase_add_test(tests, D3_another_entry_symbol_is_called);
  tcase_add_test(tests, the_vendors_template_computes);
  tcase_add_test(tests, a_plugin_is_named_before_its_code_runs);
  tcase_add_test(tests, several_hosts_load_the_same_file);
  tcase_add_test(tests, D6_plugins_stay_mapped);
  tcase_add_test(tests, relative_paths_are_not_searched_for_in_the_library_path);
  tcase_add_test(tests, D4_another_abi_major_is_refused_before_its_code_runs);
  tcase_add_test(tests, D4_an_unknown_instruction_set_is_refused_before_its_code_runs);
  tcase_add_test(tests, D4_a_file_without_note_is_no_plugin);
  tcase_add_test(tests, D4_not_an_elf_file_is_named);
  tcase_add_test(tests, D4_a_truncated_file_is_named);
  tcase_add_test(tests, D4_another_architecture_is_named);
  tcase_add_test(tests, world_writable_files_are_refused);
  tcase_add_test(tests, world_writable_directories_are_refused);
  tcase_add_test(tests, other_peoples_files_in_a_shared_directory_are_refused);
  tcase_add_test(tests, a_links_target_is_judged_too);
  tcase_add_test(tests, D4_a_missing_library_is_named_with_who_needs_it);
  tcase_add_test(tests, D4_an_undefined_symbol_is_named);
  tcase_add_test(tests, D4_a_missing_entry_is_named_with_the_nearest);
  tcase_add_test(tests, an_entry_of_a_needed_library_is_not_taken);
  tcase_add_test(tests, an_entry_that_is_a_variable_is_not_called);
  tcase_add_test(tests, R3_an_error_registers_nothing_and_gives_its_reason);
  tcase_add_test(tests, an_unknown_status_without_message_is_an_error);
  tcase_add_test(tests, R3_a_refused_row_that_is_passed_on_gives_the_reason);
  tcase_add_test(tests, R3_a_refused_row_spoils_the_plugin);
  tcase_add_test(tests, R3_a_refused_row_does_not_spoil_the_others_if_the_note_says_so);
  tcase_add_test(tests, D4_a_plugin_that_registers_nothing_says_so);
  tcase_add_test(tests, an_error_that_is_given_and_not_returned_is_warned_of);
  tcase_add_test(tests, H2_a_platform_that_is_registered_twice_spoils_its_plugin_alone);
  tcase_add_test(tests, a_platform_of_no_device_type_is_refused);
  tcase_add_test(tests, names_that_stand_for_no_plugin_are_reserved);
  tcase_add_test(tests, D4_a_plugin_of_which_something_is_missing_says_what);
  tcase_add_test(tests, an_unknown_implementation_or_plugin_is_answered_with_the_nearest);
  tcase_add_test(tests, R2_a_row_of_another_plugin_stays);
  tcase_add_test(tests, failing_implementations_load_and_fail);
  tcase_add_test(tests, H1_a_platform_that_is_not_active_says_why);
  tcase_add_loop_test(tests, H1_device_plugins_name_the_device_node_or_the_driver_that_is_missing, 0, 3);
  tcase_add_test(tests, D4_loading_restores_what_is_the_loading_threads_own);
  tcase_add_test(tests, D4_loading_reports_what_changed_of_the_process_and_leaves_it);
  tcase_add_test(tests, loading_respects_what_the_engine_set);
  tcase_add_test(tests, standard_streams_stay_as_they_are_when_descriptors_run_short);
  tcase_add_test(tests, loading_leaks_no_descriptor);
  tcase_add_test(tests, names_of_files_lose_what_is_common);
}

int main(void) {
  return run_suite("loader", add_tests, 30);
}
