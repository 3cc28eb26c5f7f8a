/*
 * The stand-in's descriptors and executors, and what operators share. What was destroyed or consumed stays in a list,
 * so that a second time is found out. The prototypes are those of nnopbase/aclnn/acl_meta.h.
 */
#include "plugins/op_lists.h"
#include "tests/drivers/ascend/stand_in.h"

#include <flhost/dtype.h>
#include <stdlib.h>
#include <string.h>

enum { ALIVE = 0xac1a11fe, QUEUED = 0xac1a0e0e, DEAD = 0xdeadac1, ALIGNMENT = 32 };

EXPORT aclTensor *aclCreateTensor(const int64_t *shape, uint64_t n, int type, const int64_t *strides, int64_t offset,
                                  int format, const int64_t *storage, uint64_t n_storage, void *data);
EXPORT aclScalar *aclCreateScalar(void *value, int type);
EXPORT aclIntArray *aclCreateIntArray(const int64_t *values, uint64_t n);
EXPORT aclTensorList *aclCreateTensorList(const aclTensor *const *tensors, uint64_t n);
EXPORT int aclDestroyTensor(const aclTensor *tensor);
EXPORT int aclDestroyScalar(const aclScalar *scalar);
EXPORT int aclDestroyIntArray(const aclIntArray *array);
EXPORT int aclDestroyTensorList(const aclTensorList *list);
EXPORT int aclDestroyAclOpExecutor(aclOpExecutor *executor);

/* Everything that was ever made. */
static aclTensor *tensors;
static aclTensorList *lists;
static aclScalar *scalars;
static aclIntArray *arrays;
static aclOpExecutor *executors;

#define MAKE(type, list, counter)                                                                                      \
  type *made = stand_in_ordered(__func__) ? NULL : calloc(1, sizeof *made);                                            \
  if (!made)                                                                                                           \
    return NULL;                                                                                                       \
  made->magic = ALIVE;                                                                                                 \
  stand_in_lock();                                                                                                     \
  made->next = list;                                                                                                   \
  list = made;                                                                                                         \
  stand_in_unlock();                                                                                                   \
  stand_in_add(counter, 1)

#define DESTROY(type, handle, counter)                                                                                 \
  type *dead = (type *)(handle);                                                                                       \
  if (!dead || dead->magic != ALIVE) {                                                                                 \
    stand_in_violation("%s of none, or twice", __func__);                                                              \
    return REFUSED_NULL;                                                                                               \
  }                                                                                                                    \
  dead->magic = DEAD;                                                                                                  \
  stand_in_add(counter, -1);                                                                                           \
  return 0

/* ------------------------------------------------------------------------------------------------------ descriptors */

int element_size(int type) {
  return type == F64 || type == I64                               ? 8
         : type == F32 || type == I32                             ? 4
         : type == F16 || type == BF16                            ? 2
         : type == I8 || type == U8 || type == BOOL || type == F8 ? 1
                                                                  : 0;
}

int64_t elements(const aclTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->n; d++)
    n *= tensor->shape[d];
  return n;
}

/* How far behind the first element the last one lies. */
static int64_t reach(const aclTensor *tensor) {
  int64_t last = 0;
  for (int d = 0; d < tensor->n; d++)
    last += (tensor->shape[d] - 1) * tensor->strides[d];
  return elements(tensor) ? last : -1;
}

aclTensor *aclCreateTensor(const int64_t *shape, uint64_t n, int type, const int64_t *strides, int64_t offset,
                           int format, const int64_t *storage, uint64_t n_storage, void *data) {
  if (n > MAX_DIMS || !element_size(type) || (uintptr_t)data % ALIGNMENT) {
    stand_in_violation("aclCreateTensor of %llu dimensions, type %d, at %p", (unsigned long long)n, type, data);
    return NULL;
  }
  MAKE(aclTensor, tensors, "tensors");
  int64_t stride = 1;
  *made = (aclTensor){.magic = ALIVE,
                      .n = (int)n,
                      .offset = offset,
                      .storage = 1,
                      .type = type,
                      .format = format,
                      .data = data,
                      .next = made->next};
  for (int d = (int)n - 1; d >= 0; d--) {
    made->shape[d] = shape[d];
    made->strides[d] = strides ? strides[d] : stride;
    stride *= shape[d];
  }
  for (uint64_t d = 0; d < n_storage; d++)
    made->storage *= storage[d];
  if (offset + reach(made) >= made->storage)
    stand_in_violation("a tensor that is larger than its storage");
  return made;
}

aclScalar *aclCreateScalar(void *value, int type) {
  MAKE(aclScalar, scalars, "scalars");
  made->value = type == F64 ? *(double *)value : type == I64 ? (double)*(int64_t *)value : (double)*(_Bool *)value;
  return made;
}

aclIntArray *aclCreateIntArray(const int64_t *values, uint64_t n) {
  MAKE(aclIntArray, arrays, "arrays");
  made->n = n;
  for (uint64_t i = 0; i < n && i < MAX_INTS; i++)
    made->values[i] = values[i];
  return made;
}

aclTensorList *aclCreateTensorList(const aclTensor *const *of, uint64_t n) {
  MAKE(aclTensorList, lists, "lists");
  made->n = n;
  for (uint64_t i = 0; i < n && i < 4; i++)
    made->tensors[i] = (aclTensor *)of[i];
  return made;
}

int aclDestroyTensor(const aclTensor *tensor) {
  DESTROY(aclTensor, tensor, "tensors");
}

int aclDestroyScalar(const aclScalar *scalar) {
  DESTROY(aclScalar, scalar, "scalars");
}

int aclDestroyIntArray(const aclIntArray *array) {
  DESTROY(aclIntArray, array, "arrays");
}

/* Its tensors go with it. */
int aclDestroyTensorList(const aclTensorList *list) {
  for (uint64_t i = 0; list && list->magic == ALIVE && i < list->n; i++)
    aclDestroyTensor(list->tensors[i]);
  DESTROY(aclTensorList, list, "lists");
}

/* -------------------------------------------------------------------------------------------------------- executors */

static aclOpExecutor *make_executor(void) {
  MAKE(aclOpExecutor, executors, "executors");
  return made;
}

int aclDestroyAclOpExecutor(aclOpExecutor *executor) {
  DESTROY(aclOpExecutor, executor, "executors");
}

aclOpExecutor *begin(const char *name, compute_fn compute, int chips, int *status) {
  char function[96];
  strcat(strncpy(function, name, 64), "GetWorkspaceSize");
  *status = stand_in_ordered(function);
  if (!*status && !stand_in_has_context())
    *status = RUNTIME_ERROR;
  if (!*status && !(chips & stand_in_chip()))
    *status = NO_KERNEL;
  aclOpExecutor *e = *status ? NULL : make_executor();
  if (!e)
    return NULL;
  e->name = name;
  e->compute = compute;
  return e;
}

void take(aclOpExecutor *e, const aclTensor *tensor) {
  if (e->n == MAX_TENSORS)
    abort();
  if (tensor && tensor->magic != ALIVE)
    stand_in_violation("%s with a tensor that was destroyed", e->name);
  e->tensors[e->n++] = tensor ? *tensor : (aclTensor){0};
}

void take_ints(aclOpExecutor *e, int at, const aclIntArray *array) {
  if (array && array->magic != ALIVE)
    stand_in_violation("%s with an array that was destroyed", e->name);
  e->n_ints[at] = array ? (uint32_t)array->n : 0;
  for (uint32_t i = 0; i < e->n_ints[at] && i < MAX_INTS; i++)
    e->ints[at][i] = array->values[i];
}

int refuse(aclOpExecutor *e, int status, const char *rule) {
  stand_in_note("%s refuses: not %s", e->name, rule);
  aclDestroyAclOpExecutor(e);
  return status;
}

int finish(aclOpExecutor *e, uint64_t *workspace_size, aclOpExecutor **executor) {
  if (!workspace_size || !executor)
    return refuse(e, REFUSED_NULL, "a place for workspace size and executor");
  e->workspace_size = *workspace_size = (uint64_t)stand_in_setting("workspace");
  *executor = e;
  return 0;
}

/* Consumes the executor, whatever happens. */
int run(const char *name, void *workspace, uint64_t size, aclOpExecutor *executor, void *stream) {
  int code = stand_in_ordered(name);
  if (!executor || executor->magic != ALIVE) {
    stand_in_violation("executor of %s used twice, or none", name);
    return REFUSED_NULL;
  }
  executor->magic = QUEUED;
  stand_in_add("executors", -1);
  if (strcmp(executor->name, name))
    stand_in_violation("executor of %s used for %s", executor->name, name);
  if (size != executor->workspace_size || (size && !workspace))
    stand_in_violation("workspace of %s is %llu bytes, not %llu", name, (unsigned long long)size,
                       (unsigned long long)executor->workspace_size);
  return code ? code : stand_in_queue(executor, workspace, size, stream);
}

/* -------------------------------------------------------------------------------------------------------- questions */

int present(const aclOpExecutor *e, int index) {
  return e->tensors[index].magic == ALIVE;
}

int is_float(const aclOpExecutor *e, int index) {
  int type = e->tensors[index].type;
  return type == F32 || type == F16 || (type == BF16 && stand_in_chip() != P310);
}

int is_compact(const aclOpExecutor *e, int index) {
  const aclTensor *tensor = &e->tensors[index];
  int64_t stride = 1;
  for (int d = tensor->n - 1; d >= 0; d--) {
    if (tensor->strides[d] != stride && elements(tensor))
      return 0;
    stride *= tensor->shape[d];
  }
  return 1;
}

int same_shape(const aclOpExecutor *e, int a, int b) {
  return e->tensors[a].n == e->tensors[b].n &&
         !memcmp(e->tensors[a].shape, e->tensors[b].shape, (size_t)e->tensors[a].n * sizeof(int64_t));
}

int same_type(const aclOpExecutor *e, int a, int b) {
  return e->tensors[a].type == e->tensors[b].type;
}

/* --------------------------------------------------------------------------------------------------------- elements */

static void *address(const aclTensor *tensor, int64_t index) {
  int64_t at = tensor->offset;
  for (int d = tensor->n - 1; d >= 0; d--) {
    at += index % tensor->shape[d] * tensor->strides[d];
    index /= tensor->shape[d];
  }
  return tensor->data + at * element_size(tensor->type);
}

double get(const aclTensor *tensor, int64_t index) {
  const void *at = address(tensor, index);
  switch (tensor->type) {
  case F32:
    return (double)*(const float *)at;
  case F16:
    return (double)fl_f16_to_float(*(const uint16_t *)at);
  case BF16:
    return (double)fl_bf16_to_float(*(const uint16_t *)at);
  case F8:
    return (double)fl_e4m3fn_to_float(*(const uint8_t *)at);
  case I8:
    return *(const int8_t *)at;
  case U8:
  case BOOL:
    return *(const uint8_t *)at;
  case I32:
    return *(const int32_t *)at;
  case I64:
    return (double)*(const int64_t *)at;
  default:
    abort();
  }
}

void put(const aclTensor *tensor, int64_t index, double value) {
  void *at = address(tensor, index);
  switch (tensor->type) {
  case F32:
    *(float *)at = (float)value;
    break;
  case F16:
    *(uint16_t *)at = fl_float_to_f16((float)value);
    break;
  case BF16:
    *(uint16_t *)at = fl_float_to_bf16((float)value);
    break;
  case F8:
    *(uint8_t *)at = fl_float_to_e4m3fn((float)value);
    break;
  case I8:
    *(int8_t *)at = (int8_t)value;
    break;
  case U8:
  case BOOL:
    *(uint8_t *)at = (uint8_t)value;
    break;
  case I32:
    *(int32_t *)at = (int32_t)value;
    break;
  case I64:
    *(int64_t *)at = (int64_t)value;
    break;
  default:
    abort();
  }
}

DLTensor *as_cpu(cpu_tensor_view *view, const aclTensor *tensor) {
  static const struct {
    int type;
    DLDataType dtype;
  } types[] = {{F32, {kDLFloat, 32, 1}},
               {F16, {kDLFloat, 16, 1}},
               {BF16, {kDLBfloat, 16, 1}},
               {I32, {kDLInt, 32, 1}},
               {I64, {kDLInt, 64, 1}}};
  int i = 0;
  while (types[i].type != tensor->type)
    i++;
  memcpy(view->shape, tensor->shape, sizeof view->shape);
  memcpy(view->strides, tensor->strides, sizeof view->strides);
  view->tensor = (DLTensor){.data = tensor->data + tensor->offset * element_size(tensor->type),
                            .device = {kDLCPU, 0},
                            .ndim = tensor->n,
                            .dtype = types[i].dtype,
                            .shape = view->shape,
                            .strides = view->strides};
  return &view->tensor;
}

/* All of them have to be on the device, from the first to the last element. */
static int are_on_device(const aclOpExecutor *e) {
  for (int i = 0; i < e->n; i++) {
    const aclTensor *tensor = &e->tensors[i];
    size_t size = (size_t)element_size(tensor->type), n = (size_t)(reach(tensor) + 1);
    if (tensor->magic && n && !stand_in_is_device_memory(tensor->data + tensor->offset * (int64_t)size, n * size)) {
      stand_in_violation("argument %d of %s is not in device memory", i, e->name);
      return 0;
    }
  }
  return 1;
}

/* The kernels' files are linked with this one, and say themselves what they have. */
static const fl_impl *find_reference(const char *op) {
  FOR_EACH_OP_LIST(list) {
    const fl_impl *rows = (*list)->rows;
    for (size_t i = 0; i < (*list)->n; i++)
      if (!strcmp(rows[i].op_name, op) && rows[i].kind == FL_KIND_REFERENCE)
        return &rows[i];
  }
  return NULL;
}

int reference(aclOpExecutor *e, const char *op, fl_value *values, uint32_t n) {
  enum { AI_CORE_EXCEPTION = 507015 };
  char message[256] = "";
  fl_call call = {
      .size = sizeof call, .count = n, .values = values, .message = message, .message_size = sizeof message};
  const fl_impl *impl = find_reference(op);
  if (!are_on_device(e))
    return AI_CORE_EXCEPTION;
  fl_status status = impl ? impl->fn(impl->self, &call) : FL_ENOENT;
  if (status)
    stand_in_violation("%s: the reference kernel returned %d: %s", e->name, (int)status, message);
  return status ? AI_CORE_EXCEPTION : 0;
}
