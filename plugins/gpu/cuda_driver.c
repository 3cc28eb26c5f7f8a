/* CUDA's driver API for the table of driver.h. The prototypes are the published ones; `_v2` is what the library has. */
#include "plugins/gpu/driver.h"

/* The toolkit that made the kernels, as the driver says its version: 13000 for 13.0; and the architectures that they
 * were compiled for, each major * 10 + minor. An empty list: this plugin was built without nvcc. */
#ifndef GPU_TOOLKIT
#define GPU_TOOLKIT 0
#endif
#ifndef GPU_ARCHS
#define GPU_ARCHS
#endif

typedef void *context;
typedef unsigned long long address;

static struct {
  gpu_code (*attribute)(int *value, int attribute, int device);
  gpu_code (*device)(int *device, int ordinal);
  gpu_code (*retain)(context *made, int device);
  gpu_code (*release)(int device);
  gpu_code (*state)(int device, unsigned *flags, int *active);
  gpu_code (*total_memory)(size_t *bytes, int device);
  gpu_code (*memory)(size_t *available, size_t *total);
  gpu_code (*get_current)(context *current);
  gpu_code (*get_device)(int *device);
  gpu_code (*push)(context pushed);
  gpu_code (*pop)(context *popped);
  gpu_code (*error_name)(gpu_code code, const char **name);
  gpu_code (*copy_to_device)(address to, const void *from, size_t size, void *stream);
  gpu_code (*copy_to_host)(void *to, address from, size_t size, void *stream);
  gpu_code (*copy_on_device)(address to, address from, size_t size, void *stream);
  gpu_code (*set_attribute)(void *function, int attribute, int value);
} cu;

static const gpu_symbol symbols[] = {
    {"cuInit", &gpu.call.initialise},
    {"cuDriverGetVersion", &gpu.call.version},
    {"cuDeviceGetCount", &gpu.call.count},
    {"cuDeviceGetName", &gpu.call.name},
    {"cuModuleLoadData", &gpu.call.load},
    {"cuModuleGetFunction", &gpu.call.find},
    {"cuLaunchKernel", &gpu.call.launch},
    {"cuMemAlloc_v2", &gpu.call.allocate},
    {"cuMemFree_v2", &gpu.call.release},
    {"cuStreamSynchronize", &gpu.call.synchronize},
    {"cuCtxSynchronize", &gpu.call.synchronize_all},
    {"cuStreamIsCapturing", &gpu.call.capturing},
    {"cuThreadExchangeStreamCaptureMode", &gpu.call.exchange_capture_mode},
    {"cuDeviceGetAttribute", &cu.attribute},
    {"cuDeviceGet", &cu.device},
    {"cuDevicePrimaryCtxRetain", &cu.retain},
    {"cuDevicePrimaryCtxRelease_v2", &cu.release},
    {"cuDevicePrimaryCtxGetState", &cu.state},
    {"cuDeviceTotalMem_v2", &cu.total_memory},
    {"cuMemGetInfo_v2", &cu.memory},
    {"cuCtxGetCurrent", &cu.get_current},
    {"cuCtxGetDevice", &cu.get_device},
    {"cuCtxPushCurrent_v2", &cu.push},
    {"cuCtxPopCurrent_v2", &cu.pop},
    {"cuGetErrorName", &cu.error_name},
    {"cuMemcpyHtoDAsync_v2", &cu.copy_to_device},
    {"cuMemcpyDtoHAsync_v2", &cu.copy_to_host},
    {"cuMemcpyDtoDAsync_v2", &cu.copy_on_device},
    {"cuFuncSetAttribute", &cu.set_attribute},
    {NULL, NULL},
};

#define WORK_SYMBOL(part, field, cuda, hip, arguments) {GPU_##part, #cuda, &gpu.work.field},
static const gpu_work_symbol work_symbols[] = {GPU_WORK_FUNCTIONS(WORK_SYMBOL){0, NULL, NULL}};
#undef WORK_SYMBOL

static const char *error_name(gpu_code code) {
  const char *name = NULL;
  return cu.error_name(code, &name) ? NULL : name;
}

static gpu_code describe(int ordinal, gpu_properties *p) {
  enum { WARP = 10, MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, SHARED_OPT_IN = 97 };
  const struct {
    int attribute, *value;
  } wanted[] = {{WARP, &p->warp},
                {MULTIPROCESSORS, &p->units},
                {MAJOR, &p->major},
                {MINOR, &p->minor},
                {SHARED_OPT_IN, &p->shared_limit}};
  int device;
  gpu_code code = cu.device(&device, ordinal);
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !code; i++)
    code = cu.attribute(wanted[i].value, wanted[i].attribute, device);
  snprintf(p->arch, sizeof p->arch, "sm_%d%d", p->major, p->minor);
  return code;
}

/* Without a context the device that a first use would take. */
static gpu_code current(int *ordinal) {
  context now = NULL;
  gpu_code code = cu.get_current(&now);
  *ordinal = 0;
  return code || !now ? code : cu.get_device(ordinal);
}

static bool in_use(int *ordinal) {
  context now = NULL;
  *ordinal = -1;
  return !cu.get_current(&now) && (!now || !cu.get_device(ordinal));
}

/* The primary context is the one that the engine's own library uses. */
static gpu_code enter(gpu_device *device, gpu_scope *scope) {
  context now = NULL, wanted = atomic_load_explicit(&device->context, memory_order_acquire);
  int handle;
  gpu_code code = GPU_SUCCESS;
  scope->changed = false;
  if (!wanted) {
    if ((code = cu.device(&handle, device->ordinal)) || (code = cu.retain(&wanted, handle)))
      return code;
    atomic_store_explicit(&device->context, wanted, memory_order_release);
  }
  if ((code = cu.get_current(&now)) || now == wanted)
    return code;
  code = cu.push(wanted);
  scope->changed = !code;
  return code;
}

static void leave(const gpu_scope *scope) {
  context popped;
  if (scope->changed)
    cu.pop(&popped);
}

/* Has this process a primary context on the device? */
static bool is_active(int device) {
  unsigned flags;
  int active = 0;
  return !cu.state(device, &flags, &active) && active;
}

static void read_free_memory(int device, size_t *available) {
  context primary, popped;
  size_t total;
  if (cu.retain(&primary, device))
    return;
  if (!cu.push(primary)) {
    if (cu.memory(available, &total))
      *available = 0;
    cu.pop(&popped);
  }
  cu.release(device);
}

/* What is free only a context knows, which takes hundreds of megabytes. So a process that works on one device is asked
 * about that; one that works on none, as the child that the host asks in, has a context on each for a moment. */
static gpu_code memory(int ordinal, size_t *available, size_t *total) {
  int device, active = 0;
  gpu_code code = cu.device(&device, ordinal);
  if (!code)
    code = cu.total_memory(total, device);
  for (int i = 0; i < gpu_count() && !code; i++) {
    int other;
    active += !cu.device(&other, i) && is_active(other);
  }
  if (!code && (!active || is_active(device)))
    read_free_memory(device, available);
  return code;
}

static gpu_code copy(void *to, const void *from, size_t size, int direction, void *stream) {
  if (direction == FL_COPY_TO_DEVICE)
    return cu.copy_to_device((address)to, from, size, stream);
  if (direction == FL_COPY_TO_HOST)
    return cu.copy_to_host(to, (address)from, size, stream);
  return cu.copy_on_device((address)to, (address)from, size, stream);
}

static gpu_code allow_shared(void *function, int bytes) {
  enum { MAX_DYNAMIC_SHARED = 8 };
  return cu.set_attribute(function, MAX_DYNAMIC_SHARED, bytes);
}

/* Machine code runs on later minors of its major; others get it from the PTX of 8.0, by a driver that is as new as the
 * toolkit. For machine code the same major of the driver suffices. */
static bool suits(const gpu_properties *p, int version, char *reason, size_t size) {
  static const int archs[] = {GPU_ARCHS 0};
  bool machine_code = false;
  for (const int *arch = archs; *arch; arch++)
    machine_code |= *arch / 10 == p->major && *arch % 10 <= p->minor;
  int needed = machine_code ? GPU_TOOLKIT / 1000 * 1000 : GPU_TOOLKIT;
  if (!archs[0])
    snprintf(reason, size, "built without nvcc: there are no kernels in this plugin");
  else if (p->major < 8)
    snprintf(reason, size, "device of architecture %s, the kernels need sm_80 or newer", p->arch);
  else if (version < needed)
    snprintf(reason, size, "the driver is for CUDA %d.%d, the kernels need one for %d.%d%s", version / 1000,
             version % 1000 / 10, needed / 1000, needed % 1000 / 10,
             machine_code ? "" : " to be compiled for this device");
  else
    return true;
  return false;
}

/* sm_90, sm_100f: the number, and what follows it. */
static bool read_arch(const char *name, unsigned long *number, const char **suffix) {
  char *end;
  if (strncmp(name, "sm_", 3) || strspn(name + 3, "0123456789") == 0)
    return false;
  *number = strtoul(name + 3, &end, 10);
  *suffix = end;
  return true;
}

/* sm_80: a device of that number or a greater one. sm_90a: of just that number. sm_100f: of that number, or of a
 * greater one with the same digits but the last. */
static bool arch_reaches(const char *arch, const char *least) {
  unsigned long has, wants;
  const char *suffix;
  if (!read_arch(arch, &has, &suffix) || !read_arch(least, &wants, &suffix))
    return true;
  if (!strcmp(suffix, "a"))
    return has == wants;
  return has >= wants && (strcmp(suffix, "f") || has / 10 == wants / 10);
}

gpu_driver gpu = {
    .name = "cuda",
    .title = "CUDA",
    .impl_id = "vendor.cuda",
    .min_arch = "sm_80",
    .setting = "FLHOST_CUDA_DRIVER",
    .device_type = kDLCUDA,
    .tensor_cores = true,
    .symbols = symbols,
    .work_symbols = work_symbols,
    .arch_reaches = arch_reaches,
    .suits = suits,
    .call = {.describe = describe,
             .memory = memory,
             .current = current,
             .in_use = in_use,
             .enter = enter,
             .leave = leave,
             .error_name = error_name,
             .allow_shared = allow_shared,
             .copy = copy},
    .library = {.libraries = {"libcuda.so.1"}, .nodes = {"/dev/nvidiactl", "/dev/dxg"}},
};
