/* The test device in a host: see device.h. */
#include "tests/device.h"
#include "core/registry.h"
#include "tests/scratch.h"

#include <dlfcn.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

device_state *test_device;

fl_host *device_host(const char *const *environment, uint32_t flags) {
  const char *plugin = built("tests/plugins/device.so");
  fl_host *host = test_host(environment, flags);
  ck_ok(fl_load_plugin(host, plugin));
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  void *library = dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
  ck_assert_ptr_nonnull(library);
  test_device = dlsym(library, "test_device_state");
  ck_assert_ptr_nonnull(test_device);
  test_log_clear();
  return host;
}

fl_status device_register_platform(fl_host *host, const fl_platform *platform) {
  const fl_component component = {.size = sizeof component, .type = "platform", .name = "acme", .functions = platform};
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_status status = fl_stage_table(stage)->register_component(fl_stage_table(stage), &component);
  if (!status)
    return fl_stage_commit(stage, NULL);
  fl_stage_abort(stage, NULL);
  return status;
}

static size_t bytes_of(const matrix *m) {
  return (size_t)(m->shape[0] * m->strides[0]) * sizeof(float);
}

void matrix_make_strided(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, int64_t stride,
                         const float *values) {
  *m = (matrix){.host = host, .shape = {rows, columns}, .strides = {stride, 1}};
  ck_ok(fl_device_allocate(host, device, bytes_of(m), &m->memory));
  ck_assert_uint_eq((uintptr_t)m->memory % 256, 0);
  m->tensor = (DLTensor){m->memory, device, 2, float32, m->shape, m->strides, 0};
  if (values)
    ck_ok(fl_device_copy(host, device, m->memory, values, bytes_of(m), FL_COPY_TO_DEVICE, NULL));
}

void matrix_make(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, const float *values) {
  matrix_make_strided(m, host, device, rows, columns, columns, values);
}

void matrix_free(matrix *m) {
  ck_ok(fl_device_free(m->host, m->tensor.device, m->memory));
}

void matrix_check(const matrix *m, const float *expected, size_t n) {
  float values[64];
  ck_assert_uint_le(n, 64);
  ck_ok(fl_device_copy(m->host, m->tensor.device, values, m->memory, bytes_of(m), FL_COPY_TO_HOST, NULL));
  for (size_t i = 0; i < n; i++)
    ck_assert_msg(values[i] == expected[i] || (values[i] - expected[i] < 1e-5f && expected[i] - values[i] < 1e-5f),
                  "element %zu is %g, expected %g", i, (double)values[i], (double)expected[i]);
}
