/* Watched copies of a call's tensors: see copies.h. */
#include "core/guard/copies.h"

#include "core/guard/touch.h"
#include "core/support.h"

#include <flhost/device.h>
#include <flhost/element.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* On each side. Of guard pages nothing but addresses is used up; a margin on a device is memory. */
enum { GUARD = 1 << 20, MARGIN = 256, ALIGNMENT_MAX = 256 };

static int64_t elements_size(const DLTensor *tensor) {
  return fl_tensor_elements(tensor) * (int64_t)fl_tensor_item_size(tensor);
}

/* On the host, with the elements where `first` is. */
static DLTensor image_of(const fl_copy *copy, char *first) {
  DLTensor tensor = copy->tensor;
  tensor.device = (DLDevice){kDLCPU, 0};
  tensor.data = first;
  tensor.byte_offset = 0;
  return tensor;
}

/* ---------------------------------------------------------------------------------------------------------- memory */

static size_t page_size(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t size, size_t to) {
  return (size + to - 1) / to * to;
}

/* That of the caller's memory, as far as anybody can rely on it. */
static size_t alignment_of(const void *memory) {
  uintptr_t address = (uintptr_t)memory | ALIGNMENT_MAX;
  return (size_t)(address & -address);
}

static bool map_guarded(fl_copies *copies, fl_copy *copy, const void *original) {
  copy->inside_size = round_up(copy->span ? copy->span : 1, page_size());
  copy->map_size = copy->inside_size + (size_t)2 * GUARD;
  copy->map = mmap(NULL, copy->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (copy->map == MAP_FAILED) {
    copy->map = NULL;
    copy->map_size = 0;
    return false;
  }
  copy->inside = copy->map + GUARD;
  size_t room = copy->inside_size - copy->span;
  copy->first = copy->inside + (copies->at_end ? room / alignment_of(original) * alignment_of(original) : 0);
  return !mprotect(copy->inside, copy->inside_size, PROT_READ | PROT_WRITE);
}

static bool allocate_plain(fl_copy *copy) {
  copy->inside_size = round_up(copy->span + (size_t)2 * MARGIN, ALIGNMENT_MAX);
  copy->map = copy->inside = aligned_alloc(ALIGNMENT_MAX, copy->inside_size);
  copy->first = copy->inside ? copy->inside + MARGIN : NULL;
  return copy->inside;
}

static void name_copy(const fl_copies *copies, fl_copy *copy) {
  static const char *const roles[] = {
      [FL_COPY_INPUT] = "argument", [FL_COPY_STATE] = "argument", [FL_COPY_RESULT] = "result", [FL_COPY_SCRATCH] = ""};
  const fl_element_type *type = fl_element_type_of(copy->tensor.dtype);
  int length =
      snprintf(copy->what, sizeof copy->what, "op '%.120s', implementation '%.120s': %s%s%.120s%s (%s[",
               copies->op->name, copies->record->impl_id, roles[copy->role], copy->role == FL_COPY_SCRATCH ? "" : " '",
               copy->name, copy->role == FL_COPY_SCRATCH ? "" : "'", type ? type->name : "?");
  for (int d = 0; d < copy->tensor.ndim; d++)
    length +=
        snprintf(copy->what + length, sizeof copy->what - (size_t)length, "%s%" PRId64, d ? ", " : "", copy->shape[d]);
  snprintf(copy->what + length, sizeof copy->what - (size_t)length, "])");
}

/* What follows the names of op and implementation, which every message of a failure has already. */
static const char *words_of(const fl_copy *copy) {
  return strstr(copy->what, "': ") + strlen("': ");
}

static void watch_copy(fl_copy *copy) {
  const fl_watched_memory memory = {copy->map,   copy->map_size, copy->inside, copy->inside_size,
                                    copy->first, copy->span,     copy->what};
  copy->watch = fl_touch_watch(&memory);
}

/* -------------------------------------------------------------------------------------------------------- contents */

static fl_status synchronize(const fl_copies *copies, const fl_copy *copy) {
  return fl_device_synchronize(copies->op->host, copy->tensor.device, copies->call.stream, false);
}

static fl_status put_on_device(const fl_copies *copies, const fl_copy *copy) {
  return fl_device_copy(copies->op->host, copy->tensor.device, copy->on_device, copy->inside, copy->inside_size,
                        FL_COPY_TO_DEVICE, copies->call.stream);
}

/* The caller's elements, gaps included. */
static fl_status save_before(const fl_copies *copies, fl_copy *copy) {
  copy->before = malloc(copy->span ? copy->span : 1);
  if (!copy->before)
    return fl_error_no_memory();
  const void *from = copy->original ? fl_data(copy->original) : NULL;
  if (!copy->span || !from)
    return FL_OK;
  if (copy->on_device)
    return fl_device_copy(copies->op->host, copy->tensor.device, copy->before, from, copy->span, FL_COPY_TO_HOST,
                          copies->call.stream);
  memcpy(copy->before, from, copy->span);
  return FL_OK;
}

/* Elements into memory that is pattern elsewhere; an input that is between guard pages becomes read-only. */
static fl_status fill(const fl_copies *copies, fl_copy *copy) {
  bool locked = copies->guarded && !copy->on_device && copy->role == FL_COPY_INPUT;
  memset(copy->inside, copy->pattern, copy->inside_size);
  if (copy->before) {
    DLTensor to = image_of(copy, copy->first), from = image_of(copy, copy->before);
    fl_tensor_copy(&to, &from);
  } else if (copy->role == FL_COPY_INPUT) {
    DLTensor to = image_of(copy, copy->first), from = *copy->original;
    fl_tensor_copy(&to, &from);
  }
  if (locked && mprotect(copy->inside, copy->inside_size, PROT_READ))
    return fl_error_no_memory();
  return copy->on_device ? put_on_device(copies, copy) : FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- making */

static fl_status make_memory(fl_copies *copies, fl_copy *copy, const void *original) {
  bool on_device = copy->tensor.device.device_type != kDLCPU, mapped = copies->guarded && !on_device;
  if (!(mapped ? map_guarded(copies, copy, original) : allocate_plain(copy)))
    return fl_error_no_memory();
  if (on_device) {
    fl_status status = fl_device_allocate(copies->op->host, copy->tensor.device, copy->inside_size, &copy->on_device);
    if (status)
      return status;
  }
  copy->tensor.data = on_device ? (char *)copy->on_device + (copy->first - copy->inside) : copy->first;
  name_copy(copies, copy);
  if (mapped)
    watch_copy(copy);
  return FL_OK;
}

/* For looking at it afterwards, when no memory may be missing. */
static fl_status make_room(fl_copy *copy) {
  bool has_gaps = (int64_t)copy->span > elements_size(&copy->tensor), is_result = copy->role == FL_COPY_RESULT;
  if (has_gaps)
    copy->gaps = malloc(copy->span);
  if (is_result)
    copy->earlier = malloc(copy->span ? copy->span : 1);
  return (has_gaps && !copy->gaps) || (is_result && !copy->earlier) ? fl_error_no_memory() : FL_OK;
}

static fl_status make_copy(fl_copies *copies, fl_copy_role role, const char *name, const DLTensor *original) {
  fl_copy *copy = &copies->copies[copies->n];
  *copy = (fl_copy){
      .role = role, .name = name, .original = original, .tensor = *original, .pattern = FL_PATTERN, .watch = -1};
  if (!fl_element_type_of(original->dtype) || original->ndim > FL_MAX_DIMS)
    return fl_error(FL_ENOTSUP, "'%s' has an element type that is not known", name);
  for (int d = 0; d < original->ndim; d++) {
    copy->shape[d] = original->shape[d];
    copy->strides[d] = fl_stride(original, d);
    if (copy->strides[d] < 0)
      return fl_error(FL_ENOTSUP, "'%s' has negative strides", name);
  }
  copy->tensor.shape = copy->shape;
  copy->tensor.strides = original->strides ? copy->strides : NULL;
  copy->tensor.byte_offset = 0;
  copy->span = fl_tensor_span(original);
  copies->n++;
  fl_status status = make_memory(copies, copy, fl_data(original));
  if (!status && copies->guarded)
    status = make_room(copy);
  if (!status && (role == FL_COPY_STATE || (role == FL_COPY_INPUT && copy->on_device)))
    status = save_before(copies, copy);
  return status ? status : fill(copies, copy);
}

/* The result that is the very tensor of argument `i`, or any that may be; -1: none. */
static int32_t result_of(const fl_schema *schema, const fl_call *call, uint32_t i, bool in_place) {
  for (uint32_t r = schema->n_arguments; r < schema->n_arguments + schema->n_results; r++)
    if (schema->values[r].alias == (int32_t)i &&
        (!in_place || (r < call->count && call->values[r].type == FL_TENSOR &&
                       fl_data(call->values[r].v.tensor) == fl_data(call->values[i].v.tensor))))
      return (int32_t)r;
  return -1;
}

static fl_copy_role role_of(const fl_schema *schema, const fl_call *call, uint32_t i) {
  if (i >= schema->n_arguments)
    return FL_COPY_RESULT;
  bool overwritten =
      schema->values[i].mutates && (result_of(schema, call, i, true) >= 0 || result_of(schema, call, i, false) < 0);
  return overwritten ? FL_COPY_STATE : FL_COPY_INPUT;
}

static fl_status make_value(fl_copies *copies, uint32_t i) {
  const fl_schema *schema = copies->op->schema;
  const fl_call *call = copies->given;
  copies->at[i] = FL_COPY_NONE;
  if (call->values[i].type != FL_TENSOR)
    return FL_OK;
  int32_t alias = i < schema->n_arguments ? -1 : schema->values[i].alias;
  bool in_place = alias >= 0 && result_of(schema, call, (uint32_t)alias, true) == (int32_t)i;
  copies->at[i] = in_place ? copies->at[alias] : (uint8_t)copies->n;
  return in_place ? FL_OK
                  : make_copy(copies, role_of(schema, call, i), schema->values[i].name, call->values[i].v.tensor);
}

/* The workspace, where the processor uses it. */
static fl_status make_scratch(fl_copies *copies) {
  int64_t size = (int64_t)copies->given->workspace_size;
  DLTensor bytes = {
      .data = copies->given->workspace, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = &size};
  if (!bytes.data || (copies->n && copies->copies[0].on_device))
    return FL_OK;
  uint32_t i = copies->n;
  fl_status status = make_copy(copies, FL_COPY_SCRATCH, "the workspace", &bytes);
  copies->workspace = status ? NULL : copies->copies[i].first;
  return status;
}

fl_status fl_copies_make(fl_copies *copies, const fl_call *call) {
  const fl_schema *schema = copies->op->schema;
  uint32_t n = schema->n_arguments + schema->n_results;
  fl_status status = FL_OK;
  copies->given = call;
  copies->call = *call;
  if (call->count > n)
    return fl_error(FL_ENOTSUP, "the call has more values than the op");
  for (uint32_t i = 0; i < call->count && !status; i++)
    status = make_value(copies, i);
  if (!status)
    status = make_scratch(copies);
  if (status)
    fl_copies_free(copies);
  return status;
}

void fl_copies_lend(fl_copies *copies) {
  copies->call = *copies->given;
  copies->call.values = copies->values;
  if (copies->workspace)
    copies->call.workspace = copies->workspace;
  for (uint32_t i = 0; i < copies->n; i++) {
    fl_copy *copy = &copies->copies[i];
    copy->lent = copy->tensor;
    memcpy(copy->lent_shape, copy->shape, sizeof copy->shape);
    memcpy(copy->lent_strides, copy->strides, sizeof copy->strides);
    copy->lent.shape = copy->lent_shape;
    copy->lent.strides = copy->tensor.strides ? copy->lent_strides : NULL;
  }
  for (uint32_t i = 0; i < copies->call.count; i++)
    copies->values[i] =
        copies->at[i] == FL_COPY_NONE ? copies->given->values[i] : fl_tensor(&copies->copies[copies->at[i]].lent);
}

fl_status fl_copies_renew(fl_copies *copies, unsigned char pattern) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < copies->n && !status; i++) {
    fl_copy *copy = &copies->copies[i];
    if (copy->role == FL_COPY_INPUT)
      continue; /* as it was */
    copy->pattern = pattern;
    if (copy->role == FL_COPY_RESULT)
      memcpy(copy->earlier, copy->first, copy->span);
    status = fill(copies, copy);
  }
  return status;
}

fl_status fl_copies_fetch(fl_copies *copies) {
  fl_status status = FL_OK;
  bool waited = false;
  for (uint32_t i = 0; i < copies->n && !status; i++) {
    fl_copy *copy = &copies->copies[i];
    if (!copy->on_device)
      continue;
    if (!waited)
      status = synchronize(copies, copy);
    waited = true;
    if (!status)
      status = fl_device_copy(copies->op->host, copy->tensor.device, copy->inside, copy->on_device, copy->inside_size,
                              FL_COPY_TO_HOST, copies->call.stream);
  }
  return status;
}

void fl_copies_free(fl_copies *copies) {
  fl_kept_error why; /* of the call, in the same place */
  fl_error_keep(&why);
  for (uint32_t i = 0; i < copies->n; i++) {
    fl_copy *copy = &copies->copies[i];
    fl_touch_release(copy->watch);
    if (copy->on_device) {
      synchronize(copies, copy);
      fl_device_free(copies->op->host, copy->tensor.device, copy->on_device);
    }
    if (copy->map_size)
      munmap(copy->map, copy->map_size);
    else
      free(copy->map);
    free(copy->before);
    free(copy->earlier);
    free(copy->gaps);
  }
  copies->n = 0;
  fl_error_restore(&why);
}

/* --------------------------------------------------------------------------------------------------------- looking */

static bool said_spoilt(const fl_copy *copy, ptrdiff_t byte, fl_text *text) {
  if (byte < 0)
    fl_text_add(text, "%s was touched %td bytes before its beginning", words_of(copy), -byte);
  else if (byte >= (ptrdiff_t)copy->span)
    fl_text_add(text, "%s was touched %td bytes behind its end", words_of(copy), byte - (ptrdiff_t)copy->span + 1);
  else
    fl_text_add(text, "%s is an input and was written at byte %td", words_of(copy), byte);
  return true;
}

/* The first byte of a run that is not the pattern; NULL: all are. */
static const char *not_pattern(const char *from, const char *to, unsigned char pattern) {
  for (; from < to; from++)
    if ((unsigned char)*from != pattern)
      return from;
  return NULL;
}

static fl_status cover(void *pattern, void *to, const void *from, size_t size) {
  (void)from;
  memset(to, *(unsigned char *)pattern, size);
  return FL_OK;
}

/* A byte between rows that was written. */
static bool gap_spoilt(const fl_copy *copy, fl_text *text) {
  unsigned char pattern = copy->pattern;
  if (!copy->gaps)
    return false;
  memcpy(copy->gaps, copy->first, copy->span);
  DLTensor image = image_of(copy, copy->gaps);
  fl_tensor_copy_with(&image, &image, cover, &pattern);
  const char *byte = not_pattern(copy->gaps, copy->gaps + copy->span, pattern);
  if (byte)
    fl_text_add(text, "%s was written between its rows, at byte %td", words_of(copy), byte - copy->gaps);
  return byte;
}

/* Walks over a tensor's elements in runs, and another's of the same form: what is found, and how far the walk is. */
typedef struct walk {
  const fl_copy *copy;
  const fl_element_type *type;
  int64_t at, first, count; /* elements so far; the first that was found, -1: none; how many were */
} walk;

static void found(walk *w, int64_t element) {
  w->first = w->first < 0 ? element : w->first;
  w->count++;
}

static walk walk_over(const fl_copy *copy, char *elements, char *others, fl_copy_fn look) {
  walk w = {.copy = copy, .type = fl_element_type_of(copy->tensor.dtype), .first = -1};
  DLTensor from = image_of(copy, elements), to = image_of(copy, others);
  fl_tensor_copy_with(&to, &from, look, &w);
  return w;
}

static fl_status look_for_change(void *user, void *others, const void *elements, size_t size) {
  walk *w = user;
  const char *a = elements, *b = others;
  for (size_t i = 0; i < size && memcmp(a, b, size); i++)
    if (a[i] != b[i]) {
      found(w, a + i - w->copy->first);
      return FL_EINTERNAL;
    }
  return FL_OK;
}

/* An input on a device is not what it was. */
static bool input_changed(const fl_copy *copy, fl_text *text) {
  if (copy->role != FL_COPY_INPUT || !copy->before)
    return false;
  walk w = walk_over(copy, copy->first, copy->before, look_for_change);
  return w.count && said_spoilt(copy, (ptrdiff_t)w.first, text);
}

static bool copy_spoilt(const fl_copy *copy, fl_text *text) {
  ptrdiff_t byte;
  if (fl_touch_look(copy->watch, &byte))
    return said_spoilt(copy, byte, text);
  /* What lies next is looked at first: an error by one is more likely than one by many. */
  const char *end = copy->first + copy->span,
             *spoilt = not_pattern(end, copy->inside + copy->inside_size, copy->pattern);
  if (!spoilt)
    spoilt = not_pattern(copy->inside, copy->first, copy->pattern);
  if (spoilt)
    return said_spoilt(copy, spoilt - copy->first, text);
  return gap_spoilt(copy, text) || input_changed(copy, text);
}

bool fl_copies_spoilt(const fl_copies *copies, fl_text *text) {
  for (uint32_t i = 0; i < copies->n; i++)
    if (copy_spoilt(&copies->copies[i], text))
      return true;
  return false;
}

static bool is_all(const char *bytes, size_t n, unsigned char pattern) {
  return !not_pattern(bytes, bytes + n, pattern);
}

/* Elements that are the pattern in each byte. */
static fl_status look_for_pattern(void *user, void *others, const void *elements, size_t size) {
  walk *w = user;
  const char *element = elements, *end = element + size;
  size_t item = fl_tensor_item_size(&w->copy->tensor);
  (void)others;
  for (; element < end; element += item, w->at++)
    if (is_all(element, item, w->copy->pattern))
      found(w, w->at);
  return FL_OK;
}

/* In an earlier run, too. */
static fl_status look_for_both(void *user, void *others, const void *elements, size_t size) {
  walk *w = user;
  const char *element = elements, *earlier = others, *end = element + size;
  size_t item = fl_tensor_item_size(&w->copy->tensor);
  for (; element < end; element += item, earlier += item, w->at++)
    if (is_all(element, item, w->copy->pattern) && is_all(earlier, item, FL_PATTERN))
      found(w, w->at);
  return FL_OK;
}

static fl_status look_for_not_finite(void *user, void *others, const void *elements, size_t size) {
  walk *w = user;
  int64_t n = (int64_t)(size / fl_tensor_item_size(&w->copy->tensor));
  (void)others;
  for (int64_t i = 0; i < n; i++)
    if (!isfinite(w->type->get(elements, i))) {
      found(w, w->at + i);
      return FL_EINTERNAL;
    }
  w->at += n;
  return FL_OK;
}

bool fl_copies_maybe_unwritten(const fl_copies *copies) {
  bool maybe = false;
  for (uint32_t i = 0; i < copies->n && !maybe; i++) {
    const fl_copy *copy = &copies->copies[i];
    maybe = copy->role == FL_COPY_RESULT && walk_over(copy, copy->first, copy->first, look_for_pattern).count;
  }
  return maybe;
}

static void add_index(const DLTensor *tensor, int64_t element, fl_text *text) {
  int64_t index[FL_MAX_DIMS];
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    index[d] = element % tensor->shape[d];
    element /= tensor->shape[d];
  }
  for (int d = 0; d < tensor->ndim; d++)
    fl_text_add(text, "%s%" PRId64, d ? ", " : "[", index[d]);
  fl_text_add(text, tensor->ndim ? "]" : "[]");
}

bool fl_copies_unwritten(const fl_copies *copies, fl_text *text) {
  for (uint32_t i = 0; i < copies->n; i++) {
    const fl_copy *copy = &copies->copies[i];
    walk w = {0};
    if (copy->role == FL_COPY_RESULT)
      w = walk_over(copy, copy->first, copy->earlier, look_for_both);
    if (!w.count)
      continue;
    fl_text_add(text, "%s: %" PRId64 " of %" PRId64 " elements are left unwritten, the first at ", words_of(copy),
                w.count, w.at);
    add_index(&copy->tensor, w.first, text);
    return true;
  }
  return false;
}

/* The first element that is not finite; -1: none. */
static int64_t first_not_finite(const fl_copy *copy, char *elements) {
  bool may_be = fl_element_type_of(copy->tensor.dtype)->largest != 0;
  return may_be ? walk_over(copy, elements, elements, look_for_not_finite).first : -1;
}

bool fl_copies_not_finite(const fl_copies *copies, fl_text *text) {
  for (uint32_t i = 0; i < copies->n; i++) {
    const fl_copy *copy = &copies->copies[i];
    bool given = copy->role == FL_COPY_INPUT || copy->role == FL_COPY_STATE;
    if (given && first_not_finite(copy, copy->role == FL_COPY_STATE ? copy->before : copy->first) >= 0)
      return false;
  }
  for (uint32_t i = 0; i < copies->n; i++) {
    const fl_copy *copy = &copies->copies[i];
    bool written = copy->role == FL_COPY_RESULT || copy->role == FL_COPY_STATE;
    int64_t at = written ? first_not_finite(copy, copy->first) : -1;
    if (at < 0)
      continue;
    fl_text_add(text, "%s is not finite at ", words_of(copy));
    add_index(&copy->tensor, at, text);
    return true;
  }
  return false;
}

/* ---------------------------------------------------------------------------------------------------------- giving */

typedef struct device_run {
  const fl_copies *copies;
  const fl_copy *copy;
} device_run;

static fl_status run_to_device(void *user, void *to, const void *from, size_t size) {
  const device_run *run = user;
  return fl_device_copy(run->copies->op->host, run->copy->tensor.device, to, from, size, FL_COPY_TO_DEVICE,
                        run->copies->call.stream);
}

/* Bytes of the elements from `begin` to before `end` of the span to their place in the caller's. */
static fl_status give_run(const fl_copies *copies, const fl_copy *copy, size_t begin, size_t end) {
  device_run run = {copies, copy};
  char *to = (char *)fl_data(copy->original) + begin;
  if (copy->on_device)
    return begin < end ? run_to_device(&run, to, copy->first + begin, end - begin) : FL_OK;
  memcpy(to, copy->first + begin, end - begin);
  return FL_OK;
}

/* Elements that changed, and no others: the caller's other threads may be writing those. */
static fl_status give_changed(const fl_copies *copies, const fl_copy *copy) {
  const DLTensor *tensor = &copy->tensor;
  int64_t n = fl_tensor_elements(tensor), index[FL_MAX_DIMS] = {0};
  size_t item = fl_tensor_item_size(tensor), begin = 0, end = 0;
  fl_status status = FL_OK;
  for (int64_t i = 0; i < n && !status; i++) {
    int64_t offset = 0;
    for (int d = 0; d < tensor->ndim; d++)
      offset += index[d] * fl_stride(tensor, d);
    size_t at = (size_t)offset * item;
    if (memcmp(copy->first + at, copy->before + at, item)) {
      if (at != end) {
        status = give_run(copies, copy, begin, end);
        begin = at;
      }
      end = at + item;
    }
    for (int d = tensor->ndim - 1; d >= 0 && ++index[d] == tensor->shape[d]; d--)
      index[d] = 0;
  }
  return status ? status : give_run(copies, copy, begin, end);
}

static fl_status give_all(const fl_copies *copies, const fl_copy *copy) {
  DLTensor from = image_of(copy, copy->first);
  device_run run = {copies, copy};
  if (copy->on_device)
    return fl_tensor_copy_with(copy->original, &from, run_to_device, &run);
  fl_tensor_copy(copy->original, &from);
  return FL_OK;
}

fl_status fl_copies_give(fl_copies *copies) {
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < copies->n && !status; i++) {
    const fl_copy *copy = &copies->copies[i];
    if (copy->role == FL_COPY_STATE)
      status = give_changed(copies, copy);
    else if (copy->role == FL_COPY_RESULT)
      status = give_all(copies, copy);
  }
  for (uint32_t i = copies->op->schema->n_arguments; i < copies->call.count && !status; i++)
    if (copies->at[i] == FL_COPY_NONE)
      copies->given->values[i] = copies->values[i];
  return status;
}
