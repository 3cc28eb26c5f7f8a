/*
 * Checks of a call before anything runs: values, tensors, rules, memory. They read no tensor data, allocate nothing
 * while all is well, and say in every error which argument or result is wrong, how, and what is expected.
 */
#include "core/schema/check.h"

#include "core/schema/match.h"
#include "core/support.h"

#include <string.h>

/* Memory of a tensor. */
typedef struct span {
  const void *buffer; /* where `data` is a handle, not an address: the handle, else NULL */
  uint64_t begin;     /* address, or offset into the handle's buffer */
  uint64_t bytes;     /* from the first to behind the last element; 0: no elements */
} span;

/* A call while it is checked. */
typedef struct inspection {
  const fl_schema *schema;
  const fl_value *values;
  bool without_data;     /* tensors need no memory: only shapes are asked for */
  const DLTensor *first; /* the tensor that says the device; NULL: none yet */
  uint32_t first_index;
  fl_bindings bindings;
  span spans[FL_SCHEMA_MAX_VALUES]; /* of the tensors that are given */
} inspection;

static const char *const type_names[] = {"none", "Tensor", "int", "float", "bool", "str", "int[]"};
enum { N_TYPES = sizeof type_names / sizeof type_names[0] };

/* "rms_norm: argument 'x': `format`". FL_EINVAL. */
static FL_PRINTF(3, 4) fl_status fail(const fl_schema *schema, uint32_t index, const char *format, ...) {
  char reason[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return fl_error(FL_EINVAL, "%s: %s '%s': %s", schema->op_name, index < schema->n_arguments ? "argument" : "result",
                  schema->values[index].name, reason);
}

/* ---------------------------------------------------------------------------------------------------------- values */

static fl_status type_error(const fl_schema *schema, uint32_t index, uint32_t given) {
  const fl_argument *value = &schema->values[index];
  const char *or_none = value->optional ? " or none" : "";
  if (given >= N_TYPES)
    return fail(schema, index, "a value of unknown type %u, expected %s%s", (unsigned)given, type_names[value->type],
                or_none);
  return fail(schema, index, "%s, expected %s%s", type_names[given], type_names[value->type], or_none);
}

static fl_status check_pointer(const fl_schema *schema, uint32_t index, const fl_value *value) {
  bool is_null = (value->type == FL_TENSOR && !value->v.tensor) || (value->type == FL_STRING && !value->v.s) ||
                 (value->type == FL_INT_LIST && value->length && !value->v.ints);
  return is_null ? fail(schema, index, "a null pointer, expected %s", type_names[value->type]) : FL_OK;
}

/* C says nothing about a bool whose byte is something else. */
static fl_status check_bool(const fl_schema *schema, uint32_t index, const fl_value *value) {
  unsigned char byte;
  memcpy(&byte, &value->v.b, sizeof byte);
  return byte > 1 ? fail(schema, index, "a bool whose byte is %u, expected 0 or 1", (unsigned)byte) : FL_OK;
}

/* --------------------------------------------------------------------------------------------------------- tensors */

/* In these, DLTensor.data is an object of the driver's and not an address. */
static bool has_handles(DLDeviceType type) {
  return type == kDLOpenCL || type == kDLVulkan || type == kDLMetal;
}

/* "cuda:0" */
static const char *name_device(DLDevice device, char *buffer, size_t size) {
  const char *name = fl_device_type_name((int32_t)device.device_type);
  if (name)
    snprintf(buffer, size, "%s:%d", name, device.device_id);
  else
    snprintf(buffer, size, "device type %d:%d", (int)device.device_type, device.device_id);
  return buffer;
}

static fl_status check_device(inspection *call, uint32_t index, const DLTensor *tensor) {
  int type = (int)tensor->device.device_type;
  char given[32], expected[32];
  if (!call->first && (type < kDLCPU || type >= FL_DEVICE_SLOTS))
    return fail(call->schema, index, "device type %d is not known, expected a DLDeviceType, %d (cpu) to %d", type,
                kDLCPU, FL_DEVICE_SLOTS - 1);
  if (!call->first && type == kDLCPU && tensor->device.device_id)
    return fail(call->schema, index, "on %s, expected cpu:0: there is one processor",
                name_device(tensor->device, given, sizeof given));
  if (!call->first) {
    call->first = tensor;
    call->first_index = index;
    return FL_OK;
  }
  if (tensor->device.device_type == call->first->device.device_type &&
      tensor->device.device_id == call->first->device.device_id)
    return FL_OK;
  return fail(
      call->schema, index, "on %s, expected %s (that of '%s')", name_device(tensor->device, given, sizeof given),
      name_device(call->first->device, expected, sizeof expected), call->schema->values[call->first_index].name);
}

static bool has_elements(const DLTensor *tensor) {
  for (int i = 0; i < tensor->ndim; i++)
    if (!tensor->shape[i])
      return false;
  return true;
}

static fl_status check_sizes(const fl_schema *schema, uint32_t index, const DLTensor *tensor) {
  if (tensor->ndim < 0 || tensor->ndim > FL_MAX_DIMS)
    return fail(schema, index, "%d dimensions, expected 0 to %d", tensor->ndim, FL_MAX_DIMS);
  if (tensor->ndim && !tensor->shape)
    return fail(schema, index, "no shape, expected %d sizes", tensor->ndim);
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->shape[i] < 0)
      return fail(schema, index, "size %lld of dimension %d, expected 0 or more", (long long)tensor->shape[i], i);
  return FL_OK;
}

/* Number of elements from the first to behind the last of a tensor that has some; false: more than 64 bits can say. */
static bool element_span(const DLTensor *tensor, uint64_t *elements) {
  uint64_t last = 0, step, product = 1;
  bool good = true;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    uint64_t size = (uint64_t)tensor->shape[i], stride = tensor->strides ? (uint64_t)tensor->strides[i] : product;
    if (size > 1)
      good = good && !__builtin_mul_overflow(stride, size - 1, &step) && !__builtin_add_overflow(last, step, &last);
    if (!tensor->strides)
      good = good && !__builtin_mul_overflow(product, size, &product);
  }
  *elements = last + 1;
  return good && last < INT64_MAX;
}

/* Can 64 bits say what kernels compute of any tensor: how many bytes lie between two of each dimension, and, of one
 * without elements, how many it would have without its empty dimensions? */
static bool is_countable(const DLTensor *tensor) {
  int64_t elements = 1, bytes, item = (int64_t)fl_tensor_item_size(tensor);
  bool empty = !has_elements(tensor), good = true;
  for (int i = 0; i < tensor->ndim && good; i++)
    good = !(empty && __builtin_mul_overflow(elements, tensor->shape[i] ? tensor->shape[i] : 1, &elements)) &&
           !(tensor->strides && __builtin_mul_overflow(tensor->strides[i], item, &bytes));
  return good;
}

static fl_status check_strides(const fl_schema *schema, uint32_t index, const DLTensor *tensor) {
  int last = tensor->ndim - 1;
  if (!tensor->strides || last < 0)
    return FL_OK;
  if (tensor->shape[last] > 1 && tensor->strides[last] != 1)
    return fail(schema, index, "stride %lld of the last dimension, expected 1", (long long)tensor->strides[last]);
  for (int i = 0; i < last; i++)
    if (tensor->strides[i] < 0 && tensor->shape[i] > 1)
      return fail(schema, index, "stride %lld of dimension %d, expected 0 or more", (long long)tensor->strides[i], i);
  return FL_OK;
}

static fl_status check_memory(const inspection *call, uint32_t index, const DLTensor *tensor, span *memory) {
  const fl_schema *schema = call->schema;
  uint64_t elements, end;
  bool handle = has_handles(tensor->device.device_type);
  memory->bytes = 0;
  if (!is_countable(tensor))
    return fail(schema, index, "its shape and strides reach beyond the address space");
  if (!has_elements(tensor))
    return FL_OK;
  fl_status status = check_strides(schema, index, tensor);
  if (status)
    return status;
  if (call->without_data)
    return FL_OK;
  if (!tensor->data)
    return fail(schema, index, "null data, expected memory for its elements");
  memory->buffer = handle ? tensor->data : NULL;
  if (!element_span(tensor, &elements) ||
      __builtin_mul_overflow(elements, fl_tensor_item_size(tensor), &memory->bytes) ||
      __builtin_add_overflow(handle ? 0 : (uint64_t)(uintptr_t)tensor->data, tensor->byte_offset, &memory->begin) ||
      __builtin_add_overflow(memory->begin, memory->bytes, &end))
    return fail(schema, index, "its shape and strides reach beyond the address space");
  return FL_OK;
}

static fl_status check_tensor(inspection *call, uint32_t index, const DLTensor *tensor) {
  fl_status status = check_sizes(call->schema, index, tensor);
  if (!status)
    status = check_memory(call, index, tensor, &call->spans[index]);
  return status ? status : check_device(call, index, tensor);
}

/* Values [begin, end). A result that is not a tensor is written by the call: it may be none. */
static fl_status check_values(inspection *call, uint32_t begin, uint32_t end) {
  const fl_schema *schema = call->schema;
  for (uint32_t i = begin; i < end; i++) {
    const fl_argument *expected = &schema->values[i];
    const fl_value *value = &call->values[i];
    bool may_be_none = expected->optional || (i >= schema->n_arguments && expected->type != FL_TENSOR);
    if (value->type == FL_NONE && may_be_none)
      continue;
    if (value->type != (uint32_t)expected->type)
      return type_error(schema, i, value->type);
    fl_status status = i < schema->n_arguments || value->type == FL_TENSOR ? check_pointer(schema, i, value) : FL_OK;
    if (!status && value->type == FL_BOOL && i < schema->n_arguments)
      status = check_bool(schema, i, value);
    if (!status && value->type == FL_TENSOR)
      status = check_tensor(call, i, value->v.tensor);
    if (status)
      return status;
  }
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------------- overlap */

static int64_t byte_stride(const DLTensor *tensor, int dim) {
  return fl_stride(tensor, dim) * (int64_t)fl_tensor_item_size(tensor);
}

/* Bytes from the first to behind the last element of what repeats every `pitch` bytes; 0 if it is not so. */
static uint64_t row_bytes(const DLTensor *tensor, int64_t pitch) {
  uint64_t bytes = fl_tensor_item_size(tensor);
  for (int i = 0; i < tensor->ndim; i++) {
    int64_t stride = byte_stride(tensor, i);
    if (tensor->shape[i] < 2 || stride % pitch == 0)
      continue;
    if (stride > pitch)
      return 0;
    bytes += (uint64_t)(tensor->shape[i] - 1) * (uint64_t)stride;
  }
  return bytes;
}

/* Both tensors repeat every `pitch` bytes, and within that stretch one lies beside the other. */
static bool apart_by_pitch(const DLTensor *a, const DLTensor *b, const span *at_a, const span *at_b, int64_t pitch) {
  uint64_t step = (uint64_t)pitch, row_a = row_bytes(a, pitch), row_b = row_bytes(b, pitch);
  if (!row_a || !row_b || row_a > step || row_b > step)
    return false;
  uint64_t offset = at_b->begin >= at_a->begin ? (at_b->begin - at_a->begin) % step
                                               : (step - (at_a->begin - at_b->begin) % step) % step;
  return offset >= row_a && offset + row_b <= step;
}

/* Have two tensors no byte in common? True only if that is certain: two parts of a matrix's columns, heads of one
 * projection and the like are; layouts that interleave in other ways count as overlapping. */
static bool apart(const DLTensor *a, const DLTensor *b, const span *at_a, const span *at_b) {
  const DLTensor *both[] = {a, b};
  if (!at_a->bytes || !at_b->bytes || at_a->buffer != at_b->buffer || at_a->begin + at_a->bytes <= at_b->begin ||
      at_b->begin + at_b->bytes <= at_a->begin)
    return true;
  for (int t = 0; t < 2; t++)
    for (int i = 0; i < both[t]->ndim; i++) {
      int64_t pitch = both[t]->shape[i] > 1 ? byte_stride(both[t], i) : 0;
      if (pitch > 0 && apart_by_pitch(a, b, at_a, at_b, pitch))
        return true;
    }
  return false;
}

/* Is it exactly the same tensor? */
static bool identical(const DLTensor *a, const DLTensor *b, const span *at_a, const span *at_b) {
  if (at_a->begin != at_b->begin || at_a->buffer != at_b->buffer || a->ndim != b->ndim ||
      memcmp(&a->dtype, &b->dtype, sizeof a->dtype))
    return false;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && fl_stride(a, i) != fl_stride(b, i)))
      return false;
  return true;
}

/* Can two elements of a tensor be one? Sorted by stride, each dimension must step over all that lies within it. */
static bool folds(const DLTensor *tensor) {
  int order[FL_MAX_DIMS], n = 0;
  if (!tensor->strides)
    return false;
  for (int i = 0; i < tensor->ndim; i++) {
    int to = n;
    if (tensor->shape[i] < 2)
      continue;
    for (; to > 0 && tensor->strides[order[to - 1]] > tensor->strides[i]; to--)
      order[to] = order[to - 1];
    order[to] = i;
    n++;
  }
  int64_t extent = 1;
  for (int i = 0; i < n; i++) {
    int64_t stride = tensor->strides[order[i]];
    if (stride < extent)
      return true;
    extent += stride * (tensor->shape[order[i]] - 1);
  }
  return false;
}

/* A tensor that the call writes, against one other. */
static fl_status check_pair(const inspection *call, uint32_t written, uint32_t other) {
  const fl_schema *schema = call->schema;
  const DLTensor *a = call->values[written].v.tensor, *b = call->values[other].v.tensor;
  const span *at_a = &call->spans[written], *at_b = &call->spans[other];
  bool may_be = schema->values[written].alias == (int32_t)other;
  if (apart(a, b, at_a, at_b) || (may_be && identical(a, b, at_a, at_b)))
    return FL_OK;
  const char *what = other < schema->n_arguments ? "argument" : "result", *name = schema->values[other].name;
  if (may_be)
    return fail(schema, written, "overlaps argument '%s', expected exactly that tensor or other memory", name);
  return fail(schema, written, "overlaps %s '%s', expected other memory", what, name);
}

/* Does the call write this value? */
static bool is_written(const fl_schema *schema, uint32_t index) {
  return index >= schema->n_arguments || fl_schema_is_state(schema, index);
}

static fl_status check_overlap(const inspection *call) {
  const fl_schema *schema = call->schema;
  uint32_t n = schema->n_arguments + schema->n_results;
  for (uint32_t i = 0; i < n; i++) {
    if (call->values[i].type != FL_TENSOR || !call->spans[i].bytes || !is_written(schema, i))
      continue;
    if (folds(call->values[i].v.tensor))
      return fail(schema, i, "its strides let elements overlap each other");
    for (uint32_t j = 0; j < n; j++) {
      bool seen = j < i && is_written(schema, j);
      if (j == i || seen || call->values[j].type != FL_TENSOR)
        continue;
      fl_status status = check_pair(call, i, j);
      if (status)
        return status;
    }
  }
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------- entry's hooks */

enum { MESSAGE_ROOM = 512 }; /* that they know of; behind it the message ends, whatever they write */

/* Has the entry fill specs of its own header's size. */
static __attribute__((noinline)) fl_status infer_in_its_size(const fl_schema *schema, fl_call *call,
                                                             fl_tensor_spec *specs) {
  _Alignas(fl_tensor_spec) char theirs[FL_SCHEMA_MAX_RESULTS * FL_SPEC_SIZE_MAX];
  fl_elements_give(theirs, schema->spec_size, specs, sizeof *specs, schema->n_results);
  fl_status status = schema->infer(call, (fl_tensor_spec *)theirs);
  fl_elements_take(specs, sizeof *specs, theirs, schema->spec_size, schema->n_results);
  return status;
}

/*
 * Calls a function of the entry: `check`, or `infer` where there are specs. It gets the caller's call with a place for
 * its message, and with nothing that an older caller's struct does not have. As with an implementation, a number that
 * is no status is an internal error.
 */
static fl_status run_hook(const fl_schema *schema, const fl_call *call, fl_tensor_spec *specs) {
  char message[MESSAGE_ROOM + 1];
  fl_call prepared;
  fl_sized_take(&prepared, sizeof prepared, call);
  message[0] = message[MESSAGE_ROOM] = 0;
  prepared.message = message;
  prepared.message_size = MESSAGE_ROOM;
  fl_status status = !specs                               ? schema->check(&prepared)
                     : schema->spec_size == sizeof *specs ? schema->infer(&prepared, specs)
                                                          : infer_in_its_size(schema, &prepared, specs);
  if (!status)
    return FL_OK;
  bool good = status > FL_OK && status <= FL_EINTERNAL;
  if (!good && !*message)
    return fl_error(FL_EINTERNAL, "%s: the op's own check returned %d, which is no status", schema->op_name,
                    (int)status);
  return fl_error(good ? status : FL_EINTERNAL, "%s: %s", schema->op_name,
                  *message ? message : "the op's own check refuses the arguments");
}

/* ---------------------------------------------------------------------------------------------------------- results */

/* That of the arguments, which were checked before: they all have the same. */
static DLDevice result_device(const inspection *call) {
  const DLDevice device = {kDLCPU, 0};
  return call->first ? call->first->device : device;
}

/* What the entry's `infer` made is its plugin's word: callers allocate by it, and loop over its dimensions. */
static fl_status check_spec(const inspection *call, uint32_t result, const fl_tensor_spec *spec) {
  const fl_schema *schema = call->schema;
  const fl_argument *value = &schema->values[schema->n_arguments + result];
  const DLDevice device = result_device(call);
  char problem[128] = "", given[32], expected[32];
  if (value->type != FL_TENSOR || !spec->present)
    return FL_OK;
  if (spec->ndim < 0 || spec->ndim > FL_MAX_DIMS)
    snprintf(problem, sizeof problem, "%d dimensions, expected 0 to %d", spec->ndim, FL_MAX_DIMS);
  for (int i = 0; i < spec->ndim && !*problem; i++)
    if (spec->shape[i] < 0)
      snprintf(problem, sizeof problem, "size %lld of dimension %d, expected 0 or more", (long long)spec->shape[i], i);
  if (!*problem && (!spec->dtype.bits || !spec->dtype.lanes))
    snprintf(problem, sizeof problem, "a dtype of %d bits and %d lanes", spec->dtype.bits, spec->dtype.lanes);
  if (!*problem && memcmp(&spec->device, &device, sizeof device))
    snprintf(problem, sizeof problem, "a tensor on %s, expected %s", name_device(spec->device, given, sizeof given),
             name_device(device, expected, sizeof expected));
  return *problem ? fl_error(FL_EINTERNAL, "%s: the op's own infer gives result '%s' %s", schema->op_name, value->name,
                             problem)
                  : FL_OK;
}

/* Specs of all results. */
static fl_status infer(const inspection *inspected, const fl_call *call, fl_tensor_spec *specs) {
  const fl_schema *schema = inspected->schema;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    specs[i].present = false;
    specs[i].ndim = 0;
    memset(&specs[i].dtype, 0, sizeof specs[i].dtype);
    specs[i].device = result_device(inspected);
    memset(specs[i].shape, 0, sizeof specs[i].shape);
    fl_status status = fl_match_result(schema, inspected->values, &inspected->bindings, i, &specs[i]);
    if (status)
      return status;
  }
  if (!schema->infer)
    return FL_OK;
  fl_status status = run_hook(schema, call, specs);
  for (uint32_t i = 0; i < schema->n_results && !status; i++)
    status = check_spec(inspected, i, &specs[i]);
  return status;
}

static bool is_as(const DLTensor *tensor, const fl_tensor_spec *spec) {
  if (tensor->ndim != spec->ndim || memcmp(&tensor->dtype, &spec->dtype, sizeof tensor->dtype))
    return false;
  for (int i = 0; i < tensor->ndim; i++)
    if (tensor->shape[i] != spec->shape[i])
      return false;
  return true;
}

/* A result is there exactly when it should be. One that is optional in itself, with nothing that says more, may be. */
static fl_status check_presence(const inspection *call, uint32_t index, bool expected) {
  const fl_schema *schema = call->schema;
  int32_t alias = schema->values[index].alias;
  bool given = call->values[index].type == FL_TENSOR;
  bool says_more = schema->infer || schema->compiled->result_clause[index - schema->n_arguments] != FL_RULES_NONE;
  if (given == expected || (alias < 0 && !says_more && !given))
    return FL_OK;
  if (alias < 0)
    return fail(schema, index, given ? "given, expected none" : "none, expected Tensor");
  return fail(schema, index,
              given ? "given, expected none, as argument '%s'" : "none, expected Tensor, as argument '%s'",
              schema->values[alias].name);
}

static fl_status check_results(const inspection *inspected, const fl_call *call) {
  const fl_schema *schema = inspected->schema;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_status status = infer(inspected, call, specs);
  for (uint32_t i = 0; i < schema->n_results && !status; i++) {
    uint32_t index = schema->n_arguments + i;
    const fl_value *value = &inspected->values[index];
    if (schema->values[index].type != FL_TENSOR)
      continue;
    status = check_presence(inspected, index, specs[i].present);
    if (!status && value->type == FL_TENSOR && !is_as(value->v.tensor, &specs[i]))
      status = fl_match_result_error(schema, &inspected->bindings, i, value->v.tensor, &specs[i]);
  }
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static fl_status count_error(const fl_schema *schema, uint32_t given) {
  return fl_error(FL_EINVAL, "%s: %u values, expected %u arguments and %u results: %s", schema->op_name,
                  (unsigned)given, (unsigned)schema->n_arguments, (unsigned)schema->n_results, schema->text);
}

/* Begins with the arguments of a call of at least so many values: types, tensors, rules, the entry's own check. */
static fl_status check_arguments(inspection *inspected, const fl_schema *schema, const fl_call *call, uint32_t least) {
  if (!call)
    return fl_error(FL_EINVAL, "%s: the call is a null pointer, expected a fl_call", schema->op_name);
  if (call->count < least || call->count > schema->n_arguments + schema->n_results)
    return count_error(schema, call->count);
  if (call->size < offsetof(fl_call, stream))
    return fl_error(FL_EINVAL, "%s: the call's size is %u bytes, expected sizeof(fl_call)", schema->op_name,
                    (unsigned)call->size);
  if (call->count && !call->values)
    return fl_error(FL_EINVAL, "%s: the call's values are a null pointer", schema->op_name);
  inspected->schema = schema;
  inspected->values = call->values;
  inspected->first = NULL;
  inspected->bindings.ranks = fl_call_ranks(call) ? call->group->ranks : 1;
  fl_status status = check_values(inspected, 0, schema->n_arguments);
  if (!status)
    status = fl_match_arguments(schema, call->values, &inspected->bindings);
  return status || !schema->check ? status : run_hook(schema, call, NULL);
}

fl_status fl_schema_check(const fl_schema *schema, const fl_call *call) {
  inspection inspected;
  uint32_t n = schema->n_arguments + schema->n_results;
  inspected.without_data = false;
  fl_status status = check_arguments(&inspected, schema, call, n);
  if (!status)
    status = check_values(&inspected, schema->n_arguments, n);
  if (!status)
    status = check_results(&inspected, call);
  return status ? status : check_overlap(&inspected);
}

fl_status fl_schema_bind(const fl_schema *schema, const fl_call *call, fl_bindings *bindings, fl_tensor_spec *specs) {
  inspection inspected;
  inspected.without_data = true;
  fl_status status = check_arguments(&inspected, schema, call, schema->n_arguments);
  if (!status)
    status = infer(&inspected, call, specs);
  if (!status)
    *bindings = inspected.bindings;
  return status;
}

fl_status fl_schema_infer(const fl_schema *schema, const fl_call *call, fl_tensor_spec *results, uint32_t n_results) {
  fl_bindings bindings;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  if (n_results > schema->n_results)
    return fl_error(FL_EINVAL, "%s: room for %u results, expected at most %u", schema->op_name, (unsigned)n_results,
                    (unsigned)schema->n_results);
  fl_status status = fl_schema_bind(schema, call, &bindings, specs);
  if (!status && n_results)
    memcpy(results, specs, n_results * sizeof *results);
  return status;
}
