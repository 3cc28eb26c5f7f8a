/* This rank's part of what ranks make together: the host makes the rest (fl_op_def.ranks). */
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"

#include <string.h>

/* tensor_model_parallel_all_reduce(x) -> out: x, which the host adds the other ranks' to. */
static fl_status all_reduce(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 1)};
  size_t size = (size_t)x->shape[x->ndim - 1] * (x->dtype.bits / 8);
  (void)self;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left && size; cpu_rows_next(&rows))
    memcpy(rows.at[1], rows.at[0], size);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "tensor_model_parallel_all_reduce", CPU_REFERENCE, .fn = all_reduce},
    {.op_name = "all_reduce_fused_add_rms_norm",
     CPU_REFERENCE,
     .fn = cpu_rms_norm,
     .self = (cpu_norm_fn[]){cpu_reference_norm}},
};
OP_LIST(ops);
