/* The mixers from the reference kernels of their parts, each part's result rounded to the tensors' type. */
#include "plugins/cpu/mixers.h"
#include "plugins/cpu/reference/matmul.h"

static cpu_matrix matrix(const cpu_array *array) {
  return (cpu_matrix){array->data, array->dtype, array->stride[0] * cpu_dtype_size(array->dtype)};
}

static fl_status project(int64_t rows, const cpu_array *x, const DLTensor *weight, const cpu_array *out) {
  cpu_reference_linear(rows, weight->shape[0], weight->shape[1], matrix(x), cpu_matrix_of(weight), CPU_FLOAT32, NULL,
                       matrix(out));
  return FL_OK;
}

static cpu_parts parts = {.project = project,
                          .conv = cpu_reference_conv,
                          .scan = cpu_reference_scan,
                          .ssd = cpu_reference_ssd,
                          .norm = cpu_reference_norm,
                          .gated_norm = cpu_reference_gated_norm};

static const fl_impl ops[] = {
    {.op_name = "mamba_mixer", CPU_REFERENCE, .fn = cpu_mamba_mixer, .self = &parts},
    {.op_name = "mamba_mixer2", CPU_REFERENCE, .fn = cpu_mamba_mixer2, .self = &parts},
    {.op_name = "plamo2_mamba_mixer", CPU_REFERENCE, .fn = cpu_plamo2_mamba_mixer, .self = &parts},
    {.op_name = "short_conv", CPU_REFERENCE, .fn = cpu_short_conv, .self = &parts},
};
OP_LIST(ops);
