/* Where a call's tensors lie in memory: see layout.h. */
#include "core/guard/layout.h"

#include "core/support.h"

#include <stdlib.h>

/* Addresses are kept modulo this: no kernel asks for more. Of byte offsets no more than this is kept beyond it. */
enum { ALIGNMENT = 256, OFFSET_MOST = 4096 };

/* A tensor, and the memory that it shares with others. */
typedef struct lying {
  const DLTensor *tensor; /* NULL: none that lies anywhere */
  uintptr_t begin, end;
  uint32_t memory; /* number of the first value that shares it; its own: none before it does */
} lying;

static bool is_forwards(const DLTensor *tensor) {
  for (int d = 0; d < tensor->ndim; d++)
    if (fl_stride(tensor, d) < 0 && tensor->shape[d] > 1)
      return false;
  return true;
}

static lying look(const fl_value *value, uint32_t i) {
  const DLTensor *tensor = value->type == FL_TENSOR ? value->v.tensor : NULL;
  if (!tensor || tensor->ndim > FL_MAX_DIMS || !is_forwards(tensor))
    return (lying){.memory = i};
  uintptr_t begin = (uintptr_t)fl_data(tensor);
  return (lying){.tensor = tensor, .begin = begin, .end = begin + fl_tensor_span(tensor), .memory = i};
}

static bool overlap(const lying *a, const lying *b) {
  const DLTensor *x = a->tensor, *y = b->tensor;
  return x && y && x->device.device_type == y->device.device_type && x->device.device_id == y->device.device_id &&
         a->begin < b->end && b->begin < a->end;
}

/* What overlaps shares memory, and with whatever that overlaps. */
static void find_shared(lying *all, uint32_t n) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (uint32_t i = 0; i < n; i++)
      for (uint32_t j = i + 1; j < n; j++) {
        uint32_t first = all[i].memory < all[j].memory ? all[i].memory : all[j].memory;
        if (all[i].memory == all[j].memory || !overlap(&all[i], &all[j]))
          continue;
        all[i].memory = all[j].memory = first;
        changed = true;
      }
  }
}

/* Does another share it? Then also where all of it begins. */
static bool is_shared(const lying *all, uint32_t n, uint32_t i, uintptr_t *begin) {
  bool shared = false;
  *begin = all[i].begin;
  for (uint32_t j = 0; j < n; j++) {
    if (j == i || !all[j].tensor || all[j].memory != all[i].memory)
      continue;
    shared = true;
    if (all[j].begin < *begin)
      *begin = all[j].begin;
  }
  return shared;
}

static bool put(json_t *to, const char *key, uint64_t number) {
  return !json_object_set_new(to, key, json_integer((json_int_t)number));
}

static json_t *make_entry(const lying *all, uint32_t n, uint32_t i) {
  const DLTensor *tensor = all[i].tensor;
  uint64_t offset = tensor->byte_offset;
  uintptr_t memory;
  json_t *entry = json_object(), *strides = NULL;
  bool made = entry;
  if (made && tensor->strides && tensor->ndim) {
    strides = json_array();
    made = !json_object_set_new(entry, "strides", strides);
  }
  for (int d = 0; made && strides && d < tensor->ndim; d++)
    made = !json_array_append_new(strides, json_integer(tensor->strides[d]));
  if (made && offset)
    made = put(entry, "offset", offset < OFFSET_MOST ? offset : OFFSET_MOST + offset % OFFSET_MOST);
  if (made && all[i].begin % ALIGNMENT)
    made = put(entry, "address", all[i].begin % ALIGNMENT);
  if (made && is_shared(all, n, i, &memory))
    made = put(entry, "memory", all[i].memory) && put(entry, "at", all[i].begin - memory);
  if (made)
    return entry;
  json_decref(entry);
  return NULL;
}

json_t *fl_layout_to_json(const fl_schema *schema, const fl_value *values, uint32_t n) {
  lying all[FL_SCHEMA_MAX_VALUES];
  json_t *layout = json_object();
  bool made = layout;
  for (uint32_t i = 0; i < n; i++)
    all[i] = look(&values[i], i);
  find_shared(all, n);
  for (uint32_t i = 0; i < n && made; i++) {
    json_t *entry = all[i].tensor ? make_entry(all, n, i) : NULL;
    char *name = fl_format("%s%s", i < schema->n_arguments ? "" : "out.", schema->values[i].name);
    made = name && (!all[i].tensor || entry);
    if (made && entry && json_object_size(entry))
      made = !json_object_set(layout, name, entry);
    free(name);
    json_decref(entry);
  }
  if (made)
    return layout;
  json_decref(layout);
  return NULL;
}
