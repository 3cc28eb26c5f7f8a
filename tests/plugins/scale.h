/* What most test plugins register: one op of their own, and a kernel for it. */
#ifndef FLHOST_TESTS_SCALE_H
#define FLHOST_TESTS_SCALE_H

#ifndef FLHOST_PLUGIN_H
#include <flhost/plugin.h>
#endif

static const fl_op_def scale_op = {.size = sizeof(fl_op_def),
                                   .schema = "test_scale(Tensor x, float factor=2.0) -> Tensor out",
                                   .category = "test",
                                   .doc = "out = factor * x"};

/* float32, contiguous. */
static inline fl_status scale(void *self, fl_call *call) {
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[2].v.tensor;
  const float *from = (const float *)fl_data(x);
  float *to = (float *)fl_data(out);
  int64_t n = 1;
  (void)self;
  for (int dim = 0; dim < x->ndim; dim++)
    n *= x->shape[dim];
  for (int64_t i = 0; i < n; i++)
    to[i] = (float)call->values[1].v.f * from[i];
  return FL_OK;
}

/* A row of a vendor; `impl_id` "vendor.<vendor>". */
static inline fl_impl scale_row(const char *impl_id, const char *vendor) {
  fl_impl impl = {.size = sizeof(fl_impl)};
  impl.op_name = "test_scale";
  impl.impl_id = impl_id;
  impl.kind = vendor ? FL_KIND_VENDOR : FL_KIND_REFERENCE;
  impl.vendor = vendor;
  impl.devices = FL_DEVICE(kDLCPU);
  impl.dtypes = FL_FLOAT32;
  impl.fn = scale;
  return impl;
}

#endif
