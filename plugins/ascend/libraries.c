/*
 * The vendor's libraries: see libraries.h. The order in which operators are looked for is that of torch_npu: custom
 * operators first, then the libraries of the toolkit, by domain or in one, then those of older releases.
 */
#include "plugins/ascend/libraries.h"
#include "plugins/ascend/locks.h"
#include "plugins/driver.h"

#include <glob.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_OPERATOR_LIBRARIES = 64, PATH_SIZE = 4096 };

static void *meta_library; /* what describes tensors */
static void *operator_libraries[MAX_OPERATOR_LIBRARIES];
static int n_operator_libraries;
static char reason_of_meta[PATH_SIZE];
static bool complete, operators_opened;
static aclnn_functions operators[ACLNN_COUNT];
static const aclnn_functions absent;
static const aclnn_functions *_Atomic known[ACLNN_COUNT]; /* NULL: not looked for yet */

/* --------------------------------------------------------------------------------------- what describes tensors */

/* In either library. */
static bool find(const char *name, void *function) {
  if (ascend_acl_find(name, function))
    return true;
  void *address = dlsym(meta_library, name);
  if (!address)
    snprintf(reason_of_meta, sizeof reason_of_meta, "libnnopbase.so lacks %s", name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static bool find_functions(void) {
  if (!meta_library)
    meta_library = ascend_open_of_toolkit("libnnopbase.so");
  if (!meta_library) {
    const char *words = dlerror();
    snprintf(reason_of_meta, sizeof reason_of_meta, "%s", words ? words : "libnnopbase.so: dlopen failed");
    return false;
  }
#define FIND(result, name, arguments)                                                                                  \
  if (!find(#name, &acl.name))                                                                                         \
    return false;
  ACL_META_FUNCTIONS(FIND)
#undef FIND
  return true;
}

/* The runtime first: a message names the library that lacks something. */
bool ascend_libraries_open(const char **reason) {
  if (!ascend_acl_open(reason))
    return false;
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_LIBRARIES]);
  bool opened = complete = complete || find_functions();
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_LIBRARIES]);
  if (reason)
    *reason = opened ? NULL : reason_of_meta;
  return opened;
}

/* ----------------------------------------------------------------------------------------------- operator libraries */

/* Root runs nobody else's code; another user runs root's and its own. */
static bool owner_is_trusted(const char *path) {
  struct stat status;
  return !stat(path, &status) && (!status.st_uid || status.st_uid == geteuid());
}

static void add_operator_library(void *library) {
  for (int i = 0; i < n_operator_libraries; i++)
    if (operator_libraries[i] == library)
      return;
  if (library && n_operator_libraries < MAX_OPERATOR_LIBRARIES)
    operator_libraries[n_operator_libraries++] = library;
}

static void add_custom(const char *directory, int length) {
  char path[PATH_SIZE];
  if (snprintf(path, sizeof path, "%.*s/op_api/lib/libcust_opapi.so", length, directory) < (int)sizeof path &&
      owner_is_trusted(path))
    add_operator_library(ascend_open_library(path));
}

/* Directories of ASCEND_CUSTOM_OPP_PATH. */
static void add_custom_paths(void) {
  const char *paths = secure_getenv("ASCEND_CUSTOM_OPP_PATH");
  for (size_t length; paths && *paths; paths += length + (paths[length] == ':')) {
    length = strcspn(paths, ":");
    if (length)
      add_custom(paths, (int)length);
  }
}

/* Vendors in the order of vendors/config.ini, the line "load_priority=a,b". */
static void add_vendors(void) {
  const char *opp = secure_getenv("ASCEND_OPP_PATH");
  char path[PATH_SIZE], line[PATH_SIZE];
  if (!opp || snprintf(path, sizeof path, "%s/vendors/config.ini", opp) >= (int)sizeof path || !owner_is_trusted(path))
    return;
  FILE *file = fopen(path, "re");
  if (!file)
    return;
  while (fgets(line, sizeof line, file)) {
    if (strncmp(line, "load_priority=", 14))
      continue;
    char *rest = NULL;
    for (char *name = strtok_r(line + 14, ", \t\r\n", &rest); name; name = strtok_r(NULL, ", \t\r\n", &rest)) {
      int length = snprintf(path, sizeof path, "%s/vendors/%s", opp, name);
      if (length < (int)sizeof path)
        add_custom(path, length);
    }
  }
  fclose(file);
}

/* The toolkit's libraries by domain: libopapi_math.so and so on. Where nobody says where the toolkit is, the loader may
 * know them by name. */
static void add_domains(void) {
  const char *home = secure_getenv("ASCEND_HOME_PATH");
  char pattern[PATH_SIZE];
  glob_t found = {0};
  if (!home || snprintf(pattern, sizeof pattern, "%s/lib64/libopapi_*.so", home) >= (int)sizeof pattern)
    return;
  if (!glob(pattern, 0, NULL, &found))
    for (size_t i = 0; i < found.gl_pathc; i++)
      if (owner_is_trusted(found.gl_pathv[i]))
        add_operator_library(ascend_open_library(found.gl_pathv[i]));
  globfree(&found);
}

static void open_operator_libraries(void) {
  static const char *const names[] = {
      "libopapi_math.so",   "libopapi_nn.so",  "libopapi_transformer.so", "libopapi_cv.so",        "libopapi_legacy.so",
      "libopapi_oam.so",    "libopapi.so",     "libaclnn_ops_infer.so",   "libaclnn_ops_train.so", "libaclnn_math.so",
      "libaclnn_sparse.so", "libaclnn_fft.so", "libaclnn_rand.so"};
  add_custom_paths();
  add_vendors();
  add_domains();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    add_operator_library(ascend_open_of_toolkit(names[i]));
  operators_opened = true;
}

/* -------------------------------------------------------------------------------------------------------- operators */

const char *ascend_operator_name(aclnn_operator operator_) {
  static const char *const names[] = {"",
#define NAME(name, ...) "aclnn" #name,
                                      ACLNN_OPERATORS(NAME)
#undef NAME
  };
  return names[operator_];
}

/* Both phases have to come from one library. */
static const aclnn_functions *look_up(aclnn_operator operator_) {
  const char *name = ascend_operator_name(operator_);
  char phase_1[128];
  snprintf(phase_1, sizeof phase_1, "%sGetWorkspaceSize", name);
  for (int i = 0; i < n_operator_libraries; i++) {
    void *first = dlsym(operator_libraries[i], phase_1), *second = dlsym(operator_libraries[i], name);
    if (!first || !second)
      continue;
    operators[operator_].phase_1 = first;
    memcpy(&operators[operator_].phase_2, &second, sizeof second);
    return &operators[operator_];
  }
  return &absent;
}

const aclnn_functions *ascend_operator(aclnn_operator operator_) {
  const aclnn_functions *found = atomic_load_explicit(&known[operator_], memory_order_acquire);
  if (!found) {
    pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_LIBRARIES]);
    found = atomic_load_explicit(&known[operator_], memory_order_relaxed);
    if (!found) { /* else another thread was first, and its callers read what stands there */
      if (!operators_opened)
        open_operator_libraries();
      found = look_up(operator_);
      atomic_store_explicit(&known[operator_], found, memory_order_release);
    }
    pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_LIBRARIES]);
  }
  return found == &absent ? NULL : found;
}
