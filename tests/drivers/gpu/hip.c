/*
 * A stand-in for libamdhip64: see standin.h. The prototypes are HIP's. HIP_R0600: that of ROCm 6 and later, which has
 * the new struct of properties alone; else that of ROCm 5, which has the old one. HIP_WAVE32: its kernels have warps of
 * 32, as devices from gfx10 on have; else of 64.
 */
#include "tests/drivers/gpu/standin.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int code;

enum { INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101 };

/* Of devices in use; what `arch` chooses. */
#ifdef HIP_WAVE32
enum { WARP = 32, MAJOR = 11 };
static const char *const archs[] = {"gfx1100", "gfx1200", "gfx1151"};
#else
enum { WARP = 64, MAJOR = 9 };
static const char *const archs[] = {"gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "gfx803"};
#endif
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

const standin_settings standin_defaults = {
    .devices = 1, .version = 50221153, .major = MAJOR, .minor = 0, .warp = WARP, .units = 110, .shared = 64 << 10};

static _Thread_local int current;

#define EXPORT STANDIN_EXPORT

EXPORT code hipInit(unsigned flags);
code hipInit(unsigned flags) {
  standin_settings now = standin_now();
  if (now.crash)
    raise(SIGSEGV);
  return now.init ? now.init : flags ? INVALID_VALUE : now.devices ? 0 : INVALID_DEVICE;
}

EXPORT code hipDriverGetVersion(int *version);
code hipDriverGetVersion(int *version) {
  *version = standin_now().version;
  return 0;
}

EXPORT code hipGetDeviceCount(int *count);
code hipGetDeviceCount(int *count) {
  *count = standin_now().devices;
  return *count ? standin_check(standin_now().count) : NO_DEVICE;
}

EXPORT code hipGetDevice(int *device);
code hipGetDevice(int *device) {
  *device = current;
  return standin_now().devices ? 0 : NO_DEVICE;
}

EXPORT code hipSetDevice(int device);
code hipSetDevice(int device) {
  if (device < 0 || device >= standin_now().devices)
    return INVALID_DEVICE;
  standin_log("set device %d", device);
  current = device;
  return 0;
}

EXPORT code hipDeviceGetName(char *name, int size, int device);
code hipDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "stand-in for an AMD GPU, number %d", device);
  return standin_check(0);
}

EXPORT code hipDeviceGetAttribute(int *value, int attribute, int device);
code hipDeviceGetAttribute(int *value, int attribute, int device) {
  standin_settings now = standin_now();
  const struct {
    int attribute, value;
  } known[] = {{87, now.warp}, {63, now.units}, {23, now.major}, {61, now.minor}, {74, now.shared}};
  (void)device;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].attribute == attribute) {
      *value = known[i].value;
      return standin_check(now.describe);
    }
  return INVALID_VALUE;
}

/* The whole struct is filled, so that a reader with too little room for it is found out. */
static code describe(char *properties, size_t size, size_t arch_offset, int device) {
  standin_settings now = standin_now();
  int arch = now.arch + device * now.arch_step;
  memset(properties, 0x5a, size);
  if (arch < 0 || arch >= N_ARCHS)
    return INVALID_VALUE;
  strcpy(properties + arch_offset, archs[arch]);
  return standin_check(now.describe);
}

#ifdef HIP_R0600
EXPORT code hipGetDevicePropertiesR0600(void *properties, int device);
code hipGetDevicePropertiesR0600(void *properties, int device) {
  return describe(properties, 1472, 1160, device);
}
#else
EXPORT code hipGetDeviceProperties(void *properties, int device);
code hipGetDeviceProperties(void *properties, int device) {
  return describe(properties, 792, 396, device);
}
#endif

EXPORT code hipMemGetInfo(size_t *available, size_t *total);
code hipMemGetInfo(size_t *available, size_t *total) {
  *available = (size_t)60 << 30;
  *total = (size_t)64 << 30;
  return standin_check(0);
}

/* The thread's device, as a place. */
const void *standin_here(void) {
  return (const void *)((uintptr_t)current + 1);
}

int standin_device(void) {
  return current;
}

EXPORT code hipModuleLoadData(void **module, const void *image);
code hipModuleLoadData(void **module, const void *image) {
  return standin_load(module, image, standin_here());
}

EXPORT code hipModuleGetFunction(void **function, void *module, const char *name);
code hipModuleGetFunction(void **function, void *module, const char *name) {
  return standin_find(function, module, name);
}

EXPORT code hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                  unsigned bz, unsigned shared, void *stream, void **arguments, void **extra);
code hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, void *stream, void **arguments, void **extra) {
  if (extra || shared > (unsigned)standin_now().shared)
    return INVALID_VALUE;
  return standin_launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, arguments);
}

EXPORT code hipMalloc(void **memory, size_t size);
code hipMalloc(void **memory, size_t size) {
  return standin_allocate(memory, size);
}

EXPORT code hipFree(void *memory);
code hipFree(void *memory) {
  return standin_release(memory);
}

EXPORT code hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream);
code hipMemcpyAsync(void *to, const void *from, size_t size, int kind, void *stream) {
  static const char *const kinds[] = {NULL, "to device", "to host", "on device"};
  return kind < 1 || kind > 3 ? INVALID_VALUE : standin_copy(to, from, size, stream, kinds[kind]);
}

EXPORT code hipStreamSynchronize(void *stream);
code hipStreamSynchronize(void *stream) {
  return standin_synchronize(stream, false);
}

EXPORT code hipDeviceSynchronize(void);
code hipDeviceSynchronize(void) {
  return standin_synchronize(NULL, true);
}

EXPORT code hipStreamIsCapturing(void *stream, int *status);
code hipStreamIsCapturing(void *stream, int *status) {
  return standin_capturing(stream, status);
}

EXPORT code hipThreadExchangeStreamCaptureMode(int *mode);
code hipThreadExchangeStreamCaptureMode(int *mode) {
  return standin_exchange_mode(mode);
}

EXPORT const char *hipGetErrorName(code error);
const char *hipGetErrorName(code error) {
  static const struct {
    code error;
    const char *name;
  } known[] = {{2, "hipErrorOutOfMemory"},
               {100, "hipErrorNoDevice"},
               {101, "hipErrorInvalidDevice"},
               {209, "hipErrorNoBinaryForGpu"},
               {700, "hipErrorIllegalAddress"},
               {719, "hipErrorLaunchFailure"},
               {900, "hipErrorStreamCaptureUnsupported"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].error == error)
      return known[i].name;
  return "hipErrorUnknown";
}
