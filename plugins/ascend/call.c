/* Calls of operators: see call.h. */
#include "plugins/ascend/call.h"
#include "plugins/ascend/locks.h"
#include "plugins/ascend/workspace.h"
#include "plugins/integers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ALIGNMENT = 64, TENSOR_ALIGNMENT = 32 };

/* ------------------------------------------------------------------------------------------- what an op is made of */

void ascend_fail(ascend_call *c, fl_status status, const char *format, ...) {
  if (c->status)
    return;
  c->status = status;
  if (!c->call->message || !c->call->message_size)
    return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(c->call->message, c->call->message_size, format, arguments);
  va_end(arguments);
}

/* A function of ACL failed. */
static void fail_with_code(ascend_call *c, const char *function, int32_t code) {
  char text[512];
  ascend_describe(text, sizeof text, function, code);
  ascend_fail(c, ascend_code_of(code).status, "%s", text);
}

ascend_view ascend_argument(const ascend_call *c, uint32_t index) {
  return ascend_view_of(c->call->values[index].v.tensor);
}

static size_t aligned(size_t size) {
  return (size_t)round_up((int64_t)size, ALIGNMENT);
}

ascend_view ascend_scratch(ascend_call *c, aclDataType type, int n_dims, const int64_t *shape) {
  ascend_view view = ascend_view_make(NULL, type, n_dims, shape);
  if (!c->sizing)
    view.data = c->scratch + c->scratch_size;
  c->scratch_size += aligned((size_t)ascend_view_count(&view) * (size_t)view.size);
  return view;
}

ascend_view ascend_scratch_like(ascend_call *c, const ascend_view *view, aclDataType type) {
  return ascend_scratch(c, type, view->n_dims, view->shape);
}

/* NULL stays NULL, as a failure. */
static void *keep(ascend_call *c, void *handle, aclnnStatus (*destroy)(const void *), const char *function) {
  if (!handle) {
    ascend_fail(c, FL_ENOMEM, "%s returned NULL: %s", function, "no memory, or a tensor that CANN does not take");
    return NULL;
  }
  if (c->n_handles == ASCEND_MAX_HANDLES) {
    destroy(handle);
    ascend_fail(c, FL_EINTERNAL, "op '%s': more than %d descriptors", c->op->name, ASCEND_MAX_HANDLES);
    return NULL;
  }
  c->handles[c->n_handles++] = (ascend_handle){handle, destroy};
  return handle;
}

static aclnnStatus destroy_tensor(const void *handle) {
  return acl.aclDestroyTensor(handle);
}

static aclnnStatus destroy_list(const void *handle) {
  return acl.aclDestroyTensorList(handle);
}

static aclnnStatus destroy_scalar(const void *handle) {
  return acl.aclDestroyScalar(handle);
}

static aclnnStatus destroy_ints(const void *handle) {
  return acl.aclDestroyIntArray(handle);
}

/* The address of a tensor has to be aligned; what lies between that and the first element is its offset. An allocation
 * begins aligned, so the address is still inside. The storage is given as one dimension that ends with the last
 * element. */
static aclTensor *create_tensor(const ascend_view *view, aclFormat format) {
  uintptr_t before = (uintptr_t)view->data % TENSOR_ALIGNMENT;
  int64_t offset = (int64_t)before / view->size, storage = offset + 1;
  for (int d = 0; d < view->n_dims; d++)
    storage = view->shape[d] ? storage + (view->shape[d] - 1) * view->strides[d] : storage;
  return acl.aclCreateTensor(view->shape, (uint64_t)view->n_dims, view->type, view->strides, offset, format, &storage,
                             1, (char *)view->data - before);
}

aclTensor *ascend_tensor_of_format(ascend_call *c, ascend_view view, aclFormat format) {
  return c->status ? NULL : keep(c, create_tensor(&view, format), destroy_tensor, "aclCreateTensor");
}

aclTensor *ascend_tensor(ascend_call *c, ascend_view view) {
  return ascend_tensor_of_format(c, view, ACL_FORMAT_ND);
}

aclTensorList *ascend_list(ascend_call *c, int n, const ascend_view *views) {
  const aclTensor *tensors[4] = {0};
  aclTensorList *list = NULL;
  int first = c->n_handles;
  for (int i = 0; i < n; i++)
    tensors[i] = ascend_tensor(c, views[i]);
  if (!c->status)
    list = acl.aclCreateTensorList(tensors, (uint64_t)n);
  if (list)
    c->n_handles = first; /* they are the list's now */
  return c->status ? NULL : keep(c, list, destroy_list, "aclCreateTensorList");
}

aclScalar *ascend_scalar(ascend_call *c, double value) {
  return c->status ? NULL : keep(c, acl.aclCreateScalar(&value, ACL_DOUBLE), destroy_scalar, "aclCreateScalar");
}

aclScalar *ascend_integer(ascend_call *c, int64_t value) {
  return c->status ? NULL : keep(c, acl.aclCreateScalar(&value, ACL_INT64), destroy_scalar, "aclCreateScalar");
}

aclIntArray *ascend_ints(ascend_call *c, const int64_t *values, uint64_t n) {
  return c->status ? NULL : keep(c, acl.aclCreateIntArray(values, n), destroy_ints, "aclCreateIntArray");
}

static ascend_step *add_step(ascend_call *c) {
  if (c->status || c->sizing)
    return NULL;
  if (c->n_steps == ASCEND_MAX_STEPS) {
    ascend_fail(c, FL_EINTERNAL, "op '%s': more than %d steps", c->op->name, ASCEND_MAX_STEPS);
    return NULL;
  }
  c->steps[c->n_steps] = (ascend_step){0};
  return &c->steps[c->n_steps];
}

void ascend_copy(ascend_call *c, ascend_view to, ascend_view from) {
  ascend_step *step = add_step(c);
  if (!step)
    return;
  step->to = to.data;
  step->from = from.data;
  step->size = (size_t)ascend_view_count(&from) * (size_t)from.size;
  c->n_steps++;
}

/* The op is not there, on this chip or with these libraries, and does not come back. The words are written once. */
static FL_PRINTF(2, 3) void withdraw(ascend_op *op, const char *format, ...) {
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_OPS]);
  if (!op->withdrawn) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(op->words, sizeof op->words, format, arguments);
    va_end(arguments);
    op->withdrawn = op->words;
  }
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_OPS]);
}

/* An operator returned an error; `written`: after something may have been written. */
static void operator_failed(ascend_call *c, const char *function, aclnnStatus code, bool written) {
  ascend_code meaning = ascend_code_of(code);
  if (meaning.scope == ASCEND_OF_OPERATOR)
    withdraw(c->op, "%s returned %d on %s: %s", function, (int)code, ascend_chip_name(), meaning.meaning);
  if (written && meaning.status == FL_ENOTSUP)
    ascend_fail(c, FL_EINTERNAL, "%s returned %d (%s) after the call had begun", function, (int)code, meaning.meaning);
  else
    fail_with_code(c, function, code);
}

ascend_step *ascend_step_begin(ascend_call *c, aclnn_operator operator_) {
  ascend_step *step = add_step(c);
  if (!step)
    return NULL;
  if (!ascend_operator(operator_)) {
    ascend_fail(c, FL_ENOTSUP, "the operator libraries lack %s", ascend_operator_name(operator_));
    return NULL;
  }
  step->operator_ = operator_;
  return step;
}

void ascend_step_end(ascend_call *c, ascend_step *step, aclnnStatus code) {
  char name[128];
  if (!code) {
    c->n_steps++;
    return;
  }
  snprintf(name, sizeof name, "%sGetWorkspaceSize", ascend_operator_name(step->operator_));
  operator_failed(c, name, code, false);
}

/* -------------------------------------------------------------------------------------------------- carrying it out */

static uint64_t largest_workspace(const ascend_call *c) {
  uint64_t largest = 0;
  for (int i = 0; i < c->n_steps; i++)
    if (c->steps[i].workspace_size > largest)
      largest = c->steps[i].workspace_size;
  return largest;
}

static void launch(ascend_call *c, void *workspace) {
  for (int i = 0; i < c->n_steps && !c->status; i++) {
    ascend_step *step = &c->steps[i];
    if (!step->operator_) {
      aclError code = acl.aclrtMemcpyAsync(step->to, step->size, step->from, step->size, ACL_MEMCPY_DEVICE_TO_DEVICE,
                                           c->call->stream);
      if (code)
        operator_failed(c, "aclrtMemcpyAsync", code, i > 0);
      continue;
    }
    aclOpExecutor *executor = step->executor;
    step->executor = NULL;
    aclnnStatus code =
        ascend_operator(step->operator_)
            ->phase_2(step->workspace_size ? workspace : NULL, step->workspace_size, executor, c->call->stream);
    if (code)
      operator_failed(c, ascend_operator_name(step->operator_), code, i > 0);
  }
}

static void clean_up(ascend_call *c) {
  for (int i = 0; i < c->n_steps; i++)
    if (c->steps[i].executor)
      acl.aclDestroyAclOpExecutor(c->steps[i].executor);
  while (c->n_handles) {
    const ascend_handle *handle = &c->handles[--c->n_handles];
    handle->destroy(handle->handle);
  }
}

/* Memory of the stream's own; the stream is ours until the call is queued. Not for a graph: it would be replayed with
 * memory that other calls use and free. */
static void *own_memory(ascend_call *c, ascend_buffer buffer, uint64_t size) {
  static const char *const names[] = {[ASCEND_SCRATCH] = "scratch memory", [ASCEND_WORKSPACE] = "workspace"};
  char text[512];
  void *memory = NULL;
  if (ascend_is_captured(c->call->stream)) {
    ascend_fail(c, FL_ENOTSUP,
                "%s of %llu bytes: the stream is being captured in a graph, which the stream's own memory is not for; "
                "give the call the workspace that fl_workspace_size asks for",
                names[buffer], (unsigned long long)size);
    return NULL;
  }
  if (!c->own)
    c->own = ascend_workspace_acquire(c->device, c->call->stream);
  if (!c->own) {
    ascend_fail(c, FL_ENOMEM, "out of host memory");
    return NULL;
  }
  fl_status status = ascend_workspace_get(c->own, buffer, size, &memory, text, sizeof text);
  if (status)
    ascend_fail(c, status, "%s of %llu bytes: %s", names[buffer], (unsigned long long)size, text);
  return memory;
}

/* The memory that came with the call is used for scratch, and for workspace if that fits behind it. */
static void run_on_device(ascend_call *c) {
  char *given = c->call->workspace;
  size_t left = given ? c->call->workspace_size : 0;
  void *workspace = NULL;
  c->sizing = true;
  c->op->run(c);
  size_t scratch = c->scratch_size;
  c->sizing = false;
  c->scratch_size = 0;
  if (scratch && scratch <= left) {
    c->scratch = given;
    given += scratch;
    left -= scratch;
  } else if (scratch) {
    c->scratch = own_memory(c, ASCEND_SCRATCH, scratch);
  }
  if (!c->status)
    c->op->run(c);
  uint64_t size = largest_workspace(c);
  if (size && !c->status)
    workspace = size <= left ? given : own_memory(c, ASCEND_WORKSPACE, size);
  if (!c->status)
    launch(c, workspace);
  clean_up(c);
  ascend_workspace_release(c->own);
}

static const DLTensor *first_tensor(const fl_call *call) {
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR)
      return call->values[i].v.tensor;
  return NULL;
}

static bool is_empty(const DLTensor *tensor) {
  for (int d = 0; d < tensor->ndim; d++)
    if (!tensor->shape[d])
      return true;
  return false;
}

/* Results are the last tensors. Nothing to compute: CANN refuses some empty tensors, and none of our results needs a
 * kernel to be empty. */
static bool has_empty_results(const ascend_op *op, const fl_call *call) {
  int left = op->n_results > 1 ? op->n_results : 1;
  for (uint32_t i = call->count; i && left; i--)
    if (call->values[i - 1].type == FL_TENSOR) {
      if (!is_empty(call->values[i - 1].v.tensor))
        return false;
      left--;
    }
  return !left;
}

/* A host of before 0.2 knows no workspace. */
static fl_call whole_call(const fl_call *call) {
  fl_call whole = {0};
  memcpy(&whole, call, call->size < sizeof whole ? call->size : sizeof whole);
  return whole;
}

fl_status ascend_run(void *self, fl_call *call) {
  char text[512];
  ascend_guard guard;
  const DLTensor *first = first_tensor(call);
  fl_call whole = whole_call(call);
  ascend_call c = {.op = self, .call = &whole, .device = first->device.device_id};
  if (has_empty_results(self, call))
    return FL_OK;
  c.status = ascend_enter(c.device, &guard, text, sizeof text);
  if (c.status)
    return fl_fail(call, c.status, "%s", text);
  run_on_device(&c);
  ascend_leave(&guard);
  return c.status;
}

/* Phase 1 reads no data, so any address will do for tensors that have none yet. */
size_t ascend_workspace_size(void *self, const fl_call *call) {
  char text[512];
  ascend_guard guard;
  const DLTensor *first = first_tensor(call);
  fl_call whole = whole_call(call);
  ascend_call c = {.op = self, .call = &whole, .sizing = true};
  whole.message = NULL;
  if (has_empty_results(self, call) || ascend_enter(first->device.device_id, &guard, text, sizeof text))
    return 0;
  c.op->run(&c);
  size_t scratch = c.scratch_size;
  c.sizing = false;
  c.scratch_size = 0;
  c.scratch = (char *)(uintptr_t)ALIGNMENT;
  c.op->run(&c);
  size_t size = c.status ? 0 : scratch + aligned(largest_workspace(&c));
  clean_up(&c);
  ascend_leave(&guard);
  return size;
}

/* --------------------------------------------------------------------------------------------------- availability */

bool ascend_is_available(void *self, const char **reason) {
  ascend_op *op = self;
  if (!ascend_libraries_open(reason))
    return false;
  for (const aclnn_operator *needed = op->needs; *needed; needed++)
    if (!ascend_operator(*needed))
      withdraw(op, "the operator libraries lack %s", ascend_operator_name(*needed));
  *reason = op->withdrawn;
  return !op->withdrawn;
}

static bool is_bfloat16(const fl_call *call) {
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR && call->values[i].v.tensor->dtype.code == kDLBfloat)
      return true;
  return false;
}

static bool has_empty_tensor(const fl_call *call) {
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR && is_empty(call->values[i].v.tensor))
      return true;
  return false;
}

/* An element that does not lie at a multiple of its size cannot be told by an offset. */
static bool is_misaligned(const fl_call *call) {
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR) {
      const DLTensor *tensor = call->values[i].v.tensor;
      if ((uintptr_t)fl_data(tensor) % ((tensor->dtype.bits + 7u) / 8))
        return true;
    }
  return false;
}

bool ascend_supports_args(void *self, const fl_call *call, const char **reason) {
  ascend_op *op = self;
  const char *ignored;
  char text[512];
  if (!reason)
    reason = &ignored;
  if (op->withdrawn)
    return ascend_refuse(reason, op->withdrawn);
  /* What does not start has no chip to judge by: the call says what is wrong. */
  if (has_empty_results(op, call) || ascend_start(text, sizeof text))
    return true;
  ascend_chips chip = ascend_chip(reason);
  if (!chip)
    return false;
  if (!(op->chips & (uint32_t)chip))
    return ascend_refuse(reason, chip == ASCEND_310P  ? "CANN does not have the operator on 310P"
                                 : chip == ASCEND_950 ? "CANN does not have the operator on 950"
                                                      : "CANN has the operator on 950 only");
  if (chip == ASCEND_310P && is_bfloat16(call))
    return ascend_refuse(reason, "310P has no bfloat16");
  if (has_empty_tensor(call))
    return ascend_refuse(reason, "an argument is an empty tensor");
  if (is_misaligned(call))
    return ascend_refuse(reason, "a tensor is not aligned to its element type");
  return !op->supports || op->supports(call, chip, reason);
}
