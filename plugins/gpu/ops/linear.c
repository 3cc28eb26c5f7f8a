/*
 * Linear layers and logits: products of the vendor's library (math.h), and kernels for what it has not. The op's
 * leading dimensions become rows of as few matrices as their strides allow. Without a communicator a parallel layer
 * computes its local part.
 */
#include "plugins/gpu/kernels/arguments/linear.h"
#include "plugins/gpu/math.h"

GPU_MODULE(linear);

static gpu_kernel fill_bias[] = GPU_KERNELS(linear, "fill_bias");
static gpu_kernel process_logits[] = GPU_KERNELS(linear, "process_logits");

enum { X, WEIGHT, BIAS };

typedef struct variant {
  int skip_bias_add; /* where that argument is; 0: there is none */
  bool logits;       /* logits_processor */
} variant;

typedef struct linear {
  DLTensor *x, *out;
  const void *bias;    /* NULL: none */
  gpu_product product; /* the first */
  gpu_rows rows;       /* of x, out */
} linear;

/* A product whose rows begin at odd places cuBLASLt makes in steps, and rounds what it adds the bias to. */
static bool rounds_once_with_bias(const gpu_product *p, int64_t size) {
  int64_t steps = (p->x_stride | p->weight_stride | p->out_stride | p->n) * size;
  return gpu_math.adds_bias && gpu_is_aligned(p->x, steps) && gpu_is_aligned(p->weight, 0) &&
         gpu_is_aligned(p->bias, 0) && gpu_is_aligned(p->out, 0);
}

/* FL_ENOTSUP, with a static string why, for what the library does not take. */
static fl_status read_linear(const gpu_op *op, fl_call *call, linear *l, const char **reason) {
  const variant *v = op->variant;
  DLTensor *x = gpu_tensor(call, X), *weight = gpu_tensor(call, WEIGHT), *bias = gpu_tensor(call, BIAS);
  DLTensor *out = gpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  gpu_dtype dtype = gpu_dtype_of(x);
  if (v->skip_bias_add && call->values[v->skip_bias_add].v.b)
    bias = NULL;
  *reason = "element types: float32, float16 or bfloat16, and the same for all tensors, expected";
  if (dtype == GPU_OTHER || gpu_dtype_of(weight) != dtype || gpu_dtype_of(out) != dtype ||
      (bias && gpu_dtype_of(bias) != dtype))
    return FL_ENOTSUP;
  *reason = "too many rows";
  *l = (linear){.x = x, .out = out};
  fl_status status = gpu_rows_of(op, call, 2, tensors, &l->rows);
  if (status)
    return status;
  int last = l->rows.dims - 1;
  l->product = (gpu_product){.dtype = dtype,
                             .m = last < 0 ? l->rows.count : l->rows.shape[last],
                             .n = out->shape[out->ndim - 1],
                             .k = weight->shape[1],
                             .x = fl_data(x),
                             .weight = fl_data(weight),
                             .bias = bias ? fl_data(bias) : NULL,
                             .out = fl_data(out),
                             .x_stride = last < 0 ? 0 : l->rows.stride[0][last],
                             .weight_stride = fl_stride(weight, 0),
                             .out_stride = last < 0 ? 0 : l->rows.stride[1][last]};
  l->bias = l->product.bias;
  if (l->bias && !rounds_once_with_bias(&l->product, gpu_item_size(x))) {
    l->product.bias = NULL;
    l->product.onto = true;
  }
  return gpu_math_takes(&l->product, reason) ? FL_OK : FL_ENOTSUP;
}

static bool supports(void *self, const fl_call *call, const char **reason) {
  fl_call question = *call;
  const char *why = NULL;
  linear l;
  question.message = NULL;
  bool taken = !read_linear(self, &question, &l, &why);
  return gpu_answer(taken, why, reason);
}

static bool is_empty(const linear *l) {
  return !l->rows.count || !l->product.n;
}

static size_t workspace_size(void *self, const fl_call *call) {
  fl_call question = *call;
  const char *reason;
  linear l;
  question.message = NULL;
  if (read_linear(self, &question, &l, &reason) || is_empty(&l) || !l.product.k)
    return 0;
  return gpu_product_workspace(self, call, &l.product);
}

/* A kernel over the rows of out. */
static fl_status launch_over_out(const gpu_op *op, fl_call *call, gpu_kernel *kernels, const linear *l,
                                 gpu_linear_arguments *arguments) {
  DLTensor *const tensors[] = {l->out};
  int64_t length = gpu_vector_length(l->out);
  fl_status status = gpu_rows_of(op, call, 1, tensors, &arguments->rows);
  if (status)
    return status;
  arguments->out = l->product.out;
  arguments->columns = l->product.n;
  arguments->vectorised =
      gpu_rows_aligned(&arguments->rows, 0, l->out) && l->product.n % length == 0 && gpu_is_aligned(arguments->bias, 0);
  int64_t threads = arguments->vectorised ? l->product.n / length : l->product.n;
  gpu_shape shape = gpu_shape_of(threads, arguments->rows.count, GPU_LINEAR_THREADS, 1);
  return gpu_launch(op, call, &kernels[l->product.dtype], &shape, arguments);
}

/* One product for each place of the leading dimensions before the last. */
static fl_status multiply(const gpu_op *op, fl_call *call, const linear *l) {
  int64_t size = gpu_item_size(l->x), products = l->rows.count / l->product.m;
  fl_status status = FL_OK;
  for (int64_t i = 0; i < products && !status; i++) {
    gpu_product p = l->product;
    int64_t x = 0, out = 0, left = i;
    for (int d = l->rows.dims - 2; d >= 0; d--) {
      x += left % l->rows.shape[d] * l->rows.stride[0][d];
      out += left % l->rows.shape[d] * l->rows.stride[1][d];
      left /= l->rows.shape[d];
    }
    p.x = (const char *)p.x + x * size;
    p.out = (char *)p.out + out * size;
    status = gpu_multiply(op, call, &p);
  }
  return status;
}

/* A product of nothing is 0. */
static fl_status run_product(const gpu_op *op, fl_call *call, const linear *l) {
  bool nothing = !l->product.k;
  gpu_linear_arguments arguments = {.bias = l->bias};
  fl_status status = FL_OK;
  if (nothing || l->product.onto)
    status = launch_over_out(op, call, fill_bias, l, &arguments);
  return status || nothing ? status : multiply(op, call, l);
}

static fl_status run(void *self, fl_call *call) {
  const gpu_op *op = self;
  const char *reason = NULL;
  linear l;
  fl_status status = read_linear(op, call, &l, &reason);
  if (status)
    return fl_fail(call, status, "%s: %s", op->name, reason);
  return is_empty(&l) ? FL_OK : run_product(op, call, &l);
}

/* logits_processor(hidden_states, weight, bias, org_vocab_size, soft_cap, scale) -> logits */
static fl_status run_logits_processor(void *self, fl_call *call) {
  enum { SOFT_CAP = 4, SCALE };
  const gpu_op *op = self;
  const fl_value *cap = &call->values[SOFT_CAP], *scale = &call->values[SCALE];
  gpu_linear_arguments arguments = {.capped = cap->type == FL_FLOAT,
                                    .scaled = scale->v.f != 1,
                                    .cap = cap->type == FL_FLOAT ? (float)cap->v.f : 1,
                                    .scale = (float)scale->v.f};
  const char *reason = NULL;
  linear l;
  fl_status status = read_linear(op, call, &l, &reason);
  if (status)
    return fl_fail(call, status, "%s: %s", op->name, reason);
  if (is_empty(&l))
    return FL_OK;
  status = run_product(op, call, &l);
  if (status || !(arguments.capped || arguments.scaled))
    return status;
  return launch_over_out(op, call, process_logits, &l, &arguments);
}

#define OP(op, function, ...)                                                                                          \
  {                                                                                                                    \
    .name = op, .run = function, .supports = supports, .workspace_size = workspace_size, .module = &gpu_module_linear, \
    .is_ready = gpu_math_available, .variant = &(const variant) {                                                      \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

static const gpu_op ops[] = {
    OP("replicated_linear", run, .skip_bias_add = 3),
    OP("column_parallel_linear", run, .skip_bias_add = 4),
    OP("row_parallel_linear", run, .skip_bias_add = 5),
    OP("parallel_lm_head", run, .skip_bias_add = 0),
    OP("logits_processor", run_logits_processor, .skip_bias_add = 0),
};
OP_LIST(ops);
