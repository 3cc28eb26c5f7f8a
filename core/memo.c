/* Memos of good calls: see memo.h. tests/test_memo.c holds them against the full check on random calls. */
#include "core/memo.h"

#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

enum {
  PLACES = 64,
  MAX_TENSORS = 8,
  MAX_SCALARS = 16,
  MAX_DIMS = 4,
  MAX_PAIRS = 24,
  MAX_STRING = 24,
  NO_STRING = 0xff
};

/* Everything of a tensor but its address. */
typedef struct memo_tensor {
  uint8_t value;
  bool strided;   /* strides are given */
  uint64_t form;  /* ndim and dtype, which lie side by side in a DLTensor */
  uint64_t bytes; /* from the first to behind the last element; 0: it has none */
  int64_t shape[MAX_DIMS], strides[MAX_DIMS];
} memo_tensor;

/* A value that is no tensor, to the bit: whoever makes values with fl_none() and the like leaves no bit to chance. Of a
 * string the pointer does not count, but its text. */
typedef struct memo_scalar {
  uint64_t value;
  uint64_t head, bits; /* type and length; the value itself */
} memo_scalar;

/* Two tensors of which the call writes the first: apart, or (may_be) at the very same place. */
typedef struct memo_pair {
  uint32_t written, other; /* in `tensors` */
  bool may_be;
  uint64_t written_bytes, other_bytes;
} memo_pair;

typedef struct memo {
  uint64_t schema; /* fl_schema.id; 0: nothing is remembered */
  uint64_t head;   /* size and count of the call, which lie side by side */
  uint64_t device;
  uint32_t n_tensors, n_scalars, n_pairs;
  bool has_string;
  uint8_t string; /* the value that is one */
  char text[MAX_STRING];
  memo_scalar scalars[MAX_SCALARS];
  memo_tensor tensors[MAX_TENSORS];
  memo_pair pairs[MAX_PAIRS];
} memo;

struct fl_memos {
  memo places[PLACES];
};

fl_memos *fl_memos_create(void) {
  return calloc(1, sizeof(fl_memos));
}

void fl_memos_free(fl_memos *memos) {
  free(memos);
}

static inline uint64_t form_of(const DLTensor *tensor) {
  uint64_t form;
  _Static_assert(offsetof(DLTensor, dtype) == offsetof(DLTensor, ndim) + 4, "ndim and dtype lie side by side");
  memcpy(&form, &tensor->ndim, sizeof form);
  return form;
}

static inline uint64_t device_of(const DLTensor *tensor) {
  uint64_t device;
  _Static_assert(sizeof device == sizeof tensor->device, "a device is eight bytes");
  memcpy(&device, &tensor->device, sizeof device);
  return device;
}

static inline uint64_t begin_of(const DLTensor *tensor) {
  return (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset;
}

/* ---------------------------------------------------------------------------------------------------------- looking */

/* Differences are gathered and looked at once: a branch for each would cost more than they do. Most tensors have one or
 * two dimensions. */
static inline uint64_t differences(const int64_t *a, const int64_t *b, int32_t n) {
  if (n == 2)
    return (uint64_t)((a[0] ^ b[0]) | (a[1] ^ b[1]));
  uint64_t different = 0;
  for (int32_t i = 0; i < n; i++)
    different |= (uint64_t)(a[i] ^ b[i]);
  return different;
}

static inline bool same_form(uint64_t device, const memo_tensor *form, const DLTensor *tensor) {
  int32_t ndim = (int32_t)(uint32_t)form->form;
  if ((form_of(tensor) ^ form->form) | (device_of(tensor) ^ device) | !tensor->shape)
    return false;
  uint64_t different = differences(tensor->shape, form->shape, ndim);
  if (tensor->strides)
    different |= !form->strided || differences(tensor->strides, form->strides, ndim);
  else
    different |= form->strided;
  return !different && tensor->data;
}

bool fl_memo_has(const fl_memos *memos, const fl_schema *schema, const fl_call *call) {
  const memo *known = &memos->places[schema->id % PLACES];
  const fl_value *values = call->values;
  uint64_t begin[MAX_TENSORS], device = known->device, different = known->schema ^ schema->id;
  uint64_t call_head; /* its size and number of values */
  memcpy(&call_head, call, sizeof call_head);
  if (different | (call_head ^ known->head))
    return false;
  const memo_scalar *scalar = known->scalars, *scalars_end = scalar + known->n_scalars;
  for (; scalar < scalars_end; scalar++) {
    uint64_t head;
    memcpy(&head, &values[scalar->value], sizeof head);
    different |= (head ^ scalar->head) | ((uint64_t)values[scalar->value].v.i ^ scalar->bits);
  }
  if (different)
    return false;
  const memo_tensor *tensor = known->tensors, *tensors_end = tensor + known->n_tensors;
  for (uint64_t *at = begin; tensor < tensors_end; tensor++) {
    const fl_value *value = &values[tensor->value];
    const DLTensor *given = value->v.tensor;
    if (value->type != FL_TENSOR || !given || !same_form(device, tensor, given))
      return false;
    *at++ = begin_of(given);
  }
  const memo_pair *pair = known->pairs, *pairs_end = pair + known->n_pairs;
  for (; pair < pairs_end; pair++) {
    uint64_t apart = begin[pair->other] - begin[pair->written];
    /* Apart, unless one begins within the other. */
    if ((apart < pair->written_bytes || -apart < pair->other_bytes) && !(pair->may_be && !apart))
      return false;
  }
  return !known->has_string || (values[known->string].v.s && values[known->string].type == FL_STRING &&
                                !strcmp(values[known->string].v.s, known->text));
}

/* ---------------------------------------------------------------------------------------------------------- keeping */

static bool keep_tensor(memo *kept, uint8_t value, const DLTensor *tensor) {
  memo_tensor *form = &kept->tensors[kept->n_tensors];
  int64_t last = 0;
  /* Where `data` is a handle, addresses say nothing of overlap. */
  if (kept->n_tensors == MAX_TENSORS || tensor->ndim > MAX_DIMS || !tensor->data ||
      tensor->device.device_type == kDLOpenCL || tensor->device.device_type == kDLVulkan ||
      tensor->device.device_type == kDLMetal)
    return false;
  *form = (memo_tensor){.value = value, .strided = tensor->strides != NULL, .form = form_of(tensor)};
  for (int i = 0; i < tensor->ndim; i++) {
    form->shape[i] = tensor->shape[i];
    form->strides[i] = fl_stride(tensor, i);
    last += (tensor->shape[i] - 1) * form->strides[i];
  }
  if (fl_tensor_elements(tensor))
    form->bytes = (uint64_t)(last + 1) * fl_tensor_item_size(tensor);
  kept->device = device_of(tensor);
  kept->n_tensors++;
  return true;
}

static bool keep_scalar(memo *kept, uint8_t value, const fl_value *given) {
  memo_scalar *scalar = &kept->scalars[kept->n_scalars];
  if (given->type == FL_STRING) {
    if (kept->has_string || strlen(given->v.s) >= MAX_STRING)
      return false;
    kept->has_string = true;
    kept->string = value;
    strcpy(kept->text, given->v.s);
    return true;
  }
  if (kept->n_scalars == MAX_SCALARS || given->type == FL_INT_LIST)
    return false;
  scalar->value = value;
  memcpy(&scalar->head, given, sizeof scalar->head);
  scalar->bits = (uint64_t)given->v.i;
  kept->n_scalars++;
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
static bool interchangeable(const memo_tensor *a, const memo_tensor *b) {
  bool same = a->form == b->form;
  for (int32_t i = 0; same && i < (int32_t)(uint32_t)a->form; i++)
    same = a->shape[i] == b->shape[i] && (a->shape[i] < 2 || a->strides[i] == b->strides[i]);
  return same;
}

static bool keep_pairs(memo *kept, const fl_schema *schema) {
  for (uint32_t w = 0; w < kept->n_tensors; w++) {
    uint32_t written = (uint32_t)kept->tensors[w].value;
    if (!is_written(schema, written))
      continue;
    for (uint32_t o = 0; o < kept->n_tensors; o++) {
      if (o == w || !kept->tensors[w].bytes || !kept->tensors[o].bytes)
        continue;
      if (kept->n_pairs == MAX_PAIRS)
        return false;
      bool alias = schema->values[written].alias == (int32_t)kept->tensors[o].value;
      kept->pairs[kept->n_pairs++] = (memo_pair){
          .written = w,
          .other = o,
          .may_be = alias && interchangeable(&kept->tensors[w], &kept->tensors[o]),
          .written_bytes = kept->tensors[w].bytes,
          .other_bytes = kept->tensors[o].bytes,
      };
    }
  }
  return true;
}

void fl_memo_keep(fl_memos *memos, const fl_schema *schema, const fl_call *call) {
  memo *kept = &memos->places[schema->id % PLACES];
  kept->schema = 0;
  memcpy(&kept->head, call, sizeof kept->head);
  kept->n_tensors = kept->n_scalars = kept->n_pairs = 0;
  kept->has_string = false;
  for (uint8_t i = 0; i < call->count; i++) {
    const fl_value *value = &call->values[i];
    if (value->type == FL_TENSOR ? !keep_tensor(kept, i, value->v.tensor) : !keep_scalar(kept, i, value))
      return;
  }
  if (keep_pairs(kept, schema))
    kept->schema = schema->id;
}
