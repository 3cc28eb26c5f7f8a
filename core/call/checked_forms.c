/* Forms of good calls: see checked_forms.h. tests/test_checked_forms.c holds them against the full check on random
 * calls. */
#include "core/call/checked_forms.h"

#include "core/schema.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* Nothing is remembered there; its schema is that of none. */
static fl_checked_form nothing;

void *fl_checked_forms_create(void) {
  fl_checked_forms *forms = calloc(1, sizeof *forms);
  for (int i = 0; forms && i < FL_CHECKED_FORMS; i++)
    forms->places[i] = &nothing;
  return forms;
}

void fl_checked_forms_free(void *memory) {
  fl_checked_forms *forms = memory;
  for (int i = 0; forms && i < FL_CHECKED_FORMS; i++)
    if (forms->places[i] != &nothing)
      free(forms->places[i]);
  if (forms)
    fl_own_workspaces_free(forms->workspaces, FL_NESTING_MAX + 1);
  free(forms);
}

/* ---------------------------------------------------------------------------------------------------------- looking */

static bool has_layout(const fl_checked_form_tensor *known, const DLTensor *tensor) {
  int64_t different = known->strided != (tensor->strides != NULL);
  for (int32_t i = 0; i < tensor->ndim; i++)
    different |= tensor->shape[i] ^ known->shape[i];
  for (int32_t i = 0; tensor->strides && i < tensor->ndim; i++)
    different |= tensor->strides[i] ^ known->strides[i];
  return !different;
}

static bool has_tensor(const fl_checked_form_tensor *known, const fl_value *value) {
  const DLTensor *tensor = value->v.tensor;
  return value->type == FL_TENSOR && tensor && fl_checked_form_has_form(known, tensor) &&
         (known->plain ? fl_checked_form_is_plain(known, tensor) : has_layout(known, tensor));
}

static bool has_word(const fl_checked_form_word *known, const fl_value *value) {
  if (value->type != known->type || value->length != known->length || !value->v.s)
    return false;
  return known->type == FL_STRING ? !strcmp(value->v.s, known->text)
                                  : !memcmp(value->v.ints, known->text, known->length * sizeof *value->v.ints);
}

static bool has_words(const fl_checked_form *known, const fl_value *values) {
  for (uint32_t i = 0; i < known->n_words; i++)
    if (!has_word(&known->words[i], fl_checked_form_at(values, known->words[i].offset)))
      return false;
  return true;
}

/* Tensors of any kind, strings and lists, and the type of the result that is no tensor: what it is now is a former
 * call's. */
static bool has_any(fl_checked_form *known, const fl_value *values) {
  for (fl_checked_form_tensor *form = known->tensors; form < known->tensors_end; form++) {
    const fl_value *value = fl_checked_form_at(values, form->offset);
    if (!has_tensor(form, value) || !value->v.tensor->data)
      return false;
    form->begin = (uint64_t)(uintptr_t)value->v.tensor->data + value->v.tensor->byte_offset;
  }
  const fl_value *result = known->result < 0 ? NULL : &values[known->result];
  return fl_checked_form_has_pairs(known) && (!result || result->type == known->type || result->type == FL_NONE) &&
         has_words(known, values);
}

/* The call is one of ours in full: its head was compared, or is going to be. */
static int32_t ranks_of(const fl_call *call) {
  const fl_ranks *group = fl_call_ranks(call);
  return group ? group->ranks : 1;
}

bool fl_checked_form_has(const fl_checked_forms *forms, uint64_t schema, const fl_call *call) {
  fl_checked_form *known = fl_checked_form_of(forms, schema);
  uint64_t head;
  memcpy(&head, call, sizeof head);
  return known->schema == schema && head == known->head && known->ranks == ranks_of(call) && call->values &&
         fl_checked_form_has_scalars(known, call->values) && has_any(known, call->values);
}

/* Its form, shape included, is that of a result which was good. */
static void give_spec(const fl_checked_form_tensor *known, fl_tensor_spec *spec) {
  *spec = (fl_tensor_spec){.present = true, .ndim = (int32_t)(uint32_t)known->form};
  memcpy(&spec->device, &known->device, sizeof spec->device);
  memcpy(&spec->dtype, (const char *)&known->form + sizeof spec->ndim, sizeof spec->dtype);
  memcpy(spec->shape, known->shape, (size_t)spec->ndim * sizeof spec->shape[0]);
}

bool fl_checked_form_infer(const fl_checked_forms *forms, const fl_schema *schema, const fl_call *call,
                           fl_tensor_spec *results) {
  const fl_checked_form *known = fl_checked_form_of(forms, schema->id);
  const uint64_t first_result = schema->n_arguments * sizeof(fl_value);
  if (known->schema != schema->id || !schema->n_results || known->tensors_end - known->tensors <= schema->n_results ||
      known->ranks != ranks_of(call) || call->count < schema->n_arguments ||
      call->count > schema->n_arguments + schema->n_results)
    return false;
  /* Results come last: if all of them are tensors, everything before is an argument. */
  const fl_checked_form_tensor *made = known->tensors_end - schema->n_results;
  if (made->offset != first_result || !fl_checked_form_has_scalars(known, call->values) ||
      !has_words(known, call->values))
    return false;
  for (const fl_checked_form_tensor *form = known->tensors; form < made; form++)
    if (!has_tensor(form, fl_checked_form_at(call->values, form->offset)))
      return false;
  for (uint32_t r = 0; r < schema->n_results; r++)
    give_spec(&made[r], &results[r]);
  return true;
}

/* ---------------------------------------------------------------------------------------------------------- keeping */

static bool keep_tensor(fl_checked_form *kept, uint32_t value, const DLTensor *tensor) {
  fl_checked_form_tensor *form = &kept->tensors[kept->tensors_end - kept->tensors];
  int64_t last = 0;
  /* Where `data` is a handle, addresses say nothing of overlap. */
  if (form == kept->tensors + FL_CHECKED_FORM_TENSORS || tensor->ndim > FL_CHECKED_FORM_DIMS || !tensor->data ||
      tensor->device.device_type == kDLOpenCL || tensor->device.device_type == kDLVulkan ||
      tensor->device.device_type == kDLMetal)
    return false;
  *form = (fl_checked_form_tensor){
      .offset = value * sizeof(fl_value),
      .plain = !tensor->strides && (tensor->ndim == 1 || tensor->ndim == 2),
      .strided = tensor->strides != NULL,
  };
  memcpy(&form->device, &tensor->device, sizeof form->device);
  memcpy(&form->form, &tensor->ndim, sizeof form->form);
  for (int i = 0; i < tensor->ndim; i++) {
    form->shape[i] = tensor->shape[i];
    form->strides[i] = fl_stride(tensor, i);
    last += (tensor->shape[i] - 1) * form->strides[i];
  }
  if (form->plain) {
    form->last_offset = (uint64_t)(tensor->ndim - 1) * sizeof tensor->shape[0];
    form->first_size = tensor->shape[0];
    form->last_size = tensor->shape[tensor->ndim - 1];
  }
  if (fl_tensor_elements(tensor))
    form->bytes = (uint64_t)(last + 1) * fl_tensor_item_size(tensor);
  kept->tensors_end++;
  return true;
}

/* False: too unusual to be remembered. */
static bool keep_result(fl_checked_form *kept, uint32_t i, const fl_argument *result) {
  if (kept->result >= 0)
    return false;
  kept->result = (int32_t)i;
  kept->type = result->type;
  return true;
}

static bool keep_word(fl_checked_form *kept, uint32_t i, const fl_value *given) {
  size_t bytes = given->type == FL_STRING ? strlen(given->v.s) + 1 : given->length * sizeof *given->v.ints;
  if (kept->n_words == FL_CHECKED_FORM_WORDS || bytes > FL_CHECKED_FORM_TEXT || !given->v.s)
    return false;
  fl_checked_form_word *word = &kept->words[kept->n_words++];
  *word = (fl_checked_form_word){.offset = i * sizeof *given, .type = given->type, .length = given->length};
  memcpy(word->text, given->v.s, bytes);
  return true;
}

static bool keep_scalar(fl_checked_form *kept, uint32_t i, const fl_value *given) {
  if (given->type == FL_STRING || given->type == FL_INT_LIST)
    return keep_word(kept, i, given);
  if (kept->scalars_end == kept->scalars + FL_CHECKED_FORM_SCALARS)
    return false;
  kept->scalars[kept->scalars_end++ - kept->scalars] =
      (fl_checked_form_scalar){.bits = fl_checked_form_load(given), .offset = i * sizeof *given};
  return true;
}

/* A result is written, and so is a mutable argument that no result stands for. */
static bool is_written(const fl_schema *schema, uint32_t value) {
  for (uint32_t r = 0; r < schema->n_results; r++)
    if (schema->values[schema->n_arguments + r].alias == (int32_t)value)
      return false;
  return value >= schema->n_arguments || schema->values[value].mutates;
}

/* Could the one be exactly the other, by form? Each its own element, so that strides of sizes of 1 may differ. */
static bool interchangeable(const fl_checked_form_tensor *a, const fl_checked_form_tensor *b) {
  bool same = a->form == b->form;
  for (int32_t i = 0; same && i < (int32_t)(uint32_t)a->form; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] < 2 || a->strides[i] == b->strides[i]);
  return same;
}

static uint32_t value_of(const fl_checked_form_tensor *tensor) {
  return (uint32_t)(tensor->offset / sizeof(fl_value));
}

static bool keep_pairs(fl_checked_form *kept, const fl_schema *schema) {
  uint32_t n = (uint32_t)(kept->tensors_end - kept->tensors);
  for (uint32_t w = 0; w < n; w++) {
    uint32_t written = value_of(&kept->tensors[w]);
    if (!is_written(schema, written))
      continue;
    for (uint32_t o = 0; o < n; o++) {
      if (o == w || !kept->tensors[w].bytes || !kept->tensors[o].bytes)
        continue;
      if (kept->pairs_end == kept->pairs + FL_CHECKED_FORM_PAIRS)
        return false;
      bool alias = schema->values[written].alias == (int32_t)value_of(&kept->tensors[o]);
      kept->pairs[kept->pairs_end++ - kept->pairs] = (fl_checked_form_pair){
          .written = &kept->tensors[w],
          .other = &kept->tensors[o],
          .shift = kept->tensors[o].bytes - 1,
          .span = kept->tensors[w].bytes + kept->tensors[o].bytes - 1,
          .may_be = alias && interchangeable(&kept->tensors[w], &kept->tensors[o]),
      };
    }
  }
  return true;
}

void fl_checked_form_keep(fl_checked_forms *forms, const fl_schema *schema, const fl_call *call) {
  fl_checked_form **place = &forms->places[schema->id % FL_CHECKED_FORMS];
  if (*place == &nothing) {
    fl_checked_form *made = aligned_alloc(_Alignof(fl_checked_form), sizeof *made);
    if (!made)
      return;
    *place = made;
  }
  fl_checked_form *kept = *place;
  kept->schema = kept->plain = 0;
  memcpy(&kept->head, call, sizeof kept->head);
  kept->ranks = ranks_of(call);
  kept->scalars_end = kept->scalars;
  kept->tensors_end = kept->tensors;
  kept->pairs_end = kept->pairs;
  kept->n_words = 0;
  kept->result = -1;
  for (uint32_t i = 0; i < call->count; i++) {
    const fl_value *value = &call->values[i];
    bool by_value = i >= schema->n_arguments && schema->values[i].type != FL_TENSOR;
    if (by_value                   ? !keep_result(kept, i, &schema->values[i])
        : value->type == FL_TENSOR ? !keep_tensor(kept, i, value->v.tensor)
                                   : !keep_scalar(kept, i, value))
      return;
  }
  bool plain = kept->ranks == 1 && !kept->n_words && kept->result < 0 && kept->tensors_end > kept->tensors;
  for (const fl_checked_form_tensor *tensor = kept->tensors; tensor < kept->tensors_end; tensor++)
    plain = plain && tensor->plain;
  if ((kept->scalars_end - kept->scalars) & 1) {
    kept->scalars[kept->scalars_end - kept->scalars] = kept->scalars_end[-1];
    kept->scalars_end++;
  }
  if (!keep_pairs(kept, schema))
    return;
  kept->schema = schema->id;
  kept->plain = plain ? schema->id : 0;
}
