/* fl_platform over a GPU's driver: what is there, and memory on it. Ops never come this way. */
#include "plugins/gpu/platform.h"
#include "plugins/gpu/launch.h"
#include "plugins/gpu/work.h"

/* Why the thread's last of these functions failed. */
static _Thread_local char words[GPU_WORDS];

static bool is_active(void *self, const char **reason) {
  (void)self;
  return gpu_present(reason);
}

/* No device is an answer, not a failure. Initialises the driver: the host asks in a child process. */
static int device_count(void *self) {
  const char *reason, *step = "initialisation";
  int count = 0;
  (void)self;
  if (!gpu_present(&reason)) {
    snprintf(words, sizeof words, "%s", reason);
    return -1;
  }
  gpu_code code = gpu.call.initialise(0);
  if (!code) {
    step = "counting the devices";
    code = gpu.call.count(&count);
  }
  if (code && code != GPU_NO_DEVICE)
    gpu_failed(NULL, code, gpu.title, step, words, sizeof words);
  return code == GPU_NO_DEVICE ? 0 : code ? -1 : count;
}

static fl_status of_platform(fl_status status) {
  return !status || status == FL_ENOMEM ? status : FL_EDEVICE;
}

static fl_status failed(gpu_device *device, gpu_code code, const char *where, const char *step) {
  return of_platform(gpu_failed(device, code, where, step, words, sizeof words));
}

fl_status gpu_visit_begin(gpu_visit *visit, int32_t ordinal, const char *where) {
  fl_status status;
  visit->where = where;
  visit->device = gpu_find_device(ordinal, &status, words, sizeof words);
  if (visit->device)
    status = gpu_enter(visit->device, &visit->scope, where, words, sizeof words);
  return of_platform(status);
}

fl_status gpu_visit_end(const gpu_visit *visit, gpu_code code, const char *step) {
  gpu.call.leave(&visit->scope);
  return code ? failed(visit->device, code, visit->where, step) : FL_OK;
}

fl_status gpu_platform_has(gpu_part part, const char *where) {
  return gpu_has_part(part, where, words, sizeof words) ? FL_OK : FL_ENOTSUP;
}

/* "13.0", `with_patch` "5.2.21153" where there is one; and what it is where it is not the vendor's. */
static void describe_driver(char *text, size_t size, bool with_patch) {
  int version = 0;
  if (gpu.call.version(&version))
    version = 0;
  const char *stand_in = gpu_is_stand_in() ? " (a stand-in of the tests)" : "";
  bool hip = gpu.device_type == kDLROCM; /* 50221153 is 5.2.21153 */
  int major = hip ? version / 10000000 : version / 1000, minor = hip ? version / 100000 % 100 : version % 1000 / 10;
  char patch[16] = "";
  if (hip && with_patch)
    snprintf(patch, sizeof patch, ".%d", version % 100000);
  snprintf(text, size, "%d.%d%s%s", major, minor, patch, stand_in);
}

static fl_status properties(void *self, int32_t ordinal, fl_device_properties *p) {
  size_t available = 0, total = 0;
  const char *step = "asking for the name";
  fl_status status;
  (void)self;
  gpu_device *device = gpu_find_device(ordinal, &status, words, sizeof words);
  if (!device)
    return status == FL_ENOMEM ? status : FL_EDEVICE;
  gpu_code code = gpu.call.name(p->name, sizeof p->name, ordinal);
  if (!code) {
    step = "asking for the size of the memory";
    code = gpu.call.memory(ordinal, &available, &total);
  }
  if (code)
    return failed(device, code, "properties", step);
  snprintf(p->arch, sizeof p->arch, "%s", device->properties.arch);
  describe_driver(p->driver, sizeof p->driver, false);
  p->units = device->properties.units;
  p->memory_free = available;
  p->memory_total = total;
  return FL_OK;
}

static fl_status current_device(void *self, int32_t *ordinal) {
  const char *reason;
  int found = 0;
  (void)self;
  fl_status status = gpu_open(&reason);
  if (status) {
    snprintf(words, sizeof words, "%s", reason);
    return status;
  }
  gpu_code code = gpu.call.current(&found);
  *ordinal = found;
  return code ? failed(NULL, code, "current_device", "asking for the thread's device") : FL_OK;
}

/* Both drivers align to 256 and more. No bytes are no memory, but a pointer that release() takes back. */
static fl_status allocate(void *self, int32_t ordinal, size_t size, void **memory) {
  gpu_visit visit;
  (void)self;
  fl_status status = gpu_visit_begin(&visit, ordinal, "allocate");
  if (status)
    return status;
  void *made = NULL;
  gpu_code code = gpu.call.allocate(&made, size ? size : 1);
  status = gpu_visit_end(&visit, code, "allocating memory");
  if (code == GPU_OUT_OF_MEMORY)
    snprintf(words, sizeof words, "device %d has no %zu bytes of memory left", ordinal, size);
  if (!code)
    *memory = made;
  return status;
}

static fl_status release(void *self, int32_t ordinal, void *memory) {
  gpu_visit visit;
  (void)self;
  fl_status status = gpu_visit_begin(&visit, ordinal, "release");
  return status ? status : gpu_visit_end(&visit, gpu.call.release(memory), "giving memory back");
}

static fl_status copy(void *self, int32_t ordinal, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  gpu_visit visit;
  const char *step = "queueing the copy";
  (void)self;
  fl_status status = size ? gpu_visit_begin(&visit, ordinal, "copy") : FL_OK;
  if (status || !size)
    return status;
  gpu_code code = gpu.call.copy(to, from, size, direction, stream);
  if (!code && direction != FL_COPY_ON_DEVICE) {
    step = "waiting for the copy";
    code = gpu.call.synchronize(stream);
  }
  return gpu_visit_end(&visit, code, step);
}

/* What is queued while the stream is captured does not run: there is nothing to wait for, and a driver that is asked to
 * ends the capture. */
static gpu_code wait_for_stream(void *stream) {
  int captured = 0;
  if (!gpu.call.capturing(stream, &captured) && captured)
    return GPU_SUCCESS;
  return gpu.call.synchronize(stream);
}

static fl_status synchronize(void *self, int32_t ordinal, void *stream, bool all) {
  gpu_visit visit;
  (void)self;
  fl_status status = gpu_visit_begin(&visit, ordinal, "synchronize");
  if (status)
    return status;
  gpu_code code = all ? gpu.call.synchronize_all() : wait_for_stream(stream);
  return gpu_visit_end(&visit, code, "waiting for the device");
}

static fl_status is_captured(void *self, int32_t ordinal, void *stream, bool *captured) {
  gpu_visit visit;
  (void)self;
  fl_status status = gpu_visit_begin(&visit, ordinal, "is_captured");
  if (status)
    return status;
  *captured = gpu_is_captured(stream);
  return gpu_visit_end(&visit, GPU_SUCCESS, NULL);
}

static const char *error(void *self) {
  (void)self;
  return words;
}

static void driver_version(void *self, char *text, size_t size) {
  const char *reason;
  (void)self;
  if (gpu_present(&reason))
    describe_driver(text, size, true);
}

static bool arch_reaches(void *self, const char *arch, const char *least) {
  (void)self;
  return gpu.arch_reaches(arch, least);
}

fl_status gpu_register_platform(fl_registry *registry) {
  fl_platform platform = {.size = sizeof platform,
                          .device_type = gpu.device_type,
                          .is_active = is_active,
                          .device_count = device_count,
                          .properties = properties,
                          .current_device = current_device,
                          .allocate = allocate,
                          .release = release,
                          .copy = copy,
                          .synchronize = synchronize,
                          .error = error,
                          .arch_reaches = arch_reaches,
                          .driver_version = driver_version,
                          .is_captured = is_captured};
  gpu_add_work(&platform);
  const fl_component component = {.size = sizeof component,
                                  .type = "platform",
                                  .name = gpu.name,
                                  .functions = &platform,
                                  .functions_type = FL_FUNCTIONS_PLATFORM,
                                  .functions_size = sizeof platform};
  return registry->register_component(registry, &component);
}
