/*
 * A convolution as a graph of the library's: x and weight into sums, which are float32 and lie nowhere, and bias into
 * them; then the engine for it. A graph takes part of it in one kernel, so what is rounded is the result alone.
 */
#include "plugins/gpu/cudnn.h"

cudnn_functions cudnn;

/* ------------------------------------------------------------------------------------------------------ descriptors */

/* Descriptors of one plan on their way. The first error stays, and nothing is done after it. */
typedef struct builder {
  cudnn_plan *plan;
  cudnnStatus_t code;
} builder;

static cudnnBackendDescriptor_t make(builder *b, int type) {
  cudnn_plan *plan = b->plan;
  cudnnBackendDescriptor_t made = NULL;
  if (!b->code && plan->n == CUDNN_DESCRIPTORS)
    b->code = CUDNN_STATUS_INTERNAL_ERROR;
  if (!b->code && !(b->code = cudnn.create_descriptor(type, &made)))
    plan->descriptors[plan->n++] = made;
  return made;
}

static void set(builder *b, cudnnBackendDescriptor_t made, int attribute, int type, int64_t count, const void *values) {
  if (!b->code)
    b->code = cudnn.set(made, attribute, type, count, values);
}

static void set_int(builder *b, cudnnBackendDescriptor_t made, int attribute, int64_t value) {
  set(b, made, attribute, CUDNN_TYPE_INT64, 1, &value);
}

/* An enumeration's value. */
static void set_word(builder *b, cudnnBackendDescriptor_t made, int attribute, int type, int value) {
  set(b, made, attribute, type, 1, &value);
}

static void set_part(builder *b, cudnnBackendDescriptor_t made, int attribute, cudnnBackendDescriptor_t part) {
  set(b, made, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part);
}

static cudnnBackendDescriptor_t finish(builder *b, cudnnBackendDescriptor_t made) {
  if (!b->code)
    b->code = cudnn.finalize(made);
  return made;
}

static void destroy(cudnn_plan *plan) {
  while (plan->n)
    cudnn.destroy_descriptor(plan->descriptors[--plan->n]);
}

/* ------------------------------------------------------------------------------------------------------------ graph */

static cudnnBackendDescriptor_t make_tensor(builder *b, const cudnn_form *f, int which) {
  static const int types[GPU_N_DTYPES] = {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
  cudnnBackendDescriptor_t tensor = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_word(b, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, types[f->dtype]);
  set(b, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, f->ndim, f->shape[which]);
  set(b, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, f->ndim, f->strides[which]);
  set_int(b, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, which);
  set_int(b, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, f->alignment[which]);
  return finish(b, tensor);
}

/* The sums before the bias: of the result's shape, and without memory. */
static cudnnBackendDescriptor_t make_sums(builder *b, const cudnn_form *f) {
  enum { ALIGNMENT = 16 };
  const bool is_virtual = true;
  cudnnBackendDescriptor_t sums = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set_word(b, sums, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  set(b, sums, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, f->ndim, f->shape[CUDNN_OUT]);
  set(b, sums, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, f->ndim, f->strides[CUDNN_OUT]);
  set_int(b, sums, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TENSORS);
  set_int(b, sums, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
  set(b, sums, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  return finish(b, sums);
}

static cudnnBackendDescriptor_t make_window(builder *b, const cudnn_form *f) {
  int64_t space = f->ndim - 2;
  cudnnBackendDescriptor_t window = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  set_word(b, window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  set_word(b, window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION);
  set_int(b, window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, space);
  set(b, window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, space, f->stride);
  set(b, window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, space, f->padding);
  set(b, window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, space, f->padding);
  set(b, window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, space, f->dilation);
  return finish(b, window);
}

/* Groups are told by the channels of x and of the weight. */
static cudnnBackendDescriptor_t make_convolution(builder *b, const cudnn_form *f, cudnnBackendDescriptor_t out) {
  static const float one = 1, zero = 0;
  cudnnBackendDescriptor_t x = make_tensor(b, f, CUDNN_X), weight = make_tensor(b, f, CUDNN_WEIGHT);
  cudnnBackendDescriptor_t window = make_window(b, f);
  cudnnBackendDescriptor_t operation = make(b, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  set_part(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window);
  set_part(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
  set_part(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight);
  set_part(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, out);
  set(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
  set(b, operation, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
  return finish(b, operation);
}

static cudnnBackendDescriptor_t make_addition(builder *b, const cudnn_form *f, cudnnBackendDescriptor_t sums,
                                              cudnnBackendDescriptor_t out) {
  cudnnBackendDescriptor_t bias = make_tensor(b, f, CUDNN_BIAS), add = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  set_word(b, add, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
  set_word(b, add, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  finish(b, add);
  cudnnBackendDescriptor_t operation = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set_part(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add);
  set_part(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sums);
  set_part(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
  set_part(b, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, out);
  return finish(b, operation);
}

static cudnnBackendDescriptor_t make_graph(builder *b, const cudnn_form *f) {
  cudnnBackendDescriptor_t operations[2], out = make_tensor(b, f, CUDNN_OUT), sums = f->bias ? make_sums(b, f) : out;
  int64_t n = 0;
  operations[n++] = make_convolution(b, f, sums);
  if (f->bias)
    operations[n++] = make_addition(b, f, sums, out);
  cudnnBackendDescriptor_t graph = make(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, operations);
  return finish(b, graph);
}

/* ---------------------------------------------------------------------------------------------------------- engines */

/* What an engine says of its arithmetic that the op's definition does not allow. On float32 tensor cores are TF32. */
static bool is_forbidden(int note, gpu_dtype dtype) {
  switch (note) {
  case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
    return dtype == GPU_FLOAT32;
  case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
  case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
  case CUDNN_NUMERICAL_NOTE_FFT:
  case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
  case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
    return true;
  default:
    return false;
  }
}

/* One that says nothing of it and is wrong all the same: for three dimensions of float16 it writes 0 for -inf (cuDNN
 * 9.19, seen on an H200). */
static bool is_wrong(int64_t engine, const cudnn_form *f) {
  enum { LOSES_INFINITIES = 47 };
  return engine == LOSES_INFINITIES && f->dtype == GPU_FLOAT16 && f->ndim == 5;
}

/* An engine of which that cannot be told is not taken. */
static bool computes_as_wanted(cudnnBackendDescriptor_t configuration, const cudnn_form *f) {
  enum { MOST_NOTES = 32 };
  int notes[MOST_NOTES];
  int64_t found = 0, n = 0, index = 0;
  cudnnBackendDescriptor_t engine = NULL;
  if (cudnn.create_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine))
    return false;
  bool wanted =
      !cudnn.get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &engine) &&
      !cudnn.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &found, &index) && !is_wrong(index, f) &&
      !cudnn.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &n, notes);
  for (int64_t i = 0; i < n && i < MOST_NOTES && wanted; i++)
    wanted = !is_forbidden(notes[i], (gpu_dtype)f->dtype);
  cudnn.destroy_descriptor(engine);
  return wanted;
}

/* false: the engine does not serve; nothing of the attempt is left. */
static bool make_execution(cudnn_plan *plan, const cudnn_form *f, cudnnBackendDescriptor_t device,
                           cudnnBackendDescriptor_t configuration) {
  builder b = {.plan = plan};
  int64_t found = 0, workspace = 0;
  cudnnBackendDescriptor_t execution = make(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (!execution)
    return false;
  set_part(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  set_part(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
  finish(&b, execution);
  if (!b.code)
    b.code = cudnn.get(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &found, &workspace);
  if (!b.code && workspace <= f->workspace) {
    plan->execution = execution;
    plan->workspace = workspace;
    return true;
  }
  cudnn.destroy_descriptor(plan->descriptors[--plan->n]);
  return false;
}

/* The first that serves of those that the library proposes, best first. */
static cudnnStatus_t choose_engine(cudnn_plan *plan, const cudnn_form *f, cudnnBackendDescriptor_t device,
                                   cudnnBackendDescriptor_t graph, int mode) {
  enum { MOST = 64 };
  cudnnBackendDescriptor_t configurations[MOST], taken = NULL;
  int64_t n = 0, made = 0;
  int first = plan->n;
  builder b = {.plan = plan};
  cudnnBackendDescriptor_t heuristic = make(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  set_part(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set_word(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  set_part(&b, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
  finish(&b, heuristic);
  while (!b.code && made < MOST) {
    b.code = cudnn.create_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configurations[made]);
    made += !b.code;
  }
  if (!b.code)
    b.code =
        cudnn.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST, &n, configurations);
  for (int64_t i = 0; i < n && i < MOST && !b.code && !taken; i++)
    if (computes_as_wanted(configurations[i], f) && make_execution(plan, f, device, configurations[i]))
      taken = configurations[i];
  for (int64_t i = 0; i < made; i++)
    if (configurations[i] != taken)
      cudnn.destroy_descriptor(configurations[i]);
  if (taken)
    plan->descriptors[plan->n++] = taken;
  while (!taken && plan->n > first)
    cudnn.destroy_descriptor(plan->descriptors[--plan->n]);
  return b.code ? b.code : taken ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnn_make_plan(const cudnn_form *form, cudnnBackendDescriptor_t device, cudnn_plan *plan) {
  *plan = (cudnn_plan){.n = 0};
  builder b = {.plan = plan};
  cudnnBackendDescriptor_t graph = make_graph(&b, form);
  if (!b.code) {
    b.code = choose_engine(plan, form, device, graph, CUDNN_HEUR_MODE_A);
    if (b.code)
      b.code = choose_engine(plan, form, device, graph, CUDNN_HEUR_MODE_FALLBACK);
  }
  if (b.code)
    destroy(plan);
  return b.code;
}
