/* The reference beside a watched call: see reference.h. */
#include "core/guard/reference.h"

#include "core/platform.h"
#include "core/support.h"

#include <flhost/testing.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- finding */

static bool is_better(const fl_impl_record *a, const fl_impl_record *b) {
  return !b || a->priority > b->priority || (a->priority == b->priority && strcmp(a->impl_id, b->impl_id) > 0);
}

/* Availability of what takes calls on the host, under the global policy: nobody is asked whom it keeps out. */
static uint32_t ask_on_host(fl_op *op) {
  fl_host *host = op->host;
  pthread_mutex_lock(&host->lock);
  __attribute__((cleanup(fl_filter_release))) fl_policy *policy = fl_policy_retain(host->policy);
  uint32_t generation = host->registry_generation;
  pthread_mutex_unlock(&host->lock);
  fl_registry_ask_availability(host, op, policy, generation, kDLCPU);
  return generation;
}

const fl_impl_record *fl_reference_find(fl_op *op) {
  const fl_impl_record *found = NULL;
  uint32_t generation = ask_on_host(op);
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    const fl_impl_record *record = set->impls[i];
    bool available = (int32_t)(atomic_load(&record->asked) - generation) >= 0 && !atomic_load(&record->reason);
    if (record->kind == FL_KIND_REFERENCE && fl_impl_is_for(record, kDLCPU) && available && is_better(record, found))
      found = record;
  }
  return found;
}

/* ---------------------------------------------------------------------------------------------------------- calling */

static DLTensor on_host(const fl_copy *copy, char *data, bool compact) {
  DLTensor tensor = copy->tensor;
  tensor.device = (DLDevice){kDLCPU, 0};
  tensor.data = data;
  tensor.strides = compact ? NULL : tensor.strides;
  return tensor;
}

/* The tensor of value `i`, which has a copy of its own. */
static fl_status make_tensor(fl_reference_call *reference, const fl_copies *copies, uint32_t i) {
  const fl_copy *copy = &copies->copies[copies->at[i]];
  DLTensor *tensor = &reference->tensors[i], *before = &reference->before[i];
  *before = copy->before ? on_host(copy, copy->before, false) : *copy->original;
  reference->initial[i] = fl_tensor(before);
  if (copy->role == FL_COPY_INPUT) {
    reference->values[i] = reference->initial[i];
    return FL_OK;
  }
  size_t size = (size_t)fl_tensor_elements(&copy->tensor) * fl_tensor_item_size(&copy->tensor);
  enum { ALIGNMENT = 256 };
  reference->memory[i] = aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  reference->got[i] = malloc(size + 1);
  if (!reference->memory[i] || !reference->got[i])
    return fl_error_no_memory();
  *tensor = on_host(copy, reference->memory[i], true);
  reference->values[i] = fl_tensor(tensor);
  if (copy->role == FL_COPY_STATE)
    fl_tensor_save(reference->memory[i], before);
  else
    memset(reference->memory[i], 0, size);
  return FL_OK;
}

static fl_status make_values(fl_reference_call *reference, fl_copies *copies) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < copies->call.count && !status; i++) {
    uint8_t at = copies->at[i];
    uint32_t first = 0;
    reference->values[i] = reference->initial[i] = reference->layout[i] = copies->given->values[i];
    if (at == FL_COPY_NONE)
      continue;
    while (copies->at[first] != at)
      first++;
    reference->layout[i] = fl_tensor(&copies->copies[at].tensor);
    if (first == i)
      status = make_tensor(reference, copies, i);
    else
      reference->values[i] = reference->values[first]; /* in place, as the caller has it */
  }
  return status;
}

static bool takes(const fl_reference_call *reference, const fl_op *op, const char **reason) {
  const fl_impl_record *record = reference->record;
  int32_t i = op->schema->device_argument;
  const fl_value *value = i < 0 ? NULL : &reference->values[i];
  if (record->flags & FL_IMPL_INPLACE_ONLY) {
    *reason = "it works only in place";
    return false;
  }
  if (record->dtypes && value && value->type == FL_TENSOR && !(record->dtypes & fl_dtype_bit(value->v.tensor->dtype))) {
    *reason = "it does not declare this element type";
    return false;
  }
  return !record->supports_args || record->supports_args(record->self, &reference->call, reason);
}

static fl_status add_workspace(fl_reference_call *reference) {
  const fl_impl_record *record = reference->record;
  enum { ALIGNMENT = 256 };
  const fl_impl_extra *extra = record->extra;
  size_t size = extra && extra->workspace_size ? extra->workspace_size(record->self, &reference->call) : 0;
  if (!size)
    return FL_OK;
  reference->workspace = aligned_alloc(ALIGNMENT, (size + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
  reference->call.workspace = reference->workspace;
  reference->call.workspace_size = size;
  return reference->workspace ? FL_OK : fl_error_no_memory();
}

fl_status fl_reference_run(fl_reference_call *reference, fl_copies *copies) {
  char message[FL_ERROR_MAX] = "";
  const char *reason = NULL;
  reference->call = (fl_call){.size = sizeof reference->call,
                              .count = copies->call.count,
                              .values = reference->values,
                              .message = message,
                              .message_size = sizeof message};
  fl_status status = make_values(reference, copies);
  if (status)
    return status;
  if (!takes(reference, copies->op, &reason))
    return fl_error(FL_ENOTSUP, "%s", reason ? reason : "supports_args says no and gives no reason");
  status = add_workspace(reference);
  if (!status && (status = reference->record->fn(reference->record->self, &reference->call)))
    status = fl_error(status, "%.*s", (int)sizeof message - 1, *message ? message : fl_status_name(status));
  return status;
}

void fl_reference_free(fl_reference_call *reference) {
  for (uint32_t i = 0; i < FL_SCHEMA_MAX_VALUES; i++) {
    free(reference->memory[i]);
    free(reference->got[i]);
  }
  free(reference->workspace);
}

/* -------------------------------------------------------------------------------------------------------- comparing */

/* That of the tensor's type; where the op works in a coarser one, which the first tensor has, that one's. */
static fl_tolerance tolerance(const fl_copies *copies, DLDataType dtype) {
  int32_t first = copies->op->schema->device_argument;
  fl_tolerance allowed = fl_schema_tolerance(copies->op->schema, dtype);
  if (first < 0 || copies->at[first] == FL_COPY_NONE)
    return allowed;
  fl_tolerance work = fl_schema_tolerance(copies->op->schema, copies->copies[copies->at[first]].tensor.dtype);
  if (allowed.atol > 0 && work.atol > allowed.atol)
    allowed.atol = work.atol;
  if (allowed.rtol > 0 && work.rtol > allowed.rtol)
    allowed.rtol = work.rtol;
  return allowed;
}

static bool tensor_agrees(const fl_reference_call *reference, const fl_copies *copies, uint32_t i, fl_text *text) {
  const fl_copy *copy = &copies->copies[copies->at[i]];
  const DLTensor *expected = &reference->tensors[i];
  DLTensor image = on_host(copy, copy->first, false), got = *expected;
  fl_tolerance allowed = tolerance(copies, copy->tensor.dtype);
  fl_comparison found = {.size = sizeof found};
  got.data = reference->got[i];
  fl_tensor_save(got.data, &image);
  fl_compare_tensors(&got, expected, allowed.atol, allowed.rtol, false, &found);
  if (!found.pass)
    fl_text_add(text, "'%s' is not what '%s' gives: %s (atol %g, rtol %g)", copy->name, reference->record->impl_id,
                found.problem, allowed.atol, allowed.rtol);
  return found.pass;
}

static bool value_agrees(const fl_reference_call *reference, const fl_copies *copies, uint32_t i, fl_text *text) {
  const fl_value *got = &copies->values[i], *wanted = &reference->values[i];
  bool same = got->type == wanted->type && got->length == wanted->length;
  if (same && got->type == FL_FLOAT)
    same = got->v.f == wanted->v.f || (isnan(got->v.f) && isnan(wanted->v.f));
  else if (same && got->type == FL_BOOL)
    same = got->v.b == wanted->v.b;
  else if (same && got->type == FL_INT)
    same = got->v.i == wanted->v.i;
  else if (same && got->type == FL_INT_LIST)
    same = !got->length || !memcmp(got->v.ints, wanted->v.ints, got->length * sizeof *got->v.ints);
  if (!same) /* strings name a backend's own classes: each has its own answer */
    fl_text_add(text, "'%s' is not what '%s' gives", copies->op->schema->values[i].name, reference->record->impl_id);
  return same;
}

bool fl_reference_agrees(const fl_reference_call *reference, const fl_copies *copies, fl_text *text) {
  bool agrees = true;
  for (uint32_t i = 0; i < copies->call.count && agrees; i++) {
    if (reference->memory[i])
      agrees = tensor_agrees(reference, copies, i, text);
    else if (i >= copies->op->schema->n_arguments && copies->at[i] == FL_COPY_NONE)
      agrees = value_agrees(reference, copies, i, text);
  }
  return agrees;
}

void fl_reference_replace(const fl_reference_call *reference, fl_copies *copies) {
  for (uint32_t i = 0; i < copies->call.count; i++) {
    if (reference->memory[i]) {
      const fl_copy *copy = &copies->copies[copies->at[i]];
      DLTensor image = on_host(copy, copy->first, false);
      fl_tensor_restore(&image, reference->memory[i]);
    } else if (i >= copies->op->schema->n_arguments && copies->at[i] == FL_COPY_NONE) {
      copies->values[i] = reference->values[i];
    }
  }
}
