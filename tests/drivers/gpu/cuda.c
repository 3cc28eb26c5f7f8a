/* A stand-in for libcuda.so.1: see standin.h. The prototypes are the driver API's. */
#include "tests/drivers/gpu/standin.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int code;
typedef unsigned long long address;

enum {
  MOST_DEVICES = 8,
  INVALID_VALUE = 1,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201
};

const standin_settings standin_defaults = {.devices = 1,
                                           .version = 13000,
                                           .major = 9,
                                           .minor = 0,
                                           .warp = 32,
                                           .units = 132,
                                           .shared = 227 << 10,
                                           .math_workspace = 4096,
                                           .conv_version = 91900,
                                           .conv_workspace = 4096};

/* A context is the address of its device's place here; a test may push others. */
static char contexts[MOST_DEVICES];
static atomic_int retained[MOST_DEVICES];
static atomic_bool initialised;

enum { MOST_PUSHED = 16 };
static _Thread_local void *stack[MOST_PUSHED];
static _Thread_local int depth;

#define EXPORT STANDIN_EXPORT

const void *standin_here(void) {
  return depth ? stack[depth - 1] : NULL;
}

int standin_device(void) {
  return depth ? (int)((char *)stack[depth - 1] - contexts) : -1;
}

EXPORT code cuInit(unsigned flags);
code cuInit(unsigned flags) {
  standin_settings now = standin_now();
  if (now.crash)
    raise(SIGSEGV);
  usleep((useconds_t)now.stall * 1000);
  int failed = now.init ? now.init : now.devices ? 0 : NO_DEVICE;
  initialised = !failed && !flags;
  return failed;
}

EXPORT code cuDriverGetVersion(int *version);
code cuDriverGetVersion(int *version) {
  *version = standin_now().version;
  return 0;
}

EXPORT code cuDeviceGetCount(int *count);
code cuDeviceGetCount(int *count) {
  *count = standin_now().devices;
  return initialised ? standin_check(standin_now().count) : NOT_INITIALIZED;
}

EXPORT code cuDeviceGet(int *device, int ordinal);
code cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return !initialised ? NOT_INITIALIZED : ordinal < 0 || ordinal >= standin_now().devices ? INVALID_DEVICE : 0;
}

EXPORT code cuDeviceGetName(char *name, int size, int device);
code cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "stand-in for an NVIDIA GPU, number %d", device);
  return standin_check(0);
}

EXPORT code cuDeviceGetAttribute(int *value, int attribute, int device);
code cuDeviceGetAttribute(int *value, int attribute, int device) {
  standin_settings now = standin_now();
  const struct {
    int attribute, value;
  } known[] = {{10, now.warp}, {16, now.units}, {75, now.major}, {76, now.minor}, {97, now.shared}};
  (void)device;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].attribute == attribute) {
      *value = known[i].value;
      return standin_check(now.describe);
    }
  return INVALID_VALUE;
}

EXPORT code cuDevicePrimaryCtxRetain(void **context, int device);
code cuDevicePrimaryCtxRetain(void **context, int device) {
  standin_log("retain %d", device);
  atomic_fetch_add(&retained[device], 1);
  *context = &contexts[device];
  return standin_check(0);
}

EXPORT code cuDevicePrimaryCtxRelease_v2(int device);
code cuDevicePrimaryCtxRelease_v2(int device) {
  standin_log("release %d", device);
  atomic_fetch_sub(&retained[device], 1);
  return standin_check(0);
}

EXPORT code cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
code cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  *flags = 0;
  *active = atomic_load(&retained[device]) > 0;
  return initialised ? 0 : NOT_INITIALIZED;
}

EXPORT code cuDeviceTotalMem_v2(size_t *bytes, int device);
code cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)80 << 30;
  return standin_check(0);
}

EXPORT code cuCtxGetCurrent(void **context);
code cuCtxGetCurrent(void **context) {
  *context = depth ? stack[depth - 1] : NULL;
  return initialised ? 0 : NOT_INITIALIZED;
}

EXPORT code cuCtxGetDevice(int *device);
code cuCtxGetDevice(int *device) {
  if (!depth || (char *)stack[depth - 1] < contexts || (char *)stack[depth - 1] >= contexts + MOST_DEVICES)
    return INVALID_CONTEXT;
  *device = (int)((char *)stack[depth - 1] - contexts);
  return 0;
}

EXPORT code cuCtxPushCurrent_v2(void *context);
code cuCtxPushCurrent_v2(void *context) {
  if (depth == MOST_PUSHED)
    return INVALID_VALUE;
  stack[depth++] = context;
  standin_log("push");
  return standin_check(0);
}

EXPORT code cuCtxPopCurrent_v2(void **context);
code cuCtxPopCurrent_v2(void **context) {
  if (!depth)
    return INVALID_CONTEXT;
  *context = stack[--depth];
  standin_log("pop");
  return 0;
}

/* Everything below needs a context. */
static code in_context(code failed) {
  return depth ? failed : INVALID_CONTEXT;
}

EXPORT code cuMemGetInfo_v2(size_t *available, size_t *total);
code cuMemGetInfo_v2(size_t *available, size_t *total) {
  *available = (size_t)60 << 30;
  *total = (size_t)80 << 30;
  return in_context(standin_check(0));
}

EXPORT code cuModuleLoadData(void **module, const void *image);
code cuModuleLoadData(void **module, const void *image) {
  return depth ? standin_load(module, image, stack[depth - 1]) : INVALID_CONTEXT;
}

EXPORT code cuModuleGetFunction(void **function, void *module, const char *name);
code cuModuleGetFunction(void **function, void *module, const char *name) {
  return depth ? standin_find(function, module, name) : INVALID_CONTEXT;
}

EXPORT code cuFuncSetAttribute(void *function, int attribute, int value);
code cuFuncSetAttribute(void *function, int attribute, int value) {
  (void)function;
  standin_log("attribute %d %d", attribute, value);
  return in_context(standin_check(attribute == 8 && value <= standin_now().shared ? 0 : INVALID_VALUE));
}

EXPORT code cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                           unsigned shared, void *stream, void **arguments, void **extra);
code cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                    unsigned shared, void *stream, void **arguments, void **extra) {
  if (!depth || extra)
    return depth ? INVALID_VALUE : INVALID_CONTEXT;
  return standin_launch(function, (unsigned[]){gx, gy, gz}, (unsigned[]){bx, by, bz}, shared, stream, arguments);
}

EXPORT code cuMemAlloc_v2(address *memory, size_t size);
code cuMemAlloc_v2(address *memory, size_t size) {
  void *made = NULL;
  code failed = depth ? standin_allocate(&made, size) : INVALID_CONTEXT;
  *memory = (uintptr_t)made;
  return failed;
}

EXPORT code cuMemFree_v2(address memory);
code cuMemFree_v2(address memory) {
  return depth ? standin_release((void *)(uintptr_t)memory) : INVALID_CONTEXT;
}

EXPORT code cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream);
code cuMemcpyHtoDAsync_v2(address to, const void *from, size_t size, void *stream) {
  return depth ? standin_copy((void *)(uintptr_t)to, from, size, stream, "to device") : INVALID_CONTEXT;
}

EXPORT code cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream);
code cuMemcpyDtoHAsync_v2(void *to, address from, size_t size, void *stream) {
  return depth ? standin_copy(to, (void *)(uintptr_t)from, size, stream, "to host") : INVALID_CONTEXT;
}

EXPORT code cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream);
code cuMemcpyDtoDAsync_v2(address to, address from, size_t size, void *stream) {
  if (!depth)
    return INVALID_CONTEXT;
  return standin_copy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size, stream, "on device");
}

EXPORT code cuStreamSynchronize(void *stream);
code cuStreamSynchronize(void *stream) {
  return depth ? standin_synchronize(stream, false) : INVALID_CONTEXT;
}

EXPORT code cuCtxSynchronize(void);
code cuCtxSynchronize(void) {
  return depth ? standin_synchronize(NULL, true) : INVALID_CONTEXT;
}

EXPORT code cuStreamIsCapturing(void *stream, int *status);
code cuStreamIsCapturing(void *stream, int *status) {
  return depth ? standin_capturing(stream, status) : INVALID_CONTEXT;
}

EXPORT code cuThreadExchangeStreamCaptureMode(int *mode);
code cuThreadExchangeStreamCaptureMode(int *mode) {
  return initialised ? standin_exchange_mode(mode) : NOT_INITIALIZED;
}

/* A driver that is too old lacks one that came late. */
#ifndef WITHOUT_ERROR_NAME
EXPORT code cuGetErrorName(code error, const char **name);
code cuGetErrorName(code error, const char **name) {
  static const struct {
    code error;
    const char *name;
  } known[] = {{2, "CUDA_ERROR_OUT_OF_MEMORY"},
               {3, "CUDA_ERROR_NOT_INITIALIZED"},
               {100, "CUDA_ERROR_NO_DEVICE"},
               {201, "CUDA_ERROR_INVALID_CONTEXT"},
               {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
               {218, "CUDA_ERROR_INVALID_PTX"},
               {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
               {500, "CUDA_ERROR_NOT_FOUND"},
               {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
               {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
               {719, "CUDA_ERROR_LAUNCH_FAILED"},
               {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
               {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (known[i].error == error) {
      *name = known[i].name;
      return 0;
    }
  *name = NULL;
  return INVALID_VALUE;
}
#endif
