/* Calls that ranks share: see over_ranks.h. */
#include "core/call/over_ranks.h"

#include "core/call/checked_forms.h"
#include "core/call/fallback.h"
#include "core/call/invoke.h"
#include "core/call/nesting.h"
#include "core/call/workspaces.h"
#include "core/platform.h"

#include <flhost/communicator.h>
#include <string.h>

/* As workspaces are aligned. */
enum { ALIGNMENT = 256 };

/* ------------------------------------------------------------------------------------------------ this rank's part */

static bool is_compact(const DLTensor *tensor) {
  int64_t stride = 1;
  for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->shape[i] > 1 && fl_stride(tensor, i) != stride)
      return false;
    stride *= tensor->shape[i];
  }
  return true;
}

/* Has no elements, or lies one behind the other: what a collective takes. */
static fl_status check_compact(const fl_op *op, uint32_t index, const DLTensor *tensor) {
  const fl_schema *schema = op->schema;
  if (!fl_tensor_elements(tensor) || is_compact(tensor))
    return FL_OK;
  return fl_error(FL_EINVAL, "%s: %s '%s': it has strides, expected a compact tensor, since ranks share it", op->name,
                  index < schema->n_arguments ? "argument" : "result", schema->values[index].name);
}

/* Room for so many bytes behind what is there. */
static fl_status take_room(fl_rank_call *part, const fl_op *op, void *memory, size_t bytes, void **room) {
  size_t rounded;
  *room = memory ? (char *)memory + part->used : NULL;
  if (__builtin_add_overflow(bytes, ALIGNMENT - 1, &rounded) ||
      __builtin_add_overflow(part->used, rounded / ALIGNMENT * ALIGNMENT, &part->used))
    return fl_error(FL_EINVAL, "%s: what its ranks share has more bytes than there is memory", op->name);
  return FL_OK;
}

/* A compact tensor in the memory; `made` has its sizes. */
static fl_status place(fl_rank_call *part, const fl_op *op, void *memory, fl_own_tensor *made) {
  size_t bytes;
  made->tensor.shape = made->shape;
  if (__builtin_mul_overflow((size_t)fl_tensor_elements(&made->tensor), fl_tensor_item_size(&made->tensor), &bytes))
    return fl_error(FL_EINVAL, "%s: what its ranks share has more bytes than there is memory", op->name);
  return take_room(part, op, memory, bytes, &made->tensor.data);
}

/* Of the last dimension of `whole`, a view. */
static void cut(const fl_ranks *group, const DLTensor *whole, fl_own_tensor *part) {
  int32_t last = whole->ndim - 1;
  part->tensor = *whole;
  part->tensor.shape = part->shape;
  part->tensor.strides = part->strides;
  for (int32_t i = 0; i <= last; i++) {
    part->shape[i] = i < last ? whole->shape[i] : whole->shape[i] / group->ranks;
    part->strides[i] = fl_stride(whole, i);
  }
  part->tensor.byte_offset += (uint64_t)(group->rank * part->shape[last]) * fl_tensor_item_size(whole);
}

/* As many rows as all ranks have. */
static fl_status make_rows(const fl_op *op, uint32_t index, const fl_ranks *group, const DLTensor *own, void *memory,
                           fl_rank_call *part, fl_own_tensor *rows) {
  fl_status status = check_compact(op, index, own);
  if (status)
    return status;
  rows->tensor = (DLTensor){.device = own->device, .ndim = own->ndim, .dtype = own->dtype};
  memcpy(rows->shape, own->shape, (size_t)own->ndim * sizeof *own->shape);
  if (__builtin_mul_overflow(rows->shape[0], group->ranks, &rows->shape[0]))
    return fl_error(FL_EINVAL, "%s: argument '%s': more rows than there is memory", op->name,
                    op->schema->values[index].name);
  return place(part, op, memory, rows);
}

/* What becomes of an argument before the kernel runs. */
static fl_status step_before(const fl_op *op, const fl_call *call, void *memory, uint32_t number, fl_rank_call *part) {
  const fl_ranks_step *step = &op->schema->over_ranks->steps[number];
  fl_own_tensor *made = &part->tensors[number];
  fl_value *value = &part->values[step->value];
  fl_status status = FL_OK;
  if (value->type == FL_NONE || !fl_ranks_step_holds(step, call->values))
    return FL_OK;
  const DLTensor *whole = value->v.tensor;
  switch ((fl_ranks_action)step->action) {
  case FL_RANKS_NONE:
    *value = fl_none();
    return FL_OK;
  case FL_RANKS_FIRST:
    if (call->group->rank)
      *value = fl_none();
    return FL_OK;
  case FL_RANKS_PART:
    cut(call->group, whole, made);
    break;
  default:
    status = make_rows(op, step->value, call->group, whole, memory, part, made);
  }
  value->v.tensor = &made->tensor;
  return status;
}

static int64_t rows_of(const DLTensor *tensor) {
  int64_t rows = 1;
  for (int32_t i = 0; i + 1 < tensor->ndim; i++)
    rows *= tensor->shape[i];
  return rows;
}

/* Are all ranks' columns, one rank behind the other, the result as it is? */
static bool is_gathered(const fl_ranks *group, const DLTensor *own, const DLTensor *whole) {
  int64_t last = own->shape[own->ndim - 1];
  return rows_of(whole) == 1 && whole->shape[whole->ndim - 1] == last * group->ranks;
}

/* Where the kernel writes a result that is made of all ranks' afterwards, and where these come together. */
static fl_status step_behind(const fl_op *op, const fl_call *call, const fl_tensor_spec *specs, void *memory,
                             uint32_t number, fl_rank_call *part) {
  const fl_ranks_step *step = &op->schema->over_ranks->steps[number];
  fl_own_tensor *made = &part->tensors[number];
  const DLTensor *whole = call->values[step->value].v.tensor;
  if (call->values[step->value].type == FL_NONE || !fl_ranks_step_holds(step, call->values))
    return FL_OK;
  fl_status status = check_compact(op, step->value, whole);
  if (status || step->action == FL_RANKS_REDUCE)
    return status;
  const fl_tensor_spec *spec = &specs[step->value - op->schema->n_arguments];
  made->tensor = (DLTensor){.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype};
  memcpy(made->shape, spec->shape, sizeof made->shape);
  status = place(part, op, memory, made);
  part->values[step->value].v.tensor = &made->tensor;
  if (status || step->action != FL_RANKS_GATHER_COLUMNS || is_gathered(call->group, &made->tensor, whole))
    return status;
  size_t bytes = (size_t)fl_tensor_elements(&made->tensor) * fl_tensor_item_size(&made->tensor);
  if (__builtin_mul_overflow(bytes, (size_t)call->group->ranks, &bytes))
    return fl_error(FL_EINVAL, "%s: what its ranks share has more bytes than there is memory", op->name);
  return take_room(part, op, memory, bytes, &part->gathered[number]);
}

static bool needs_specs(const fl_ranks_step *step, const fl_value *values) {
  return step->action > FL_RANKS_REDUCE && fl_ranks_step_holds(step, values);
}

fl_status fl_rank_call_make(const fl_op *op, const fl_call *call, void *memory, fl_rank_call *part) {
  const fl_schema *schema = op->schema;
  const fl_ranks_plan *plan = schema->over_ranks;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_status status = FL_OK;
  bool inferred = false;
  part->used = 0;
  part->call = *call;
  part->call.values = part->values;
  part->call.group = NULL;
  memcpy(part->values, call->values, call->count * sizeof *call->values);
  for (uint32_t i = 0; i < plan->n_steps && !status; i++) {
    part->gathered[i] = NULL;
    if (!fl_ranks_step_is_behind(&plan->steps[i]))
      status = step_before(op, call, memory, i, part);
  }
  for (uint32_t i = 0; i < plan->n_steps && !status; i++) {
    if (!fl_ranks_step_is_behind(&plan->steps[i]) || plan->steps[i].value >= call->count)
      continue;
    if (!inferred && needs_specs(&plan->steps[i], call->values)) {
      status = fl_schema_infer(schema, &part->call, specs, schema->n_results);
      inferred = true;
    }
    if (!status)
      status = step_behind(op, call, specs, memory, i, part);
  }
  return status;
}

/* ----------------------------------------------------------------------------------------------------- collectives */

static fl_status make(const fl_op *op, const fl_call *call, fl_collective *collective) {
  char words[FL_REASON_MAX] = "";
  collective->size = sizeof *collective;
  collective->stream = call->stream;
  fl_status status = call->group->collective(call->group, collective, words, sizeof words);
  return status ? fl_error(status, "%s: %s", op->name, words) : FL_OK;
}

static fl_status gather(const fl_op *op, const fl_call *call, const DLTensor *own, void *all) {
  fl_collective c = {.kind = FL_ALL_GATHER, .send = fl_data(own), .recv = all, .dtype = own->dtype};
  c.count = (int64_t)fl_tensor_elements(own);
  return make(op, call, &c);
}

static fl_status copy(const fl_op *op, const fl_call *call, const DLTensor *tensor, void *to, const void *from,
                      size_t size) {
  if (!fl_tensor_is_on_host(tensor))
    return fl_device_copy(op->host, tensor->device, to, from, size, FL_COPY_ON_DEVICE, call->stream);
  memcpy(to, from, size);
  return FL_OK;
}

/* Of [ranks, rows, columns] as many columns of each row as the result has. */
static fl_status join_columns(const fl_op *op, const fl_call *call, const DLTensor *own, const char *all,
                              const DLTensor *whole) {
  size_t item = fl_tensor_item_size(own), width = (size_t)own->shape[own->ndim - 1] * item;
  size_t pitch = (size_t)whole->shape[whole->ndim - 1] * item;
  int64_t rows = rows_of(whole);
  fl_status status = FL_OK;
  for (int32_t rank = 0; rank < call->group->ranks && (size_t)rank * width < pitch; rank++) {
    size_t left = pitch - (size_t)rank * width, size = left < width ? left : width;
    for (int64_t row = 0; row < rows && !status; row++)
      status = copy(op, call, whole, (char *)fl_data(whole) + (size_t)row * pitch + (size_t)rank * width,
                    all + ((size_t)rank * (size_t)rows + (size_t)row) * width, size);
  }
  return status;
}

static fl_status gather_columns(const fl_op *op, const fl_call *call, const DLTensor *own, void *gathered,
                                const DLTensor *whole) {
  if (!fl_tensor_elements(whole))
    gathered = NULL;
  fl_status status = gather(op, call, own, gathered ? gathered : fl_data(whole));
  return status || !gathered ? status : join_columns(op, call, own, gathered, whole);
}

static fl_status sum_up(const fl_op *op, const fl_call *call, fl_collective_kind kind, const DLTensor *own,
                        const DLTensor *whole) {
  fl_collective c = {.kind = (int32_t)kind, .send = fl_data(own), .recv = fl_data(whole), .dtype = own->dtype};
  c.count = (int64_t)fl_tensor_elements(whole);
  c.reduction = FL_REDUCE_SUM;
  return make(op, call, &c);
}

static fl_status run_step(const fl_op *op, const fl_call *call, const fl_rank_call *part, uint32_t number) {
  const fl_ranks_step *step = &op->schema->over_ranks->steps[number];
  if (call->values[step->value].type != FL_TENSOR || !fl_ranks_step_holds(step, call->values))
    return FL_OK;
  const DLTensor *whole = call->values[step->value].v.tensor, *own = part->values[step->value].v.tensor;
  switch ((fl_ranks_action)step->action) {
  case FL_RANKS_GATHER_ROWS:
    return gather(op, call, whole, fl_data(own));
  case FL_RANKS_REDUCE:
    return sum_up(op, call, FL_ALL_REDUCE, own, whole);
  case FL_RANKS_GATHER_COLUMNS:
    return gather_columns(op, call, own, part->gathered[number], whole);
  case FL_RANKS_SCATTER_ROWS:
    return sum_up(op, call, FL_REDUCE_SCATTER, own, whole);
  default:
    return FL_OK;
  }
}

static fl_status run_steps(const fl_op *op, const fl_call *call, const fl_rank_call *part, bool behind) {
  const fl_ranks_plan *plan = op->schema->over_ranks;
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < plan->n_steps && !status; i++)
    if (fl_ranks_step_is_behind(&plan->steps[i]) == behind)
      status = run_step(op, call, part, i);
  return status;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

static void leave(fl_nesting *const *nesting) {
  fl_nesting_leave(*nesting);
}

/* The kernel's own workspace is that of a call inside this one. */
static fl_status run_kernel(fl_binding *binding, fl_rank_call *part) {
  __attribute__((cleanup(leave))) fl_nesting *nesting = &((fl_checked_forms *)fl_self.kept)->nesting;
  fl_status status = fl_nesting_enter(nesting, binding->op, binding->op, __builtin_frame_address(0));
  return status ? status : fl_run_candidates(binding, &part->call);
}

static fl_status run_shared(fl_binding *binding, fl_call *call) {
  const fl_op *op = binding->op;
  fl_rank_call part;
  fl_call room = *call;
  uint32_t n = op->schema->n_arguments + op->schema->n_results;
  if (call->count != n) /* where nobody checks calls */
    return fl_error(FL_EINVAL, "%s: %u values, expected %u", op->name, (unsigned)call->count, (unsigned)n);
  fl_status status = fl_rank_call_make(op, call, NULL, &part);
  if (!status)
    status = fl_workspace_bring_bytes(op, &room, part.used);
  if (!status && part.used)
    status = fl_rank_call_make(op, call, room.workspace, &part);
  if (!status)
    status = run_steps(op, call, &part, false);
  if (!status)
    status = run_kernel(binding, &part);
  return status ? status : run_steps(op, call, &part, true);
}

/* Is the first one to do it all? */
static bool takes_whole(const fl_binding *binding, const fl_call *call) {
  const fl_candidate *first = &binding->candidates[0];
  return first->record->flags & FL_IMPL_RANKS && fl_candidate_takes(first, call, NULL);
}

const fl_call *fl_call_as_seen(const fl_binding *binding, const fl_call *call, fl_rank_call *part) {
  if (!call->group || takes_whole(binding, call))
    return call;
  return fl_rank_call_make(binding->op, call, NULL, part) ? NULL : &part->call;
}

fl_status fl_run_over_ranks(void *self, fl_call *call) {
  fl_binding *binding = self;
  const fl_ranks *group = call->group;
  if (!group || !binding->op->schema->over_ranks->n_steps || takes_whole(binding, call))
    return fl_run_candidates(binding, call);
  if (group->ranks > 1)
    return fl_settle(run_shared(binding, call));
  fl_call alone = *call;
  alone.group = NULL;
  return fl_run_candidates(binding, &alone);
}
