/* HIP for the table of driver.h. The prototypes are the published ones, of ROCm 5 to 7. */
#include "plugins/gpu/driver.h"

/* The architectures that the kernels were compiled for, each followed by a comma. None: this plugin was built without
 * a compiler for them. */
#ifndef GPU_ARCHS
#define GPU_ARCHS
#endif

static struct {
  gpu_code (*init)(unsigned flags);
  gpu_code (*attribute)(int *value, int attribute, int device);
  gpu_code (*memory)(size_t *available, size_t *total);
  gpu_code (*get_device)(int *device);
  gpu_code (*set_device)(int device);
  gpu_code (*copy)(void *to, const void *from, size_t size, int kind, void *stream);
  const char *(*error_name)(gpu_code code);
  gpu_code (*properties)(void *properties, int device);
  size_t arch_offset; /* of gcnArchName in what it fills */
} hip;

static const gpu_symbol symbols[] = {
    {"hipInit", &hip.init},
    {"hipDriverGetVersion", &gpu.call.version},
    {"hipGetDeviceCount", &gpu.call.count},
    {"hipDeviceGetName", &gpu.call.name},
    {"hipMemGetInfo", &hip.memory},
    {"hipModuleLoadData", &gpu.call.load},
    {"hipModuleGetFunction", &gpu.call.find},
    {"hipModuleLaunchKernel", &gpu.call.launch},
    {"hipMalloc", &gpu.call.allocate},
    {"hipFree", &gpu.call.release},
    {"hipStreamSynchronize", &gpu.call.synchronize},
    {"hipDeviceSynchronize", &gpu.call.synchronize_all},
    {"hipStreamIsCapturing", &gpu.call.capturing},
    {"hipDeviceGetAttribute", &hip.attribute},
    {"hipGetDevice", &hip.get_device},
    {"hipSetDevice", &hip.set_device},
    {"hipMemcpyAsync", &hip.copy},
    {"hipGetErrorName", &hip.error_name},
    {NULL, NULL},
};

#define WORK_SYMBOL(part, field, cuda, hip, arguments) {GPU_##part, #hip, &gpu.work.field},
static const gpu_work_symbol work_symbols[] = {GPU_WORK_FUNCTIONS(WORK_SYMBOL){0, NULL, NULL}};
#undef WORK_SYMBOL

/* ROCm 6 changed the struct of properties, and gave the function that fills it another name. A driver without words on
 * captures does without. */
static bool bind(const driver *library, char *reason, size_t size) {
  enum { ARCH_R0600 = 1160, ARCH_R0000 = 396 };
  hip.arch_offset = ARCH_R0600;
  driver_find(library, "hipThreadExchangeStreamCaptureMode", &gpu.call.exchange_capture_mode);
  if (driver_find(library, "hipGetDevicePropertiesR0600", &hip.properties))
    return true;
  hip.arch_offset = ARCH_R0000;
  if (driver_find(library, "hipGetDeviceProperties", &hip.properties))
    return true;
  snprintf(reason, size, "the driver library lacks hipGetDevicePropertiesR0600 and hipGetDeviceProperties");
  return false;
}

/* Without a device hipInit calls its device invalid; counting says what is the matter. */
static gpu_code initialise(unsigned flags) {
  int n;
  gpu_code code = gpu.call.count(&n);
  return code == GPU_NO_DEVICE ? code : hip.init(flags);
}

static gpu_code describe(int ordinal, gpu_properties *p) {
  enum { MAJOR = 23, MINOR = 61, COMPUTE_UNITS = 63, SHARED = 74, WARP = 87, PROPERTIES_SIZE = 8192 };
  const struct {
    int attribute, *value;
  } wanted[] = {
      {WARP, &p->warp}, {COMPUTE_UNITS, &p->units}, {MAJOR, &p->major}, {MINOR, &p->minor}, {SHARED, &p->shared_limit}};
  _Alignas(16) char properties[PROPERTIES_SIZE] = {0}; /* larger than that of any version */
  gpu_code code = hip.properties(properties, ordinal);
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !code; i++)
    code = hip.attribute(wanted[i].value, wanted[i].attribute, ordinal);
  snprintf(p->arch, sizeof p->arch, "%s", properties + hip.arch_offset);
  return code;
}

static gpu_code current(int *ordinal) {
  return hip.get_device(ordinal);
}

/* HIP does not say: any question initialises it. */
static bool in_use(int *ordinal) {
  *ordinal = -1;
  return false;
}

static gpu_code enter(gpu_device *device, gpu_scope *scope) {
  gpu_code code = hip.get_device(&scope->ordinal);
  scope->changed = false;
  if (code || scope->ordinal == device->ordinal)
    return code;
  code = hip.set_device(device->ordinal);
  scope->changed = !code;
  return code;
}

static void leave(const gpu_scope *scope) {
  if (scope->changed)
    hip.set_device(scope->ordinal);
}

static gpu_code memory(int ordinal, size_t *available, size_t *total) {
  gpu_scope scope;
  gpu_code code = enter(gpu_device_at(ordinal), &scope);
  if (code)
    return code;
  code = hip.memory(available, total);
  leave(&scope);
  return code;
}

/* FL_COPY_* are HIP's numbers for the same. */
static gpu_code copy(void *to, const void *from, size_t size, int direction, void *stream) {
  return hip.copy(to, from, size, direction, stream);
}

static const char *error_name(gpu_code code) {
  return hip.error_name(code);
}

/* A block may have all the memory that there is. */
static gpu_code allow_shared(void *function, int bytes) {
  (void)function;
  (void)bytes;
  return GPU_SUCCESS;
}

/* Code for gfx90a runs whatever features follow the name, and on no other architecture. */
static bool suits(const gpu_properties *p, int version, char *reason, size_t size) {
  static const char archs[] = GPU_ARCHS "";
  size_t length = strcspn(p->arch, ":");
  (void)version;
  if (!*archs) {
    snprintf(reason, size, "built without a clang for AMD's devices: there are no kernels in this plugin");
    return false;
  }
  for (const char *arch = archs; *arch; arch += strcspn(arch, ",") + 1)
    if (strcspn(arch, ",") == length && !strncmp(arch, p->arch, length))
      return true;
  snprintf(reason, size, "the kernels are compiled for %.*s, this device is %.*s", (int)strlen(archs) - 1, archs,
           (int)length, p->arch);
  return false;
}

/* gfx90a, gfx1030: major, and a hexadecimal digit each for minor and stepping; then features, ":sramecc+:xnack-". Of
 * gfx9, the integrated processors have late numbers but none of the matrix units. */
static bool read_arch(const char *name, unsigned long *number, const char **features) {
  static const unsigned long integrated[] = {0x902, 0x909, 0x90c};
  char *end;
  if (strncmp(name, "gfx", 3) || strspn(name + 3, "0123456789abcdef") == 0)
    return false;
  *number = strtoul(name + 3, &end, 16);
  *features = end;
  for (size_t i = 0; i < sizeof integrated / sizeof *integrated; i++)
    if (*number == integrated[i])
      *number = 0x900;
  return !*end || *end == ':';
}

/* Has a device each feature ("xnack-") that follows a colon in `wanted`? One that it does not mention counts as had. */
static bool has_features(const char *had, const char *wanted) {
  while (*wanted == ':') {
    size_t length = strcspn(++wanted, ":");
    for (const char *at = had; length && *at == ':';) {
      size_t other = strcspn(++at, ":");
      if (other == length && !strncmp(at, wanted, length - 1) && at[length - 1] != wanted[length - 1])
        return false; /* xnack+ for xnack- */
      at += other;
    }
    wanted += length;
  }
  return true;
}

/* Up to gfx9 wavefronts have 64 lanes, from gfx10 on 32: neither stands in for the other. */
static bool arch_reaches(const char *arch, const char *least) {
  unsigned long has, wants;
  const char *had, *wanted;
  if (!read_arch(arch, &has, &had) || !read_arch(least, &wants, &wanted))
    return true;
  return (has >= 0x1000) == (wants >= 0x1000) && has >= wants && has_features(had, wanted);
}

gpu_driver gpu = {
    .name = "rocm",
    .title = "ROCm",
    .impl_id = "vendor.rocm",
    .min_arch = "gfx900,gfx1010", /* device.h: the widths of a wavefront */
    .setting = "FLHOST_ROCM_DRIVER",
    .device_type = kDLROCM,
    .symbols = symbols,
    .work_symbols = work_symbols,
    .bind = bind,
    .arch_reaches = arch_reaches,
    .suits = suits,
    .call = {.initialise = initialise,
             .describe = describe,
             .memory = memory,
             .current = current,
             .in_use = in_use,
             .enter = enter,
             .leave = leave,
             .error_name = error_name,
             .allow_shared = allow_shared,
             .copy = copy},
    .library = {.libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
                .nodes = {"/dev/kfd"},
                .root = "ROCM_PATH",
                .usual_root = "/opt/rocm"},
};
