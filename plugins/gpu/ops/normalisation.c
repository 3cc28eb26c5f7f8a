/* Launches of the norms: all fill one struct, for a kernel with a gate, one without, one whose result is
 * quantised, or that of layer_norm. */
#include "plugins/gpu/kernels/arguments/normalisation.h"
#include "plugins/gpu/launch.h"

#include <string.h>

GPU_MODULE(normalisation);

static gpu_kernel rms_norm[] = GPU_KERNELS(normalisation, "rms_norm");
static gpu_kernel gated_rms_norm[] = GPU_KERNELS(normalisation, "gated_rms_norm");
static gpu_kernel rms_norm_float8[] = GPU_KERNELS(normalisation, "rms_norm_float8");
static gpu_kernel rms_norm_tokens[] = GPU_KERNELS(normalisation, "rms_norm_tokens");
static gpu_kernel layer_norm[] = GPU_KERNELS(normalisation, "layer_norm");

/* What the kernel is given, in the order of gpu_norm_arguments.rows. */
enum { X, SECOND, OUT, RESIDUAL_OUT, N_TENSORS };

typedef struct norm {
  DLTensor *tensors[N_TENSORS], *weight, *bias; /* all but x and out may be NULL */
  gpu_norm_arguments arguments;
} norm;

/* Few threads that each take several vectors where there are rows enough to fill the device; for a few rows as many
 * threads as there are vectors, since then latency counts. */
static unsigned threads_for(const gpu_norm_arguments *a, const gpu_device *device, int64_t per_thread) {
  enum { KEPT = 4, BLOCKS_OF_UNIT = 4 };
  int64_t blocks = (int64_t)a->rows.count * a->groups, units = divide_up(a->columns, per_thread);
  bool few = blocks < (int64_t)device->properties.units * BLOCKS_OF_UNIT;
  return gpu_block_size(device, few ? units : divide_up(units, KEPT), GPU_NORM_THREADS);
}

static bool is_vectorisable(const norm *n, int64_t length) {
  const gpu_norm_arguments *a = &n->arguments;
  for (int t = 0; t < N_TENSORS; t++)
    if (n->tensors[t] && !gpu_rows_aligned(&a->rows, t, n->tensors[t]))
      return false;
  return a->columns % length == 0 && gpu_is_aligned(a->weight, 0) && gpu_is_aligned(a->bias, 0);
}

/* `n` holds the tensors and the attributes. */
static fl_status run(const gpu_op *op, fl_call *call, norm *n, gpu_kernel *kernels) {
  gpu_norm_arguments *a = &n->arguments;
  const DLTensor *parameter = n->weight ? n->weight : n->bias;
  gpu_dtype dtype = gpu_dtype_of(n->tensors[X]), weight = parameter ? gpu_dtype_of(parameter) : dtype;
  int64_t length = gpu_vector_length(n->tensors[X]);
  fl_status status;
  if (dtype == GPU_OTHER || (weight != dtype && weight != GPU_FLOAT32))
    return fl_fail(call, FL_ENOTSUP,
                   "%s: element types: float32, float16 or bfloat16, and a weight of that type or "
                   "float32, expected",
                   op->name);
  if ((status = gpu_rows_of(op, call, N_TENSORS, n->tensors, &a->rows)) || !a->rows.count)
    return status;
  if (!a->columns && !a->scale_out) /* an empty row has a scale */
    return FL_OK;
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  a->x = fl_data(n->tensors[X]);
  a->second = n->tensors[SECOND] ? fl_data(n->tensors[SECOND]) : NULL;
  a->out = fl_data(n->tensors[OUT]);
  a->residual_out = n->tensors[RESIDUAL_OUT] ? fl_data(n->tensors[RESIDUAL_OUT]) : NULL;
  a->weight = n->weight ? fl_data(n->weight) : NULL;
  a->bias = n->bias ? fl_data(n->bias) : NULL;
  a->weight_dtype = (int32_t)weight;
  a->out_dtype = (int32_t)gpu_dtype_of(n->tensors[OUT]);
  a->vectorised = is_vectorisable(n, length);
  gpu_shape shape = {.grid = {a->rows.count, gpu_limit_blocks(a->groups), 1},
                     .block = {threads_for(a, device, a->vectorised ? length : 1), 1, 1}};
  return gpu_launch(op, call, &kernels[dtype], &shape, a);
}

/* The last dimension of x. */
static int64_t hidden_size(const fl_call *call) {
  const DLTensor *x = gpu_tensor(call, 0);
  return x->shape[x->ndim - 1];
}

/* rms_norm(x, residual, weight, epsilon, variance_size) -> (out, residual_out), and fused_add_rms_norm, which has the
 * same values in the same places. */
static fl_status run_rms_norm(void *self, fl_call *call) {
  const fl_value *values = call->values;
  int64_t hidden = hidden_size(call);
  norm n = {.tensors = {gpu_tensor(call, 0), gpu_tensor(call, 1), gpu_tensor(call, 5), gpu_tensor(call, 6)},
            .weight = gpu_tensor(call, 2),
            .arguments = {.columns = hidden,
                          .counted = values[4].type == FL_INT ? values[4].v.i : hidden,
                          .groups = 1,
                          .epsilon = (float)values[3].v.f}};
  return run(self, call, &n, rms_norm);
}

/* gemma_rms_norm(x, residual, weight, epsilon) -> (out, residual_out) */
static fl_status run_gemma_rms_norm(void *self, fl_call *call) {
  int64_t hidden = hidden_size(call);
  norm n = {
      .tensors = {gpu_tensor(call, 0), gpu_tensor(call, 1), gpu_tensor(call, 4), gpu_tensor(call, 5)},
      .weight = gpu_tensor(call, 2),
      .arguments = {
          .columns = hidden, .counted = hidden, .groups = 1, .epsilon = (float)call->values[3].v.f, .from_one = true}};
  return run(self, call, &n, rms_norm);
}

/* rms_norm_gated(x, z, weight, epsilon, group_size, norm_before_gate, activation) -> out */
static fl_status run_rms_norm_gated(void *self, fl_call *call) {
  const fl_value *values = call->values;
  int64_t hidden = hidden_size(call), group = values[4].type == FL_INT ? values[4].v.i : hidden;
  norm n = {.tensors = {gpu_tensor(call, 0), gpu_tensor(call, 1), gpu_tensor(call, 7)},
            .weight = gpu_tensor(call, 2),
            .arguments = {.columns = group,
                          .counted = group,
                          .groups = group ? (uint32_t)(hidden / group) : 0,
                          .epsilon = (float)values[3].v.f,
                          .sigmoid = !strcmp(values[6].v.s, "sigmoid"),
                          .gate_after = values[5].v.b,
                          .normalise = true}};
  return run(self, call, &n, gated_rms_norm);
}

/* mixer2_gated_rms_norm(x, gate, weight, epsilon, n_groups, use_rms_norm) -> out */
static fl_status run_mixer2_gated_rms_norm(void *self, fl_call *call) {
  const fl_value *values = call->values;
  bool normalise = values[5].v.b;
  int64_t group = hidden_size(call) / values[4].v.i;
  norm n = {.tensors = {gpu_tensor(call, 0), gpu_tensor(call, 1), gpu_tensor(call, 6)},
            .weight = normalise ? gpu_tensor(call, 2) : NULL,
            .arguments = {.columns = group,
                          .counted = group,
                          .groups = (uint32_t)values[4].v.i,
                          .epsilon = (float)values[3].v.f,
                          .normalise = normalise,
                          .round_norm = normalise}};
  return run(self, call, &n, gated_rms_norm);
}

/* rms_norm_static_fp8_quant(x, weight, scale, epsilon) -> q */
static fl_status run_rms_norm_static_fp8_quant(void *self, fl_call *call) {
  int64_t hidden = hidden_size(call);
  norm n = {.tensors = {gpu_tensor(call, 0), NULL, gpu_tensor(call, 4)},
            .weight = gpu_tensor(call, 1),
            .arguments = {.columns = hidden,
                          .counted = hidden,
                          .groups = 1,
                          .epsilon = (float)call->values[3].v.f,
                          .scale = fl_data(gpu_tensor(call, 2))}};
  return run(self, call, &n, rms_norm_float8);
}

/* fused_add_rms_norm_static_fp8_quant(x, residual, weight, scale, epsilon) -> (q, residual_out) */
static fl_status run_fused_add_rms_norm_static_fp8_quant(void *self, fl_call *call) {
  int64_t hidden = hidden_size(call);
  norm n = {.tensors = {gpu_tensor(call, 0), gpu_tensor(call, 1), gpu_tensor(call, 5), gpu_tensor(call, 6)},
            .weight = gpu_tensor(call, 2),
            .arguments = {.columns = hidden,
                          .counted = hidden,
                          .groups = 1,
                          .epsilon = (float)call->values[4].v.f,
                          .scale = fl_data(gpu_tensor(call, 3))}};
  return run(self, call, &n, rms_norm_float8);
}

/* rms_norm_dynamic_per_token_quant(x, weight, epsilon, quant_dtype, scale_ub, residual) -> (q, scale_out) */
static fl_status run_rms_norm_dynamic_per_token_quant(void *self, fl_call *call) {
  enum { WEIGHT = 1, EPSILON, QUANT_DTYPE, SCALE_UB, RESIDUAL, Q, SCALE_OUT };
  const DLTensor *bound = gpu_tensor(call, SCALE_UB), *scale_out = gpu_tensor(call, SCALE_OUT);
  DLTensor *residual = gpu_tensor(call, RESIDUAL), *q = gpu_tensor(call, Q);
  int64_t hidden = hidden_size(call);
  norm n = {.tensors = {gpu_tensor(call, 0), residual, q, residual},
            .weight = gpu_tensor(call, WEIGHT),
            .arguments = {.columns = hidden,
                          .counted = hidden,
                          .groups = 1,
                          .epsilon = (float)call->values[EPSILON].v.f,
                          .scale_out = fl_data(scale_out),
                          .scale_step = fl_stride(scale_out, 0),
                          .bound = bound ? fl_data(bound) : NULL,
                          .is_int8 = q->dtype.code == kDLInt}};
  return run(self, call, &n, rms_norm_tokens);
}

/* layer_norm(x, weight, bias, epsilon) -> out */
static fl_status run_layer_norm(void *self, fl_call *call) {
  int64_t hidden = hidden_size(call);
  norm n = {.tensors = {gpu_tensor(call, 0), NULL, gpu_tensor(call, 4)},
            .weight = gpu_tensor(call, 1),
            .bias = gpu_tensor(call, 2),
            .arguments = {.columns = hidden, .counted = hidden, .groups = 1, .epsilon = (float)call->values[3].v.f}};
  return run(self, call, &n, layer_norm);
}

#define OP(op, function)                                                                                               \
  { .name = op, .run = function, .module = &gpu_module_normalisation }

static const gpu_op ops[] = {
    OP("rms_norm", run_rms_norm),
    OP("fused_add_rms_norm", run_rms_norm),
    OP("all_reduce_fused_add_rms_norm", run_rms_norm), /* of one rank; over more the host runs the parts */
    OP("gemma_rms_norm", run_gemma_rms_norm),
    OP("rms_norm_gated", run_rms_norm_gated),
    OP("mixer2_gated_rms_norm", run_mixer2_gated_rms_norm),
    OP("rms_norm_static_fp8_quant", run_rms_norm_static_fp8_quant),
    OP("fused_add_rms_norm_static_fp8_quant", run_fused_add_rms_norm_static_fp8_quant),
    OP("rms_norm_dynamic_per_token_quant", run_rms_norm_dynamic_per_token_quant),
    OP("layer_norm", run_layer_norm),
};
OP_LIST(ops);
