/* GPU plugins on stand-in drivers: see gpu.h. */
#include "tests/gpu.h"

#include <dlfcn.h>
#include <limits.h>

const gpu_setup gpu_setups[GPU_SETUPS] = {
    {"cuda.so", "FLHOST_CUDA_DRIVER", "standin_cuda.so", "vendor.cuda", "FLHOST_CUBLASLT", kDLCUDA},
    {"rocm.so", "FLHOST_ROCM_DRIVER", "standin_hip5.so", "vendor.rocm", "FLHOST_ROCBLAS", kDLROCM},
    {"rocm.so", "FLHOST_ROCM_DRIVER", "standin_hip6.so", "vendor.rocm", "FLHOST_ROCBLAS", kDLROCM},
    {"rocm.so", "FLHOST_ROCM_DRIVER", "standin_hip32.so", "vendor.rocm", "FLHOST_ROCBLAS", kDLROCM},
};

/* Convolutions are our own kernels', unless a test says where cuDNN is; a real one is not found. */
#define NO_CUDNN "/nonexistent/libcudnn.so.9"

static void *stand_in;
static char path[PATH_MAX];

void stand_in_open(const char *name) {
  snprintf(path, sizeof path, "%s/tests/drivers/%s", build_dir(), name);
  stand_in = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(stand_in != NULL, "%s", stand_in ? "" : dlerror());
  stand_in_set("");
  stand_in_clear();
}

const char *stand_in_path(void) {
  return path;
}

void stand_in_find(const char *name, void *function) {
  void *address = dlsym(stand_in, name);
  ck_assert_msg(address != NULL, "the stand-in has no %s", name);
  memcpy(function, &address, sizeof address);
}

void stand_in_set(const char *settings) {
  bool (*set)(const char *);
  stand_in_find("flhost_stand_in_set", &set);
  ck_assert_msg(set(settings), "unknown setting in '%s'", settings);
}

const char *stand_in_log(void) {
  const char *(*get)(void);
  stand_in_find("flhost_stand_in_log", &get);
  return get();
}

void stand_in_clear(void) {
  void (*clear)(void);
  stand_in_find("flhost_stand_in_clear", &clear);
  clear();
}

int stand_in_lines(const char *text) {
  const char *log = stand_in_log();
  int n = 0;
  for (const char *at = log; (at = strstr(at, text)); at++)
    n += at == log || at[-1] == '\n';
  return n;
}

/* Where the plugin's rows go. */
typedef struct collection {
  fl_impl *impls;
  int n, most;
} collection;

static fl_status collect_impl(fl_registry *registry, const fl_impl *impl) {
  collection *c = registry->host;
  ck_assert_int_lt(c->n, c->most);
  c->impls[c->n++] = *impl;
  return FL_OK;
}

static fl_status ignore_component(fl_registry *registry, const fl_component *component) {
  (void)registry;
  (void)component;
  return FL_OK;
}

int gpu_plugin_impls(const gpu_setup *setup, const char *math, fl_impl *impls, int most) {
  char plugin[PATH_MAX];
  collection c = {.impls = impls, .most = most};
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .host = &c,
                          .register_impl = collect_impl,
                          .register_component = ignore_component};
  fl_register_fn entry = NULL;
  stand_in_open(setup->driver);
  setenv(setup->setting, path, 1);
  setenv(setup->math, math ? math : path, 1);
  setenv("FLHOST_CUDNN", NO_CUDNN, 0);
  snprintf(plugin, sizeof plugin, "%s/%s%s", build_dir(), strchr(setup->plugin, '/') ? "" : "tests/drivers/plugins/",
           setup->plugin);
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_int_eq(entry(&registry), FL_OK);
  return c.n;
}

fl_host *gpu_host(const gpu_setup *setup) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", "VLLM_FL_PREFER=reference", NULL};
  char plugin[PATH_MAX];
  stand_in_open(setup->driver);
  setenv(setup->setting, path, 1);
  setenv(setup->math, path, 1);
  setenv("FLHOST_CUDNN", NO_CUDNN, 0);
  fl_host *host = test_host(environment, 0);
  snprintf(plugin, sizeof plugin, "%s/plugins/cpu.so", build_dir());
  ck_ok(fl_load_plugin(host, plugin));
  snprintf(plugin, sizeof plugin, "%s/tests/drivers/plugins/%s", build_dir(), setup->plugin);
  ck_ok(fl_load_plugin(host, plugin));
  return host;
}
