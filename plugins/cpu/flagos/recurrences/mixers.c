/* The mixers from the optimised kernels of their parts, with floats between them. */
#include "plugins/cpu/mixers.h"
#include "plugins/cpu/flagos/products/matmul.h"

static cpu_matrix matrix(const cpu_array *array) {
  return (cpu_matrix){array->data, array->dtype, array->stride[0] * cpu_dtype_size(array->dtype)};
}

static fl_status project(int64_t rows, const cpu_array *x, const DLTensor *weight, const cpu_array *out) {
  const cpu_product product = {.m = rows,
                               .n = weight->shape[0],
                               .k = weight->shape[1],
                               .a = matrix(x),
                               .b = cpu_matrix_of(weight),
                               .out = matrix(out)};
  return cpu_product_share(&product);
}

static cpu_parts parts = {.in_float = true,
                          .project = project,
                          .conv = cpu_flagos_conv,
                          .scan = cpu_flagos_scan,
                          .ssd = cpu_flagos_ssd,
                          .norm = cpu_flagos_norm,
                          .gated_norm = cpu_flagos_gated_norm};

static const fl_impl ops[] = {
    {.op_name = "mamba_mixer", CPU_FLAGOS, .fn = cpu_mamba_mixer, .self = &parts},
    {.op_name = "mamba_mixer2", CPU_FLAGOS, .fn = cpu_mamba_mixer2, .self = &parts},
    {.op_name = "plamo2_mamba_mixer", CPU_FLAGOS, .fn = cpu_plamo2_mamba_mixer, .self = &parts},
    {.op_name = "short_conv", CPU_FLAGOS, .fn = cpu_short_conv, .self = &parts},
};
OP_LIST(ops);
