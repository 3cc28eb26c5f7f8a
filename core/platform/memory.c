/* Device memory as engines see it: flhost/device.h. */
#include "core/platform/device.h"
#include "core/support.h"

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
  fl_status status = fl_direction_check("fl_device_copy", direction);
  if (!status)
    status = fl_backend_open(host, device, &backend);
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
