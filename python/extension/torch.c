/*
 * Kernels of torch's ops: by torch's stable C interface (torch/csrc/stable/c/shim.h), which is looked up in the torch
 * that the process has, so that nothing is compiled against torch and no Python runs in a call. torch hands the
 * arguments of an op as 64-bit words; what they hold belongs to the kernel.
 *
 * torch's interface gives a kernel no pointer of its own: each op has one of a fixed number of functions.
 */
#include "python/extension/prepared.h"
#include "python/extension/python_impl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef uint64_t word;               /* StableIValue */
typedef struct opaque *torch_tensor; /* AtenTensorHandle */
typedef int32_t torch_status;        /* 0: done */

/* ------------------------------------------------------------------------------------------------ torch's functions */

/* Since torch 2.10, whose forms of words these are. */
#define TORCH_FORMS ((UINT64_C(2) << 56) | (UINT64_C(10) << 48))

static struct {
  torch_status (*library_init)(const char *space, const char *key, const char *file, uint32_t line, void **library);
  torch_status (*library_impl)(void *library, const char *name, void (*kernel)(word *, uint64_t, uint64_t),
                               uint64_t version);
  void (*check)(bool condition, const char *function, const char *file, uint32_t line, const char *message);
  torch_status (*delete_tensor)(torch_tensor tensor);
  torch_status (*get_dim)(torch_tensor tensor, int64_t *n);
  torch_status (*get_sizes)(torch_tensor tensor, int64_t **sizes);
  torch_status (*get_strides)(torch_tensor tensor, int64_t **strides);
  torch_status (*get_dtype)(torch_tensor tensor, int32_t *dtype);
  torch_status (*get_device_type)(torch_tensor tensor, int32_t *type);
  torch_status (*get_device_index)(torch_tensor tensor, int32_t *index);
  torch_status (*const_data)(torch_tensor tensor, const void **data);
  torch_status (*mutable_data)(torch_tensor tensor, void **data);
  torch_status (*empty_strided)(int64_t n, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                int32_t device_type, int32_t device_index, torch_tensor *made);
  torch_status (*list_size)(void *list, size_t *size);
  torch_status (*list_item)(void *list, size_t index, word *item);
  torch_status (*delete_list)(void *list);
  torch_status (*string_text)(void *string, const char **text);
  torch_status (*new_string)(const char *text, size_t length, void **string);
  torch_status (*delete_string)(void *string);
  torch_status (*set_requires_grad)(torch_tensor tensor, bool requires_grad);
  bool (*grad_mode)(void);
  /* From here on they may be missing. */
  torch_status (*new_word)(word **made); /* since 2.13; before, the words were made by C++'s new */
  torch_status (*delete_word)(word *made);
  void *(*cxx_new)(size_t size);
  void (*cxx_delete)(void *memory);
  torch_status (*cuda_stream)(int32_t device, void **stream);
  torch_status (*current_stream)(int32_t device, void **stream);
  torch_status (*native_stream)(void *stream, void **native);
  torch_status (*delete_stream)(void *stream);
  bool (*requires_grad)(const void *implementation); /* of C++, so it is tried out before it is relied on */
} torch;

/* In the order of the struct. */
static const char *const function_names[] = {"aoti_torch_library_init_impl",
                                             "torch_library_impl",
                                             "aoti_torch_check",
                                             "aoti_torch_delete_tensor_object",
                                             "aoti_torch_get_dim",
                                             "aoti_torch_get_sizes",
                                             "aoti_torch_get_strides",
                                             "aoti_torch_get_dtype",
                                             "aoti_torch_get_device_type",
                                             "aoti_torch_get_device_index",
                                             "torch_get_const_data_ptr",
                                             "torch_get_mutable_data_ptr",
                                             "aoti_torch_empty_strided",
                                             "torch_list_size",
                                             "torch_list_get_item",
                                             "torch_delete_list",
                                             "torch_string_c_str",
                                             "torch_new_string_handle",
                                             "torch_delete_string",
                                             "torch_set_requires_grad",
                                             "aoti_torch_grad_mode_is_enabled",
                                             "torch_new_stable_ivalue",
                                             "torch_delete_stable_ivalue",
                                             "_Znwm",
                                             "_ZdlPv",
                                             "aoti_torch_get_current_cuda_stream",
                                             "aoti_torch_get_current_stream",
                                             "torch_stream_native_handle",
                                             "aoti_torch_delete_stream",
                                             "_ZNK3c1010TensorImpl13requires_gradEv"};
enum { N_FUNCTIONS = sizeof function_names / sizeof function_names[0], N_REQUIRED = 21 };
_Static_assert(sizeof torch == N_FUNCTIONS * sizeof(void (*)(void)), "one name for each function");

/* torch's number of each element type, which a function tells. */
static struct {
  const char *function;
  DLDataType dtype;
  int32_t number; /* -1: torch has none */
} dtypes[] = {
    {"aoti_torch_dtype_float32", {kDLFloat, 32, 1}, -1},
    {"aoti_torch_dtype_bfloat16", {kDLBfloat, 16, 1}, -1},
    {"aoti_torch_dtype_float16", {kDLFloat, 16, 1}, -1},
    {"aoti_torch_dtype_int64", {kDLInt, 64, 1}, -1},
    {"aoti_torch_dtype_int32", {kDLInt, 32, 1}, -1},
    {"aoti_torch_dtype_bool", {FL_DTYPE_BOOL, 8, 1}, -1},
    {"aoti_torch_dtype_uint8", {kDLUInt, 8, 1}, -1},
    {"aoti_torch_dtype_int8", {kDLInt, 8, 1}, -1},
    {"aoti_torch_dtype_int16", {kDLInt, 16, 1}, -1},
    {"aoti_torch_dtype_uint16", {kDLUInt, 16, 1}, -1},
    {"aoti_torch_dtype_uint32", {kDLUInt, 32, 1}, -1},
    {"aoti_torch_dtype_uint64", {kDLUInt, 64, 1}, -1},
    {"aoti_torch_dtype_float64", {kDLFloat, 64, 1}, -1},
    {"aoti_torch_dtype_float8_e4m3fn", {FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, -1},
    {"aoti_torch_dtype_float8_e4m3fnuz", {FL_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}, -1},
    {"aoti_torch_dtype_float8_e5m2", {FL_DTYPE_FLOAT8_E5M2, 8, 1}, -1},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* c10/core/DeviceType.h. What torch calls cuda is DLPack's ROCm in a torch for ROCm. */
static struct {
  int32_t number;
  DLDeviceType type;
} devices[] = {{0, kDLCPU}, {1, kDLCUDA}, {20, kDLExtDev}};
enum { N_DEVICES = sizeof devices / sizeof devices[0], TORCH_CPU = 0, TORCH_CUDA = 1 };

static bool knows_grad; /* is torch.requires_grad what it seems to be? */
static void *library;   /* of torch's, for the ops' kernels; lives as long as the process */
static void *functions; /* libtorch_cpu.so */

/* -------------------------------------------------------------------------------------------------------------- ops */

/* An overload of an op. */
typedef struct overload {
  fl_op *op;
  fl_py_host *host;
  bool writes;   /* it is given the results */
  bool prepared; /* behind the arguments it is given the handle of prepared weights, as a tensor */
  uint32_t n_arguments, n_results;
  struct {
    const char *name;
    uint8_t type;
    bool optional, written;
  } values[64]; /* arguments, then results */
} overload;

enum { MAX_VALUES = 64, MAX_INTS = 256, MAX_RESULTS = 16, MESSAGE = 1024, MAX_OVERLOADS = 512 };

/* A call. */
typedef struct frame {
  const overload *overload;
  fl_value values[MAX_VALUES];
  DLTensor tensors[MAX_VALUES];
  torch_tensor results[MAX_RESULTS]; /* those that were made here */
  torch_tensor first;                /* the first tensor */
  fl_py_weights *weights;            /* NULL: none are prepared */
  int64_t ints[MAX_INTS];
  uint32_t n_ints;
  bool grad;             /* no argument may require grad */
  char message[MESSAGE]; /* "" while all is well */
} frame;

static bool fail(frame *f, uint32_t i, const char *format, ...) {
  va_list arguments;
  const overload *o = f->overload;
  int n = snprintf(f->message, sizeof f->message, "%s: %s '%s': ", fl_op_name(o->op),
                   i < o->n_arguments ? "argument" : "result", o->values[i].name);
  va_start(arguments, format);
  vsnprintf(f->message + n, sizeof f->message - (size_t)n, format, arguments);
  va_end(arguments);
  return false;
}

static bool fail_as_library(frame *f) {
  snprintf(f->message, sizeof f->message, "%s", fl_error_message());
  return false;
}

/* -------------------------------------------------------------------------------------------------------- arguments */

/* A handle is a C++ object whose one member is the pointer to the implementation. */
static bool requires_grad(torch_tensor tensor) {
  const void *implementation;
  memcpy(&implementation, tensor, sizeof implementation);
  return torch.requires_grad(implementation);
}

/* The device as torch numbers it. */
static bool read_device(frame *f, uint32_t i, torch_tensor given, DLDevice *device) {
  int32_t type, index = 0;
  if (torch.get_device_type(given, &type) || (type != TORCH_CPU && torch.get_device_index(given, &index)))
    return fail(f, i, "a tensor whose device torch does not tell");
  for (int d = 0; d < N_DEVICES; d++)
    if (devices[d].number == type) {
      *device = (DLDevice){devices[d].type, index < 0 ? 0 : index};
      return true;
    }
  return fail(f, i, "a tensor on device type %d of torch, expected cpu, cuda or privateuseone", type);
}

static bool read_tensor(frame *f, uint32_t i, torch_tensor given) {
  DLTensor *tensor = &f->tensors[i];
  int64_t n;
  int32_t dtype;
  *tensor = (DLTensor){0};
  torch_status bad = torch.get_dim(given, &n);
  bad = bad ? bad : torch.get_sizes(given, &tensor->shape);
  bad = bad ? bad : torch.get_strides(given, &tensor->strides);
  bad = bad ? bad : torch.get_dtype(given, &dtype);
  bad = bad                              ? bad
        : f->overload->values[i].written ? torch.mutable_data(given, &tensor->data)
                                         : torch.const_data(given, (const void **)&tensor->data);
  if (bad)
    return fail(f, i, "a tensor without memory of its own, or not strided");
  if (n > FL_MAX_DIMS)
    return fail(f, i, "%lld dimensions, expected 0 to %d", (long long)n, FL_MAX_DIMS);
  int d = 0;
  while (d < N_DTYPES && dtypes[d].number != dtype)
    d++;
  if (d == N_DTYPES)
    return fail(f, i, "a tensor of torch's dtype %d, which flhost does not know", (int)dtype);
  tensor->ndim = (int32_t)n;
  tensor->dtype = dtypes[d].dtype;
  if (fl_py_is_plain(tensor))
    tensor->strides = NULL;
  if ((uintptr_t)tensor->data & (dtypes[d].dtype.bits / 8u - 1)) /* each is a power of two */
    return fail(f, i, "its first element is not aligned to its type");
  if (f->grad && requires_grad(given))
    return fail(
        f, i,
        "requires grad, and the op has no derivative: call it under torch.inference_mode() or torch.no_grad(), or "
        "give it %s.detach()",
        f->overload->values[i].name);
  if (!f->first)
    f->first = given;
  f->values[i].type = FL_TENSOR;
  f->values[i].v.tensor = tensor;
  return read_device(f, i, given, &tensor->device);
}

static bool read_ints(frame *f, uint32_t i, void *list) {
  size_t n;
  if (torch.list_size(list, &n) || n > MAX_INTS - f->n_ints)
    return fail(f, i, "a list that is too long, expected at most %d numbers", MAX_INTS);
  f->values[i].type = FL_INT_LIST;
  f->values[i].length = (uint32_t)n;
  f->values[i].v.ints = f->ints + f->n_ints;
  for (size_t k = 0; k < n; k++)
    if (torch.list_item(list, k, (word *)&f->ints[f->n_ints++]))
      return fail(f, i, "a list whose elements torch does not tell");
  return true;
}

static bool read_value(frame *f, uint32_t i, word given) {
  fl_value *value = &f->values[i];
  switch (f->overload->values[i].type) {
  case FL_TENSOR:
    return read_tensor(f, i, (torch_tensor)(uintptr_t)given); /* NOLINT: a word holds the handle */
  case FL_INT:
    *value = fl_int((int64_t)given);
    return true;
  case FL_FLOAT:
    value->type = FL_FLOAT;
    memcpy(&value->v.f, &given, sizeof given);
    return true;
  case FL_BOOL:
    *value = fl_bool(given & 0xff);
    return true;
  case FL_STRING:
    value->type = FL_STRING;
    return !torch.string_text((void *)(uintptr_t)given, &value->v.s) || fail(f, i, "a text that torch does not tell");
  default:
    return read_ints(f, i, (void *)(uintptr_t)given);
  }
}

/* What may be none is a pointer to a word. */
static word *optional_word(const overload *o, uint32_t i, word *given) {
  return o->values[i].optional ? (word *)(uintptr_t)*given : given;
}

static void release_value(const overload *o, uint32_t i, word *given) {
  word *held = optional_word(o, i, given);
  if (!held)
    return;
  void *object = (void *)(uintptr_t)*held;
  if (o->values[i].type == FL_TENSOR)
    torch.delete_tensor(object);
  else if (o->values[i].type == FL_STRING)
    torch.delete_string(object);
  else if (o->values[i].type == FL_INT_LIST)
    torch.delete_list(object);
  if (o->values[i].optional && torch.delete_word)
    torch.delete_word(held);
  else if (o->values[i].optional)
    torch.cxx_delete(held);
}

/* The number in a tensor that flhost.torch.handle made. It is a tensor, so that what torch compiles holds no number of
 * one process's. */
static bool read_handle(torch_tensor given, int64_t *handle) {
  const void *data = NULL;
  int64_t n = 0, *sizes;
  int32_t dtype = -1, type = -1;
  if (torch.get_dim(given, &n) || n != 1 || torch.get_sizes(given, &sizes) || sizes[0] != 1 ||
      torch.get_dtype(given, &dtype) || dtype != dtypes[3].number || torch.get_device_type(given, &type) ||
      type != TORCH_CPU || torch.const_data(given, &data) || !data)
    return false;
  memcpy(handle, data, sizeof *handle);
  return true;
}

/* Puts the prepared weights into the call, which has them until fl_py_weights_leave. 0 stands for none. */
static bool enter_weights(frame *f, fl_call *call, torch_tensor given) {
  const char *why = "a tensor that flhost.torch.handle did not make";
  int64_t handle;
  bool is_handle = read_handle(given, &handle);
  if (is_handle && !handle)
    return true;
  if (is_handle)
    f->weights = fl_py_weights_enter(handle, f->overload->op, &call->prepared, &why);
  if (!f->weights)
    snprintf(f->message, sizeof f->message, "%s: argument 'prepared': %s, expected the handle of what prepare gave",
             fl_op_name(f->overload->op), why);
  return f->weights != NULL;
}

/* ---------------------------------------------------------------------------------------------------------- results */

static bool make_tensor(frame *f, uint32_t result, const fl_tensor_spec *spec) {
  uint32_t i = f->overload->n_arguments + result;
  int64_t strides[FL_MAX_DIMS], step = 1;
  int32_t device = TORCH_CPU, index = -1;
  int d = 0;
  while (d < N_DTYPES && memcmp(&dtypes[d].dtype, &spec->dtype, sizeof spec->dtype))
    d++;
  if (d == N_DTYPES || dtypes[d].number < 0)
    return fail(f, i, "a dtype that this torch does not have");
  for (int k = spec->ndim - 1; k >= 0; k--) {
    strides[k] = step;
    step *= spec->shape[k] ? spec->shape[k] : 1;
  }
  if (f->first && (torch.get_device_type(f->first, &device) || torch.get_device_index(f->first, &index)))
    return fail(f, i, "torch does not tell the device");
  torch_tensor made = NULL;
  if (torch.empty_strided(spec->ndim, spec->shape, strides, dtypes[d].number, device, index, &made))
    return fail(f, i, "torch cannot allocate it");
  f->results[result] = made;
  return read_tensor(f, i, made);
}

static bool make_results(frame *f, fl_call *call) {
  const overload *o = f->overload;
  fl_tensor_spec specs[MAX_RESULTS];
  if (!o->n_results)
    return true;
  call->count = o->n_arguments;
  if (fl_infer(o->op, call, specs, o->n_results, sizeof *specs))
    return fail_as_library(f);
  call->count = o->n_arguments + o->n_results;
  for (uint32_t r = 0; r < o->n_results; r++) {
    f->values[o->n_arguments + r] = fl_none();
    if (o->values[o->n_arguments + r].type == FL_TENSOR && specs[r].present && !make_tensor(f, r, &specs[r]))
      return false;
  }
  return true;
}

static word *new_word(void) {
  word *made = NULL;
  if (!torch.new_word)
    return torch.cxx_new(sizeof *made);
  return torch.new_word(&made) ? NULL : made;
}

/* Hands a result to torch. */
static bool give_result(frame *f, uint32_t result, word *given) {
  const overload *o = f->overload;
  uint32_t i = o->n_arguments + result;
  const fl_value *value = &f->values[i];
  word held = 0;
  if (value->type == FL_TENSOR)
    held = (word)(uintptr_t)f->results[result];
  else if (value->type == FL_INT)
    held = (word)value->v.i;
  else if (value->type == FL_FLOAT)
    memcpy(&held, &value->v.f, sizeof held);
  else if (value->type == FL_BOOL)
    held = value->v.b;
  else if (value->type == FL_STRING) {
    void *string;
    if (torch.new_string(value->v.s, strlen(value->v.s), &string))
      return fail(f, i, "torch cannot hold the text");
    held = (word)(uintptr_t)string;
  } else if (!o->values[i].optional)
    return fail(f, i, "none, expected a value");
  f->results[result] = NULL;
  if (!o->values[i].optional || value->type == FL_NONE) {
    *given = held;
    return true;
  }
  word *outer = new_word();
  if (!outer)
    return fail(f, i, "out of memory");
  *outer = held;
  *given = (word)(uintptr_t)outer;
  return true;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static bool has_streams(DLDevice device) {
  return device.device_type != kDLCPU;
}

static bool current_stream(frame *f, DLDevice device, void **stream) {
  bool is_cuda = device.device_type == kDLCUDA || device.device_type == kDLROCM;
  void *found = NULL;
  if (is_cuda && torch.cuda_stream)
    return !torch.cuda_stream(device.device_id, stream) || fail(f, 0, "torch does not tell the current stream");
  if (!torch.current_stream || !torch.native_stream || !torch.delete_stream)
    return fail(f, 0, "this torch does not tell the current stream of its device, expected 2.13 or newer");
  torch_status bad = torch.current_stream(device.device_id, &found);
  if (!bad) {
    bad = torch.native_stream(found, stream);
    torch.delete_stream(found);
  }
  return !bad || fail(f, 0, "torch does not tell the current stream");
}

/* Memory of torch's own allocator, which knows graphs and streams. */
static bool make_workspace(frame *f, fl_call *call, torch_tensor *made) {
  size_t size = 0;
  int64_t sizes[1], strides[1] = {1};
  int32_t device, index;
  if (fl_workspace_size(f->overload->op, call, &size))
    return fail_as_library(f);
  sizes[0] = (int64_t)size;
  if (!size)
    return true;
  if (torch.get_device_type(f->first, &device) || torch.get_device_index(f->first, &index) ||
      torch.empty_strided(1, sizes, strides, dtypes[6].number, device, index, made) ||
      torch.mutable_data(*made, &call->workspace))
    return fail(f, 0, "torch cannot allocate a workspace of %zu bytes", size);
  call->workspace_size = size;
  return true;
}

/* The policy of this context of Python's, where any is entered. */
static bool invoke_under_policy(frame *f, fl_call *call) {
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *policy = NULL;
  fl_scope scope;
  bool done = fl_py_policy_get(f->overload->host, &policy);
  if (!done) {
    PyErr_Clear();
    snprintf(f->message, sizeof f->message, "%s: the context's policy cannot be read", fl_op_name(f->overload->op));
  }
  PyThreadState *thread = PyEval_SaveThread();
  fl_status status = FL_OK;
  if (done && policy)
    status = fl_scope_enter(f->overload->host->host, ((fl_py_policy *)policy)->policy, &scope);
  if (done && !status) {
    status = fl_invoke(f->overload->op, call);
    if (status)
      fail_as_library(f);
    if (policy)
      fl_scope_leave(&scope);
  } else if (done)
    fail_as_library(f);
  PyEval_RestoreThread(thread);
  Py_XDECREF(policy);
  PyGILState_Release(state);
  return done && !status;
}

/* Lines for the module logging that came up meanwhile. */
static void hand_on_log(void) {
  if (!atomic_load_explicit(&fl_py_lines, memory_order_relaxed))
    return;
  PyGILState_STATE state = PyGILState_Ensure();
  fl_py_log_flush();
  PyGILState_Release(state);
}

static bool invoke(frame *f, fl_call *call) {
  bool done;
  if (f->overload->host->entered)
    done = invoke_under_policy(f, call);
  else
    done = !fl_invoke(f->overload->op, call) || fail_as_library(f);
  hand_on_log();
  return done;
}

static bool run(frame *f, word *stack) {
  const overload *o = f->overload;
  fl_call call = {.size = sizeof call, .count = o->n_arguments + o->n_results, .values = f->values};
  torch_tensor workspace = NULL;
  bool done = true;
  uint32_t n = o->n_arguments + (o->writes ? o->n_results : 0);
  for (uint32_t i = 0; i < n && done; i++) {
    word *given = optional_word(o, i, &stack[i]);
    f->values[i] = fl_none();
    done = !given || read_value(f, i, *given);
  }
  DLTensor *first = NULL;
  for (uint32_t i = 0; i < n && !first && done; i++)
    first = f->values[i].type == FL_TENSOR ? f->values[i].v.tensor : NULL;
  done = done && (!first || !has_streams(first->device) || current_stream(f, first->device, &call.stream));
  done = done && (o->writes || make_results(f, &call));
  done = done && (!first || !has_streams(first->device) || make_workspace(f, &call, &workspace));
  done = done && (!o->prepared || enter_weights(f, &call, (torch_tensor)(uintptr_t)stack[n])); /* NOLINT: a handle */
  done = done && invoke(f, &call);
  if (f->weights)
    fl_py_weights_leave(f->weights);
  if (workspace)
    torch.delete_tensor(workspace);
  return done;
}

/* What torch calls. The arguments are the kernel's to release, in each case. */
static void call_overload(const overload *o, word *stack) {
  frame f;
  word given[MAX_RESULTS];
  uint32_t n = o->n_arguments + (o->writes ? o->n_results : 0);
  f.overload = o;
  f.first = NULL;
  f.weights = NULL;
  f.n_ints = 0;
  f.grad = knows_grad && torch.grad_mode();
  f.message[0] = 0;
  for (uint32_t r = 0; r < o->n_results; r++) {
    f.results[r] = NULL;
    given[r] = 0;
  }
  bool done = run(&f, stack);
  for (uint32_t r = 0; r < o->n_results && done && !o->writes; r++)
    done = give_result(&f, r, &given[r]);
  for (uint32_t i = 0; i < n; i++)
    release_value(o, i, &stack[i]);
  if (o->prepared)
    torch.delete_tensor((torch_tensor)(uintptr_t)stack[n]); /* NOLINT: as above */
  if (!done) {
    for (uint32_t r = 0; r < o->n_results && !o->writes; r++) {
      if (f.results[r])
        torch.delete_tensor(f.results[r]);
    }
    fl_py_pass_on();
    torch.check(false, fl_op_name(o->op), "flhost", 0, f.message); /* throws */
  }
  if (!o->writes)
    memcpy(stack, given, o->n_results * sizeof *given);
}

/* --------------------------------------------------------------------------------------------------------- kernels */

static overload *overloads[MAX_OVERLOADS];
static uint32_t n_overloads;

#define KERNEL(a, b, c)                                                                                                \
  static void kernel_##a##b##c(word *stack, uint64_t n_arguments, uint64_t n_results) {                                \
    (void)n_arguments;                                                                                                 \
    (void)n_results;                                                                                                   \
    call_overload(overloads[64 * a + 8 * b + c], stack);                                                               \
  }
#define NAME(a, b, c)  kernel_##a##b##c,
#define EIGHT(m, a, b) m(a, b, 0) m(a, b, 1) m(a, b, 2) m(a, b, 3) m(a, b, 4) m(a, b, 5) m(a, b, 6) m(a, b, 7)
#define MORE(m, a)                                                                                                     \
  EIGHT(m, a, 0)                                                                                                       \
  EIGHT(m, a, 1) EIGHT(m, a, 2) EIGHT(m, a, 3) EIGHT(m, a, 4) EIGHT(m, a, 5) EIGHT(m, a, 6) EIGHT(m, a, 7)
#define ALL(m) MORE(m, 0) MORE(m, 1) MORE(m, 2) MORE(m, 3) MORE(m, 4) MORE(m, 5) MORE(m, 6) MORE(m, 7)

ALL(KERNEL)
static void (*const kernels[MAX_OVERLOADS])(word *, uint64_t, uint64_t) = {ALL(NAME)};

/* ----------------------------------------------------------------------------------------------------- registration */

/* The function of that name in torch or what it is linked with. */
static void find_function(const char *name, void *place) {
  void *found = dlsym(functions, name);
  if (!found)
    found = dlsym(RTLD_DEFAULT, name);
  memcpy(place, &found, sizeof found);
}

/* Does torch.requires_grad tell a tensor that requires grad from one that does not? */
static bool try_requires_grad(void) {
  const int64_t one = 1;
  bool answers[2] = {true, false};
  for (int wanted = 0; wanted < 2 && torch.requires_grad; wanted++) {
    torch_tensor made;
    if (torch.empty_strided(1, &one, &one, dtypes[0].number, TORCH_CPU, -1, &made))
      return false;
    if (!torch.set_requires_grad(made, wanted))
      answers[wanted] = requires_grad(made);
    torch.delete_tensor(made);
  }
  return !answers[0] && answers[1];
}

/* Looks everything up, once. False with an exception set. */
static bool find_torch(bool is_rocm) {
  if (library)
    return true;
  functions = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!functions) {
    fl_py_raise_message(FL_ENOTSUP, "flhost.torch: libtorch_cpu.so is not loaded");
    return false;
  }
  for (int i = 0; i < N_FUNCTIONS; i++) {
    void (**place)(void) = (void (**)(void)) & torch + i;
    find_function(function_names[i], place);
    if (!*place && i < N_REQUIRED) {
      fl_py_raise_message(FL_ENOTSUP, "flhost.torch: this torch is too old: it has not all functions of the stable C "
                                      "interface, expected 2.10 or newer");
      return false;
    }
  }
  void *cuda = dlopen("libtorch_cuda.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!cuda)
    cuda = dlopen("libtorch_hip.so", RTLD_NOLOAD | RTLD_LAZY);
  void *stream = cuda ? dlsym(cuda, "aoti_torch_get_current_cuda_stream") : NULL;
  if (stream)
    memcpy(&torch.cuda_stream, &stream, sizeof stream);
  for (int d = 0; d < N_DTYPES; d++) {
    int32_t (*number)(void);
    find_function(dtypes[d].function, &number);
    dtypes[d].number = number ? number() : -1;
  }
  knows_grad = try_requires_grad();
  if (is_rocm)
    devices[TORCH_CUDA].type = kDLROCM;
  if (torch.library_init("flhost", "CompositeExplicitAutograd", "flhost", 0, &library)) {
    library = NULL;
    fl_py_raise_message(FL_EINTERNAL, "flhost.torch: torch makes no library");
    return false;
  }
  return true;
}

/* The overload, or NULL with an exception set. */
static overload *make_overload(fl_py_host *host, fl_op *op, const char *which) {
  uint32_t n_arguments = fl_op_argument_count(op), n_results = fl_op_result_count(op);
  if (n_arguments + n_results > MAX_VALUES || n_results > MAX_RESULTS || n_overloads == MAX_OVERLOADS)
    return (overload *)fl_py_raise_message(FL_ENOTSUP, n_overloads == MAX_OVERLOADS
                                                           ? "flhost.torch: more overloads than there is room for"
                                                           : "flhost.torch: an op with too many values");
  overload *made = calloc(1, sizeof *made);
  if (!made)
    return (overload *)PyErr_NoMemory();
  made->op = op;
  made->host = host;
  made->writes = !strcmp(which, "out");
  made->prepared = !strcmp(which, "prepared");
  made->n_arguments = n_arguments;
  made->n_results = n_results;
  for (uint32_t i = 0; i < n_arguments + n_results; i++) {
    const fl_argument *value = fl_op_argument(op, i);
    made->values[i].name = value->name;
    made->values[i].type = (uint8_t)value->type;
    made->values[i].optional = value->optional;
    made->values[i].written = i >= n_arguments || value->mutates;
  }
  return made;
}

/* torch_implement(host, op, overload, rocm): the kernel of torch.ops.flhost.OP or its overload "out" or "prepared".
 * Returns whether it refuses arguments that require grad by itself. */
static PyObject *torch_implement(PyObject *module, PyObject *arguments) {
  fl_py_host *host;
  const char *name, *which;
  int is_rocm;
  char full[256];
  (void)module;
  if (!PyArg_ParseTuple(arguments, "O!ssp", fl_py_host_type, &host, &name, &which, &is_rocm) || !find_torch(is_rocm))
    return NULL;
  fl_op *op = host->host ? fl_find_op(host->host, name) : NULL;
  if (!op)
    return fl_py_raise(FL_ENOENT);
  overload *made = make_overload(host, op, which);
  if (!made)
    return NULL;
  snprintf(full, sizeof full, "%s%s%s", name, *which ? "." : "", which);
  overloads[n_overloads] = made;
  if (torch.library_impl(library, full, kernels[n_overloads], TORCH_FORMS)) {
    overloads[n_overloads] = NULL;
    free(made);
    return fl_py_raise_message(FL_EINTERNAL, "flhost.torch: torch does not take the kernel");
  }
  Py_INCREF(host); /* for good, as the kernel */
  n_overloads++;
  return PyBool_FromLong(knows_grad);
}

static PyMethodDef methods[] = {{"torch_implement", torch_implement, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int fl_py_torch_add(PyObject *module) {
  return PyModule_AddFunctions(module, methods);
}
