/* Running a fused op by its parts: see parts.h. */
#include "core/call/parts.h"

#include "core/call/binding.h"
#include "core/call/fallback.h"
#include "core/call/invoke.h"
#include "core/support.h"

#include <stdlib.h>

/* As workspaces are aligned. */
enum { ALIGNMENT = 256 };

/* --------------------------------------------------------------------------------------------------------- linking */

/* A part whose op is known. */
typedef struct linked_part {
  fl_op *op;
  const fl_part *part;
  const fl_part_operand *operands;
  const uint16_t *results;
  fl_value *values; /* of its call: literals and defaults */
  uint8_t *places;  /* of each operand among them */
} linked_part;

/* All parts of an op. An op stays as long as its host, so that it is looked for once. */
typedef struct linked {
  fl_derived derived; /* first: of the schema */
  fl_arena owned;
  linked_part *parts;
} linked;

static void linked_free(fl_derived *derived) {
  linked *all = (linked *)derived;
  fl_arena_free(&all->owned);
  free(all);
}

/* The place of an operand among the arguments; n_arguments: there is none. */
static uint32_t place_of(const fl_schema *schema, const fl_part_operand *operand, uint32_t number) {
  if (!operand->argument)
    return number;
  uint32_t found = fl_schema_find(schema, operand->argument, strlen(operand->argument));
  return found < schema->n_arguments ? found : schema->n_arguments;
}

/* A literal as its argument wants it: 1 may be a float. */
static fl_status take_literal(const fl_argument *argument, const fl_value *literal, fl_value *value) {
  *value = *literal;
  if (literal->type == FL_INT && argument->type == FL_FLOAT)
    *value = fl_float((double)literal->v.i);
  bool fits = value->type == argument->type || (value->type == FL_NONE && argument->optional);
  return fits ? FL_OK : fl_error(FL_EINVAL, "argument '%s' is given a literal of another type", argument->name);
}

static fl_status link_operand(const fl_schema *schema, linked_part *l, uint32_t i, bool *given) {
  const fl_part_operand *operand = &l->operands[i];
  uint32_t place = place_of(schema, operand, i);
  if (place == schema->n_arguments)
    return operand->argument ? fl_error(FL_EINVAL, "it has no argument '%s'", operand->argument)
                             : fl_error(FL_EINVAL, "it has %u arguments", (unsigned)schema->n_arguments);
  if (given[place])
    return fl_error(FL_EINVAL, "argument '%s' is given twice", schema->values[place].name);
  if (fl_schema_is_state(schema, place) && operand->value < FL_PARTS_BETWEEN)
    return fl_error(FL_EINVAL, "it overwrites argument '%s'", schema->values[place].name);
  l->places[i] = (uint8_t)place;
  given[place] = true;
  return operand->value == FL_PARTS_LITERAL ? take_literal(&schema->values[place], &operand->literal, &l->values[place])
                                            : FL_OK;
}

static fl_status link_values(linked_part *l, const fl_schema *schema) {
  bool given[FL_SCHEMA_MAX_VALUES] = {false};
  for (uint32_t i = 0; i < l->part->n_operands; i++) {
    fl_status status = link_operand(schema, l, i, given);
    if (status)
      return status;
  }
  for (uint32_t i = 0; i < schema->n_arguments; i++) {
    const fl_argument *argument = &schema->values[i];
    if (!given[i] && !argument->has_default)
      return fl_error(FL_EINVAL, "argument '%s' is not given", argument->name);
    if (!given[i])
      l->values[i] = argument->default_value;
  }
  if (l->part->n_results > schema->n_results)
    return fl_error(FL_EINVAL, "it has %u results", (unsigned)schema->n_results);
  for (uint32_t i = 0; i < schema->n_results; i++) {
    const fl_argument *result = &schema->values[schema->n_arguments + i];
    if (result->type != FL_TENSOR)
      return fl_error(FL_EINVAL, "result '%s' is not a tensor", result->name);
    if (i >= l->part->n_results && !result->optional)
      return fl_error(FL_EINVAL, "result '%s' is not taken", result->name);
  }
  return FL_OK;
}

/* The thread is reading. */
static fl_status link_part(const fl_op *op, linked *all, linked_part *l) {
  l->op = fl_registry_find(op->host, l->part->op);
  if (!l->op)
    return fl_error(FL_ENOTSUP, "part '%s': there is no such op", l->part->op);
  const fl_schema *schema = l->op->schema;
  l->values = fl_arena_array(&all->owned, schema->n_arguments + schema->n_results, sizeof *l->values);
  l->places = fl_arena_array(&all->owned, l->part->n_operands, sizeof *l->places);
  if (all->owned.failed)
    return fl_error_no_memory();
  fl_status status = link_values(l, schema);
  return status ? fl_error(FL_ENOTSUP, "part '%s': %s", l->part->op, fl_error_message()) : FL_OK;
}

static fl_status link_parts(const fl_op *op, linked *all) {
  const fl_parts *parts = op->schema->parsed;
  all->derived.release = linked_free;
  all->parts = fl_arena_array(&all->owned, parts->n, sizeof *all->parts);
  fl_status status = all->parts ? FL_OK : fl_error_no_memory();
  for (uint32_t i = 0; i < parts->n && !status; i++) {
    const fl_part *part = &parts->parts[i];
    all->parts[i] = (linked_part){.part = part,
                                  .operands = &parts->operands[part->first_operand],
                                  .results = &parts->results[part->first_result]};
    status = link_part(op, all, &all->parts[i]);
  }
  return status;
}

/* FL_ENOTSUP: a part is not there, or is another op than the text means; it is looked for again the next time. */
static fl_status find_linked(const fl_op *op, const linked **found) {
  _Atomic(fl_derived *) *place = &op->schema->derived[FL_SCHEMA_LINKED];
  fl_derived *before = atomic_load_explicit(place, memory_order_acquire);
  if (!before) {
    linked *all = calloc(1, sizeof *all);
    fl_status status = all ? link_parts(op, all) : fl_error_no_memory();
    if (status) {
      if (all)
        linked_free(&all->derived);
      return status;
    }
    if (atomic_compare_exchange_strong(place, &before, &all->derived))
      before = &all->derived;
    else
      linked_free(&all->derived); /* another thread was first */
  }
  *found = (const linked *)before;
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------- a call by parts */

/* A tensor with room for its sizes. */
typedef struct sized_tensor {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} sized_tensor;

/* A call on its way through the parts. */
typedef struct walk {
  const fl_op *op;
  const fl_call *call;
  const linked *all;
  size_t used; /* bytes of the workspace */
  bool has_bindings, overwritten;
  fl_bindings bindings;
  sized_tensor between[FL_PARTS_BETWEEN_MAX], slices[FL_PARTS_SLICES_MAX];
  fl_value between_values[FL_PARTS_BETWEEN_MAX];
  /* The part's: */
  fl_call part;
  fl_value values[FL_SCHEMA_MAX_VALUES];
} walk;

static fl_status bound(walk *w, fl_rule_source source, int64_t fallback, int64_t *value) {
  *value = fallback;
  if (!source.length)
    return FL_OK;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_status status = w->has_bindings ? FL_OK : fl_schema_bind(w->op->schema, w->call, &w->bindings, specs);
  w->has_bindings = !status;
  return status ? status : fl_parts_bound(w->op->schema, &w->bindings, source, value);
}

/* A view of it. */
static fl_status cut(walk *w, const fl_part_operand *operand, sized_tensor *slice, fl_value *value) {
  if (value->type != FL_TENSOR)
    return FL_OK;
  const DLTensor *whole = value->v.tensor;
  int32_t last = whole->ndim - 1;
  int64_t low, high, size = last < 0 ? 0 : whole->shape[last];
  fl_status status = bound(w, operand->low, 0, &low);
  if (!status)
    status = bound(w, operand->high, size, &high);
  if (!status && (last < 0 || low < 0 || high < low || high > size))
    status =
        fl_error(FL_EINVAL, "a slice %lld:%lld of %lld elements", (long long)low, (long long)high, (long long)size);
  if (status)
    return status;
  slice->tensor = *whole;
  slice->tensor.shape = slice->shape;
  slice->tensor.strides = slice->strides;
  slice->tensor.byte_offset += (uint64_t)low * fl_tensor_item_size(whole);
  for (int32_t i = 0; i <= last; i++) {
    slice->shape[i] = i < last ? whole->shape[i] : high - low;
    slice->strides[i] = fl_stride(whole, i);
  }
  value->v.tensor = &slice->tensor;
  return FL_OK;
}

/* The value of the op or the tensor between. */
static fl_value value_of(const walk *w, uint16_t value) {
  return value < FL_PARTS_BETWEEN ? w->call->values[value] : w->between_values[value - FL_PARTS_BETWEEN];
}

static fl_status set_operands(walk *w, const linked_part *l) {
  uint32_t n_slices = 0;
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < l->part->n_operands && !status; i++) {
    const fl_part_operand *operand = &l->operands[i];
    fl_value *value = &w->values[l->places[i]];
    if (operand->value == FL_PARTS_LITERAL)
      continue;
    *value = value_of(w, operand->value);
    if (operand->sliced)
      status = cut(w, operand, &w->slices[n_slices++], value);
  }
  return status;
}

/* Room behind what is there. */
static fl_status place_between(walk *w, const fl_tensor_spec *spec, uint32_t number) {
  sized_tensor *made = &w->between[number];
  w->between_values[number] = fl_none();
  if (!spec->present)
    return FL_OK;
  memcpy(made->shape, spec->shape, sizeof made->shape);
  made->tensor = (DLTensor){.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = made->shape};
  made->tensor.data = w->call->workspace ? (char *)w->call->workspace + w->used : NULL;
  size_t elements = (size_t)fl_tensor_elements(&made->tensor), bytes, room;
  if (__builtin_mul_overflow(elements, fl_tensor_item_size(&made->tensor), &bytes) ||
      __builtin_add_overflow(bytes, ALIGNMENT - 1, &room) ||
      __builtin_add_overflow(w->used, room / ALIGNMENT * ALIGNMENT, &w->used))
    return fl_error(FL_EINVAL, "a tensor between the parts has more bytes than there is memory");
  w->between_values[number] = fl_tensor(&made->tensor);
  return FL_OK;
}

static fl_status set_results(walk *w, const linked_part *l) {
  const fl_schema *schema = l->op->schema;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_status status = FL_OK;
  bool inferred = false;
  for (uint32_t i = 0; i < l->part->n_results && !status; i++) {
    uint16_t value = l->results[i];
    if (value >= FL_PARTS_BETWEEN) {
      if (!inferred && (status = fl_schema_infer(schema, &w->part, specs, schema->n_results)))
        return status;
      inferred = true;
      status = place_between(w, &specs[i], value - FL_PARTS_BETWEEN);
    }
    w->values[schema->n_arguments + i] = value_of(w, value);
  }
  return status;
}

/* The call of part `i`. */
static fl_status set_part(walk *w, uint32_t i) {
  const linked_part *l = &w->all->parts[i];
  const fl_schema *schema = l->op->schema;
  uint32_t n = schema->n_arguments + schema->n_results;
  memcpy(w->values, l->values, n * sizeof *w->values);
  w->part = (fl_call){.size = sizeof w->part, .count = n, .values = w->values, .stream = w->call->stream};
  fl_status status = set_operands(w, l);
  return status ? status : set_results(w, l);
}

/* Only what is counted is set: the rest is written before it is read. */
static fl_status walk_begin(walk *w, const fl_op *op, const fl_call *call) {
  w->op = op;
  w->call = call;
  w->used = 0;
  w->has_bindings = w->overwritten = false;
  return find_linked(op, &w->all);
}

/* ---------------------------------------------------------------------------------------------- the implementation */

/* Tells of no error but by its return: an error of the call's that is kept already stays. */
static size_t workspace_size(void *self, const fl_call *call) {
  const fl_op *op = self;
  walk w;
  fl_kept_error before;
  if (!op->schema->parsed->n_between)
    return 0;
  fl_error_keep(&before);
  fl_status status = walk_begin(&w, op, call);
  for (uint32_t i = 0; i < op->schema->parsed->n && !status; i++)
    status = set_part(&w, i);
  fl_error_restore(&before);
  return status ? 0 : w.used;
}

/* Is there an implementation that takes the part's call? */
static bool takes_part(fl_op *op, const fl_call *part, const char **reason) {
  fl_status status;
  fl_said said;
  const char *why = "nothing is bound"; /* of the last candidate */
  const fl_target *target = fl_bind(op, fl_call_device(op, part), FL_ASK_FOR_CALL, &status);
  const fl_binding *binding = target ? target->binding : NULL;
  if (!binding)
    return fl_reason(reason, "part '%s': %s", op->name, fl_error_message());
  for (uint32_t i = 0; i < binding->n; i++) {
    if (fl_candidate_takes(&binding->candidates[i], part, &said))
      return true;
    why = said.text;
  }
  return fl_reason(reason, "part '%s': %s: %s", op->name, binding->candidates[binding->n - 1].record->impl_id, why);
}

/* Parts that this thread asks for the parts of. */
static _Thread_local unsigned depth;

static void one_less(const unsigned *before) {
  depth = *before;
}

static bool takes_all_parts(walk *w, const char **reason) {
  for (uint32_t i = 0; i < w->op->schema->parsed->n; i++) {
    if (set_part(w, i))
      return fl_reason(reason, "part '%s': %s", w->all->parts[i].op->name, fl_error_message());
    if (!takes_part(w->all->parts[i].op, &w->part, reason))
      return false;
  }
  return true;
}

static bool supports_args(void *self, const fl_call *call, const char **reason) {
  walk w;
  fl_kept_error before;
  __attribute__((cleanup(one_less))) unsigned outer = depth++;
  if (outer == FL_PARTS_DEPTH_MAX)
    return fl_reason(reason, "parts of parts, more than %d deep", FL_PARTS_DEPTH_MAX);
  fl_error_keep(&before);
  bool taken = walk_begin(&w, self, call) ? fl_reason(reason, "%s", fl_error_message()) : takes_all_parts(&w, reason);
  fl_error_restore(&before);
  return taken;
}

/* Did the part write over an argument of the op's? */
static bool overwrites(const walk *w, const linked_part *l) {
  const fl_schema *schema = w->op->schema;
  for (uint32_t i = 0; i < l->part->n_results; i++) {
    uint16_t value = l->results[i];
    int32_t alias = value < FL_PARTS_BETWEEN ? schema->values[value].alias : -1;
    if (alias < 0 || w->call->values[value].type != FL_TENSOR || w->call->values[alias].type != FL_TENSOR)
      continue;
    if (fl_data(w->call->values[value].v.tensor) == fl_data(w->call->values[alias].v.tensor))
      return true;
  }
  return false;
}

/* "Not supported" promises that nothing of the op's arguments was written. */
static fl_status fail(const walk *w, fl_call *call, const char *part, fl_status status) {
  if (status == FL_ENOIMPL || status == FL_ENOTSUP)
    status = w->overwritten ? FL_EINTERNAL : FL_ENOTSUP;
  return fl_fail(call, status, "part '%s': %s", part, fl_error_message());
}

static fl_status run(void *self, fl_call *call) {
  const fl_op *op = self;
  walk w;
  size_t wanted = workspace_size(self, call);
  if (wanted > call->workspace_size)
    return fl_fail(call, FL_ENOTSUP, "it needs a workspace of %zu bytes", wanted);
  fl_status status = walk_begin(&w, op, call);
  if (status)
    return fl_fail(call, status, "%s", fl_error_message());
  for (uint32_t i = 0; i < op->schema->parsed->n; i++) {
    const linked_part *l = &w.all->parts[i];
    status = set_part(&w, i);
    if (!status)
      status = fl_invoke(l->op, &w.part);
    if (status)
      return fail(&w, call, l->op->name, status);
    w.overwritten |= overwrites(&w, l);
  }
  return FL_OK;
}

const fl_impl fl_parts_impl = {
    .size = sizeof fl_parts_impl,
    .impl_id = FL_PARTS_IMPL,
    .flags = FL_IMPL_RANKS, /* the parts are called where the op is */
    .kind = FL_KIND_REFERENCE,
    .priority = 40, /* below the reference's own */
    .devices = FL_DEVICE_ANY,
    .fn = run,
    .supports_args = supports_args,
    .workspace_size = workspace_size,
};
