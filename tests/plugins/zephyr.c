/* The backend of a vendor that nobody has heard of: all that the host knows of it stands here and in its YAML file. Its
 * memory is the host's. */
#include <flhost/plugin.h>
#include <stdlib.h>
#include <string.h>

FL_PLUGIN("zephyr", "1", "Zephyr", "MIT", "");
FL_PLUGIN_OPS("relu2,quick_gelu");
FL_PLUGIN_PLATFORM("zephyr", "/nonexistent/zephyr0,$ZEPHYR");
FL_PLUGIN_HARDWARE("title: Zephyr; aliases: west wind; device: ext_dev; pci: 1d1d 1200; kernel: /nonexistent/zephyr;"
                   "module: zephyr; driver: libzephyr_of_nobody.so.1");

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = "ZEPHYR is not set";
  return getenv("ZEPHYR") != NULL;
}

static int device_count(void *self) {
  (void)self;
  return 1;
}

static fl_status properties(void *self, int32_t device, fl_device_properties *properties) {
  (void)self, (void)device;
  snprintf(properties->name, sizeof properties->name, "Zephyr 7");
  snprintf(properties->arch, sizeof properties->arch, "zephyr-seven");
  return device ? FL_EDEVICE : FL_OK;
}

/* In words, which no host could compare. */
static int number_of(const char *arch) {
  static const char *const numbers[] = {"zephyr-five", "zephyr-seven", "zephyr-nine"};
  int i = 0;
  while (i < 3 && strcmp(arch, numbers[i]) != 0)
    i++;
  return i;
}

static bool arch_reaches(void *self, const char *arch, const char *least) {
  (void)self;
  return number_of(arch) >= number_of(least);
}

static fl_status current_device(void *self, int32_t *device) {
  (void)self;
  *device = 0;
  return FL_OK;
}

static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device;
  *memory = aligned_alloc(256, (size + 256) / 256 * 256);
  return *memory ? FL_OK : FL_ENOMEM;
}

static fl_status release(void *self, int32_t device, void *memory) {
  (void)self, (void)device;
  free(memory);
  return FL_OK;
}

static fl_status copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  (void)self, (void)device, (void)direction, (void)stream;
  memcpy(to, from, size);
  return FL_OK;
}

static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream, (void)all;
  return FL_OK;
}

static const char *error(void *self) {
  (void)self;
  return "there is one device";
}

static fl_status relu2(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  (void)self;
  if (x->ndim != 1 || fl_stride(x, 0) != 1)
    return fl_fail(call, FL_ENOTSUP, "only rows without gaps");
  for (int64_t i = 0; i < x->shape[0]; i++) {
    float value = ((const float *)fl_data(x))[i];
    ((float *)fl_data(out))[i] = value > 0 ? value * value : 0;
  }
  return FL_OK;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {.size = sizeof platform,
                                       .device_type = kDLExtDev,
                                       .is_active = is_active,
                                       .device_count = device_count,
                                       .properties = properties,
                                       .current_device = current_device,
                                       .allocate = allocate,
                                       .release = release,
                                       .copy = copy,
                                       .synchronize = synchronize,
                                       .error = error,
                                       .arch_reaches = arch_reaches};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = "zephyr", .functions = &platform};
  static const char *const least[][2] = {{"relu2", "zephyr-five"}, {"quick_gelu", "zephyr-nine"}};
  fl_status status = registry->register_component(registry, &component);
  for (size_t i = 0; i < 2 && !status; i++) {
    const fl_impl impl = {.size = sizeof impl,
                          .op_name = least[i][0],
                          .impl_id = "vendor.zephyr",
                          .kind = FL_KIND_VENDOR,
                          .vendor = "zephyr",
                          .devices = FL_DEVICE(kDLExtDev),
                          .dtypes = FL_FLOAT32,
                          .min_arch = least[i][1],
                          .fn = relu2};
    status = registry->register_impl(registry, &impl);
  }
  return status;
}
