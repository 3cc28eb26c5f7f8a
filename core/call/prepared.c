/* Prepared weights: see prepared.h. */
#include "core/call/prepared.h"

#include "core/call/fallback.h"
#include "core/call/invoke.h"
#include "core/call/over_ranks.h"
#include "core/platform.h"
#include "core/schema.h"
#include "core/support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A tensor that something was prepared of. */
typedef struct weight {
  uint32_t index; /* among the values */
  const void *data;
  DLDataType dtype;
  DLDevice device;
  int32_t ndim;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} weight;

typedef struct fl_prepared_record {
  fl_prepared shown; /* first */
  fl_op *op;
  struct fl_prepared_record *next;
  struct fl_prepared_record **place; /* what points to it; NULL: it is not in the list yet */
  DLDevice device;
  void *memory;
  char impl_id[FL_NAME_MAX + 1]; /* its implementation may be withdrawn before it */
  uint32_t n;
  weight weights[];
} fl_prepared_record;

/* What lies behind the memory that an implementation fills, to see that it keeps inside. */
enum { MARGIN = 256, MARGIN_BYTE = 0xc5 };

/* --------------------------------------------------------------------------------------------------------- records */

static void free_record(fl_prepared_record *record) {
  if (record && record->memory)
    fl_device_free(record->op->host, record->device, record->memory);
  free(record);
}

/* One that is not handed out, also since a plugin threw or ended the thread. */
static void give_up(fl_prepared_record **record) {
  fl_kept_error why;
  if (!*record)
    return;
  fl_error_keep(&why);
  free_record(*record);
  fl_error_restore(&why);
}

static weight weight_of(const fl_call *call, uint32_t index) {
  const DLTensor *tensor = call->values[index].v.tensor;
  weight w = {
      .index = index, .data = fl_data(tensor), .dtype = tensor->dtype, .device = tensor->device, .ndim = tensor->ndim};
  for (int32_t i = 0; i < w.ndim; i++) {
    w.shape[i] = tensor->shape[i];
    w.strides[i] = fl_stride(tensor, i);
  }
  return w;
}

static bool is_read(const fl_impl_record *impl, const fl_call *call, uint32_t index) {
  return index < 64 && fl_impl_prepares(impl) >> index & 1 && index < impl->op->schema->n_arguments &&
         call->values[index].type == FL_TENSOR;
}

static fl_prepared_record *create_record(const fl_impl_record *impl, const fl_call *call, DLDevice device) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < call->count; i++)
    n += is_read(impl, call, i);
  fl_prepared_record *record = calloc(1, sizeof *record + n * sizeof *record->weights);
  if (!record)
    return NULL;
  record->shown =
      (fl_prepared){.size = sizeof record->shown, .prepare = (uintptr_t)impl->extra->prepare, .self = impl->self};
  record->op = impl->op;
  record->device = device;
  snprintf(record->impl_id, sizeof record->impl_id, "%s", impl->impl_id);
  for (uint32_t i = 0; i < call->count; i++)
    if (is_read(impl, call, i))
      record->weights[record->n++] = weight_of(call, i);
  return record;
}

static void add_record(fl_prepared_record *record) {
  fl_host *host = record->op->host;
  pthread_mutex_lock(&host->lock);
  record->next = host->prepared;
  record->place = &host->prepared;
  if (record->next)
    record->next->place = &record->next;
  host->prepared = record;
  pthread_mutex_unlock(&host->lock);
}

/* -------------------------------------------------------------------------------------------------------- checking */

/* What a call brings as the weight, in words where that is another tensor. */
static bool is_same(const weight *w, const fl_call *call, fl_text *why) {
  const fl_value *value = &call->values[w->index];
  if (value->type != FL_TENSOR) {
    fl_text_add(why, "it is none");
    return false;
  }
  weight now = weight_of(call, w->index);
  bool same_sizes = now.ndim == w->ndim && !memcmp(now.shape, w->shape, sizeof now.shape);
  if (!same_sizes) {
    fl_text_add(why, "its shape is ");
    fl_text_add_shape(why, now.shape, now.ndim);
    fl_text_add(why, ", not ");
    fl_text_add_shape(why, w->shape, w->ndim);
  } else if (memcmp(&now.dtype, &w->dtype, sizeof now.dtype) != 0)
    fl_text_add(why, "its element type is another");
  else if (memcmp(now.strides, w->strides, sizeof now.strides) != 0)
    fl_text_add(why, "its strides are others");
  else if (now.data != w->data || memcmp(&now.device, &w->device, sizeof now.device) != 0)
    fl_text_add(why, "it lies elsewhere");
  else
    return true;
  return false;
}

static fl_status of_another_op(const fl_op *op, const fl_prepared_record *record) {
  return fl_error(
      FL_EINVAL, "%s: the call's prepared weights were made for op '%s'%s, expected what fl_prepare made for '%s' here",
      op->name, record->op->name, record->op->host == op->host ? "" : " of another host", op->name);
}

fl_status fl_prepared_check(const fl_op *op, const fl_call *call) {
  const fl_prepared_record *record = (const fl_prepared_record *)call->prepared;
  fl_text why = {0};
  if (record->op != op)
    return of_another_op(op, record);
  for (uint32_t i = 0; i < record->n; i++)
    if (!is_same(&record->weights[i], call, &why)) {
      fl_status status =
          fl_error(FL_EINVAL,
                   "%s: argument '%s' is not the tensor that was prepared: %s; prepare this one, or call without "
                   "prepared weights",
                   op->name, op->schema->values[record->weights[i].index].name, why.text ? why.text : "it is another");
      fl_text_free(&why);
      return status;
    }
  return FL_OK;
}

/* -------------------------------------------------------------------------------------------------------- preparing */

/* What a broken implementation may return counts as its failure. */
static fl_status judge(const fl_impl_record *impl, const fl_prepared_record *record, const char *message,
                       fl_status status) {
  const char *margin = (const char *)record->memory + record->shown.bytes;
  bool on_host = fl_is_host_memory((int32_t)record->device.device_type);
  for (int i = 0; on_host && i < MARGIN; i++)
    if ((unsigned char)margin[i] != MARGIN_BYTE)
      return fl_error(FL_EINTERNAL,
                      "%s: %s prepared more than the %zu bytes that it had asked for: byte %zu was written",
                      impl->op->name, impl->impl_id, record->shown.bytes, record->shown.bytes + (size_t)i);
  if (status < FL_OK || status > FL_EINTERNAL)
    return fl_error(FL_EINTERNAL, "%s: preparing weights, %s returned %d, which is no status of an implementation",
                    impl->op->name, impl->impl_id, (int)status);
  if (status && status != FL_ENOTSUP)
    return fl_error(status, "%s: %s cannot prepare weights: %s", impl->op->name, impl->impl_id,
                    *message ? message : fl_status_name(status));
  return status;
}

/* Of the candidate that takes the call. */
static fl_status prepare(const fl_impl_record *impl, const fl_call *given, const fl_prepared **prepared) {
  fl_call own = *given, *call = &own;
  const DLTensor *tensor = fl_call_tensor(impl->op, call);
  DLDevice device = tensor ? tensor->device : (DLDevice){kDLCPU, 0};
  char message[FL_ERROR_MAX] = "";
  __attribute__((cleanup(give_up))) fl_prepared_record *record = NULL;
  size_t size = fl_impl_prepares(impl) ? impl->extra->prepared_size(impl->self, call) : 0, with_margin;
  if (!size)
    return FL_OK;
  record = create_record(impl, call, device);
  if (!record)
    return fl_error_no_memory();
  if (__builtin_add_overflow(size, MARGIN, &with_margin))
    return fl_error(FL_ENOMEM, "%s: %s wants %zu bytes for prepared weights", impl->op->name, impl->impl_id, size);
  fl_status status = fl_device_allocate(impl->op->host, device, with_margin, &record->memory);
  if (status)
    return status;
  record->shown.data = record->memory;
  record->shown.bytes = size;
  if (fl_is_host_memory((int32_t)device.device_type))
    memset((char *)record->memory + size, MARGIN_BYTE, MARGIN);
  call->message = message;
  call->message_size = sizeof message;
  status = judge(impl, record, message, impl->extra->prepare(impl->self, call, record->memory, size));
  if (status)
    return status == FL_ENOTSUP ? FL_OK : status;
  add_record(record);
  *prepared = &record->shown;
  record = NULL;
  return FL_OK;
}

fl_status fl_prepare(fl_op *op, const fl_call *given, const fl_prepared **prepared) {
  fl_call call;
  fl_rank_call part;
  __attribute__((cleanup(fl_text_free))) fl_text why = {0}; /* a candidate's function may not return */
  *prepared = NULL;
  if (!op)
    return fl_error(FL_ENOENT, "fl_prepare: the op is NULL");
  fl_status status = fl_check(op, given);
  if (status || (status = fl_thread_join()))
    return status;
  fl_sized_take(&call, sizeof call, given);
  call.prepared = NULL;
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  const fl_target *target = fl_bind(op, fl_call_device(op, &call), FL_ASK_FOR_CALL, &status);
  const fl_binding *binding = target ? target->binding : NULL;
  call.group = fl_scope_ranks(op);
  const fl_call *seen = binding ? fl_call_as_seen(binding, &call, &part) : NULL;
  if (binding && !seen)
    return fl_error_status();
  for (uint32_t i = 0; binding && i < binding->n; i++) {
    const fl_impl_record *impl = binding->candidates[i].record;
    fl_said said;
    if (fl_candidate_takes(&binding->candidates[i], seen, &said))
      return prepare(impl, seen, prepared);
    fl_text_add(&why, "\n  %s: not supported: %s", impl->impl_id, said.text);
  }
  return binding ? fl_none_takes(binding, &call, &why) : status;
}

void fl_prepared_free(const fl_prepared *prepared) {
  fl_prepared_record *record = (fl_prepared_record *)(uintptr_t)prepared;
  if (!record)
    return;
  pthread_mutex_t *lock = &record->op->host->lock;
  pthread_mutex_lock(lock);
  *record->place = record->next;
  if (record->next)
    record->next->place = record->place;
  pthread_mutex_unlock(lock);
  free_record(record);
}

/* -------------------------------------------------------------------------------------------------------- counting */

uint64_t fl_prepared_sum_locked(const fl_op *op, const char *impl_id, uint64_t *count) {
  uint64_t sum = 0;
  *count = 0;
  for (const fl_prepared_record *record = op->host->prepared; record; record = record->next)
    if (record->op == op && !strcmp(record->impl_id, impl_id)) {
      sum += record->shown.bytes;
      ++*count;
    }
  return sum;
}

fl_status fl_get_prepared_info(const fl_prepared *prepared, fl_prepared_info *info) {
  const fl_prepared_record *record = (const fl_prepared_record *)prepared;
  fl_status status = fl_sized_check(info, sizeof *info, "fl_get_prepared_info: the info's", "fl_prepared_info");
  if (status)
    return status;
  if (!record)
    return fl_error(FL_EINVAL, "fl_get_prepared_info: prepared is NULL, expected what fl_prepare made");
  fl_prepared_info found = {.impl_id = record->impl_id, .bytes = record->shown.bytes};
  for (uint32_t i = 0; i < record->n; i++)
    found.arguments |= UINT64_C(1) << record->weights[i].index;
  fl_sized_give(info, &found, sizeof found);
  return FL_OK;
}

uint64_t fl_prepared_bytes(fl_host *host) {
  uint64_t sum = 0;
  pthread_mutex_lock(&host->lock);
  for (const fl_prepared_record *record = host->prepared; record; record = record->next)
    sum += record->shown.bytes;
  pthread_mutex_unlock(&host->lock);
  return sum;
}

void fl_prepared_end(fl_host *host) {
  for (fl_prepared_record *record = host->prepared, *next; record; record = next) {
    next = record->next;
    free_record(record);
  }
  host->prepared = NULL;
}
