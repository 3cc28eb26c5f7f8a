/* Tensors where they lay: see placement.h. Trusts nothing in a file. */
#include "cli/trials/placement.h"

#include "cli/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is recorded of an address is modulo this. A file's strides may ask for so many bytes, and so many times what
 * its tensors have: gaps are memory. */
enum { ALIGNMENT = 256, OFFSET_MOST = 1 << 16, GAPS_TIMES = 64 };
static const size_t gaps_free = (size_t)64 << 20;

static FL_PRINTF(2, 3) bool fail(char *words, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, PLACEMENT_WORDS, format, arguments);
  va_end(arguments);
  return false;
}

/* ------------------------------------------------------------------------------------------------------ the text */

/* A number from 0 to `most`; where there is none it stays. */
static bool take_number(const placed *tensor, json_t *entry, const char *key, uint64_t most, size_t *number,
                        char *words) {
  json_t *json = json_object_get(entry, key);
  if (!json)
    return true;
  if (!json_is_integer(json) || json_integer_value(json) < 0 || (uint64_t)json_integer_value(json) > most)
    return fail(words, "metadata 'layout': '%s': '%s' is not a number from 0 to %" PRIu64, tensor->name, key, most);
  *number = (size_t)json_integer_value(json);
  return true;
}

static bool take_strides(placed *tensor, json_t *json, char *words) {
  json_t *item;
  size_t d;
  if (!json)
    return true;
  if (json_array_size(json) != (size_t)tensor->form->ndim || !json_is_array(json))
    return fail(words, "metadata 'layout': '%s': strides are not a list of %d, one for each dimension", tensor->name,
                tensor->form->ndim);
  json_array_foreach(json, d, item) {
    tensor->view.strides[d] = json_integer_value(item);
    if (!json_is_integer(item) || json_integer_value(item) < 0)
      return fail(words, "metadata 'layout': '%s': stride %zu is not an integer from 0", tensor->name, d);
  }
  tensor->tensor.strides = tensor->view.strides;
  return true;
}

static bool take_entry(placed *tensor, json_t *entry, char *words) {
  static const char *const keys[] = {"strides", "offset", "address", "memory", "at", NULL};
  size_t number = 0;
  const char *key;
  json_t *value;
  tensor->number = -1;
  tensor->tensor = *tensor->form;
  tensor->tensor.strides = NULL;
  if (!entry)
    return true;
  if (!json_is_object(entry))
    return fail(words, "metadata 'layout': '%s' is not an object", tensor->name);
  json_object_foreach(entry, key, value) {
    size_t i = 0;
    while (keys[i] && strcmp(keys[i], key) != 0)
      i++;
    if (!keys[i])
      return fail(words, "metadata 'layout': '%s': '%.80s' is not known%s", tensor->name, key,
                  cli_suggest("", cli_nearest(key, keys)).text);
  }
  if (json_object_get(entry, "memory")) {
    if (!take_number(tensor, entry, "memory", INT32_MAX, &number, words))
      return false;
    tensor->number = (int64_t)number;
  }
  return take_strides(tensor, json_object_get(entry, "strides"), words) &&
         take_number(tensor, entry, "offset", OFFSET_MOST, &tensor->offset, words) &&
         take_number(tensor, entry, "address", ALIGNMENT - 1, &tensor->address, words) &&
         take_number(tensor, entry, "at", INT64_MAX / 4, &tensor->at, words);
}

static bool check_names(const placement *made, json_t *saved, char *words) {
  const char *name;
  json_t *value;
  json_object_foreach(saved, name, value) {
    uint32_t i = 0;
    while (i < made->n && !(made->tensors[i].name && !strcmp(made->tensors[i].name, name)))
      i++;
    if (i == made->n)
      return fail(words, "metadata 'layout' names '%.80s', which the call does not have", name);
  }
  return true;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Bytes from the first element to behind the last; false: more than there can be. */
static bool find_span(const DLTensor *tensor, size_t *span, size_t *elements) {
  size_t item = tensor->dtype.bits / 8u, step;
  bool fits = true;
  *span = 0;
  *elements = item;
  for (int d = 0; d < tensor->ndim && fits; d++)
    fits = !__builtin_mul_overflow(*elements, (size_t)tensor->shape[d], elements);
  for (int d = 0; d < tensor->ndim && *elements && fits; d++)
    fits = !__builtin_mul_overflow((size_t)fl_stride(tensor, d), (size_t)tensor->shape[d] - 1, &step) &&
           !__builtin_mul_overflow(step, item, &step) && !__builtin_add_overflow(*span, step, span);
  *span += *elements ? item : 0;
  return fits && *span < SIZE_MAX / 4;
}

/* Do two lie in one memory? */
static bool is_in(const placed *tensor, const placed *first) {
  return tensor->name && (tensor == first || (first->number >= 0 && tensor->number == first->number));
}

/* Where the data pointer is before the first element, memory is to be before it, too; at an edge there is none. */
static size_t lead_of(const placement *made, const placed *first, memory_edge edge) {
  size_t lead = 0, address = 0;
  for (uint32_t i = 0; i < made->n; i++) {
    const placed *tensor = &made->tensors[i];
    if (!is_in(tensor, first))
      continue;
    if (tensor->offset > tensor->at + lead)
      lead = tensor->offset - tensor->at;
    if (!tensor->at)
      address = tensor->address;
  }
  return edge ? 0 : (lead + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + address;
}

/* The memory of a tensor and of those that share it. */
static bool make_memory(placement *made, place at, placed *first, memory_edge edge, char *words) {
  size_t size = 0, all = 0, span, elements, lead = lead_of(made, first, edge);
  guarded *memory = &made->memories[made->n_memories];
  for (uint32_t i = 0; i < made->n; i++) {
    const placed *tensor = &made->tensors[i];
    if (!is_in(tensor, first))
      continue;
    if (!find_span(&tensor->tensor, &span, &elements))
      return fail(words, "metadata 'layout': '%s': its strides span more than any memory", tensor->name);
    size = tensor->at + span > size ? tensor->at + span : size;
    all += elements;
  }
  if (size > gaps_free && size / GAPS_TIMES > all)
    return fail(words, "metadata 'layout': '%s': %zu bytes of memory for %zu of elements", first->name, size, all);
  fl_tensor_spec bytes = {.present = true, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = {(int64_t)(lead + size)}};
  if (!guarded_create(memory, at, &bytes, LAYOUT_COMPACT, edge, NULL))
    return fail(words, "no memory for '%s'", first->name);
  made->n_memories++;
  for (uint32_t i = 0; i < made->n; i++) {
    placed *tensor = &made->tensors[i];
    if (!is_in(tensor, first))
      continue;
    tensor->memory = memory;
    guarded_view(&tensor->view, memory, &tensor->tensor, memory->tensor.byte_offset + lead + tensor->at);
    tensor->tensor = tensor->view.tensor;
    tensor->tensor.device = at.device;
    tensor->tensor.data = (char *)memory->tensor.data + tensor->view.tensor.byte_offset - tensor->offset;
    tensor->tensor.byte_offset = tensor->offset;
  }
  return true;
}

bool placement_create(placement *made, place at, json_t *saved, memory_edge edge, char words[PLACEMENT_WORDS]) {
  bool right = json_is_object(saved) || fail(words, "metadata 'layout' is not a JSON object");
  made->memories = calloc(made->n + 1, sizeof *made->memories);
  if (!made->memories)
    return fail(words, "out of memory");
  right = right && check_names(made, saved, words);
  for (uint32_t i = 0; i < made->n && right; i++)
    if (made->tensors[i].name)
      right = take_entry(&made->tensors[i], json_object_get(saved, made->tensors[i].name), words);
  for (uint32_t i = 0; i < made->n && right; i++)
    if (made->tensors[i].name && !made->tensors[i].memory)
      right = make_memory(made, at, &made->tensors[i], edge, words);
  return right;
}

void placement_free(placement *made) {
  for (uint32_t i = 0; i < made->n_memories; i++)
    guarded_free(&made->memories[i]);
  free(made->memories);
  free(made->tensors);
  *made = (placement){0};
}

/* --------------------------------------------------------------------------------------------------------- the call */

fl_status placement_reset(const placement *made) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < made->n_memories && !status; i++)
    status = guarded_reset(&made->memories[i]);
  return status;
}

fl_status placement_fetch(const placement *made) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < made->n_memories && !status; i++)
    status = guarded_fetch(&made->memories[i]);
  return status;
}

const placed *placement_changed(const placement *made, const bool *written, char words[PLACEMENT_WORDS]) {
  const placed *found = NULL;
  char where[PLACEMENT_WORDS];
  for (uint32_t i = 0; i < made->n; i++)
    if (made->tensors[i].name && written[i])
      guarded_accept(&made->tensors[i].view);
  /* Of several in one memory the one that has the element. */
  for (uint32_t i = 0; i < made->n; i++) {
    const placed *tensor = &made->tensors[i];
    if (!tensor->name || guarded_is_intact(&tensor->view, false, where, sizeof where))
      continue;
    bool is_element = !strncmp(where, "element ", strlen("element "));
    if (found && !(is_element && tensor->memory == found->memory))
      continue;
    found = tensor;
    memcpy(words, where, sizeof where);
    if (is_element)
      break;
  }
  return found;
}

bool placement_locate(const placement *made, const void *address, char *words, size_t size) {
  char where[64];
  for (uint32_t i = 0; i < made->n; i++)
    if (made->tensors[i].name && guarded_is_beyond(&made->tensors[i].view, address, where, sizeof where)) {
      snprintf(words, size, "%s of '%s'", where, made->tensors[i].name);
      return true;
    }
  return false;
}
