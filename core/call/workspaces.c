/* Workspaces that the host brings: see workspaces.h. */
#include "core/call/workspaces.h"

#include "core/call/binding.h"
#include "core/call/checked_forms.h"
#include "core/call/fallback.h"
#include "core/call/invoke.h"
#include "core/call/over_ranks.h"
#include "core/platform.h"
#include "core/support.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* As kernels want it; and what is asked for at once, at least. */
enum { ALIGNMENT = 256, LEAST = 64 << 10 };

/* Memory on a device, from whom it is given back to. Never freed while its host is in use, unless it is asked to: what
 * is queued on the stream may need it still, and so may a graph that was captured. */
typedef struct buffer {
  struct buffer *outgrown; /* the one before */
  fl_allocator allocator;  /* .allocate NULL: the platform */
  void *memory;
  size_t size;
} buffer;

/* That of a device and stream, at one depth of calls. */
struct fl_workspace {
  struct fl_workspace *next;
  DLDevice device;
  void *stream;
  uint32_t depth;
  _Atomic(buffer *) buffer; /* NULL: none was needed yet */
};

size_t fl_workspace_wanted(const fl_impl_record *record, const fl_call *call) {
  const fl_impl_extra *extra = record->extra;
  return extra && extra->workspace_size ? extra->workspace_size(record->self, call) : 0;
}

/* What is taken for so many bytes: half as many again as before, so that it grows a few times and no more. */
static size_t grown(size_t before, size_t wanted) {
  size_t more = before + before / 2;
  more = more > wanted ? more : wanted;
  more = more > LEAST ? more : LEAST;
  return more <= SIZE_MAX - ALIGNMENT ? (more + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : wanted;
}

/* ----------------------------------------------------------------------------------------------- the thread's own */

static fl_status bring_own(uint32_t depth, fl_call *call, size_t wanted) {
  fl_checked_forms *kept = fl_self.kept;
  fl_own_workspace *own = &kept->workspaces[depth];
  if (own->size < wanted) {
    size_t size = grown(own->size, wanted);
    free(own->memory);
    *own = (fl_own_workspace){.memory = aligned_alloc(ALIGNMENT, size), .size = size};
    if (!own->memory) {
      own->size = 0;
      return fl_error(FL_ENOMEM, "out of memory");
    }
  }
  call->workspace = own->memory;
  call->workspace_size = own->size;
  return FL_OK;
}

void fl_own_workspaces_free(fl_own_workspace *own, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    free(own[i].memory);
}

/* ------------------------------------------------------------------------------------------------------- a device's */

static bool is_of(const fl_workspace *w, DLDevice device, const void *stream, uint32_t depth) {
  return w->device.device_type == device.device_type && w->device.device_id == device.device_id &&
         w->stream == stream && w->depth == depth;
}

/* The host's for that device, stream and depth; made when there is none. NULL: out of memory. */
static fl_workspace *find_in_host(fl_host *host, DLDevice device, void *stream, uint32_t depth) {
  pthread_mutex_lock(&host->lock);
  fl_workspace *w = host->workspaces;
  while (w && !is_of(w, device, stream, depth))
    w = w->next;
  if (!w && (w = calloc(1, sizeof *w))) {
    *w = (fl_workspace){.next = host->workspaces, .device = device, .stream = stream, .depth = depth};
    host->workspaces = w;
  }
  pthread_mutex_unlock(&host->lock);
  return w;
}

/* The same, where the thread found it before without a lock. */
static fl_workspace *find_workspace(fl_host *host, DLDevice device, void *stream, uint32_t depth) {
  fl_checked_forms *kept = fl_self.kept;
  uint64_t mixed = ((uint64_t)(uintptr_t)stream >> 4) + host->number + (uint64_t)device.device_id + depth;
  fl_workspace_place *place = &kept->workspace_places[mixed % FL_WORKSPACE_PLACES];
  if (place->host == host->number && is_of(place->workspace, device, stream, depth))
    return place->workspace;
  fl_workspace *found = find_in_host(host, device, stream, depth);
  if (found)
    *place = (fl_workspace_place){host->number, found};
  return found;
}

/* FL_ESTATE: the stream is being captured, in which nothing is allocated. */
static fl_status allocate(fl_host *host, DLDevice device, void *stream, buffer *made) {
  fl_backend backend;
  fl_status status = fl_backend_open(host, device, &backend);
  if (status)
    return status;
  if (fl_backend_is_captured(&backend, device, stream))
    return fl_error(FL_ESTATE, "the stream is being captured in a graph; call the op once before");
  if (!made->allocator.allocate)
    return fl_device_allocate(host, device, made->size, &made->memory);
  status = made->allocator.allocate(made->allocator.user, device, made->size, stream, &made->memory);
  if (!status && made->memory)
    return FL_OK;
  return fl_error(status ? status : FL_ENOMEM, "the engine's allocator gives none: %s", fl_status_name(status));
}

static fl_allocator allocator_of(fl_host *host, DLDevice device) {
  fl_allocator allocator = {0};
  pthread_mutex_lock(&host->lock);
  if (host->allocators)
    allocator = host->allocators[device.device_type];
  pthread_mutex_unlock(&host->lock);
  return allocator;
}

static fl_status grow(fl_host *host, fl_workspace *w, size_t wanted) {
  buffer *before = atomic_load_explicit(&w->buffer, memory_order_acquire), *made = calloc(1, sizeof *made);
  if (!made)
    return fl_error_no_memory();
  made->allocator = allocator_of(host, w->device);
  made->size = grown(before ? before->size : 0, wanted);
  fl_status status = allocate(host, w->device, w->stream, made);
  if (status) {
    free(made);
    return status;
  }
  do /* another thread may have made one meanwhile: then that is outgrown by this */
    made->outgrown = before;
  while (!atomic_compare_exchange_weak_explicit(&w->buffer, &before, made, memory_order_acq_rel, memory_order_acquire));
  return FL_OK;
}

static fl_status bring_from_device(fl_host *host, DLDevice device, uint32_t depth, fl_call *call, size_t wanted) {
  fl_workspace *w = find_workspace(host, device, call->stream, depth);
  if (!w)
    return fl_error_no_memory();
  buffer *b = atomic_load_explicit(&w->buffer, memory_order_acquire);
  if (!b || b->size < wanted) {
    fl_status status = grow(host, w, wanted);
    if (status)
      return status;
    b = atomic_load_explicit(&w->buffer, memory_order_acquire);
  }
  call->workspace = b->memory;
  call->workspace_size = b->size;
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------- of a call */

/* Once for each implementation. */
static void warn(const fl_impl_record *record, size_t wanted, size_t has, const char *why) {
  const fl_op *op = record->op;
  if (atomic_exchange_explicit(&record->extra->lacked, true, memory_order_relaxed))
    return;
  fl_log_line(&op->host->log, FL_LOG_WARNING, "Op '%s': '%s' wants a workspace of %zu bytes, and has %zu: %s", op->name,
              record->impl_id, wanted, has, why);
}

fl_status fl_workspace_bring_bytes(const fl_op *op, fl_call *call, size_t wanted) {
  const fl_checked_forms *kept = fl_self.kept;
  const DLTensor *tensor = fl_call_tensor(op, call);
  DLDevice device = tensor ? tensor->device : (DLDevice){kDLCPU, 0};
  call->workspace = NULL;
  call->workspace_size = 0;
  if (!wanted)
    return FL_OK;
  return fl_is_host_memory((int32_t)device.device_type)
             ? bring_own(kept->nesting.n, call, wanted)
             : bring_from_device(op->host, device, kept->nesting.n, call, wanted);
}

void fl_workspace_bring(const fl_impl_record *record, fl_call *call) {
  size_t wanted = fl_workspace_wanted(record, call);
  fl_kept_error before;
  fl_error_keep(&before); /* that it fails is no failure of the call */
  fl_status status = fl_workspace_bring_bytes(record->op, call, wanted);
  if (status)
    warn(record, wanted, 0, fl_error_message());
  fl_error_restore(&before);
}

void fl_workspace_lacked(const fl_impl_record *record, const fl_call *call) {
  size_t wanted = fl_workspace_wanted(record, call);
  if (wanted > call->workspace_size)
    warn(record, wanted, call->workspace_size, "it is passed over; bring as much (fl_workspace_size), or none");
}

/* -------------------------------------------------------------------------------------------------------- interface */

fl_status fl_workspace_size(fl_op *op, const fl_call *call, size_t *size) {
  fl_call whole;
  fl_rank_call part;
  size_t largest = 0;
  bool taken = false;
  __attribute__((cleanup(fl_text_free))) fl_text why = {0}; /* a candidate's function may not return */
  if (!op)
    return fl_error(FL_ENOENT, "fl_workspace_size: the op is NULL");
  fl_status status = fl_check(op, call);
  if (status || (status = fl_thread_join()))
    return status;
  fl_sized_take(&whole, sizeof whole, call);
  call = &whole;
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  const fl_target *target = fl_bind(op, fl_call_device(op, call), FL_ASK_FOR_CALL, &status);
  const fl_binding *binding = target ? target->binding : NULL;
  whole.group = fl_scope_ranks(op);
  if (binding && !(call = fl_call_as_seen(binding, &whole, &part)))
    return fl_error_status();
  for (uint32_t i = 0; binding && i < binding->n; i++) {
    const fl_impl_record *record = binding->candidates[i].record;
    fl_said said;
    if (!fl_candidate_takes(&binding->candidates[i], call, &said)) {
      fl_text_add(&why, "\n  %s: not supported: %s", record->impl_id, said.text);
      continue;
    }
    size_t wanted = fl_workspace_wanted(record, call);
    taken = true;
    if (wanted > largest)
      largest = wanted;
    if (binding->strict)
      break; /* no other is called */
  }
  if (binding && !taken)
    status = fl_none_takes(binding, call, &why);
  if (!status)
    *size = largest;
  return status;
}

fl_status fl_set_workspace_allocator(fl_host *host, int32_t device_type, const fl_allocator *allocator) {
  fl_allocator taken = {0};
  fl_status status = FL_OK;
  if (device_type <= 0 || device_type >= FL_DEVICE_SLOTS || fl_is_host_memory(device_type))
    return fl_error(FL_EINVAL, "fl_set_workspace_allocator: %d is no type of devices with memory of their own",
                    device_type);
  if (allocator) {
    status =
        fl_sized_check(allocator, sizeof *allocator, "fl_set_workspace_allocator: the allocator's", "fl_allocator");
    if (!status && (!allocator->allocate || !allocator->release))
      status =
          fl_error(FL_EINVAL, "fl_set_workspace_allocator: %s is NULL", allocator->allocate ? "release" : "allocate");
    if (status)
      return status;
    fl_sized_take(&taken, sizeof taken, allocator);
  }
  pthread_mutex_lock(&host->lock);
  if (!host->allocators && !(host->allocators = calloc(FL_DEVICE_SLOTS, sizeof *host->allocators)))
    status = fl_error_no_memory();
  else
    host->allocators[device_type] = taken;
  pthread_mutex_unlock(&host->lock);
  return status;
}

uint64_t fl_workspace_bytes(fl_host *host) {
  uint64_t sum = 0;
  pthread_mutex_lock(&host->lock);
  for (const fl_workspace *w = host->workspaces; w; w = w->next)
    for (const buffer *b = atomic_load_explicit(&w->buffer, memory_order_acquire); b; b = b->outgrown)
      sum += b->size;
  pthread_mutex_unlock(&host->lock);
  return sum;
}

static void release(fl_host *host, DLDevice device, void *stream, buffer *b) {
  while (b) {
    buffer *next = b->outgrown;
    if (b->allocator.release)
      b->allocator.release(b->allocator.user, device, b->memory, stream);
    else
      fl_device_free(host, device, b->memory);
    free(b);
    b = next;
  }
}

void fl_release_workspaces(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  fl_workspace *w = host->workspaces; /* these stay: threads know where they are */
  pthread_mutex_unlock(&host->lock);
  for (; w; w = w->next)
    release(host, w->device, w->stream, atomic_exchange_explicit(&w->buffer, NULL, memory_order_acq_rel));
}

void fl_workspaces_end(fl_host *host) {
  fl_release_workspaces(host);
  while (host->workspaces) {
    fl_workspace *next = host->workspaces->next;
    free(host->workspaces);
    host->workspaces = next;
  }
  free(host->allocators);
}
