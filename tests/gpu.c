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
  bool (*change)(const char *);
  stand_in_find("flhost_stand_in_set", &change);
  ck_assert_msg(change(settings), "unknown setting in '%s'", settings);
}

const char *stand_in_log(void) {
  const char *(*log)(void);
  stand_in_find("flhost_stand_in_log", &log);
  return log();
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

void stand_in_use_device(int device) {
  int (*init)(unsigned), (*retain)(void **, int), (*push)(void *);
  void *context;
  stand_in_find("cuInit", &init);
  stand_in_find("cuDevicePrimaryCtxRetain", &retain);
  stand_in_find("cuCtxPushCurrent_v2", &push);
  ck_assert_int_eq(init(0), 0);
  ck_assert_int_eq(retain(&context, device), 0);
  ck_assert_int_eq(push(context), 0);
  stand_in_clear();
}

/* --------------------------------------------------------------------------------------------------- a plugin alone */

static fl_status collect_impl(fl_registry *registry, const fl_impl *impl) {
  gpu_plugin *made = registry->host;
  ck_assert_int_lt(made->n_impls, GPU_MOST_IMPLS);
  made->impls[made->n_impls++] = *impl;
  return FL_OK;
}

static fl_status collect_component(fl_registry *registry, const fl_component *component) {
  gpu_plugin *made = registry->host;
  ck_assert_str_eq(component->type, "platform");
  made->platform = *(const fl_platform *)component->functions;
  made->self = component->self;
  return FL_OK;
}

void gpu_plugin_open(gpu_plugin *made, const char *name) {
  char plugin[PATH_MAX];
  fl_registry registry = {.size = sizeof registry,
                          .abi_major = FL_ABI_MAJOR,
                          .host = made,
                          .register_impl = collect_impl,
                          .register_component = collect_component};
  fl_register_fn entry = NULL;
  made->n_impls = 0;
  snprintf(plugin, sizeof plugin, "%s/%s%s", build_dir(), strchr(name, '/') ? "" : "tests/drivers/plugins/", name);
  void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  *(void **)&entry = dlsym(library, "register_builtins");
  ck_assert_int_eq(entry(&registry), FL_OK);
}

/* Opens it, and tells the plugin. */
static void use_stand_in(const gpu_setup *setup, const char *math) {
  stand_in_open(setup->driver);
  setenv(setup->setting, path, 1);
  setenv(setup->math, math ? math : path, 1);
  setenv("FLHOST_CUDNN", NO_CUDNN, 0);
}

void gpu_plugin_on_stand_in(gpu_plugin *made, const gpu_setup *setup, const char *math) {
  use_stand_in(setup, math);
  gpu_plugin_open(made, setup->plugin);
}

const fl_impl *gpu_plugin_impl(const gpu_plugin *plugin, const char *op, const char *id) {
  for (int i = 0; i < plugin->n_impls; i++)
    if (!strcmp(plugin->impls[i].op_name, op) && (!id || !strcmp(plugin->impls[i].impl_id, id)))
      return &plugin->impls[i];
  ck_abort_msg("no implementation '%s' of %s", id ? id : "*", op);
  return NULL;
}

/* ----------------------------------------------------------------------------------------------------------- a call */

enum { ROWS = 3, COLUMNS = 40 };

void silu_make(silu_call *silu, int32_t device_type, int32_t device) {
  silu->x = make_constant(float32, SHAPE(ROWS, 2 * COLUMNS), 0, 1);
  silu->out = make(float32, SHAPE(ROWS, COLUMNS), 0);
  silu->values[0] = fl_tensor(&silu->x->tensor);
  silu->values[1] = fl_tensor(&silu->out->tensor);
  silu_move(silu, (DLDevice){(DLDeviceType)device_type, device});
}

void silu_move(silu_call *silu, DLDevice device) {
  silu->x->tensor.device = silu->out->tensor.device = device;
}

void silu_free(silu_call *silu) {
  unmake(silu->x);
  unmake(silu->out);
}

void silu_assert_computed(const silu_call *silu) {
  for (int64_t i = 0; i < count(&silu->out->tensor); i++)
    ck_assert_double_eq_tol(get(&silu->out->tensor, i), 0.731058579, 1e-6);
}

/* -------------------------------------------------------------------------------------------------------- in a host */

fl_host *gpu_host(const gpu_setup *setup) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", "VLLM_FL_PREFER=reference", NULL};
  char plugin[PATH_MAX];
  use_stand_in(setup, NULL);
  fl_host *host = test_host(environment, 0);
  snprintf(plugin, sizeof plugin, "%s/plugins/cpu.so", build_dir());
  ck_ok(fl_load_plugin(host, plugin));
  snprintf(plugin, sizeof plugin, "%s/tests/drivers/plugins/%s", build_dir(), setup->plugin);
  ck_ok(fl_load_plugin(host, plugin));
  return host;
}
