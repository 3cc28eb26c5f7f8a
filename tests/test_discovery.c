/* Finding plugins: routes, order, names and manifests (D1–D3), and what a host makes of what is found (D4, D5). */
#include "core/plugins/discovery.h"
#include "core/plugins/drop_in.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <signal.h>
#include <sys/resource.h>

static fl_found_list found;
static fl_strings directories;
static char lines[8192]; /* of the log */

static void collect(void *user, int level, const char *line) {
  (void)user;
  snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%d %s\n", level, line);
}

static fl_log logger = {.fn = collect, .level = FL_LOG_INFO};

static void set_up(void) {
  scratch_make();
}

static void tear_down(void) {
  fl_found_list_free(&found);
  fl_strings_free(&directories);
  scratch_remove();
}

/* Discovers with up to three variables; files are found, not read, so that any content will do. */
static void discover(const char *a, const char *b, const char *c) {
  const char *environment[] = {a, b, c, NULL};
  fl_config_sources sources = {.environment = environment};
  fl_found_list_free(&found);
  fl_strings_free(&directories);
  ck_ok(fl_discover(&sources, &logger, &directories, &found));
}

static const char *variable(const char *name, const char *value) {
  static char *texts[4];
  static int turn;
  char **text = &texts[turn++ % 4];
  free(*text);
  ck_assert_int_gt(asprintf(text, "%s=%s", name, value), 0);
  return *text;
}

static void make_directory(const char *name) {
  ck_assert_int_eq(mkdir(in_scratch(name), 0755), 0);
}

static const fl_found *module(const char *entry) {
  fl_found_list_free(&found);
  fl_find_module(&directories, entry, &found);
  ck_assert_uint_eq(found.n, 1);
  ck_assert(!found.owned.failed);
  ck_assert_str_eq(found.items[0].route, "module");
  return &found.items[0];
}

static void expect_path(const fl_found *one, const char *path) {
  ck_assert_msg(!one->problem, "%s", one->problem);
  ck_assert_str_eq(one->path, path);
}

/* ---------------------------------------------------------------------------------------------------- directories */

START_TEST(D1_D2_what_is_named_comes_first_then_directories_in_bytewise_order) {
  make_directory("one");
  make_directory("two");
  make_directory("user");
  make_directory("user/flhost");
  make_directory("user/flhost/plugins.d");
  const char *files[] = {"one/b.so",       "one/a.so",   "one/B.so", "one/libc.so.1",
                         "one/.hidden.so", "one/readme", "two/a.so"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
    write_text(files[i], "");
  write_text("user/flhost/plugins.d/m.yaml", "library: x.so\n");
  char path[4 * PATH_MAX];
  snprintf(path, sizeof path, "%s:%s:%s", in_scratch("two"), in_scratch("one"), in_scratch("two"));
  discover(variable("VLLM_FL_PLUGIN_PATH", path), variable("XDG_CONFIG_HOME", in_scratch("user")),
           variable("VLLM_FL_PLUGIN_MODULES", "b:entry , a"));
  const char *expected[][2] = {
      {"one/b.so", "module"},
      {"two/a.so", "module"},
      {"two/a.so", "directory"},
      {"one/B.so", "directory"},
      {"one/a.so", "directory"},
      {"one/b.so", "directory"},
      {"user/flhost/plugins.d/x.so", "manifest"},
  };
  ck_assert_uint_eq(found.n, sizeof expected / sizeof expected[0]);
  for (uint32_t i = 0; i < found.n; i++) {
    expect_path(&found.items[i], in_scratch(expected[i][0]));
    ck_assert_str_eq(found.items[i].route, expected[i][1]);
  }
  ck_assert_str_eq(found.items[0].symbol, "entry");
  ck_assert_ptr_null(found.items[1].symbol);
  ck_assert_uint_eq(directories.n, 2);
  ck_assert_str_eq(directories.items[0], in_scratch("two"));
}
END_TEST

START_TEST(D2_relative_directories_are_an_error_record) {
  discover("VLLM_FL_PLUGIN_PATH=plugins", NULL, NULL);
  ck_assert_uint_eq(found.n, 1);
  ck_assert_str_eq(found.items[0].problem, "VLLM_FL_PLUGIN_PATH: 'plugins' is relative to wherever the program starts, "
                                           "expected an absolute path");
  ck_assert_uint_eq(directories.n, 0);
}
END_TEST

START_TEST(directories_that_are_not_there_or_empty_are_warned_of) {
  char expected[8 * PATH_MAX], path[4 * PATH_MAX];
  make_directory("empty");
  snprintf(path, sizeof path, "%s:%s", in_scratch("none"), in_scratch("empty"));
  discover(variable("VLLM_FL_PLUGIN_PATH", path), NULL, NULL);
  ck_assert_uint_eq(found.n, 0);
  snprintf(expected, sizeof expected,
           "30 VLLM_FL_PLUGIN_PATH: '%s': No such file or directory\n"
           "30 VLLM_FL_PLUGIN_PATH: '%s': no plugin (*.so) there\n",
           in_scratch("none"), in_scratch("empty"));
  ck_assert_str_eq(lines, expected);
}
END_TEST

/* A program that holds the library looks in ../lib/flhost/plugins; never in the working directory. */
START_TEST(D2_default_directories_do_not_depend_on_the_working_directory) {
  char back[PATH_MAX];
  fl_strings here = {0}, elsewhere = {0};
  ck_assert_ptr_nonnull(getcwd(back, sizeof back));
  ck_assert(fl_default_plugin_directories(&here));
  ck_assert_int_eq(chdir("/"), 0);
  ck_assert(fl_default_plugin_directories(&elsewhere));
  char *config = fl_default_config_directory();
  ck_assert_int_eq(chdir(back), 0);
  ck_assert_uint_eq(here.n, elsewhere.n);
  for (uint32_t i = 0; i < here.n; i++) {
    ck_assert_str_eq(here.items[i], elsewhere.items[i]);
    ck_assert_int_eq(here.items[i][0], '/');
  }
  ck_assert_str_eq(here.items[here.n - 1], FLHOST_PREFIX "/lib/flhost/plugins");
  ck_assert_int_eq(config[0], '/');
  free(config);
  fl_strings_free(&here);
  fl_strings_free(&elsewhere);
}
END_TEST

/* The shared library finds the plugins of the tree that it lies in, wherever that is: asked through a program. */
START_TEST(D2_the_library_finds_its_own_tree) {
  char command[8 * PATH_MAX], output[4096] = "";
  make_directory("lib");
  make_directory("lib/flhost");
  make_directory("lib/flhost/plugins");
  copy_to_scratch(built("libflhost.so"), "lib/libflhost.so.0");
  copy_to_scratch(built("tests/plugins/good.so"), "lib/flhost/plugins/good.so");
  make_directory("bin");
  ck_assert_int_eq(chmod(copy_to_scratch(built("flhost"), "bin/flhost"), 0755), 0);
  snprintf(command, sizeof command, "cd / && env -i ASAN_OPTIONS=detect_leaks=0 %s plugins --json",
           in_scratch("bin/flhost"));
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  output[fread(output, 1, sizeof output - 1, pipe)] = 0;
  ck_assert_int_eq(pclose(pipe), 0);
  ck_contains(output, in_scratch("lib/flhost/plugins/good.so"));
  ck_contains(output, "\"loaded\"");
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- modules */

START_TEST(D3_names_are_looked_up_in_three_forms) {
  make_directory("one");
  make_directory("two");
  ck_assert(fl_strings_add(&directories, in_scratch("one")) && fl_strings_add(&directories, in_scratch("two")));
  write_text("two/acme.so", "");
  write_text("one/libbeta.so", "");
  write_text("one/libflhost_gamma.so", "");
  write_text("two/gamma.so", "");
  expect_path(module("acme"), in_scratch("two/acme.so"));
  expect_path(module("beta"), in_scratch("one/libbeta.so"));
  expect_path(module("gamma"), in_scratch("one/libflhost_gamma.so")); /* directories in order */
  expect_path(module("acme.so"), in_scratch("two/acme.so"));
  ck_assert_ptr_null(module("acme")->symbol);
  ck_assert_str_eq(module("acme:init_2")->symbol, "init_2");
}
END_TEST

START_TEST(D3_paths_are_taken_as_they_are) {
  char back[PATH_MAX], entry[4 * PATH_MAX];
  write_text("x.so", "");
  write_text("a:b.so", "");
  expect_path(module(in_scratch("x.so")), in_scratch("x.so"));
  snprintf(entry, sizeof entry, "%s:start", in_scratch("x.so"));
  expect_path(module(entry), in_scratch("x.so"));
  ck_assert_str_eq(module(entry)->symbol, "start");
  ck_assert_ptr_nonnull(getcwd(back, sizeof back));
  ck_assert_int_eq(chdir(scratch), 0);
  expect_path(module("./x.so"), in_scratch("x.so"));
  ck_assert_ptr_nonnull(module("x.so")->problem); /* a name: not looked up in the working directory */
  ck_assert_int_eq(chdir(back), 0);
}
END_TEST

START_TEST(D3_a_missing_module_says_where_it_was_looked_for) {
  char expected[8 * PATH_MAX];
  make_directory("one");
  make_directory("two");
  ck_assert(fl_strings_add(&directories, in_scratch("one")) && fl_strings_add(&directories, in_scratch("two")));
  write_text("two/libflhost_ascend.so", "");
  snprintf(
      expected, sizeof expected,
      "no plugin 'asend': looked for asend.so, libasend.so and libflhost_asend.so in %s, %s; did you mean 'ascend'?",
      in_scratch("one"), in_scratch("two"));
  ck_assert_str_eq(module("asend")->problem, expected);
  snprintf(expected, sizeof expected, "no plugin 'zzz.so' in %s, %s", in_scratch("one"), in_scratch("two"));
  ck_assert_str_eq(module("zzz.so")->problem, expected);
  snprintf(expected, sizeof expected, "no file '%s'; did you mean '%s'?", in_scratch("two/libflhost_acsend.so"),
           in_scratch("two/libflhost_ascend.so"));
  ck_assert_str_eq(module(in_scratch("two/libflhost_acsend.so"))->problem, expected);
}
END_TEST

START_TEST(D3_a_malformed_entry_is_named) {
  ck_assert_str_eq(module("acme:2x")->problem,
                   "'acme:2x': '2x' is not a symbol's name, expected a path or name, with or without ':symbol'");
  ck_assert_str_eq(module("acme:")->problem,
                   "'acme:': '' is not a symbol's name, expected a path or name, with or without ':symbol'");
  ck_assert_str_eq(module(":x")->problem,
                   "':x': the plugin's name is empty, expected a path or name, with or without ':symbol'");
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ manifests */

static const fl_found *manifest(const char *text) {
  fl_found_list_free(&found);
  fl_manifest_read(write_text("acme.yaml", text), &found);
  ck_assert_uint_eq(found.n, 1);
  ck_assert(!found.owned.failed);
  return &found.items[0];
}

START_TEST(D1_a_manifest_names_a_library_relative_to_itself) {
  const fl_found *one = manifest("name: acme\nlibrary: lib/acme.so\nsymbol: start\ncritical: yes\nenabled: off\n");
  expect_path(one, in_scratch("lib/acme.so"));
  ck_assert_str_eq(one->name, "acme");
  ck_assert_str_eq(one->symbol, "start");
  ck_assert_str_eq(one->route, "manifest");
  ck_assert(one->critical);
  ck_assert(one->disabled);
  one = manifest("library: '/opt/acme.so' # absolute\n");
  expect_path(one, "/opt/acme.so");
  ck_assert(!one->critical && !one->disabled && !one->name && !one->symbol);
}
END_TEST

/* What is wrong, with its place; `critical` is heard all the same. */
static const struct {
  const char *text, *problem;
  bool critical;
} bad_manifests[] = {
    {"", "1:1: expected a mapping: 'library: acme.so' and other keys", false},
    {"- library\n", "1:1: expected a mapping: 'library: acme.so' and other keys", false},
    {"name: acme\n", "1:1: 'library' is missing: the path of the plugin, relative to this file", false},
    {"name: acme\nlibary: acme.so\ncritical: true\n",
     "2:1: unknown key 'libary', expected name, library, symbol, critical or enabled; did you mean 'library'?", true},
    {"library: a.so\ncolour: red\n", "2:1: unknown key 'colour', expected name, library, symbol, critical or enabled",
     false},
    {"library: a.so\ncritical: 'true'\n", "2:11: 'critical': found 'true', expected true or false", false},
    {"library: a.so\nenabled: maybe\n", "2:10: 'enabled': found 'maybe', expected true or false", false},
    {"library: a.so\nenabled: [true]\n", "2:10: 'enabled': found a list or mapping, expected true or false", false},
    {"library: [a.so]\n", "1:10: 'library': expected a non-empty string", false},
    {"library:\n", "1:9: 'library': expected a non-empty string", false},
    {"library: a.so\nlibrary: b.so\n", "2:1: 'library' stands twice", false},
    {"library: a.so\n  name: b\n", "2:7: mapping values are not allowed in this context", false},
    {"critical: true\nlibrary: a.so\n[x]: y\n", "3:1: a key must be a word", true},
    {"critical: true\nlibrary: !x a.so\n", "2:10: could not determine a constructor for the tag '!x'", true},
    {"critical: true\nlibrary: \"a\\0.so\"\n", "2:10: a NUL character is not allowed", true},
};

START_TEST(D1_a_bad_manifest_is_answered_with_file_line_and_column) {
  char expected[2 * PATH_MAX];
  const fl_found *one = manifest(bad_manifests[_i].text);
  snprintf(expected, sizeof expected, "%s:%s", in_scratch("acme.yaml"), bad_manifests[_i].problem);
  ck_assert_ptr_nonnull(one->problem);
  ck_assert_str_eq(one->problem, expected);
  ck_assert_ptr_nonnull(one->path);
  ck_assert_int_eq(one->critical, bad_manifests[_i].critical);
}
END_TEST

START_TEST(a_world_writable_manifest_is_refused) {
  const char *path = write_text("acme.yaml", "library: a.so\n");
  ck_assert_int_eq(chmod(path, 0646), 0);
  fl_manifest_read(path, &found);
  ck_contains(found.items[0].problem, "it is world-writable (mode 0646)");
}
END_TEST

/* That it is not there is no news; that nobody can tell is. */
START_TEST(D2_a_default_directory_that_cannot_be_listed_is_warned_of) {
  struct rlimit limit, most;
  const char *preloaded = getenv("LD_PRELOAD");
  if (preloaded && strstr(preloaded, "vgpreload")) {
    printf("skip: D2_a_default_directory_that_cannot_be_listed_is_warned_of: valgrind has descriptors of its own\n");
    return;
  }
  int first = dup(STDIN_FILENO);
  close(first);
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &most), 0);
  limit = most;
  limit.rlim_cur = (rlim_t)first;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  discover(NULL, NULL, NULL);
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &most), 0);
  ck_contains(lines, "30 default plugin directory: '");
  ck_contains(lines, "': Too many open files\n");
}
END_TEST

/* A hundred thousand took a minute and more. */
START_TEST(D2_a_directory_of_thousands_of_files_is_refused) {
  make_directory("crowd");
  for (int i = 0; i <= 2 * (FL_DIRECTORY_MOST + 1); i++) {
    char name[32];
    snprintf(name, sizeof name, "crowd/%d%s", i, i % 2 ? ".yaml" : ".so");
    ck_each(!mknod(in_scratch(name), S_IFREG | 0644, 0), "%s", name);
  }
  discover(variable("VLLM_FL_PLUGIN_PATH", in_scratch("crowd")), NULL, NULL);
  ck_assert_uint_eq(found.n, 1);
  ck_assert_str_eq(found.items[0].path, in_scratch("crowd"));
  ck_assert_str_eq(found.items[0].problem,
                   "it has more than 4096 files *.so, and none of them is looked at: each is read when a host starts");
  fl_found_list_free(&found);
  fl_manifests_find(&directories, &found);
  ck_assert_uint_eq(found.n, 1);
  ck_assert_str_eq(
      found.items[0].problem,
      "it has more than 4096 files *.yaml, and none of them is looked at: each is read when a host starts");
}
END_TEST

/* None of them is waited for, or read without end. */
START_TEST(D1_what_is_no_file_is_no_manifest) {
  ck_assert_int_eq(mkfifo(in_scratch("a_pipe.yaml"), 0600), 0);
  make_directory("b_directory.yaml");
  ck_assert_int_eq(symlink("/dev/zero", in_scratch("c_device.yaml")), 0);
  ck_assert_int_eq(mknod(in_scratch("d_socket.yaml"), S_IFSOCK | 0600, 0), 0);
  ck_assert_int_eq(symlink("f_loop.yaml", in_scratch("e_loop.yaml")), 0);
  ck_assert_int_eq(symlink("e_loop.yaml", in_scratch("f_loop.yaml")), 0);
  ck_assert_int_eq(symlink("/nonexistent/x", in_scratch("g_dangling.yaml")), 0);
  write_text("h_huge.yaml", "");
  ck_assert_int_eq(truncate(in_scratch("h_huge.yaml"), 300 << 20), 0);
  static const char *const problems[] = {"not a regular file: it is a named pipe",
                                         "not a regular file: it is a directory",
                                         "not a regular file: it is a device",
                                         "not a regular file: it is a socket",
                                         "cannot be opened: Too many levels of symbolic links",
                                         "cannot be opened: Too many levels of symbolic links",
                                         "cannot be opened: No such file or directory",
                                         "larger than 1 MiB"};
  ck_assert(fl_strings_add(&directories, scratch));
  fl_manifests_find(&directories, &found);
  ck_assert_uint_eq(found.n, 8);
  for (uint32_t i = 0; i < found.n; i++)
    ck_contains(found.items[i].problem, problems[i]);
}
END_TEST

/* A file of /proc says that it has no bytes; what it has is read. */
START_TEST(D1_a_manifest_of_size_0_is_read_to_its_end) {
  ck_assert_int_eq(symlink("/proc/self/status", in_scratch("acme.yaml")), 0);
  fl_manifest_read(in_scratch("acme.yaml"), &found);
  ck_contains(found.items[0].problem, "unknown key 'Name'");
}
END_TEST

START_TEST(a_later_directory_overrides_a_manifest_by_file_name) {
  const char *names[] = {"package", "system", "user", "none"};
  make_directory("package");
  make_directory("system");
  make_directory("user");
  write_text("package/b.yaml", "library: package-b.so\n");
  write_text("package/a.yaml", "library: package-a.so\n");
  write_text("package/c.yml", "library: not-read.so\n");
  write_text("system/a.yaml", "library: system-a.so\n");
  write_text("user/a.yaml", "library: user-a.so\nenabled: false\n");
  for (size_t i = 0; i < 4; i++)
    ck_assert(fl_strings_add(&directories, in_scratch(names[i])));
  fl_manifests_find(&directories, &found);
  ck_assert_uint_eq(found.n, 2);
  expect_path(&found.items[0], in_scratch("user/user-a.so"));
  ck_assert(found.items[0].disabled);
  expect_path(&found.items[1], in_scratch("package/package-b.so"));
}
END_TEST

START_TEST(D1_the_users_manifests_are_found) {
  make_directory("xdg");
  make_directory("xdg/flhost");
  make_directory("xdg/flhost/plugins.d");
  make_directory("home");
  make_directory("home/.config");
  make_directory("home/.config/flhost");
  make_directory("home/.config/flhost/plugins.d");
  make_directory("empty");
  write_text("xdg/flhost/plugins.d/x.yaml", "library: x.so\n");
  write_text("home/.config/flhost/plugins.d/h.yaml", "library: h.so\n");
  const char *nothing = variable("VLLM_FL_PLUGIN_PATH", in_scratch("empty"));
  discover(nothing, variable("XDG_CONFIG_HOME", in_scratch("xdg")), variable("HOME", in_scratch("home")));
  ck_assert_uint_eq(found.n, 1);
  expect_path(&found.items[0], in_scratch("xdg/flhost/plugins.d/x.so"));
  discover(nothing, variable("HOME", in_scratch("home")), "XDG_CONFIG_HOME=relative");
  ck_assert_uint_eq(found.n, 1);
  expect_path(&found.items[0], in_scratch("home/.config/flhost/plugins.d/h.so"));
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- the host */

static fl_status create(const char *a, const char *b, fl_host **host) {
  const char *environment[] = {a, b, "VLLM_FL_PLATFORM=cpu", NULL};
  fl_host_options options = {.size = sizeof options, .environment = environment, .log = collect};
  return fl_host_create(&options, host);
}

static fl_plugins *plugins_of(fl_host *host) {
  fl_plugins *plugins;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  return plugins;
}

/* D4, D5: what is broken does not keep the others from loading, and all is reported. */
START_TEST(D4_a_host_goes_on_past_broken_plugins) {
  fl_host *host;
  copy_to_scratch(built("tests/plugins/good.so"), "b_good.so");
  ck_assert_int_eq(symlink("b_good.so", in_scratch("c_link.so")), 0);
  write_text("a_text.so", "hello\n");
  copy_to_scratch(built("tests/plugins/unavailable.so"), "d_unavailable.so");
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", scratch), NULL, &host));
  fl_plugins *plugins = plugins_of(host);
  ck_assert_uint_eq(plugins->n, 4);
  const char *expected[][3] = {
      {"a_text", "failed", "not a shared library (no ELF file): it is text"},
      {"good", "loaded", ""},
      {"c_link", "skipped", "the same file as"},
      {"unavailable", "unavailable", "no Acme device found"},
  };
  for (uint32_t i = 0; i < 4; i++) {
    ck_assert_str_eq(fl_plugin_at(plugins, i)->name, expected[i][0]);
    ck_assert_str_eq(fl_plugin_at(plugins, i)->status, expected[i][1]);
    ck_contains(fl_plugin_at(plugins, i)->reason, expected[i][2]);
    ck_assert_str_eq(fl_plugin_at(plugins, i)->route, "directory");
  }
  ck_contains(lines, "40 plugin a_text failed: not a shared library (no ELF file): it is text\n");
  ck_contains(lines, "20 plugin good loaded.\n");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

/* Of several plugins it is the right one that is named, for handlers too. */
START_TEST(changes_of_one_plugin_of_several_are_told_of_it) {
  fl_host *host;
  char before[PATH_MAX];
  int spare = dup(STDOUT_FILENO);
  ck_assert_ptr_nonnull(getcwd(before, sizeof before));
  copy_to_scratch(built("tests/plugins/good.so"), "a_good.so");
  copy_to_scratch(built("tests/plugins/changes.so"), "b_changes.so");
  copy_to_scratch(built("tests/plugins/unavailable.so"), "c_unavailable.so");
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", scratch), NULL, &host));
  dup2(spare, STDOUT_FILENO);
  close(spare);
  ck_contains(lines, "30 changed while plugin changes was being loaded: signal handlers; ");
  ck_contains(lines, "30 changed while plugin changes was being loaded: the working directory; ");
  ck_assert_ptr_null(strstr(lines, "while plugin good"));
  ck_assert_ptr_null(strstr(lines, "while plugin unavailable"));
  signal(SIGUSR1, SIG_DFL);
  ck_assert_int_eq(chdir(before), 0);
  fl_host_destroy(host);
}
END_TEST

/* By device and inode; a copy is another file, whose rows are taken. */
START_TEST(D2_one_file_by_several_paths_is_loaded_once) {
  fl_host *host;
  char modules[8 * PATH_MAX];
  const char *path = copy_to_scratch(built("tests/plugins/good.so"), "a.so");
  ck_assert_int_eq(link(path, in_scratch("b_hard.so")), 0);
  ck_assert_int_eq(symlink("a.so", in_scratch("c_soft.so")), 0);
  copy_to_scratch(path, "d_copy.so");
  snprintf(modules, sizeof modules, "VLLM_FL_PLUGIN_MODULES=a,%s", in_scratch("./a.so"));
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", scratch), modules, &host));
  fl_plugins *plugins = plugins_of(host);
  ck_assert_uint_eq(plugins->n, 4);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "loaded");
  ck_assert_str_eq(fl_plugin_at(plugins, 1)->status, "skipped");
  ck_assert_str_eq(fl_plugin_at(plugins, 2)->status, "skipped");
  ck_assert_str_eq(fl_plugin_at(plugins, 3)->status, "failed");
  ck_contains(fl_plugin_at(plugins, 1)->reason, "the same file as");
  ck_contains(fl_plugin_at(plugins, 3)->reason, "Duplicate impl_id 'vendor.good'");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------- one plugin in several places */

/* A file of the build in a directory of the scratch directory. */
static void place(const char *file, const char *directory, const char *name) {
  char path[PATH_MAX];
  mkdir(in_scratch(directory), 0755);
  snprintf(path, sizeof path, "%s/%s", directory, name);
  copy_to_scratch(built(file), path);
}

static const char *path_of(const char *one, const char *two) {
  char path[4 * PATH_MAX];
  snprintf(path, sizeof path, "%s:%s", in_scratch(one), in_scratch(two));
  return variable("VLLM_FL_PLUGIN_PATH", path);
}

static const char *modules_of(const char *entry) {
  return variable("VLLM_FL_PLUGIN_MODULES", entry);
}

/* The host's record of a file. */
static const fl_plugin_info *info_of(const fl_plugins *plugins, const char *file) {
  for (uint32_t i = 0; i < plugins->n; i++)
    if (!strcmp(fl_plugin_at(plugins, i)->file, file))
      return fl_plugin_at(plugins, i);
  ck_abort_msg("no record of %s", file);
  return NULL;
}

/* Of a file in the scratch directory. */
static void expect_info(fl_host *host, const char *file, const char *status, const char *reason) {
  fl_plugins *plugins = plugins_of(host);
  const fl_plugin_info *info = info_of(plugins, in_scratch(file));
  ck_assert_msg(!strcmp(info->status, status) && strstr(info->reason, reason), "%s is %s: %s", file, info->status,
                info->reason);
  fl_plugins_free(plugins);
}

static int count(const char *text, const char *words) {
  int n = 0;
  for (; (text = strstr(text, words)); text += strlen(words))
    n++;
  return n;
}

/* As it is with a build tree and an installed prefix. */
START_TEST(D1_the_same_plugin_in_a_later_directory_is_skipped_and_said_once) {
  fl_host *host;
  place("tests/plugins/good.so", "tree", "good.so");
  place("tests/plugins/good.so", "prefix", "good.so");
  ck_ok(create(path_of("tree", "prefix"), NULL, &host));
  expect_info(host, "tree/good.so", "loaded", "");
  expect_info(host, "prefix/good.so", "skipped", "came before it; this is the same build");
  expect_info(host, "prefix/good.so", "skipped", in_scratch("tree/good.so"));
  ck_ok(fl_discover_plugins(host, NULL));
  expect_info(host, "prefix/good.so", "skipped", "this is the same build");
  ck_assert_int_eq(count(lines, "20 plugin "), 2); /* loaded, skipped */
  ck_assert_int_eq(count(lines, " skipped: "), 1);
  ck_assert_ptr_null(strstr(lines, "30 "));
  ck_assert_ptr_null(strstr(lines, "40 "));
  fl_host_destroy(host);
}
END_TEST

START_TEST(D1_another_build_of_a_plugin_in_a_later_directory_is_skipped_and_told_apart) {
  fl_host *host;
  place("tests/plugins/good.so", "tree", "good.so");
  place("tests/plugins/good_rebuilt.so", "prefix", "good.so");
  ck_ok(create(path_of("tree", "prefix"), NULL, &host));
  expect_info(host, "prefix/good.so", "skipped", "came before it; this is another build");
  fl_host_destroy(host);
}
END_TEST

/* Where the first cannot be used, the second is there for that. */
START_TEST(D1_a_plugin_that_fails_in_one_directory_is_loaded_from_the_next) {
  fl_host *host;
  make_directory("tree");
  write_text("tree/good.so", "no library");
  place("tests/plugins/good.so", "prefix", "good.so");
  ck_ok(create(path_of("tree", "prefix"), NULL, &host));
  expect_info(host, "tree/good.so", "failed", "it is text");
  expect_info(host, "prefix/good.so", "loaded", "");
  fl_host_destroy(host);
}
END_TEST

START_TEST(D1_what_is_named_wins_against_an_installed_plugin_of_its_name_and_file_name) {
  fl_host *host;
  place("tests/plugins/good.so", "prefix", "good.so");
  place("tests/plugins/good_rebuilt.so", "new", "good.so");
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", in_scratch("prefix")), modules_of(in_scratch("new/good.so")), &host));
  expect_info(host, "new/good.so", "loaded", "");
  expect_info(host, "prefix/good.so", "skipped", "came before it; this is another build");
  ck_assert_ptr_null(strstr(lines, "40 "));
  fl_host_destroy(host);
}
END_TEST

/* Else whoever named it would believe that it runs. */
START_TEST(D1_what_is_named_and_fails_is_not_covered_up_by_an_installed_plugin) {
  fl_host *host;
  place("tests/plugins/good.so", "prefix", "good.so");
  make_directory("new");
  write_text("new/good.so", "no library");
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", in_scratch("prefix")), modules_of(in_scratch("new/good.so")), &host));
  expect_info(host, "new/good.so", "failed", "it is text");
  expect_info(host, "prefix/good.so", "skipped", "was named explicitly, and failed");
  fl_host_destroy(host);
}
END_TEST

/* Two that are named are both meant: the second is told why it cannot be. */
START_TEST(D1_of_two_modules_of_one_name_the_second_is_refused_aloud) {
  fl_host *host;
  char modules[4 * PATH_MAX];
  place("tests/plugins/good.so", "one", "good.so");
  place("tests/plugins/good_rebuilt.so", "two", "good.so");
  make_directory("empty");
  snprintf(modules, sizeof modules, "%s,%s", in_scratch("one/good.so"), in_scratch("two/good.so"));
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", in_scratch("empty")), modules_of(modules), &host));
  expect_info(host, "one/good.so", "loaded", "");
  expect_info(host, "two/good.so", "failed", "Duplicate impl_id");
  fl_host_destroy(host);
}
END_TEST

START_TEST(D1_a_plugin_that_an_engine_loads_goes_before_an_installed_one_that_waits) {
  fl_host *host;
  place("tests/plugins/listed/lazy_a.so", "prefix", "lazy_a.so");
  place("tests/plugins/listed/lazy_a.so", "new", "lazy_a.so");
  ck_ok(create(variable("VLLM_FL_PLUGIN_PATH", in_scratch("prefix")), NULL, &host));
  expect_info(host, "prefix/lazy_a.so", "deferred", "until one of its ops");
  ck_ok(fl_load_plugin(host, in_scratch("new/lazy_a.so")));
  expect_info(host, "new/lazy_a.so", "loaded", "");
  expect_info(host, "prefix/lazy_a.so", "skipped", "was named explicitly: ");
  ck_assert_ptr_nonnull(fl_find_op(host, "lazy_a"));
  expect_info(host, "prefix/lazy_a.so", "skipped", in_scratch("new/lazy_a.so"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(D4_a_critical_plugin_that_fails_is_the_hosts_failure) {
  fl_host *host = NULL;
  make_directory("flhost");
  make_directory("flhost/plugins.d");
  make_directory("empty");
  write_text("flhost/plugins.d/acme.yaml", "name: acme\nlibrary: none.so\ncritical: true\n");
  const char *nothing = variable("VLLM_FL_PLUGIN_PATH", in_scratch("empty"));
  ck_assert_int_eq(create(nothing, variable("XDG_CONFIG_HOME", scratch), &host), FL_EPLUGIN);
  ck_contains(fl_error_message(), "acme");
  ck_contains(fl_error_message(), "cannot be opened: No such file or directory");
  write_text("flhost/plugins.d/acme.yaml", "name: acme\nlibrary: none.so\n");
  ck_ok(create(nothing, variable("XDG_CONFIG_HOME", scratch), &host));
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D1_D2_what_is_named_comes_first_then_directories_in_bytewise_order);
  tcase_add_test(tests, D2_relative_directories_are_an_error_record);
  tcase_add_test(tests, directories_that_are_not_there_or_empty_are_warned_of);
  tcase_add_test(tests, D2_default_directories_do_not_depend_on_the_working_directory);
  tcase_add_test(tests, D2_the_library_finds_its_own_tree);
  tcase_add_test(tests, D3_names_are_looked_up_in_three_forms);
  tcase_add_test(tests, D3_paths_are_taken_as_they_are);
  tcase_add_test(tests, D3_a_missing_module_says_where_it_was_looked_for);
  tcase_add_test(tests, D3_a_malformed_entry_is_named);
  tcase_add_test(tests, D1_a_manifest_names_a_library_relative_to_itself);
  tcase_add_loop_test(tests, D1_a_bad_manifest_is_answered_with_file_line_and_column, 0,
                      sizeof bad_manifests / sizeof bad_manifests[0]);
  tcase_add_test(tests, a_world_writable_manifest_is_refused);
  tcase_add_test(tests, D2_a_default_directory_that_cannot_be_listed_is_warned_of);
  tcase_add_test(tests, D2_a_directory_of_thousands_of_files_is_refused);
  tcase_add_test(tests, D1_what_is_no_file_is_no_manifest);
  tcase_add_test(tests, D1_a_manifest_of_size_0_is_read_to_its_end);
  tcase_add_test(tests, a_later_directory_overrides_a_manifest_by_file_name);
  tcase_add_test(tests, D1_the_users_manifests_are_found);
  tcase_add_test(tests, D4_a_host_goes_on_past_broken_plugins);
  tcase_add_test(tests, changes_of_one_plugin_of_several_are_told_of_it);
  tcase_add_test(tests, D2_one_file_by_several_paths_is_loaded_once);
  tcase_add_test(tests, D1_the_same_plugin_in_a_later_directory_is_skipped_and_said_once);
  tcase_add_test(tests, D1_another_build_of_a_plugin_in_a_later_directory_is_skipped_and_told_apart);
  tcase_add_test(tests, D1_a_plugin_that_fails_in_one_directory_is_loaded_from_the_next);
  tcase_add_test(tests, D1_what_is_named_wins_against_an_installed_plugin_of_its_name_and_file_name);
  tcase_add_test(tests, D1_what_is_named_and_fails_is_not_covered_up_by_an_installed_plugin);
  tcase_add_test(tests, D1_of_two_modules_of_one_name_the_second_is_refused_aloud);
  tcase_add_test(tests, D1_a_plugin_that_an_engine_loads_goes_before_an_installed_one_that_waits);
  tcase_add_test(tests, D4_a_critical_plugin_that_fails_is_the_hosts_failure);
}

int main(void) {
  return run_suite("discovery", add_tests, 60);
}
