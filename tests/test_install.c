/*
 * What `make install` puts on a machine, and that it is enough: the examples are built against the installed tree
 * through pkg-config and run. Installs into a staging directory once; each test looks at that tree. The tree is not
 * where PREFIX says, so that all of it shows that an installed flhost may be moved.
 */
#include "tests/suite.h"
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char stage[PATH_MAX];

static const char *setting(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static const char *prefix(void) {
  return setting("PREFIX", "/usr/local");
}

static void remove_stage(void) {
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", stage);
  ck_assert_int_eq(system(command), 0);
}

/*
 * Runs a shell command with the staged tree at hand: $tree (the installed prefix), $stage (an empty place beside it),
 * $CC and $flags to compile with, pkg-config reading the tree. Gives back what it printed, both streams; fails the test
 * unless it succeeds.
 */
__attribute__((format(printf, 1, 2))) static const char *shell(const char *format, ...) {
  static char output[1 << 16];
  char command[8192];
  size_t length;
  va_list arguments;
  FILE *pipe;
  int status, used;

  used = snprintf(command, sizeof command,
                  "exec 2>&1; set -e; unset MAKEFLAGS MFLAGS MAKELEVEL; stage='%s' tree='%s%s' CC='%s' BUILD='%s';"
                  " flags='-Wall -Wextra -Werror %s'; export CC BUILD PKG_CONFIG_PATH=\"$tree/lib/pkgconfig\";"
                  " pc() { pkg-config --define-prefix \"$@\" flhost; }; ",
                  stage, stage, prefix(), setting("CC", "cc"), build_dir(), setting("SANITIZE", ""));
  va_start(arguments, format);
  vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
  va_end(arguments);
  pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  length = fread(output, 1, sizeof output - 1, pipe);
  output[length] = '\0';
  status = pclose(pipe);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s\ngave status %d and printed:\n%s", command, status,
                output);
  return output;
}

/* Without the caller's LIBDIR: the tests look in lib. */
static void install(void) {
  snprintf(stage, sizeof stage, "%s/flhost-install-XXXXXX", setting("TMPDIR", "/tmp"));
  ck_assert_ptr_nonnull(mkdtemp(stage));
  unsetenv("LIBDIR");
  shell("make -s install DESTDIR=\"$stage\"");
}

static void assert_contains(const char *text, const char *expected) {
  ck_assert_msg(strstr(text, expected) != NULL, "expected '%s' in:\n%s", expected, text);
}

START_TEST(every_kind_of_file_is_installed) {
  static const char *const files[] = {
      "bin/flhost",
      "include/flhost/element.h",
      "include/flhost/flhost.h",
      "include/flhost/host.h",
      "include/flhost/ops.h",
      "include/flhost/plugin.h",
      "include/flhost/testing.h",
      "include/flhost/vllm.h",
      "lib/flhost/plugins/cpu.so",
      "lib/libflhost.a",
      "lib/libflhost.so",
      "lib/pkgconfig/flhost.pc",
      "share/doc/flhost/LICENSE",
      "share/doc/flhost/README.md",
      "share/doc/flhost/examples/call_op.c",
      "share/doc/flhost/docs/policy-guide.md",
      "share/flhost/config/cpu.yaml",
      "share/man/man1/flhost.1",
      "share/man/man5/flhost.yaml.5",
      "share/man/man7/flhost-plugin.7",
  };
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    shell("test -s \"$tree/%s\" || { echo %s is missing; exit 1; }", files[i], files[i]);
}
END_TEST

START_TEST(library_has_a_versioned_soname) {
  ck_assert_str_eq(shell("readlink \"$tree/lib/libflhost.so\""), "libflhost.so.0\n");
  assert_contains(shell("readlink \"$tree/lib/libflhost.so.0\""), "libflhost.so.0.");
  assert_contains(shell("objdump -p \"$tree/lib/libflhost.so\""), "SONAME               libflhost.so.0\n");
  /* One number in all three places. */
  shell("v=$(pc --modversion); \"$tree/bin/flhost\" version | grep -qF \"$v\"; test -f \"$tree/lib/libflhost.so.$v\"");
}
END_TEST

START_TEST(engine_example_builds_through_pkg_config_and_runs) {
  const char *output =
      shell("$CC $flags examples/call_op.c $(pc --cflags --libs) -lm -Wl,-rpath,$tree/lib -o $stage/call_op;"
            " $stage/call_op");
  assert_contains(output, "silu_and_mul by default.flagos: largest error");
  output = shell("VLLM_FL_PREFER=reference $stage/call_op");
  assert_contains(output, "silu_and_mul by reference.");
}
END_TEST

START_TEST(cache_example_builds_and_prints_the_commands_digest) {
  const char *output = shell("$CC $flags examples/compile_cache.c $(pc --cflags --libs) -Wl,-rpath,$tree/lib"
                             " -o $stage/compile_cache; $stage/compile_cache");
  assert_contains(output, " operators are ready, 0 have no implementation that may run\n"
                          "resetting the global policy is refused: the host is frozen by 'compile_cache'; "
                          "fl_thaw(host, \"compile_cache\") thaws it\nkey: ");
  shell("test \"$($stage/compile_cache | sed -n 's/^key: //p')\" ="
        " \"$($tree/bin/flhost manifest --text | sha256sum | cut -d' ' -f1)\"");
  shell("test \"$($stage/compile_cache)\" != \"$(VLLM_FL_PREFER=reference $stage/compile_cache)\"");
}
END_TEST

/* The system's libraries stay shared, as in every program that loads plugins. */
START_TEST(engine_example_builds_with_the_static_library) {
  shell("$CC $flags examples/call_op.c $(pc --static --cflags --libs | sed 's/-lflhost /-l:libflhost.a /') -lm"
        " -o $stage/static");
  ck_assert_str_eq(shell("objdump -p $stage/static | grep NEEDED.*flhost || true"), "");
  assert_contains(shell("VLLM_FL_PLUGIN_PATH=$tree/lib/flhost/plugins $stage/static"), "largest error");
}
END_TEST

/* In a copy of the tree, since it adds to it. -z defs: a plugin has no undefined symbol of the host. */
START_TEST(vendor_example_builds_from_the_header_alone_and_is_chosen) {
  shell("cp -a $tree $stage/vendor; export PKG_CONFIG_PATH=$stage/vendor/lib/pkgconfig;"
        " $CC $flags -O2 -shared -fPIC -fvisibility=hidden $(pc --cflags) examples/vendor_plugin.c -Wl,-z,defs"
        " -o $(pc --variable=pluginsdir)/acme.so -lm");
  assert_contains(shell("$stage/vendor/bin/flhost plugins"), "acme.so");
  assert_contains(shell("$stage/vendor/bin/flhost resolve silu_and_mul"), "default.flagos");
  assert_contains(shell("VLLM_FL_PREFER=vendor $stage/vendor/bin/flhost resolve silu_and_mul"), "vendor.acme");
  assert_contains(shell("$stage/vendor/bin/flhost resolve acme_scale"), "vendor.acme");
  assert_contains(shell("VLLM_FL_PREFER=vendor $stage/vendor/bin/flhost run tests/golden/silu_and_mul"), "vendor.acme");
}
END_TEST

START_TEST(copy_of_the_template_builds_and_loads_on_the_first_try) {
  shell("cp -r $tree/share/doc/flhost/plugins/template $stage/mine; test $(wc -l < $stage/mine/template.c) -lt 50;"
        " PKG_CONFIG_SYSROOT_DIR=$stage make -s -C $stage/mine CFLAGS='-O2 %s'",
        setting("SANITIZE", ""));
  assert_contains(shell("VLLM_FL_PLUGIN_MODULES=$stage/mine/acme.so VLLM_FL_PREFER=vendor"
                        " $tree/bin/flhost resolve silu_and_mul"),
                  "vendor.acme");
}
END_TEST

/* Whoever reads the installed pages has no other tree to look into. */
START_TEST(every_link_of_an_installed_page_leads_to_something_installed) {
  const char *output = shell("cd $tree/share/doc/flhost; find . -name '*.md' | while read -r page; do"
                             " grep -oE '\\]\\([^)#]+' $page | cut -c3- | grep -v ^http | while read -r link; do"
                             " test -e $(dirname $page)/$link && echo good || echo \"$page: $link\"; done; done");
  size_t good = 0;
  for (const char *line = output; *line; line = strchr(line, '\n') + 1, good++)
    ck_assert_msg(!strncmp(line, "good\n", 5), "leads nowhere: %.*s", (int)strcspn(line, "\n"), line);
  ck_assert_uint_gt(good, 15);
}
END_TEST

START_TEST(installed_command_uses_the_installed_plugins_and_platform_files) {
  const char *output = shell("$tree/bin/flhost plugins --json");
  assert_contains(output, "/lib/flhost/plugins/cpu.so");
  assert_contains(output, stage);
  output = shell("VLLM_FL_PLATFORM=cpu $tree/bin/flhost platform");
  assert_contains(output, "/share/flhost/config/cpu.yaml");
  assert_contains(output, stage);
}
END_TEST

START_TEST(uninstall_leaves_only_what_others_put_there) {
  shell("make -s install DESTDIR=\"$stage/other\"; plugins=$stage/other%s/lib/flhost/plugins; touch $plugins/acme.so;"
        " make -s uninstall DESTDIR=\"$stage/other\"",
        prefix());
  ck_assert_str_eq(shell("cd $stage/other%s; find . -not -type d", prefix()), "./lib/flhost/plugins/acme.so\n");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_unchecked_fixture(tests, install, remove_stage);
  tcase_add_test(tests, every_kind_of_file_is_installed);
  tcase_add_test(tests, library_has_a_versioned_soname);
  tcase_add_test(tests, engine_example_builds_through_pkg_config_and_runs);
  tcase_add_test(tests, cache_example_builds_and_prints_the_commands_digest);
  tcase_add_test(tests, engine_example_builds_with_the_static_library);
  tcase_add_test(tests, vendor_example_builds_from_the_header_alone_and_is_chosen);
  tcase_add_test(tests, copy_of_the_template_builds_and_loads_on_the_first_try);
  tcase_add_test(tests, every_link_of_an_installed_page_leads_to_something_installed);
  tcase_add_test(tests, installed_command_uses_the_installed_plugins_and_platform_files);
  tcase_add_test(tests, uninstall_leaves_only_what_others_put_there);
}

int main(void) {
  return run_suite("install", add_tests, 60);
}
