/*
 * Programs with the rights of others (AT_SECURE) take no library from the environment: the variables that lead plugins
 * to a driver, or a stand-in, are ignored there. A copy of this program, with the set-gid bit and run by another user,
 * asks a plugin whether its platform is active and prints what it says. Only root can arrange that.
 */
#include "tests/scratch.h"

#include <dlfcn.h>
#include <errno.h>
#include <flhost/plugin.h>
#include <grp.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/wait.h>

enum { NOBODY = 65534, SECURE = 10, NOT_SECURE, NO_NODE, NOT_RUN };

static void set_up(void) {
  scratch_make();
  ck_assert_int_eq(chmod(scratch, 0755), 0);
}

/* ------------------------------------------------------------------------------------------------------ in the copy */

static fl_platform platform; /* a copy, as a host makes one */

static fl_status take_component(fl_registry *registry, const fl_component *component) {
  (void)registry;
  if (!strcmp(component->type, "platform"))
    memcpy(&platform, component->functions, sizeof platform);
  return FL_OK;
}

static fl_status take_impl(fl_registry *registry, const fl_impl *impl) {
  (void)registry;
  (void)impl;
  return FL_OK;
}

/* Prints "active" or why not; the exit status says whether this process is secure. */
static int ask(const char *plugin) {
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .abi_minor = FL_ABI_MINOR,
                          .register_impl = take_impl,
                          .register_component = take_component};
  fl_register_fn entry = NULL;
  const char *reason = NULL;
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (library)
    *(void **)&entry = dlsym(library, "register_builtins");
  if (!*(void **)&entry || entry(&registry) || !platform.is_active)
    printf("no plugin: %s", library ? "it registers no platform" : dlerror());
  else
    printf("%s", platform.is_active(NULL, &reason) ? "active" : reason);
  fflush(stdout);
  _exit(getauxval(AT_SECURE) ? SECURE : NOT_SECURE); /* what sanitizers do at an end needs more rights */
}

/* ------------------------------------------------------------------------------------------------------ around it */

/* A directory /dev of its own, which has the node. */
static bool make_node(const char *path) {
  if (unshare(CLONE_NEWNS) || mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) ||
      mount("none", "/dev", "tmpfs", 0, "mode=0755"))
    return false;
  int fd = open(path, O_WRONLY | O_CREAT, 0666);
  return fd >= 0 && !fchmod(fd, 0666) && !close(fd);
}

typedef struct answer {
  int status;
  char words[512];
} answer;

/* What a copy says of a plugin of the scratch directory, run by nobody. */
static answer ask_copy(mode_t mode, const char *plugin, const char *node) {
  const char *copy = copy_to_scratch(built("tests/test_secure"), "copy");
  answer got = {.status = NOT_RUN};
  int ends[2], status = 0;
  ck_assert_int_eq(chmod(copy, mode), 0);
  ck_assert_int_eq(pipe(ends), 0);
  fflush(stdout);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    if (node && !make_node(node))
      _exit(NO_NODE);
    if (dup2(ends[1], STDOUT_FILENO) >= 0 && !setgroups(0, NULL) && !setgid(NOBODY) && !setuid(NOBODY))
      execl(copy, copy, "--ask", in_scratch(plugin), (char *)NULL);
    _exit(NOT_RUN);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t n;
       length < sizeof got.words - 1 && (n = read(ends[0], got.words + length, sizeof got.words - 1 - length)) > 0;)
    length += (size_t)n;
  close(ends[0]);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  if (WIFEXITED(status))
    got.status = WEXITSTATUS(status);
  return got;
}

static bool skip(const char *name, const char *reason) {
  printf("skip: %s: %s\n", name, reason);
  return true;
}

static bool is_no_place(const char *name, const char *node) {
  if (geteuid())
    return skip(name, "not root");
  return !access(node, F_OK) && skip(name, "there is a real device");
}

/* Can a program be made secure here? That it runs without the bit is no question. */
static bool cannot(const char *name, answer plain, answer secure) {
  if (plain.status == NO_NODE || secure.status == NO_NODE)
    return skip(name, "no /dev of its own can be made");
  ck_assert_msg(plain.status == NOT_SECURE, "exit status %d: %s", plain.status, plain.words);
  return secure.status != SECURE && skip(name, "the set-gid bit has no effect here");
}

static void put(const char *from, const char *name) {
  ck_assert_int_eq(chmod(copy_to_scratch(built(from), name), 0755), 0);
}

/* Each variable is followed without the bit, and not with it. */
START_TEST(a_gpus_driver_is_not_taken_from_the_environment) {
  static const char name[] = "a_gpus_driver_is_not_taken_from_the_environment";
  static const struct {
    const char *plugin, *setting, *driver, *node;
  } gpus[] = {{"cuda.so", "FLHOST_CUDA_DRIVER", "standin_cuda.so", "/dev/nvidiactl"},
              {"rocm.so", "FLHOST_ROCM_DRIVER", "standin_hip6.so", "/dev/kfd"}};
  char from[64];
  if (is_no_place(name, gpus[_i].node))
    return;
  snprintf(from, sizeof from, "tests/drivers/plugins/%s", gpus[_i].plugin);
  put(from, gpus[_i].plugin);
  snprintf(from, sizeof from, "tests/drivers/%s", gpus[_i].driver);
  put(from, gpus[_i].driver);
  setenv(gpus[_i].setting, in_scratch(gpus[_i].driver), 1);
  answer plain = ask_copy(0755, gpus[_i].plugin, NULL), secure = ask_copy(02755, gpus[_i].plugin, NULL);
  if (cannot(name, plain, secure))
    return;
  ck_assert_str_eq(plain.words, "active");
  ck_assert_msg(strstr(secure.words, "no device node") != NULL, "%s", secure.words);
}
END_TEST

static const char ascend_node[] = "/dev/davinci_manager";

START_TEST(an_ascend_device_node_is_not_taken_from_the_environment) {
  static const char name[] = "an_ascend_device_node_is_not_taken_from_the_environment";
  if (is_no_place(name, ascend_node))
    return;
  put("plugins/ascend.so", "ascend.so");
  setenv("FLHOST_ASCEND_NODE", "/dev/null", 1);
  setenv("ASCEND_HOME_PATH", "/nonexistent", 1);
  answer plain = ask_copy(0755, "ascend.so", NULL), secure = ask_copy(02755, "ascend.so", NULL);
  if (cannot(name, plain, secure))
    return;
  ck_assert_msg(strstr(plain.words, "libascendcl.so") != NULL, "%s", plain.words);
  ck_assert_str_eq(secure.words, "no device node /dev/davinci_manager");
}
END_TEST

/* The node is there: what is missing then is the library, though the variable says where it is. */
START_TEST(cann_is_not_taken_from_the_environment) {
  static const char name[] = "cann_is_not_taken_from_the_environment";
  static const char *const libraries[] = {"lib64/libascendcl.so", "lib64/libnnopbase.so", "lib64/libopapi.so"};
  if (is_no_place(name, ascend_node))
    return;
  void *cann = dlopen("libascendcl.so", RTLD_LAZY);
  if (cann) {
    dlclose(cann);
    skip(name, "there is a real CANN");
    return;
  }
  ck_assert_int_eq(mkdir(in_scratch("lib64"), 0755), 0);
  for (int i = 0; i < 3; i++)
    put("tests/drivers/ascend/stand_in.so", libraries[i]);
  put("plugins/ascend.so", "ascend.so");
  setenv("ASCEND_HOME_PATH", scratch, 1);
  unsetenv("FLHOST_ASCEND_NODE");
  answer plain = ask_copy(0755, "ascend.so", ascend_node), secure = ask_copy(02755, "ascend.so", ascend_node);
  if (cannot(name, plain, secure))
    return;
  ck_assert_str_eq(plain.words, "active");
  ck_assert_msg(strstr(secure.words, "libascendcl.so") && strstr(secure.words, "cannot open"), "%s", secure.words);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, scratch_remove);
  tcase_add_loop_test(tests, a_gpus_driver_is_not_taken_from_the_environment, 0, 2);
  tcase_add_test(tests, an_ascend_device_node_is_not_taken_from_the_environment);
  tcase_add_test(tests, cann_is_not_taken_from_the_environment);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--ask"))
    return ask(argv[2]);
  return run_suite("secure", add_tests, 30);
}
