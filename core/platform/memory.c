/* Device memory as engines see it, and the host's own as the device type kDLCPU. */
#include "core/platform/memory.h"
#include "core/platform/device.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { ALIGNMENT = 256 };

/* ------------------------------------------------------------------------------------------------- the host's own */

static bool host_is_active(void *self, const char **reason) {
  (void)self;
  *reason = NULL;
  return true;
}

static int host_count(void *self) {
  (void)self;
  return 1;
}

/* "AMD EPYC 9654 96-Core Processor"; left alone where the kernel does not say. */
static void read_processor(char *name, size_t size) {
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[256];
  while (file && fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !value)
      continue;
    value++;
    size_t length = fl_trim(&value, strlen(value));
    snprintf(name, size, "%.*s", (int)length, value);
    break;
  }
  if (file)
    fclose(file);
}

static fl_status host_properties(void *self, int32_t device, fl_device_properties *properties) {
  struct utsname system;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  (void)self, (void)device;
  properties->units = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  properties->memory_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  properties->memory_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
  snprintf(properties->name, sizeof properties->name, "processor");
  read_processor(properties->name, sizeof properties->name);
  if (!uname(&system)) {
    snprintf(properties->arch, sizeof properties->arch, "%.*s", (int)sizeof properties->arch - 1, system.machine);
    snprintf(properties->driver, sizeof properties->driver, "%.*s", (int)sizeof properties->driver - 1, system.release);
  }
  return FL_OK;
}

static fl_status host_current(void *self, int32_t *device) {
  (void)self;
  *device = 0;
  return FL_OK;
}

static fl_status host_allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device;
  if (size > SIZE_MAX - ALIGNMENT)
    return FL_ENOMEM;
  *memory = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return *memory ? FL_OK : FL_ENOMEM;
}

static fl_status host_release(void *self, int32_t device, void *memory) {
  (void)self, (void)device;
  free(memory);
  return FL_OK;
}

static fl_status host_copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                           void *stream) {
  (void)self, (void)device, (void)direction, (void)stream;
  memmove(to, from, size);
  return FL_OK;
}

static fl_status host_synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream, (void)all;
  return FL_OK;
}

/* Nothing else fails. */
static const char *host_error(void *self) {
  (void)self;
  return "out of memory";
}

const fl_platform fl_host_memory = {
    .size = sizeof fl_host_memory,
    .device_type = kDLCPU,
    .is_active = host_is_active,
    .device_count = host_count,
    .properties = host_properties,
    .current_device = host_current,
    .allocate = host_allocate,
    .release = host_release,
    .copy = host_copy,
    .synchronize = host_synchronize,
    .error = host_error,
};

/* ------------------------------------------------------------------------------------------------------- functions */

fl_status fl_device_count(fl_host *host, int32_t device_type, int32_t *count) {
  fl_backend backend;
  fl_status status = fl_backend_count(host, device_type, &backend);
  if (!status && backend.count < 0)
    return fl_error(FL_EDEVICE, "plugin '%s' cannot count its devices", backend.plugin);
  if (!status)
    *count = backend.count;
  return status;
}

fl_status fl_device_get_properties(fl_host *host, DLDevice device, fl_device_properties *properties) {
  fl_backend backend;
  fl_device_properties found = {.size = sizeof found};
  fl_status status = fl_sized_check(properties, offsetof(fl_device_properties, name),
                                    "fl_device_get_properties: the properties'", "fl_device_properties");
  if (!status)
    status = fl_backend_open(host, device, &backend);
  if (status)
    return status;
  status = backend.platform.properties(backend.self, device.device_id, &found);
  if (status)
    return fl_backend_failed(&backend, device, status, "properties");
  fl_sized_give(properties, &found, sizeof found);
  return FL_OK;
}

fl_status fl_device_current(fl_host *host, int32_t device_type, DLDevice *device) {
  fl_backend backend;
  int32_t index = 0;
  fl_status status = fl_backend_find(host, device_type, &backend);
  DLDevice current = {(DLDeviceType)device_type, 0};
  if (status)
    return status;
  status = backend.platform.current_device(backend.self, &index);
  if (status)
    return fl_backend_failed(&backend, current, status, "current device");
  device->device_type = (DLDeviceType)device_type;
  device->device_id = index;
  return FL_OK;
}

fl_status fl_device_allocate(fl_host *host, DLDevice device, size_t size, void **memory) {
  fl_backend backend;
  void *made = NULL;
  char what[64];
  fl_status status = fl_backend_open(host, device, &backend);
  if (status)
    return status;
  /* Drivers give nothing, or an error, for no bytes. */
  status = backend.platform.allocate(backend.self, device.device_id, size ? size : 1, &made);
  snprintf(what, sizeof what, "allocating %zu bytes", size);
  if (status || !made)
    return fl_backend_failed(&backend, device, status ? status : FL_ENOMEM, what);
  *memory = made;
  return FL_OK;
}

fl_status fl_device_free(fl_host *host, DLDevice device, void *memory) {
  fl_backend backend;
  if (!memory)
    return FL_OK;
  fl_status status = fl_backend_open(host, device, &backend);
  if (!status && (status = backend.platform.release(backend.self, device.device_id, memory)))
    status = fl_backend_failed(&backend, device, status, "freeing memory");
  return status;
}

fl_status fl_device_copy(fl_host *host, DLDevice device, void *to, const void *from, size_t size, int32_t direction,
                         void *stream) {
  fl_backend backend;
  char what[64];
  if (direction < FL_COPY_TO_DEVICE || direction > FL_COPY_ON_DEVICE)
    return fl_error(FL_EINVAL,
                    "fl_device_copy: direction is %d, expected FL_COPY_TO_DEVICE (1), FL_COPY_TO_HOST (2) or "
                    "FL_COPY_ON_DEVICE (3)",
                    direction);
  fl_status status = fl_backend_open(host, device, &backend);
  if (status || !size)
    return status;
  status = backend.platform.copy(backend.self, device.device_id, to, from, size, direction, stream);
  snprintf(what, sizeof what, "copying %zu bytes", size);
  return status ? fl_backend_failed(&backend, device, status, what) : FL_OK;
}

fl_status fl_device_synchronize(fl_host *host, DLDevice device, void *stream, bool all) {
  fl_backend backend;
  fl_status status = fl_backend_open(host, device, &backend);
  if (!status && (status = backend.platform.synchronize(backend.self, device.device_id, stream, all)))
    status = fl_backend_failed(&backend, device, status, "synchronising");
  return status;
}
