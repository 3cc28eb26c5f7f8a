/*
 * Launches of quant_fp8, scaled_int8_quant and silu_and_mul_per_block_quant. Scales of tokens and of groups are found
 * and applied in one kernel, given ones are applied by another; for the scale of the tensor a kernel before that one
 * leaves parts of the largest magnitude in the workspace.
 */
#include "plugins/gpu/kernels/arguments/quantisation.h"
#include "plugins/gpu/launch.h"

GPU_MODULE(quantisation);

static gpu_kernel of_tokens[] = GPU_KERNELS(quantisation, "quant_fp8_tokens");
static gpu_kernel of_groups[] = GPU_KERNELS(quantisation, "quant_fp8_groups");
static gpu_kernel gated_groups[] = GPU_KERNELS(quantisation, "silu_and_mul_groups");
static gpu_kernel find_parts[] = GPU_KERNELS(quantisation, "quant_fp8_parts");
static gpu_kernel scaled[] = GPU_KERNELS(quantisation, "quant_fp8_scaled");

enum { X, SCALE, SCALE_UB, GROUP_SHAPE, USE_UE8M0, NUM_TOKEN_PADDING, Q, SCALE_OUT };
enum { THREADS = 256 }; /* of a block */

/* How many elements a thread takes at a time. */
static int64_t length(const gpu_quant_arguments *a, gpu_dtype dtype) {
  return !a->vectorised ? 1 : dtype == GPU_FLOAT32 ? 4 : 8;
}

/* ------------------------------------------------------------------------------------------------------ arguments */

/* At least 1, so that it divides, and no more than there is. */
static int64_t tile(int64_t group, int64_t size) {
  int64_t most = size > 0 ? size : 1;
  return group > 0 && group < most ? group : most;
}

static void read_scales(const DLTensor *scale, const DLTensor *scale_out, const int64_t *group,
                        gpu_quant_arguments *a) {
  a->scale = fl_data(scale);
  a->n_scales = a->scale_columns = 1;
  for (int d = 0; d < scale->ndim; d++)
    a->n_scales *= (uint64_t)scale->shape[d];
  if (scale->ndim)
    a->scale_columns = (uint64_t)scale->shape[scale->ndim - 1];
  if (scale->ndim == 2) {
    a->row_step = a->scale_stride = fl_stride(scale, 0);
    a->scale_out_stride = fl_stride(scale_out, 0);
    a->column_step = 1;
  } else if (scale->ndim == 1) { /* one for each token, or for each channel */
    a->row_step = group[0] == 1;
    a->column_step = group[1] == 1;
  }
}

static bool is_vectorised(const gpu_quant_arguments *a, const DLTensor *x, const DLTensor *q, bool grouped) {
  int64_t elements = gpu_vector_length(x);
  return a->columns % elements == 0 && (!grouped || a->group_columns % elements == 0) &&
         gpu_rows_aligned(&a->rows, 0, x) && gpu_rows_aligned(&a->rows, 1, q) && a->q_stride % elements == 0;
}

static fl_status read_call(const gpu_op *op, fl_call *call, bool by_row, gpu_quant_arguments *a) {
  const DLTensor *scale = gpu_tensor(call, SCALE), *bound = gpu_tensor(call, SCALE_UB);
  DLTensor *x = gpu_tensor(call, X), *q = gpu_tensor(call, Q), *scale_out = gpu_tensor(call, SCALE_OUT);
  DLTensor *const tensors[] = {x, q, by_row ? scale_out : NULL};
  const int64_t *group = call->values[GROUP_SHAPE].v.ints;
  bool fnuz = q->dtype.code == FL_DTYPE_FLOAT8_E4M3FNUZ;
  *a = (gpu_quant_arguments){.x = fl_data(x),
                             .q = fl_data(q),
                             .scale_out = fl_data(scale_out),
                             .bound = bound ? fl_data(bound) : NULL,
                             .columns = x->shape[x->ndim - 1],
                             .q_stride = x->ndim == 2 ? fl_stride(q, 0) : 0,
                             .fnuz = fnuz,
                             .largest = fnuz ? 224 : 448,
                             .least_scale = (float)(fnuz ? 1.0 / (224.0 * 512.0) : 1.0 / (448.0 * 512.0)),
                             .power_of_two = call->values[USE_UE8M0].v.b};
  if (gpu_dtype_of(x) == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  int64_t q_rows = x->ndim == 2 ? q->shape[0] : 0;
  if (a->columns > INT32_MAX || q_rows > INT32_MAX)
    return fl_fail(call, FL_ENOTSUP, "%s: rows of %lld elements, %lld with padding, expected at most %d of both",
                   op->name, (long long)a->columns, (long long)q_rows, INT32_MAX);
  fl_status status = gpu_rows_of(op, call, 3, tensors, &a->rows);
  a->q_rows = x->ndim == 2 ? (uint32_t)q_rows : a->rows.count;
  a->group_rows = tile(group[0], a->rows.count);
  a->group_columns = tile(group[1], a->columns);
  if (scale)
    read_scales(scale, scale_out, group, a);
  a->vectorised = is_vectorised(a, x, q, by_row);
  int64_t elements = length(a, gpu_dtype_of(x));
  a->shared_by_vector = !scale || a->group_columns % elements == 0 || !a->column_step;
  return status;
}

/* --------------------------------------------------------------------------------------------------------- launches */

static fl_status quantise_tokens(const gpu_op *op, fl_call *call, gpu_quant_arguments *a, gpu_dtype dtype) {
  enum { LEAST = 64, EACH = 2 }; /* a multiple of every warp's width; vectors that a thread keeps */
  int64_t threads = divide_up(a->columns, EACH * length(a, dtype));
  unsigned block = gpu_power_of_two(threads > LEAST ? threads : LEAST, GPU_QUANT_THREADS);
  if (!a->q_rows)
    return FL_OK;
  gpu_shape shape = {.grid = {a->q_rows, 1, 1}, .block = {block, 1, 1}};
  return gpu_launch(op, call, &of_tokens[dtype], &shape, a);
}

static fl_status quantise_groups(const gpu_op *op, fl_call *call, gpu_quant_arguments *a, gpu_kernel *kernels,
                                 gpu_dtype dtype) {
  enum { LEAST_WARP = 32 };
  int64_t groups = divide_up(a->columns, a->group_columns);
  if (!a->rows.count || !groups)
    return FL_OK;
  a->lanes = gpu_power_of_two(divide_up(a->group_columns, length(a, dtype)), LEAST_WARP);
  a->groups_at_once = gpu_power_of_two(groups, THREADS / a->lanes);
  int64_t rows = divide_up(a->rows.count, THREADS / a->lanes / a->groups_at_once);
  gpu_shape shape = {.grid = {(unsigned)divide_up(groups, a->groups_at_once), gpu_limit_blocks(rows), 1},
                     .block = {THREADS, 1, 1}};
  return gpu_launch(op, call, &kernels[dtype], &shape, a);
}

/* Each of at most `most` blocks takes what is its share of the rows; 0: as many as there are. */
static fl_status apply(const gpu_op *op, fl_call *call, gpu_quant_arguments *a, gpu_dtype dtype, int64_t most) {
  int64_t threads = divide_up(a->columns, length(a, dtype));
  a->lanes = gpu_power_of_two(threads, THREADS);
  int64_t x = divide_up(threads, a->lanes), y = divide_up(a->q_rows, THREADS / a->lanes);
  gpu_shape shape = {.grid = {1, 1, 1}, .block = {THREADS, 1, 1}};
  if (x > 1)
    shape.grid[0] = most ? (unsigned)least(x, most) : (unsigned)x;
  if (y > 1)
    shape.grid[1] = (unsigned)least(y, most ? most / shape.grid[0] : GPU_MOST_BLOCKS);
  return gpu_launch(op, call, &scaled[dtype], &shape, a);
}

/* Rows that follow each other are one. */
static gpu_quant_arguments flattened(const gpu_quant_arguments *a) {
  gpu_quant_arguments flat = *a;
  if (!a->rows.dims || (a->rows.dims == 1 && a->rows.stride[0][0] == a->columns)) {
    flat.columns *= a->rows.count;
    flat.rows = (gpu_rows){.count = 1};
  }
  return flat;
}

static fl_status quantise_tensor(const gpu_op *op, fl_call *call, gpu_quant_arguments *a, gpu_dtype dtype) {
  fl_status status = gpu_check_workspace(op, call);
  if (status)
    return status;
  a->parts = call->workspace;
  if (a->rows.count && a->columns) {
    gpu_quant_arguments flat = flattened(a);
    int64_t x = divide_up(flat.columns, THREADS * length(a, dtype));
    gpu_shape shape = {.grid = {(unsigned)least(x, GPU_QUANT_PARTS), 1, 1}, .block = {THREADS, 1, 1}};
    shape.grid[1] = (unsigned)least(flat.rows.count, GPU_QUANT_PARTS / shape.grid[0]);
    a->n_parts = shape.grid[0] * shape.grid[1];
    status = gpu_launch(op, call, &find_parts[dtype], &shape, &flat);
    if (status)
      return status;
  }
  /* Every block reads all parts, so there are no more blocks than the device has room for. */
  return apply(op, call, a, dtype, GPU_QUANT_PARTS);
}

/* ------------------------------------------------------------------------------------------------------------- op */

static fl_status quant_fp8(void *self, fl_call *call) {
  const int64_t *group = call->values[GROUP_SHAPE].v.ints;
  bool computed = !gpu_tensor(call, SCALE), by_row = computed && group[0] > 0;
  gpu_dtype dtype = gpu_dtype_of(gpu_tensor(call, X));
  gpu_quant_arguments arguments;
  fl_status status = read_call(self, call, by_row, &arguments);
  if (status)
    return status;
  if (!computed)
    return apply(self, call, &arguments, dtype, 0);
  if (!by_row)
    return quantise_tensor(self, call, &arguments, dtype);
  return group[1] < 0 ? quantise_tokens(self, call, &arguments, dtype)
                      : quantise_groups(self, call, &arguments, of_groups, dtype);
}

/* The parts of a tensor's largest magnitude. */
static size_t workspace_size(void *self, const fl_call *call) {
  (void)self;
  bool of_tensor = !gpu_tensor(call, SCALE) && call->values[GROUP_SHAPE].v.ints[0] < 0;
  return of_tensor ? GPU_QUANT_PARTS * sizeof(float) : 0;
}

/* ------------------------------------------------------------------------------------------------------------ int8 */

static gpu_kernel int8_given[] = GPU_KERNELS(quantisation, "scaled_int8_given");
static gpu_kernel int8_tokens[] = GPU_KERNELS(quantisation, "scaled_int8_tokens");

/* Given ones are applied element by element; else a block makes a row's. */
static gpu_shape int8_shape(gpu_int8_arguments *a, const gpu_device *device, int64_t per_thread) {
  enum { KEPT = 4 };
  int64_t threads = divide_up(a->columns, per_thread);
  if (!a->scale)
    return (gpu_shape){.grid = {a->rows.count, 1, 1},
                       .block = {gpu_block_size(device, divide_up(threads, KEPT), GPU_QUANT_THREADS), 1, 1}};
  a->lanes = gpu_power_of_two(threads, THREADS);
  gpu_shape shape = gpu_shape_of(threads, a->rows.count, a->lanes, THREADS / a->lanes);
  for (int i = 0; i < 2; i++) /* the scale is copied, also where there is nothing else */
    shape.grid[i] = shape.grid[i] ? shape.grid[i] : 1;
  shape.block[0] = THREADS; /* the kernel divides them itself */
  shape.block[1] = 1;
  return shape;
}

/* scaled_int8_quant(x, scale, azp, symmetric) -> (q, scale_out, azp_out) */
static fl_status scaled_int8_quant(void *self, fl_call *call) {
  enum { INT8_X, INT8_SCALE, INT8_AZP, SYMMETRIC, INT8_Q, INT8_SCALE_OUT, INT8_AZP_OUT };
  const gpu_op *op = self;
  DLTensor *x = gpu_tensor(call, INT8_X), *q = gpu_tensor(call, INT8_Q), *const tensors[] = {x, q};
  const DLTensor *scale = gpu_tensor(call, INT8_SCALE), *azp = gpu_tensor(call, INT8_AZP);
  const DLTensor *scale_out = gpu_tensor(call, INT8_SCALE_OUT), *azp_out = gpu_tensor(call, INT8_AZP_OUT);
  gpu_dtype dtype = gpu_dtype_of(x);
  gpu_int8_arguments a = {.x = fl_data(x),
                          .q = fl_data(q),
                          .columns = x->shape[x->ndim - 1],
                          .scale = scale ? fl_data(scale) : NULL,
                          .azp = azp ? fl_data(azp) : NULL,
                          .scale_out = fl_data(scale_out),
                          .azp_out = azp_out ? fl_data(azp_out) : NULL,
                          .scale_step = scale ? 0 : fl_stride(scale_out, 0),
                          .azp_step = scale || !azp_out ? 0 : fl_stride(azp_out, 0)};
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(op, call, 2, tensors, &a.rows);
  if (status || (!scale && !a.rows.count))
    return status;
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  int64_t elements = gpu_vector_length(x);
  a.vectorised = a.columns % elements == 0 && gpu_rows_aligned(&a.rows, 0, x) && gpu_rows_aligned(&a.rows, 1, q);
  gpu_shape shape = int8_shape(&a, device, a.vectorised ? elements : 1);
  return gpu_launch(op, call, &(scale ? int8_given : int8_tokens)[dtype], &shape, &a);
}

/* ------------------------------------------------------------------------------------------------- gated, in groups */

/* silu_and_mul_per_block_quant(x, group_size, quant_dtype, scale_ub) -> (q, scale_out) */
static fl_status silu_and_mul_per_block_quant(void *self, fl_call *call) {
  enum { GATED_X, GROUP_SIZE, QUANT_DTYPE, BOUND, GATED_Q, GATED_SCALE_OUT };
  const DLTensor *bound = gpu_tensor(call, BOUND);
  DLTensor *x = gpu_tensor(call, GATED_X), *q = gpu_tensor(call, GATED_Q);
  DLTensor *scale_out = gpu_tensor(call, GATED_SCALE_OUT), *const tensors[] = {x, q, scale_out};
  gpu_dtype dtype = gpu_dtype_of(x);
  bool is_int8 = q->dtype.code == kDLInt;
  gpu_quant_arguments a = {.x = fl_data(x),
                           .q = fl_data(q),
                           .scale_out = fl_data(scale_out),
                           .bound = bound ? fl_data(bound) : NULL,
                           .columns = q->shape[1],
                           .is_int8 = is_int8,
                           .largest = is_int8 ? 127 : 448,
                           .least_scale = is_int8 ? 0x1p-23f : (float)(1.0 / (448.0 * 512.0)),
                           .group_columns = call->values[GROUP_SIZE].v.i};
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(self, call, 3, tensors, &a.rows);
  if (status)
    return status;
  a.vectorised = is_vectorised(&a, x, q, true);
  return quantise_groups(self, call, &a, gated_groups, dtype);
}

static const gpu_op ops[] = {
    {.name = "quant_fp8", .run = quant_fp8, .workspace_size = workspace_size, .module = &gpu_module_quantisation},
    {.name = "scaled_int8_quant", .run = scaled_int8_quant, .module = &gpu_module_quantisation},
    {.name = "silu_and_mul_per_block_quant", .run = silu_and_mul_per_block_quant, .module = &gpu_module_quantisation},
};
OP_LIST(ops);
