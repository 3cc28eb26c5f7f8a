/*
 * conv2d and conv3d by cuDNN, as vendor.cuda.cudnn: an implementation of its own beside our kernels'
 * (ops/convolution.c), so that whoever asks is told which of the two runs and why, and so that what cuDNN refuses, or
 * fails at, is theirs by the host's rules. Strides are any that the library takes.
 */
#include "plugins/gpu/cudnn.h"
#include "plugins/gpu/plugin.h"

#include <stdlib.h>

enum { X, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS, OUT };
enum { PRIORITY = 110 }; /* before our own kernels, which have a vendor's 100 */

/* ---------------------------------------------------------------------------------------------------------- library */

static const gpu_symbol symbols[] = {
#define DNN_SYMBOL(result, name, field, arguments) {#name, &cudnn.field},
    DNN_FUNCTIONS(DNN_SYMBOL)
#undef DNN_SYMBOL
        {NULL, NULL},
};

/* 9.8 is the first that plans for a device by its properties; what 10 keeps of this is not known. */
static bool suits(char *reason, size_t size) {
  enum { LEAST = 90800, NEXT = 100000 };
  size_t version = cudnn.version();
  if (version >= LEAST && version < NEXT)
    return true;
  if (version < 10000) /* cuDNN 8 and older counted in other steps */
    snprintf(reason, size, "cuDNN %zu.%zu is too old: 9.8 or newer, of major 9, is needed", version / 1000,
             version % 1000 / 100);
  else
    snprintf(reason, size, "cuDNN %zu.%zu is too %s: 9.8 or newer, of major 9, is needed", version / 10000,
             version % 10000 / 100, version < LEAST ? "old" : "new");
  return false;
}

/* "CUDNN_STATUS_EXECUTION_FAILED (5000): what the library says more, in its first line". */
static fl_status describe(int code, char *words, size_t size) {
  char more[GPU_WORDS] = "";
  cudnn.last_error(more, sizeof more);
  more[sizeof more - 1] = 0;
  more[strcspn(more, "\n")] = 0;
  snprintf(words, size, "%s (%d)%s%.160s", cudnn.error_name(code), code, more[0] ? ": " : "", more);
  switch (code) {
  case CUDNN_STATUS_NOT_INITIALIZED:
    return FL_EDEVICE;
  case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
  case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
    return FL_ENOMEM;
  default:
    return code / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000      ? FL_ENOTSUP
           : code / 1000 == CUDNN_STATUS_BAD_PARAM / 1000        ? FL_ENOTSUP
           : code / 1000 == CUDNN_STATUS_EXECUTION_FAILED / 1000 ? FL_EDEVICE
                                                                 : FL_EINTERNAL;
  }
}

static cudnnStatus_t read_properties(cudnn_context *c) {
  cudnnStatus_t code = cudnn.create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->device);
  if (code)
    return code;
  code = cudnn.set(c->device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &c->handle);
  if (!code)
    code = cudnn.finalize(c->device);
  if (code)
    cudnn.destroy_descriptor(c->device);
  return code;
}

/* A cudnn_context. */
static int create(void **handle) {
  cudnn_context *made = calloc(1, sizeof *made);
  int code = made ? cudnn.create(&made->handle) : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
  if (code)
    goto out;
  code = read_properties(made);
  if (code) {
    cudnn.destroy(made->handle);
    goto out;
  }
  pthread_mutex_init(&made->lock, NULL);
  *handle = made;
  made = NULL;
out:
  free(made);
  return code;
}

gpu_library gpu_cudnn = {
    .title = "cuDNN",
    .setting = "FLHOST_CUDNN",
    .symbols = symbols,
    .suits = suits,
    .create = create,
    .describe = describe,
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .library = {.libraries = {"libcudnn.so.9"}},
};

static bool is_ready(const char **reason) {
  return gpu_library_available(&gpu_cudnn, reason);
}

/* ------------------------------------------------------------------------------------------------------------ forms */

enum { MOST_WORKSPACE = 128 << 20 };

/* A tensor that has no memory yet, as when a workspace is planned, counts as aligned: its memory will be. */
static uint8_t alignment(const void *address) {
  enum { MOST_ALIGNED = 16 };
  uintptr_t value = (uintptr_t)address | MOST_ALIGNED;
  return (uint8_t)(value & -value);
}

static void read_tensor(const DLTensor *tensor, int which, cudnn_form *f) {
  for (int d = 0; d < tensor->ndim; d++) {
    f->shape[which][d] = tensor->shape[d];
    f->strides[which][d] = fl_stride(tensor, d);
  }
  f->alignment[which] = alignment(fl_data(tensor));
}

static void read_bias(const DLTensor *bias, cudnn_form *f) {
  f->bias = 1;
  for (int d = 0; d < f->ndim; d++)
    f->shape[CUDNN_BIAS][d] = f->strides[CUDNN_BIAS][d] = 1;
  f->shape[CUDNN_BIAS][1] = bias->shape[0];
  f->strides[CUDNN_BIAS][1] = fl_stride(bias, 0);
  f->strides[CUDNN_BIAS][0] = bias->shape[0] * fl_stride(bias, 0);
  f->alignment[CUDNN_BIAS] = alignment(fl_data(bias));
}

/* Do the channels lie side by side? A tensor of one channel, or of one place, does not tell. */
static bool tells_layout(const cudnn_form *f, int which, bool *channels_last) {
  bool places = false;
  for (int d = 2; d < f->ndim; d++)
    places |= f->shape[which][d] > 1;
  *channels_last = f->strides[which][1] == 1;
  return places && f->shape[which][1] > 1;
}

/* A stride of a dimension of size 1 may be any number, but the library tells layouts by it: it gets the one that the
 * dimension would have between its neighbours. */
static void settle_strides(cudnn_form *f) {
  bool last = false;
  for (int which = CUDNN_X; which < CUDNN_BIAS && !tells_layout(f, which, &last); which++)
    last = false;
  for (int which = CUDNN_X; which < CUDNN_BIAS; which++) {
    int64_t *strides = f->strides[which], step = 1;
    for (int i = 0; i < f->ndim; i++) { /* from the innermost dimension on */
      int d = !last ? f->ndim - 1 - i : i == 0 ? 1 : i == f->ndim - 1 ? 0 : f->ndim - i;
      if (f->shape[which][d] == 1)
        strides[d] = step;
      step = strides[d] * f->shape[which][d];
    }
  }
}

static bool is_empty(const cudnn_form *f, int which) {
  bool empty = false;
  for (int d = 0; d < f->ndim; d++)
    empty |= !f->shape[which][d];
  return empty;
}

/* Do its elements lie side by side, in whatever order? */
static bool has_gaps(const cudnn_form *f, int which) {
  int64_t last = 0, n = 1;
  for (int d = 0; d < f->ndim; d++) {
    last += (f->shape[which][d] - 1) * f->strides[which][d];
    n *= f->shape[which][d];
  }
  return last + 1 != n;
}

/* What the library would not take in any form; some of it it says only when the plan runs. */
static const char *find_fault(const cudnn_form *f) {
  if (is_empty(f, CUDNN_X) || is_empty(f, CUDNN_WEIGHT))
    return "nothing to add up";
  for (int which = CUDNN_X; which < CUDNN_TENSORS; which++)
    for (int d = 0; d < f->ndim && (which != CUDNN_BIAS || f->bias); d++)
      if (f->strides[which][d] < 1)
        return "elements that lie in one place, or backwards";
  if (has_gaps(f, CUDNN_WEIGHT))
    return "a weight with gaps between its elements";
  for (int which = CUDNN_X; which < CUDNN_BIAS; which++)
    if (f->alignment[which] < 4)
      return "a tensor that does not begin at a multiple of 4 bytes";
  return NULL;
}

/* false: `reason` says what cuDNN is not asked for. */
static bool read_form(const fl_call *call, cudnn_form *f, const char **reason) {
  const fl_value *values = call->values;
  const DLTensor *x = gpu_tensor(call, X), *weight = gpu_tensor(call, WEIGHT), *bias = gpu_tensor(call, BIAS);
  const DLTensor *out = gpu_tensor(call, OUT);
  gpu_dtype dtype = gpu_dtype_of(x);
  *reason = "element types: float32, float16 or bfloat16, and the same, expected";
  if (dtype == GPU_OTHER || gpu_dtype_of(weight) != dtype || gpu_dtype_of(out) != dtype ||
      (bias && gpu_dtype_of(bias) != dtype))
    return false;
  *f = (cudnn_form){.workspace = MOST_WORKSPACE,
                    .ordinal = (uint8_t)x->device.device_id,
                    .dtype = (uint8_t)dtype,
                    .ndim = (uint8_t)x->ndim};
  read_tensor(x, CUDNN_X, f);
  read_tensor(weight, CUDNN_WEIGHT, f);
  read_tensor(out, CUDNN_OUT, f);
  if (bias)
    read_bias(bias, f);
  for (int d = 0; d < f->ndim - 2; d++) {
    f->stride[d] = values[STRIDE].v.ints[d];
    f->padding[d] = values[PADDING].v.ints[d];
    f->dilation[d] = values[DILATION].v.ints[d];
  }
  settle_strides(f);
  return is_empty(f, CUDNN_OUT) || !(*reason = find_fault(f));
}

/* -------------------------------------------------------------------------------------------------------------- ops */

/* The plan for what workspace there is: the one that the library likes best, or else one for the power of two below, so
 * that forms stay few. */
static cudnn_choice *choose(cudnn_context *context, cudnn_form *f, const fl_call *call, cudnnStatus_t *code,
                            const char **reason) {
  int64_t size = call->workspace ? (int64_t)call->workspace_size : 0;
  cudnn_choice *choice = cudnn_find_plan(context, f, call->stream, code, reason);
  if (!choice || choice->plan.workspace <= size)
    return choice;
  f->workspace = size ? 1 : 0;
  while (f->workspace && f->workspace <= size / 2)
    f->workspace *= 2;
  return cudnn_find_plan(context, f, call->stream, code, reason);
}

/* Before the device is used, what can be said is said of the arguments alone. A failure is left for run() to report. */
static bool supports(void *self, const fl_call *call, const char **reason) {
  char words[GPU_WORDS] = "";
  fl_call question = *call;
  const char *why = NULL;
  cudnn_form form;
  gpu_device *device;
  gpu_scope scope;
  fl_status status = FL_OK;
  cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
  bool taken = read_form(call, &form, &why);
  if (taken && !is_empty(&form, CUDNN_OUT) && gpu_is_open()) {
    question.message = words;
    question.message_size = sizeof words;
    cudnn_context *context = gpu_library_enter(&gpu_cudnn, self, &question, &device, &scope, &status);
    if (!context) {
      taken = status != FL_ENOTSUP;
      why = words;
    } else {
      taken = cudnn_find_plan(context, &form, call->stream, &code, &why) || code;
      gpu.call.leave(&scope);
    }
  }
  return taken || fl_reason(reason, "%s", why ? why : "");
}

static size_t workspace_size(void *self, const fl_call *call) {
  char words[GPU_WORDS];
  fl_call question = *call;
  const char *reason;
  cudnn_form form;
  gpu_device *device;
  gpu_scope scope;
  fl_status status;
  cudnnStatus_t code;
  question.message = words;
  question.message_size = sizeof words;
  if (!read_form(call, &form, &reason) || is_empty(&form, CUDNN_OUT))
    return 0;
  cudnn_context *context = gpu_library_enter(&gpu_cudnn, self, &question, &device, &scope, &status);
  if (!context)
    return 0;
  const cudnn_choice *choice = cudnn_find_plan(context, &form, call->stream, &code, &reason);
  gpu.call.leave(&scope);
  return choice ? (size_t)choice->plan.workspace : 0;
}

static fl_status run_entered(const gpu_op *op, fl_call *call, cudnn_context *context, cudnn_form *form) {
  const DLTensor *bias = gpu_tensor(call, BIAS);
  void *const data[CUDNN_TENSORS] = {fl_data(gpu_tensor(call, X)), fl_data(gpu_tensor(call, WEIGHT)),
                                     fl_data(gpu_tensor(call, OUT)), bias ? fl_data(bias) : NULL};
  const char *reason = NULL, *step = "making a plan";
  cudnnStatus_t code;
  cudnn_choice *choice = choose(context, form, call, &code, &reason);
  if (choice) {
    step = "running a plan";
    code = cudnn_run_plan(context, choice, data, call->workspace, call->stream);
  }
  if (code)
    return gpu_library_failed(&gpu_cudnn, code, op->name, step, call->message, call->message_size);
  return choice ? FL_OK : fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
}

/* conv2d and conv3d(x, weight, bias, stride, padding, dilation, groups) -> out */
static fl_status run(void *self, fl_call *call) {
  const gpu_op *op = self;
  const char *reason;
  cudnn_form form;
  gpu_device *device;
  gpu_scope scope;
  fl_status status;
  if (!read_form(call, &form, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (is_empty(&form, CUDNN_OUT))
    return FL_OK;
  cudnn_context *context = gpu_library_enter(&gpu_cudnn, op, call, &device, &scope, &status);
  if (!context)
    return status;
  status = run_entered(op, call, context, &form);
  gpu_note_launch(device, op->name);
  gpu.call.leave(&scope);
  return status;
}

#define OP(op)                                                                                                         \
  {                                                                                                                    \
    .name = op, .impl_id = "vendor.cuda.cudnn", .priority = PRIORITY, .run = run, .supports = supports,                \
    .workspace_size = workspace_size, .is_ready = is_ready                                                             \
  }

static const gpu_op ops[] = {
    OP("conv2d"),
    OP("conv3d"),
};
OP_LIST(ops);
