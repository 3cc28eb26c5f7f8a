/*
 * Launches of the activation kernels. One function serves all ops of the category: a variant says which kernels and
 * which attributes.
 */
#include "plugins/gpu/ops/activation.h"
#include "plugins/gpu/kernels/arguments/activation.h"
#include "plugins/quantile.h"

#include <string.h>

GPU_MODULE(activation);

typedef gpu_kernel kernels[GPU_N_DTYPES];

typedef struct variant {
  int gates;      /* elements of x for one of out */
  kernels *usual; /* and `other` where is_other, which may be NULL, says so */
  kernels *other;
  bool (*is_other)(const fl_call *call);
  void (*read)(const fl_call *call, gpu_activation_arguments *arguments); /* the attributes; may be NULL */
} variant;

/* Does a row of out end where the next begins, in x, too? Then all rows are one. */
static bool is_flat(const gpu_rows *rows, int64_t columns) {
  return !rows->dims || (rows->dims == 1 && rows->stride[0][0] == columns && rows->stride[1][0] == columns);
}

/* Few blocks of rows where there are many: each then makes several. */
static gpu_shape shape_for(const gpu_activation_arguments *arguments, int64_t per_thread) {
  int64_t threads = divide_up(arguments->columns, per_thread);
  unsigned x = gpu_power_of_two(threads, GPU_ACTIVATION_THREADS);
  return gpu_shape_of(threads, arguments->rows.count, x, GPU_ACTIVATION_THREADS / x);
}

static kernels *choose(const variant *v, const fl_call *call) {
  return v->is_other && v->is_other(call) ? v->other : v->usual;
}

static fl_status activate(void *self, fl_call *call) {
  const gpu_op *op = self;
  const variant *v = op->variant;
  DLTensor *x = gpu_tensor(call, 0), *out = gpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  gpu_dtype dtype = gpu_dtype_of(x);
  gpu_activation_arguments arguments = {.x = fl_data(x), .out = fl_data(out), .columns = out->shape[out->ndim - 1]};
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(op, call, 2, tensors, &arguments.rows);
  if (status || !arguments.rows.count || !arguments.columns)
    return status;
  int64_t length = gpu_vector_length(x);
  arguments.vectorised = gpu_rows_aligned(&arguments.rows, 0, x) && gpu_rows_aligned(&arguments.rows, 1, out) &&
                         (v->gates == 1 || arguments.columns % length == 0);
  if (v->gates == 1 && is_flat(&arguments.rows, arguments.columns)) {
    arguments.vectorised = gpu_is_aligned(arguments.x, 0) && gpu_is_aligned(arguments.out, 0);
    arguments.columns *= arguments.rows.count;
    arguments.rows = (gpu_rows){.count = 1};
  }
  if (v->read)
    v->read(call, &arguments);
  gpu_shape shape = shape_for(&arguments, arguments.vectorised ? length : 1);
  return gpu_launch(op, call, &(*choose(v, call))[dtype], &shape, &arguments);
}

/* A block for each row: its statistics are wanted before its elements. */
static fl_status activate_sparse(void *self, fl_call *call) {
  const gpu_op *op = self;
  const variant *v = op->variant;
  DLTensor *x = gpu_tensor(call, 0), *out = gpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  gpu_dtype dtype = gpu_dtype_of(x);
  gpu_activation_arguments arguments = {.x = fl_data(x),
                                        .out = fl_data(out),
                                        .columns = out->shape[out->ndim - 1],
                                        .quantile = normal_quantile(call->values[1].v.f)};
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(op, call, 2, tensors, &arguments.rows);
  if (status || !arguments.rows.count || !arguments.columns)
    return status;
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  gpu_shape shape = {.grid = {arguments.rows.count, 1, 1},
                     .block = {gpu_block_size(device, arguments.columns, GPU_ACTIVATION_THREADS), 1, 1}};
  return gpu_launch(op, call, &(*choose(v, call))[dtype], &shape, &arguments);
}

/* ----------------------------------------------------------------------------------------------------- attributes */

static float number(const fl_call *call, uint32_t index) {
  return (float)call->values[index].v.f;
}

static void read_threshold(const fl_call *call, gpu_activation_arguments *a) {
  a->parameters.threshold = number(call, 1);
}

static void read_alpha_limit(const fl_call *call, gpu_activation_arguments *a) {
  a->parameters.alpha = number(call, 1);
  a->parameters.limit = number(call, 2);
}

static void read_limit(const fl_call *call, gpu_activation_arguments *a) {
  a->parameters.limit = number(call, 1);
}

static void read_limit_alpha_beta(const fl_call *call, gpu_activation_arguments *a) {
  a->parameters.limit = number(call, 1);
  a->parameters.alpha = number(call, 2);
  a->parameters.beta = number(call, 3);
}

/* A limit makes another formula of it. */
static void read_beta_limit(const fl_call *call, gpu_activation_arguments *a) {
  a->parameters.beta = number(call, 1);
  if (call->values[2].type == FL_FLOAT)
    a->parameters.limit = number(call, 2);
}

static void read_xielu(const fl_call *call, gpu_activation_arguments *a) {
  const DLTensor *alpha_p = gpu_tensor(call, 1), *alpha_n = gpu_tensor(call, 2);
  a->alpha_p = fl_data(alpha_p);
  a->alpha_n = fl_data(alpha_n);
  a->dtype_p = (int32_t)gpu_dtype_of(alpha_p);
  a->dtype_n = (int32_t)gpu_dtype_of(alpha_n);
  a->parameters.beta = number(call, 3);
  a->parameters.eps = number(call, 4);
}

static void read_scale(const fl_call *call, gpu_activation_arguments *a) {
  a->scale = fl_data(gpu_tensor(call, 1));
}

/* ------------------------------------------------------------------------------------------------------------ ops */

static bool is_tanh(const fl_call *call) {
  return !strcmp(call->values[call->count - 2].v.s, "tanh");
}

static bool is_limited(const fl_call *call) {
  return call->values[2].type == FL_FLOAT;
}

#define KERNELS(name) static kernels name = GPU_KERNELS(activation, #name)
KERNELS(silu_and_mul);
KERNELS(silu_and_mul_float8);
KERNELS(mul_and_silu);
KERNELS(gelu_and_mul);
KERNELS(gelu_tanh_and_mul);
KERNELS(gelu_and_mul_sparse);
KERNELS(gelu_tanh_and_mul_sparse);
KERNELS(swigluoai_and_mul);
KERNELS(fatrelu_and_mul);
KERNELS(silu_and_mul_with_clamp);
KERNELS(swiglustep_and_mul);
KERNELS(situ_and_mul);
KERNELS(limited_situ_and_mul);
KERNELS(gelu);
KERNELS(gelu_tanh);
KERNELS(gelu_new);
KERNELS(gelu_fast);
KERNELS(quick_gelu);
KERNELS(relu2);
KERNELS(xielu);

#define OP(op, function, ...)                                                                                          \
  {                                                                                                                    \
    .name = op, .run = function, .module = &gpu_module_activation, .variant = &(const variant) {                       \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }
#define GATED(op, ...) OP(op, activate, .gates = 2, __VA_ARGS__)
#define PLAIN(op, ...) OP(op, activate, .gates = 1, __VA_ARGS__)

static const gpu_op ops[] = {
    GATED("silu_and_mul", .usual = &silu_and_mul),
    GATED("silu_and_mul_quant", .usual = &silu_and_mul_float8, .read = read_scale),
    GATED("mul_and_silu", .usual = &mul_and_silu),
    GATED("gelu_and_mul", .usual = &gelu_and_mul, .other = &gelu_tanh_and_mul, .is_other = is_tanh),
    OP("gelu_and_mul_sparse", activate_sparse, .usual = &gelu_and_mul_sparse, .other = &gelu_tanh_and_mul_sparse,
       .is_other = is_tanh),
    GATED("swigluoai_and_mul", .usual = &swigluoai_and_mul, .read = read_alpha_limit),
    GATED("fatrelu_and_mul", .usual = &fatrelu_and_mul, .read = read_threshold),
    GATED("silu_and_mul_with_clamp", .usual = &silu_and_mul_with_clamp, .read = read_limit_alpha_beta),
    GATED("swiglustep_and_mul", .usual = &swiglustep_and_mul, .read = read_limit),
    GATED("situ_and_mul", .usual = &situ_and_mul, .other = &limited_situ_and_mul, .is_other = is_limited,
          .read = read_beta_limit),
    PLAIN("gelu", .usual = &gelu, .other = &gelu_tanh, .is_other = is_tanh),
    PLAIN("gelu_new", .usual = &gelu_new),
    PLAIN("gelu_fast", .usual = &gelu_fast),
    PLAIN("quick_gelu", .usual = &quick_gelu),
    PLAIN("relu2", .usual = &relu2),
    PLAIN("xielu", .usual = &xielu, .read = read_xielu),
};

fl_status gpu_activate(const char *name, fl_call *call) {
  const gpu_op *op = ops;
  while (strcmp(op->name, name) != 0)
    op++;
  return op->run((void *)op, call);
}

OP_LIST(ops);
