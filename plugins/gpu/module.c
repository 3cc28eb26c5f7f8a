/*
 * Kernels on their way to a device: modules are loaded, and functions found, when a device first needs them, once. What
 * is found stays for the life of the process, so that later calls only read.
 */
#include "plugins/gpu/launch.h"

/* With the device entered and the lock held. */
static gpu_code load(gpu_device *device, gpu_module *module, void **handle) {
  gpu_code code = GPU_SUCCESS;
  *handle = atomic_load(&module->handles[device->ordinal]);
  if (!*handle && !(code = gpu.call.load(handle, module->image)))
    atomic_store(&module->handles[device->ordinal], *handle);
  return code;
}

bool gpu_is_captured(void *stream) {
  int status = 0;
  return !gpu.call.capturing(stream, &status) && status;
}

/* Another device may suit where this one does not. */
static bool suits(const gpu_device *device, char *reason, size_t size) {
  int version = 0;
  if (gpu.call.version(&version))
    version = 0;
  return gpu.suits(&device->properties, version, reason, size);
}

/* The first use of a kernel on a device, which is entered. */
static fl_status find_function(const gpu_op *op, fl_call *call, gpu_device *device, gpu_kernel *kernel) {
  void *module = NULL, *function = NULL;
  const char *step = "loading the kernels";
  char words[GPU_WORDS];
  if (!suits(device, words, sizeof words))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, words);
  if (!atomic_load(&kernel->module->handles[device->ordinal]) && gpu_is_captured(call->stream)) /* loading allocates */
    return fl_fail(call, FL_ENOTSUP,
                   "%s: its kernels are not on device %d yet, and while a stream is captured they cannot be loaded; "
                   "call it once before",
                   op->name, device->ordinal);
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_MODULES]);
  gpu_code code = load(device, kernel->module, &module);
  if (!code) {
    step = kernel->name;
    code = gpu.call.find(&function, module, kernel->name);
  }
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_MODULES]);
  if (code)
    return gpu_failed(device, code, op->name, step, call->message, call->message_size);
  atomic_store_explicit(&kernel->functions[device->ordinal], function, memory_order_release);
  return FL_OK;
}

static fl_status launch_entered(const gpu_op *op, fl_call *call, gpu_device *device, gpu_kernel *kernel,
                                const gpu_shape *shape, void *arguments) {
  enum { ALWAYS_ALLOWED = 48 << 10 };
  _Atomic(void *) *slot = &kernel->functions[device->ordinal];
  gpu_code code = GPU_SUCCESS;
  void *function = atomic_load_explicit(slot, memory_order_acquire);
  if (!function) {
    fl_status status = find_function(op, call, device, kernel);
    if (status)
      return status;
    function = atomic_load_explicit(slot, memory_order_acquire);
  }
  if (shape->shared > ALWAYS_ALLOWED)
    code = gpu.call.allow_shared(function, (int)shape->shared);
  if (!code)
    code = gpu.call.launch(function, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0], shape->block[1],
                           shape->block[2], shape->shared, call->stream, (void *[]){arguments}, NULL);
  if (code)
    return gpu_failed(device, code, op->name, kernel->name, call->message, call->message_size);
  gpu_note_launch(device, op->name);
  return FL_OK;
}

gpu_device *gpu_call_device(const gpu_op *op, fl_call *call, fl_status *status) {
  char words[GPU_WORDS];
  const DLTensor *tensor = NULL;
  for (uint32_t i = 0; i < call->count && !tensor; i++)
    tensor = gpu_tensor(call, i);
  if (!tensor) {
    *status = fl_fail(call, FL_EINVAL, "the call has no tensor, so no device");
    return NULL;
  }
  gpu_device *device = gpu_find_device(tensor->device.device_id, status, words, sizeof words);
  if (!device && *status == FL_EINVAL) /* the caller's mistake, before which the host puts the op's name */
    fl_fail(call, *status, "%s", words);
  else if (!device)
    fl_fail(call, *status, "%s: %s", op->name, words);
  return device;
}

fl_status gpu_check_workspace(const gpu_op *op, fl_call *call) {
  size_t wanted = op->workspace_size((void *)op, call), given = call->workspace ? call->workspace_size : 0;
  if (given >= wanted)
    return FL_OK;
  return fl_fail(call, FL_ENOTSUP, "%s: a workspace of %zu bytes, expected %zu (fl_workspace_size)", op->name, given,
                 wanted);
}

fl_status gpu_launch(const gpu_op *op, fl_call *call, gpu_kernel *kernel, const gpu_shape *shape, void *arguments) {
  fl_status status;
  gpu_scope scope;
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  status = gpu_enter(device, &scope, op->name, call->message, call->message_size);
  if (status)
    return status;
  status = launch_entered(op, call, device, kernel, shape, arguments);
  gpu.call.leave(&scope);
  return status;
}

bool gpu_module_preload(gpu_module *module, const char **reason) {
  void *handle;
  int ordinal;
  fl_status status;
  gpu_scope scope;
  if (!gpu.call.in_use(&ordinal) || ordinal < 0)
    return true;
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_MODULES]);
  *reason = module->reason;
  gpu_device *device = gpu_find_device(ordinal, &status, module->reason, sizeof module->reason);
  gpu_code code = device ? gpu.call.enter(device, &scope) : GPU_SUCCESS;
  if (device && !code) {
    code = load(device, module, &handle);
    gpu.call.leave(&scope);
  }
  if (code)
    gpu_failed(device, code, module->name, "loading the kernels", module->reason, sizeof module->reason);
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_MODULES]);
  return device && !code;
}
