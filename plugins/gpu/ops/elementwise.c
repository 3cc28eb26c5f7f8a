/* Launches of what is computed element by element of two tensors. */
#include "plugins/gpu/kernels/arguments/elementwise.h"
#include "plugins/gpu/launch.h"

GPU_MODULE(elementwise);

static gpu_kernel add[] = GPU_KERNELS(elementwise, "add");
static gpu_kernel sigmoid_mul[] = GPU_KERNELS(elementwise, "sigmoid_mul");

enum { X, Y, OUT, N_TENSORS };

/* Does a row end where the next begins, in all tensors? Then all rows are one. */
static bool is_flat(const gpu_elementwise_arguments *a) {
  bool flat = a->rows.dims < 2 && !a->one_y;
  for (int t = 0; t < N_TENSORS && a->rows.dims; t++)
    flat = flat && a->rows.stride[t][0] == a->columns;
  return flat;
}

/* (x, y) -> out; `variant` are the kernels. In place is fine: each thread writes what it alone has read. */
static fl_status run(void *self, fl_call *call) {
  enum { THREADS = GPU_ELEMENTWISE_THREADS };
  const gpu_op *op = self;
  DLTensor *const tensors[] = {gpu_tensor(call, X), gpu_tensor(call, Y), gpu_tensor(call, OUT)};
  const DLTensor *x = tensors[X];
  gpu_dtype dtype = gpu_dtype_of(x);
  gpu_elementwise_arguments a = {.x = fl_data(x),
                                 .y = fl_data(tensors[Y]),
                                 .out = fl_data(tensors[OUT]),
                                 .columns = x->shape[x->ndim - 1],
                                 .vectorised = true};
  a.one_y = a.columns != 1 && tensors[Y]->shape[x->ndim - 1] == 1;
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(op, call, N_TENSORS, tensors, &a.rows);
  if (status || !a.rows.count || !a.columns)
    return status;
  if (is_flat(&a)) {
    a.columns *= a.rows.count;
    a.rows = (gpu_rows){.count = 1};
  }
  for (int t = 0; t < N_TENSORS; t++)
    a.vectorised = a.vectorised && ((t == Y && a.one_y) || gpu_rows_aligned(&a.rows, t, tensors[t]));
  int64_t threads = divide_up(a.columns, a.vectorised ? gpu_vector_length(x) : 1);
  unsigned along = gpu_power_of_two(threads, THREADS);
  gpu_shape shape = gpu_shape_of(threads, a.rows.count, along, THREADS / along);
  gpu_kernel *kernels = (gpu_kernel *)op->variant;
  return gpu_launch(op, call, &kernels[dtype], &shape, &a);
}

#define OP(op, kernels)                                                                                                \
  { .name = op, .run = run, .module = &gpu_module_elementwise, .variant = kernels }

static const gpu_op ops[] = {
    OP("add", add),
    OP("sigmoid_mul", sigmoid_mul),
};
OP_LIST(ops);
