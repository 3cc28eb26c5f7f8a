/*
 * Which plugin files are loaded at all: none that somebody else may write or put another in the place of, and none that
 * would make the process's memory writable and executable. Only root can give files to others: what needs that is left
 * out for users.
 */
#include "core/registry.h"
#include "tests/loaded.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <sys/wait.h>

enum { OTHER = 12345, THIRD = 23456, LOADED = 10, REFUSED };

static void set_up(void) {
  scratch_make();
  ck_assert_int_eq(chmod(scratch, 0755), 0);
  host = test_host(NULL, FL_HOST_NO_PLUGINS);
}

static void expect_refusal(const char *path, const char *format, ...) FL_PRINTF(2, 3);
static void expect_refusal(const char *path, const char *format, ...) {
  char words[3 * PATH_MAX];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  ck_assert_int_eq(load(path, NULL), FL_EPLUGIN);
  ck_assert_int_eq(record.status, FL_PLUGIN_FAILED);
  ck_assert_msg(strstr(record.reason, words) == record.reason, "'%s' does not begin with '%s'", record.reason, words);
  ck_assert_ptr_null(fl_find_op(host, "test_scale"));
}

/* in_scratch() gives its buffers out again. */
static const char *keep(const char *path) {
  static char kept[8][2 * PATH_MAX];
  static int n;
  ck_assert_int_lt(n, 8);
  return strcpy(kept[n++], path);
}

static const char *make_directory(const char *name, mode_t mode) {
  ck_assert_int_eq(mkdir(in_scratch(name), 0755), 0);
  ck_assert_int_eq(chmod(in_scratch(name), mode), 0);
  return keep(in_scratch(name));
}

static const char *put(const char *name) {
  return keep(copy_to_scratch(built("tests/plugins/good.so"), name));
}

static void give(const char *path, uid_t user, gid_t group) {
  ck_assert_int_eq(lchown(path, user, group), 0);
}

static bool cannot_give(const char *name) {
  if (!geteuid())
    return false;
  printf("skip: %s: only root can give files away\n", name);
  return true;
}

/* ------------------------------------------------------------------------------------------------------- the file */

static bool stack_is_executable(void) {
  char line[512];
  bool found = false, executable = false;
  FILE *maps = fopen("/proc/self/maps", "re");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "[stack]")) {
      const char *mode = strchr(line, ' ');
      found = true;
      executable = mode && mode[3] == 'x';
    }
  if (maps)
    fclose(maps);
  return found && executable;
}

START_TEST(D7_a_plugin_that_wants_an_executable_stack_is_refused) {
  expect_refusal(built("tests/plugins/executable_stack.so"),
                 "it asks for an executable stack, which the whole process would have from then on; link it with "
                 "-Wl,-z,noexecstack, or run 'patchelf --clear-execstack %s'",
                 built("tests/plugins/executable_stack.so"));
  ck_assert(!stack_is_executable());
}
END_TEST

/* The dynamic linker takes it for a file of old, when all stacks were. */
START_TEST(a_plugin_that_says_nothing_of_the_stack_is_refused) {
  size_t length;
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)bytes;
  ElfW(Phdr) *segments = (ElfW(Phdr) *)(bytes + header->e_phoff);
  for (int i = 0; i < header->e_phnum; i++)
    if (segments[i].p_type == PT_GNU_STACK)
      segments[i].p_type = PT_NULL;
  expect_refusal(write_file("x.so", bytes, length), "it asks for an executable stack");
  free(bytes);
}
END_TEST

START_TEST(a_plugin_with_text_relocations_is_refused) {
  expect_refusal(built("tests/plugins/text_relocations.so"),
                 "it has text relocations: its code would be writable while it is loaded; compile all of it with -fPIC "
                 "and link it with -Wl,-z,text, which names the object that is not");
}
END_TEST

/* The dynamic linker reads on until it finds the end, and where the table will be mapped, not where it is in the file:
 * what is hidden from us must not be found by it. */
START_TEST(a_dynamic_section_that_only_the_linker_would_find_is_refused) {
  size_t length;
  unsigned char *bytes = read_file(built("tests/plugins/good.so"), &length);
  const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)bytes;
  ElfW(Phdr) *segments = (ElfW(Phdr) *)(bytes + header->e_phoff), *dynamic = NULL;
  for (int i = 0; i < header->e_phnum; i++)
    if (segments[i].p_type == PT_DYNAMIC)
      dynamic = &segments[i];
  ck_assert_ptr_nonnull(dynamic);
  const ElfW(Phdr) as_it_was = *dynamic;
  dynamic->p_filesz = sizeof(ElfW(Dyn));
  expect_refusal(write_file("x.so", bytes, length), "damaged: its dynamic section has no end");
  *dynamic = as_it_was;
  dynamic->p_vaddr = (ElfW(Addr))1 << 40;
  expect_refusal(write_file("y.so", bytes, length), "damaged: its dynamic section lies in no segment that is loaded");
  free(bytes);
}
END_TEST

START_TEST(a_file_that_everybody_may_write_is_refused) {
  const char *path = put("w.so");
  ck_assert_int_eq(chmod(path, 0666), 0);
  expect_refusal(
      path, "it is world-writable (mode 0666), and nothing is loaded from such a file; 'chmod o-w %s' mends it", path);
  ck_assert_int_eq(chmod(path, 0664), 0); /* our own group */
  ck_ok(load(path, NULL));
}
END_TEST

START_TEST(a_file_that_another_group_may_write_is_refused) {
  if (cannot_give("a_file_that_another_group_may_write_is_refused"))
    return;
  const char *path = put("w.so");
  give(path, 0, OTHER);
  ck_assert_int_eq(chmod(path, 0664), 0);
  expect_refusal(path,
                 "it may be written by group 12345 (mode 0664), and nothing is loaded from such a file; 'chmod g-w %s' "
                 "mends it",
                 path);
}
END_TEST

START_TEST(D7_another_users_file_is_refused) {
  if (cannot_give("D7_another_users_file_is_refused"))
    return;
  const char *path = put("w.so");
  give(path, OTHER, 0);
  expect_refusal(
      path,
      "it belongs to user 12345, and what is loaded must belong to root; 'chown 0 %s' mends it, if you trust "
      "what is there",
      path);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- the way to it */

START_TEST(D7_each_directory_above_that_everybody_may_write_is_refused) {
  const char *top = make_directory("top", 0777);
  make_directory("top/below", 0755);
  const char *path = put("top/below/good.so");
  expect_refusal(path,
                 "the directory '%s' is world-writable (mode 0777), and nothing is loaded from there; 'chmod o-w %s' "
                 "mends it",
                 top, top);
  ck_assert_int_eq(chmod(top, 01777), 0); /* as /tmp: what is ours in it stays there */
  ck_ok(load(path, NULL));
}
END_TEST

START_TEST(a_directory_above_of_another_user_or_group_is_refused) {
  if (cannot_give("a_directory_above_of_another_user_or_group_is_refused"))
    return;
  const char *top = make_directory("top", 0755);
  make_directory("top/below", 0755);
  const char *path = put("top/below/good.so");
  give(top, OTHER, 0);
  expect_refusal(path, "the directory '%s' belongs to user 12345, and what is loaded must belong to root; 'chown 0 %s'",
                 top, top);
  give(top, 0, OTHER);
  ck_assert_int_eq(chmod(top, 0775), 0);
  expect_refusal(path,
                 "the directory '%s' may be written by group 12345 (mode 0775), and nothing is loaded from there; "
                 "'chmod g-w %s' mends it",
                 top, top);
  ck_assert_int_eq(chmod(top, 0755), 0);
  ck_ok(load(path, NULL));
}
END_TEST

START_TEST(other_peoples_files_in_a_shared_directory_are_refused) {
  if (cannot_give("other_peoples_files_in_a_shared_directory_are_refused"))
    return;
  make_directory("shared", 01777);
  make_directory("shared/theirs", 0755);
  const char *path = put("shared/good.so"), *below = put("shared/theirs/good.so");
  give(path, OTHER, 0);
  give(in_scratch("shared/theirs"), OTHER, 0);
  expect_refusal(path, "it belongs to user 12345");
  expect_refusal(below, "the directory '%s' belongs to user 12345", in_scratch("shared/theirs"));
}
END_TEST

START_TEST(all_files_of_a_directory_are_judged) {
  const char *first = put("a.so"), *second = put("b.so");
  fl_trust trust = {0};
  fl_file file = fl_file_look(first);
  ck_ok(fl_trust_judge(&trust, first, &file));
  ck_assert_int_eq(chmod(second, 0666), 0);
  file = fl_file_look(second);
  ck_assert_int_eq(fl_trust_judge(&trust, second, &file), FL_EPLUGIN);
  const char *elsewhere = make_directory("open", 0777), *third = put("open/c.so");
  file = fl_file_look(third);
  ck_assert_int_eq(fl_trust_judge(&trust, third, &file), FL_EPLUGIN);
  ck_assert_int_eq(fl_trust_judge(&trust, third, &file), FL_EPLUGIN); /* nor is it remembered as good */
  ck_contains(fl_error_message(), elsewhere);
  fl_trust_free(&trust);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ links */

START_TEST(a_links_target_is_judged_too) {
  const char *open = make_directory("open", 0777);
  put("open/good.so");
  ck_assert_int_eq(symlink(in_scratch("open/good.so"), in_scratch("link.so")), 0);
  expect_refusal(in_scratch("link.so"), "the directory '%s' is world-writable (mode 0777)", open);
}
END_TEST

START_TEST(D7_each_link_on_the_way_is_judged_where_it_lies) {
  const char *open = make_directory("open", 0777);
  make_directory("safe", 0755);
  put("safe/good.so");
  ck_assert_int_eq(symlink("../safe/good.so", in_scratch("open/second.so")), 0);
  ck_assert_int_eq(symlink("open/second.so", in_scratch("first.so")), 0);
  ck_assert_int_eq(symlink("../safe", in_scratch("open/directory")), 0);
  ck_assert_int_eq(symlink("safe", in_scratch("directory")), 0);
  expect_refusal(in_scratch("first.so"), "the directory '%s' is world-writable", open);
  expect_refusal(in_scratch("open/directory/good.so"), "the directory '%s' is world-writable", open);
  ck_ok(load(in_scratch("directory/../directory/./good.so"), NULL));
}
END_TEST

START_TEST(another_users_link_is_refused) {
  if (cannot_give("another_users_link_is_refused"))
    return;
  make_directory("shared", 01777);
  put("good.so");
  ck_assert_int_eq(symlink("../good.so", in_scratch("shared/link.so")), 0);
  give(in_scratch("shared/link.so"), OTHER, 0);
  expect_refusal(in_scratch("shared/link.so"), "the link '%s' belongs to user 12345", in_scratch("shared/link.so"));
}
END_TEST

START_TEST(links_in_a_circle_end) {
  make_directory("a", 0755);
  ck_assert_int_eq(symlink("two", in_scratch("one")), 0);
  ck_assert_int_eq(symlink("one", in_scratch("two")), 0);
  ck_assert_int_eq(fl_file_trusted(in_scratch("one/x.so")), FL_EPLUGIN);
  ck_contains(fl_error_message(), strerror(ELOOP));
}
END_TEST

/* ------------------------------------------------------------------------------------------- who owns the host */

/* A copy of this program, which has the host in it, says whether it loads a plugin. */
static int ask(const char *path) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=ERROR", NULL};
  fl_host_options options = {.size = sizeof options, .environment = environment, .flags = FL_HOST_NO_PLUGINS};
  if (fl_host_create(&options, &host))
    return EXIT_FAILURE;
  fl_status status = load(path, NULL);
  fl_plugin_record_clear(&record);
  fl_host_destroy(host);
  return status ? REFUSED : LOADED;
}

static int ask_copy(const char *copy, const char *plugin) {
  int status = 0;
  fflush(stdout);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    execl(copy, copy, "--ask", plugin, (char *)NULL);
    _exit(1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As where root runs what a user has checked out and built: that user could replace the host, so his plugins are no
 * news. A third one could not. */
START_TEST(D7_who_could_replace_the_host_is_trusted) {
  if (cannot_give("D7_who_could_replace_the_host_is_trusted"))
    return;
  const char *own = make_directory("own", 0775);
  const char *copy = copy_to_scratch(built("tests/test_trust"), "own/program");
  ck_assert_int_eq(chmod(copy, 0755), 0);
  const char *path = put("own/good.so");
  give(own, OTHER, OTHER);
  give(path, OTHER, OTHER);
  ck_assert_int_eq(ask_copy(copy, path), LOADED);
  give(path, THIRD, OTHER);
  ck_assert_int_eq(ask_copy(copy, path), REFUSED);
  give(path, OTHER, OTHER);
  ck_assert_int_eq(load(path, NULL), FL_EPLUGIN); /* this program is somebody else's */
}
END_TEST

/* ---------------------------------------------------------------------------------------- what is checked is loaded */

START_TEST(D7_a_file_that_is_replaced_after_it_was_judged_is_not_run) {
  fl_loader loader;
  fl_note_info info;
  const char *path = put("x.so");
  fl_file file = fl_file_look(path);
  fl_plugin_record_clear(&record);
  fl_loader_begin(&loader, host, &host->log);
  ck_ok(fl_loader_judge(&loader, path, &file, &record, &info));
  copy_to_scratch(built("tests/plugins/good.so"), "y.so");
  ck_assert_int_eq(rename(in_scratch("y.so"), path), 0);
  ck_assert_int_eq(fl_loader_open(&loader, NULL, &info, &record), FL_EPLUGIN);
  ck_assert_str_eq(record.reason, "it was replaced or removed while it was judged; nothing of that is used");
  fl_loader_end(&loader);
  fl_note_clear(&info);
  ck_assert_ptr_null(fl_find_op(host, "test_scale"));
}
END_TEST

static void cut_short(const char *path) {
  ck_assert_int_eq(truncate(path, 4096), 0);
}

static void append(const char *path) {
  FILE *file = fopen(path, "a");
  ck_assert(file && fputc(0, file) != EOF && !fclose(file));
}

static void touch(const char *path) {
  const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
  ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Of one that is cut short the dynamic linker would read what is not there. */
START_TEST(D7_a_file_that_is_written_to_after_it_was_judged_is_not_run) {
  static void (*const changes[])(const char *path) = {cut_short, append, touch};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    fl_loader loader;
    fl_note_info info;
    const char *path = put("x.so");
    fl_file file = fl_file_look(path);
    fl_plugin_record_clear(&record);
    fl_loader_begin(&loader, host, &host->log);
    ck_ok(fl_loader_judge(&loader, path, &file, &record, &info));
    changes[i](path);
    ck_assert_int_eq(fl_loader_open(&loader, NULL, &info, &record), FL_EPLUGIN);
    ck_contains(record.reason, "it was written to while it was judged (");
    fl_loader_end(&loader);
    fl_note_clear(&info);
    ck_assert_ptr_null(fl_find_op(host, "test_scale"));
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D7_a_plugin_that_wants_an_executable_stack_is_refused);
  tcase_add_test(tests, a_plugin_that_says_nothing_of_the_stack_is_refused);
  tcase_add_test(tests, a_plugin_with_text_relocations_is_refused);
  tcase_add_test(tests, a_dynamic_section_that_only_the_linker_would_find_is_refused);
  tcase_add_test(tests, a_file_that_everybody_may_write_is_refused);
  tcase_add_test(tests, a_file_that_another_group_may_write_is_refused);
  tcase_add_test(tests, D7_another_users_file_is_refused);
  tcase_add_test(tests, D7_each_directory_above_that_everybody_may_write_is_refused);
  tcase_add_test(tests, a_directory_above_of_another_user_or_group_is_refused);
  tcase_add_test(tests, other_peoples_files_in_a_shared_directory_are_refused);
  tcase_add_test(tests, all_files_of_a_directory_are_judged);
  tcase_add_test(tests, a_links_target_is_judged_too);
  tcase_add_test(tests, D7_each_link_on_the_way_is_judged_where_it_lies);
  tcase_add_test(tests, another_users_link_is_refused);
  tcase_add_test(tests, links_in_a_circle_end);
  tcase_add_test(tests, D7_who_could_replace_the_host_is_trusted);
  tcase_add_test(tests, D7_a_file_that_is_replaced_after_it_was_judged_is_not_run);
  tcase_add_test(tests, D7_a_file_that_is_written_to_after_it_was_judged_is_not_run);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--ask"))
    return ask(argv[2]);
  return run_suite("trust", add_tests, 60);
}
