/* Calls that overwrite their arguments: see in_place.h. */
#include "core/call/in_place.h"

#include "core/call/invoke.h"
#include "core/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------ on a device */

/* How to copy on the device of a call's tensors. */
typedef struct copying {
  fl_host *host;
  DLDevice device;
  void *stream;
} copying;

static fl_status copy_run(void *user, void *to, const void *from, size_t size) {
  const copying *c = user;
  return fl_device_copy(c->host, c->device, to, from, size, FL_COPY_ON_DEVICE, c->stream);
}

/* Of two tensors on one device, equal in shape and type. */
static fl_status copy_on_device(const fl_op *op, const fl_call *call, const DLTensor *to, const DLTensor *from) {
  copying c = {op->host, to->device, call->stream};
  return fl_tensor_copy_with(to, from, copy_run, &c);
}

/* Gaps between rows are copied, too: one copy instead of one a row. NULL: it is not kept. */
static void *keep_on_device(const fl_op *op, const fl_call *call, const DLTensor *tensor) {
  void *copy;
  size_t size = fl_tensor_span(tensor);
  if (fl_device_allocate(op->host, tensor->device, size, &copy))
    return NULL;
  if (!fl_device_copy(op->host, tensor->device, copy, fl_data(tensor), size, FL_COPY_ON_DEVICE, call->stream))
    return copy;
  fl_device_free(op->host, tensor->device, copy);
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------ copies kept */

/* Does a call overwrite argument `i`: as the very tensor of a result, or as a state that no result stands for? */
static bool overwrites(const fl_schema *schema, const fl_call *call, uint32_t i) {
  bool has_result = false;
  if (!schema->values[i].mutates || fl_call_is_opaque(call) || call->values[i].type != FL_TENSOR)
    return false;
  for (uint32_t r = schema->n_arguments; r < schema->n_arguments + schema->n_results; r++) {
    if (schema->values[r].alias != (int32_t)i)
      continue;
    has_result = true;
    if (call->values[r].type == FL_TENSOR && fl_data(call->values[r].v.tensor) == fl_data(call->values[i].v.tensor))
      return true;
  }
  return !has_result;
}

static void *keep_on_host(const DLTensor *tensor) {
  size_t size = (size_t)fl_tensor_elements(tensor) * fl_tensor_item_size(tensor);
  void *copy = malloc(size ? size : 1);
  if (copy)
    fl_tensor_save(copy, tensor);
  return copy;
}

void fl_keep_inputs(fl_kept *kept) {
  const fl_op *op = kept->op;
  const fl_call *call = kept->call;
  const fl_schema *schema = op->schema;
  kept->on_device = false;
  for (uint32_t i = 0; i < schema->n_arguments; i++) {
    kept->copies[i] = NULL;
    if (!overwrites(schema, call, i))
      continue;
    const DLTensor *tensor = call->values[i].v.tensor;
    bool on_host = fl_tensor_is_on_host(tensor);
    kept->copies[i] = on_host ? keep_on_host(tensor) : keep_on_device(op, call, tensor);
    kept->on_device |= !on_host && kept->copies[i];
  }
}

void fl_kept_free(fl_kept *kept) {
  const fl_op *op = kept->op;
  const fl_call *call = kept->call;
  bool waited = false;
  fl_kept_error why; /* of the call, in the same place */
  fl_error_keep(&why);
  for (uint32_t i = 0; i < op->schema->n_arguments; i++) {
    if (!kept->copies[i])
      continue;
    const DLTensor *tensor = call->values[i].v.tensor;
    if (fl_tensor_is_on_host(tensor)) {
      free(kept->copies[i]);
      continue;
    }
    if (!waited)
      fl_device_synchronize(op->host, tensor->device, call->stream, false);
    waited = true;
    fl_device_free(op->host, tensor->device, kept->copies[i]);
  }
  fl_error_restore(&why);
}

/* Elements only: what lies in the gaps may have changed rightly. */
static fl_status restore_input(const fl_op *op, const fl_call *call, const DLTensor *tensor, void *copy) {
  if (fl_tensor_is_on_host(tensor)) {
    fl_tensor_restore(tensor, copy);
    return FL_OK;
  }
  DLTensor from = *tensor;
  from.data = copy;
  from.byte_offset = 0;
  return copy_on_device(op, call, tensor, &from);
}

const char *fl_restore_inputs(const fl_op *op, const fl_call *call, const fl_kept *kept) {
  const fl_schema *schema = op->schema;
  const char *lost = NULL;
  fl_kept_error why;
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    if (overwrites(schema, call, i) && !(kept && kept->copies[i]))
      return schema->values[i].name;
  fl_error_keep(&why);
  for (uint32_t i = 0; kept && i < schema->n_arguments && !lost; i++)
    if (kept->copies[i] && restore_input(op, call, call->values[i].v.tensor, kept->copies[i]))
      lost = schema->values[i].name;
  fl_error_restore(&why);
  return lost;
}

/* -------------------------------------------------------------------------------------------------- only in place */

/* Nothing was written when this fails: results are not the caller's data. */
static fl_status copy_argument(const fl_op *op, const fl_call *call, const DLTensor *to, const DLTensor *from,
                               const char *name) {
  if (fl_tensor_is_on_host(to) && fl_tensor_is_on_host(from)) {
    fl_tensor_copy(to, from);
    return FL_OK;
  }
  fl_status status = copy_on_device(op, call, to, from);
  if (status == FL_ENOENT)
    return fl_error(FL_ENOTSUP, "it works only in place, and '%s' cannot be copied: %s", name, fl_error_message());
  return status ? fl_error(status, "it works only in place, and copying '%s' failed: %s", name, fl_error_message())
                : FL_OK;
}

fl_status fl_call_in_place(const fl_op *op, const fl_candidate *candidate, fl_call *call) {
  const fl_schema *schema = op->schema;
  fl_value values[FL_VALUES_MAX];
  fl_call inner = *call;
  inner.values = values;
  memcpy(values, call->values, call->count * sizeof *values);
  for (uint32_t r = schema->n_arguments; r < call->count; r++) {
    int32_t alias = schema->values[r].alias;
    if (alias < 0 || values[r].type != FL_TENSOR || values[alias].type != FL_TENSOR)
      continue;
    DLTensor *to = values[r].v.tensor, *from = values[alias].v.tensor;
    if (fl_data(to) == fl_data(from))
      continue;
    fl_status status = copy_argument(op, call, to, from, schema->values[alias].name);
    if (status)
      return status;
    values[alias].v.tensor = to;
  }
  fl_status status = candidate->record->fn(candidate->record->self, &inner);
  for (uint32_t r = schema->n_arguments; r < call->count; r++)
    if (schema->values[r].type != FL_TENSOR) /* it was written by value */
      call->values[r] = values[r];
  return status;
}
