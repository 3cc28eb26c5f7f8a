/* The mixers from the optimised kernels of their parts, with floats between them. */
#include "plugins/cpu/mixers.h"
#include "plugins/cpu/flagos/matmul.h"

static cpu_matrix matrix(const cpu_array *array) {
  return (cpu_matrix){array->data, array->dtype, array->stride[0] * cpu_dtype_size(array->dtype)};
}

static fl_status project(int64_t rows, const cpu_array *x, const DLTensor *weight, const cpu_array *out) {
  return cpu_flagos_linear(rows, weight->shape[0], weight->shape[1], matrix(x), cpu_matrix_of(weight), CPU_FLOAT32,
                           NULL, matrix(out));
}

static const cpu_parts parts = {.in_float = true,
                                .project = project,
                                .conv = cpu_flagos_conv,
                                .scan = cpu_flagos_scan,
                                .ssd = cpu_flagos_ssd,
                                .rms_norm = cpu_flagos_rms_norm,
                                .mixer2_gated_rms_norm = cpu_flagos_mixer2_gated_rms_norm};

fl_status cpu_flagos_mamba_mixer(void *self, fl_call *call) {
  (void)self;
  return cpu_mamba_mixer(call, &parts);
}

fl_status cpu_flagos_mamba_mixer2(void *self, fl_call *call) {
  (void)self;
  return cpu_mamba_mixer2(call, &parts);
}

fl_status cpu_flagos_plamo2_mamba_mixer(void *self, fl_call *call) {
  (void)self;
  return cpu_plamo2_mamba_mixer(call, &parts);
}

fl_status cpu_flagos_short_conv(void *self, fl_call *call) {
  (void)self;
  return cpu_short_conv(call, &parts);
}
