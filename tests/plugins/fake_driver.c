/*
 * A driver library that is none: the entry points that are asked for the number of devices, for CUDA, HIP and ACL.
 * FAKE_DRIVER says what happens: a number of devices, "error", "crash", "hang".
 */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuGetErrorName(int code, const char **name);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int hipGetDeviceCount(int *count);
EXPORT int hipRuntimeGetVersion(int *version);
EXPORT const char *hipGetErrorName(int code);
EXPORT int aclInit(const char *config);
EXPORT int aclrtGetDeviceCount(uint32_t *count);
EXPORT int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch);

static int initialised;

static int count_devices(int *count, int none, int failure) {
  const char *mode = getenv("FAKE_DRIVER");
  if (!strcmp(mode, "crash"))
    raise(SIGSEGV);
  while (!strcmp(mode, "hang"))
    pause();
  if (!strcmp(mode, "error"))
    return failure;
  *count = atoi(mode);
  return *count ? 0 : none;
}

int cuInit(unsigned flags) {
  int count;
  initialised = !flags;
  return count_devices(&count, 100, 803);
}

int cuDeviceGetCount(int *count) {
  return initialised ? count_devices(count, 100, 803) : 3;
}

int cuGetErrorName(int code, const char **name) {
  *name = code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : NULL;
  return 0;
}

int cuDriverGetVersion(int *version) {
  *version = 13010;
  return 0;
}

int hipRuntimeGetVersion(int *version) {
  *version = 60241133;
  return 0;
}

int hipGetDeviceCount(int *count) {
  return count_devices(count, 100, 35);
}

const char *hipGetErrorName(int code) {
  return code == 35 ? "hipErrorInsufficientDriver" : "hipErrorUnknown";
}

int aclInit(const char *config) {
  initialised = !config;
  return 100002;
}

int aclrtGetDeviceCount(uint32_t *count) {
  return initialised ? count_devices((int *)count, 0, 507899) : 100001;
}

int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) {
  *major = 1;
  *minor = 17;
  *patch = 0;
  return 0;
}
