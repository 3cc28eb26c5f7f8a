/* Plugins that say in their file which ops they implement (FL_PLUGIN_OPS): a host with some of tests/plugins/listed,
 * and what became of them. */
#ifndef FLHOST_TESTS_LISTED_H
#define FLHOST_TESTS_LISTED_H

#include "tests/fixture.h"
#include "tests/scratch.h"

#include <dlfcn.h>

static fl_host *host;

/* "…/lazy_a.so" */
static inline const char *listed(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "tests/plugins/listed/%s.so", name);
  return built(path);
}

static inline fl_status create(const char *modules, const char *const *more, fl_log_fn log, fl_host **created) {
  const char *environment[8] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=DEBUG"};
  for (int i = 0; more && more[i]; i++)
    environment[i + 2] = more[i];
  const fl_host_options options = {
      .size = sizeof options,
      .environment = environment,
      .config_dir = "/nonexistent",
      .plugin_path = in_scratch("plugins"),
      .plugin_modules = modules,
      .log = log,
      .log_user = &test_log,
  };
  test_log_clear();
  return fl_host_create(&options, created);
}

/* The plugins of those names, divided by blanks, as modules. */
static inline const char *modules_of(const char *names) {
  static char modules[8 * PATH_MAX];
  char copy[256], *rest = copy, *name;
  size_t length = 0;
  snprintf(copy, sizeof copy, "%s", names);
  modules[0] = 0;
  while ((name = strsep(&rest, " ")))
    length += (size_t)snprintf(modules + length, sizeof modules - length, "%s%s", length ? "," : "", listed(name));
  return modules;
}

static inline void start_with(const char *names) {
  ck_ok(create(modules_of(names), NULL, test_log_capture, &host));
}

static inline void set_up(void) {
  scratch_make();
  ck_assert_int_eq(mkdir(in_scratch("plugins"), 0755), 0);
}

static inline void tear_down(void) {
  fl_host_destroy(host);
  scratch_remove();
}

/* What the host says became of a plugin; its reason goes to `reason`. */
static char reason[2048];

static inline const char *status_of(const char *name) {
  static char status[32];
  fl_plugins *plugins;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  strcpy(status, "not found");
  for (uint32_t i = 0; i < plugins->n; i++)
    if (!strcmp(fl_plugin_at(plugins, i)->name, name)) {
      snprintf(status, sizeof status, "%s", fl_plugin_at(plugins, i)->status);
      snprintf(reason, sizeof reason, "%s", fl_plugin_at(plugins, i)->reason);
    }
  fl_plugins_free(plugins);
  return status;
}

static inline bool is_open(const char *path) {
  void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle)
    dlclose(handle);
  return handle != NULL;
}

static inline void expect_run(const char *op, const char *plugin) {
  const char *ran = NULL;
  ck_ok(test_call(host, op, &ran));
  ck_assert_str_eq(ran, plugin);
}

/* How often did register_builtins of a plugin run? */
static inline int registrations(const char *plugin) {
  char line[128];
  snprintf(line, sizeof line, "INFO plugin %s: registers", plugin);
  return test_log_count(line);
}

#endif
