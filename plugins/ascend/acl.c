/* Finds and opens the ACL runtime: see acl.h. */
#include "plugins/ascend/acl.h"
#include "plugins/ascend/locks.h"
#include "plugins/driver.h"

enum { PATH_SIZE = 4096 };

static driver runtime = {.libraries = {"libascendcl.so", "libacl_rt.so"}, .nodes = {"/dev/davinci_manager"}};
static char runtime_path[PATH_SIZE]; /* where set_env.sh says that the toolkit is */
static bool complete;

acl_functions acl;

/* What the process has loaded goes first: two copies of one library do not get along. */
void *ascend_open_library(const char *name) {
  void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
  return library ? library : dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

void *ascend_open_of_toolkit(const char *name) {
  const char *home = secure_getenv("ASCEND_HOME_PATH");
  char path[PATH_SIZE];
  void *library = ascend_open_library(name);
  if (library || !home || snprintf(path, sizeof path, "%s/lib64/%s", home, name) >= (int)sizeof path)
    return library;
  return ascend_open_library(path);
}

static void set_up_runtime(void) {
  const char *home = secure_getenv("ASCEND_HOME_PATH");
  const char *node = secure_getenv("FLHOST_ASCEND_NODE"); /* for tests, which have no device node */
  if (node && *node)
    runtime.nodes[0] = node;
  if (home && *home && snprintf(runtime_path, sizeof runtime_path, "%s/lib64/libascendcl.so", home) < PATH_SIZE)
    runtime.libraries[2] = runtime_path;
}

bool ascend_acl_find(const char *name, void *function) {
  return driver_find(&runtime, name, function);
}

static bool find_functions(void) {
#define FIND(result, name, arguments)                                                                                  \
  if (!driver_find(&runtime, #name, &acl.name)) {                                                                      \
    snprintf(runtime.reason, sizeof runtime.reason, "libascendcl.so lacks %s", #name);                                 \
    return false;                                                                                                      \
  }
  ACL_RUNTIME_FUNCTIONS(FIND)
#undef FIND
#define FIND_OPTIONAL(result, name, arguments) driver_find(&runtime, #name, &acl.name);
  ACL_OPTIONAL_FUNCTIONS(FIND_OPTIONAL)
#undef FIND_OPTIONAL
  return true;
}

bool ascend_acl_open(const char **reason) {
  const char *words = NULL;
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_ACL]);
  if (!complete) {
    set_up_runtime();
    complete = driver_present(&runtime, &words) && find_functions();
  }
  bool opened = complete;
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_ACL]);
  if (reason)
    *reason = opened ? NULL : runtime.reason;
  return opened;
}

bool ascend_is_stand_in(void) {
  return runtime.library && dlsym(runtime.library, "flhost_stand_in_driver");
}
