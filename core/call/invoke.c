/*
 * The call path. fl_invoke takes no lock, allocates nothing, asks nobody and writes nothing that another thread reads:
 * it goes from the op and the device of the call to a slot, and calls what the slot points to. That is the kernel, or,
 * where a call can go another way than straight into a kernel, a function of fallback.c or binding.c; a slot is never
 * empty.
 */
#include "core/call/invoke.h"

#include "core/call/checked_forms.h"
#include "core/call/fallback.h"
#include "core/call/leaving.h"
#include "core/call/nesting.h"
#include "core/call/prepared.h"
#include "core/call/scope.h"
#include "core/support.h"

const DLTensor *fl_call_first_tensor(const fl_call *call) {
  for (uint32_t i = 0; i < call->count; i++)
    if (call->values[i].type == FL_TENSOR)
      return call->values[i].v.tensor;
  return NULL;
}

uint32_t fl_call_device(const fl_op *op, const fl_call *call) {
  const DLTensor *tensor = fl_call_tensor(op, call);
  if (tensor)
    return (uint32_t)tensor->device.device_type;
  return fl_call_is_opaque(call) && op->device_argument >= 0 ? FL_OPAQUE_SLOT : 0;
}

/* Acquired: what the op got when it was made ready is there, too. */
static inline fl_path path_of(const fl_op *op) {
  return (fl_path)atomic_load_explicit(&op->path, memory_order_acquire);
}

/* Whoever finds a form checked under it has seen the schema before. */
static inline uint64_t checked_as(const fl_op *op) {
  return atomic_load_explicit(&op->checked_as, memory_order_relaxed);
}

/* Where a kernel may write its reason to. */
static inline void set_message(fl_thread *self, fl_call *call) {
  call->message = self->message;
  call->message_size = FL_ERROR_MAX;
  self->message[0] = 0;
}

static fl_nesting *nesting_of(const fl_thread *self) {
  fl_checked_forms *kept = self->kept;
  return &kept->nesting;
}

/* Does the first candidate not take the call? */
static inline bool is_passed_over(const fl_target *target, const fl_call *call) {
  const char *reason = NULL; /* no room: the reason is asked for again where it is of use */
  return target->supports_args && !target->supports_args(target->asked, call, &reason);
}

/* A target's turn, in a call inside another perhaps, which has one that runs, too. */
typedef struct turn {
  const fl_target *target;
  bool returned;
  const fl_impl_record *outer;
} turn;

static void turn_ends(const turn *now) {
  if (!now->returned) {
    fl_left_early(now->target);
    if (!nesting_of(&fl_self)->n) /* it is said */
      atomic_store_explicit(&fl_self.target, NULL, memory_order_relaxed);
  }
  atomic_store_explicit(&fl_self.running, now->outer, memory_order_relaxed);
}

/* Goes on as the policy wants when it fails. */
static fl_status run_target(const fl_target *target, fl_call *call) {
  const fl_call given = *call;
  __attribute__((cleanup(turn_ends)))
  turn now = {target, false, atomic_load_explicit(&fl_self.running, memory_order_relaxed)};
  atomic_store_explicit(&fl_self.running, NULL, memory_order_relaxed);
  fl_status status =
      is_passed_over(target, call) ? fl_run_candidates(target->binding, call) : target->fn(target->self, call);
  if (unlikely(status))
    status = fl_finish_failed(target, call, &given, status);
  now.returned = true;
  return status;
}

/* `slot`: a device type, or FL_OPAQUE_SLOT. */
static fl_status dispatch(fl_op *op, uint32_t slot, fl_call *call) {
  fl_status status;
  const fl_target *target = fl_bind(op, slot, FL_ASK_FOR_CALL, &status);
  if (!target)
    return status;
  if (!nesting_of(&fl_self)->n)
    atomic_store_explicit(&fl_self.target, target, memory_order_relaxed);
  return run_target(target, call);
}

fl_status fl_dispatch(fl_op *op, fl_call *call) {
  return dispatch(op, fl_call_device(op, call), call);
}

/* No status: the call is an older caller's, and smaller than ours. */
enum { SMALLER = -1 };

static fl_status wrong_size(const fl_op *op, const fl_call *given) {
  return fl_error(FL_EINVAL,
                  "%s: the call's size is %u bytes, expected at least %zu: use FL_CALL or set .size = sizeof(fl_call)",
                  op->name, (unsigned)given->size, offsetof(fl_call, stream));
}

/* Is taken in full, and goes on as one of ours. */
static __attribute__((noinline)) fl_status invoke_smaller(fl_op *op, const fl_call *given) {
  fl_call call;
  if (given->size < offsetof(fl_call, stream))
    return wrong_size(op, given);
  fl_sized_take(&call, sizeof call, given);
  return fl_invoke(op, &call);
}

/* What the host sets is not a caller's to say: calls on the short way would go by it or not, as it happens. */
static fl_status check_group(const fl_op *op, const fl_call *call) {
  if (!call || call->group == fl_scope_ranks(op))
    return FL_OK;
  return fl_error(FL_EINVAL,
                  "%s: the call's 'group' is given, expected NULL: a group is that of a scope, fl_scope_group",
                  op->name);
}

/* A call of a form that was not seen before, or that is wrong. */
static __attribute__((noinline)) fl_status check_in_full(fl_thread *self, const fl_op *op, const fl_call *call) {
  if (call && call->size < sizeof *call)
    return SMALLER;
  if (check_group(op, call))
    return FL_EINVAL;
  fl_status status = fl_schema_check(op->schema, call);
  if (!status)
    fl_checked_form_keep(self->kept, op->schema, call);
  return status;
}

static fl_status check(fl_thread *self, const fl_op *op, const fl_call *call) {
  fl_status status =
      likely(call && fl_checked_form_has(self->kept, op->schema->id, call)) ? FL_OK : check_in_full(self, op, call);
  return status || !call->prepared ? status : fl_prepared_check(op, call);
}

/* Where arguments are trusted, their struct may be an older caller's all the same. */
static fl_status check_size(const fl_call *call) {
  return call->size < sizeof *call ? SMALLER : FL_OK;
}

/* A call that goes otherwise, from where it begins to read to its end, however that comes. */
typedef struct passage {
  uint64_t outer; /* the thread's state before */
  bool is_nested;
} passage;

static void passage_ends(const passage *p) {
  if (p->is_nested)
    fl_nesting_leave(nesting_of(&fl_self));
  fl_read_end(&fl_self, p->outer);
}

static fl_op *op_of(const fl_target *target) {
  return !target ? NULL : target->binding ? target->binding->op : target->self;
}

/* Checks it, with the ranks that share it, and goes on with what is bound. The thread is reading, the op is ready. */
static fl_status check_and_dispatch(fl_thread *self, fl_op *op, fl_call *call) {
  fl_status status = op->host->checks ? check(self, op, call) : check_size(call);
  if (status)
    return status;
  set_message(self, call);
  return dispatch(op, fl_call_device(op, call), call);
}

/* The caller's struct stays without a group. Only where a scope has one. */
static __attribute__((noinline)) fl_status pass_shared(fl_thread *self, fl_op *op, fl_call *call,
                                                       const fl_ranks *group) {
  if (!call || call->size < sizeof *call)
    return call ? SMALLER : check(self, op, call);
  fl_call shared = *call;
  shared.group = group;
  fl_status status = check_and_dispatch(self, op, &shared);
  call->message = shared.message;
  call->message_size = shared.message_size;
  return status;
}

/* The thread is known. SMALLER: it is to be taken in full first. */
static fl_status pass_otherwise(fl_thread *self, fl_op *op, fl_call *call, bool opaque) {
  __attribute__((cleanup(passage_ends))) passage p = {.outer = fl_read_begin(self)};
  fl_status status = FL_OK;
  if (p.outer >= FL_PERIOD) {
    const fl_op *outermost = op_of(atomic_load_explicit(&self->target, memory_order_relaxed));
    status = fl_nesting_enter(nesting_of(self), outermost, op, __builtin_frame_address(0));
    p.is_nested = !status;
  }
  if (!status)
    status = fl_registry_open(op);
  if (status)
    return status;
  if (!opaque) {
    const fl_ranks *group = fl_scope_ranks(op);
    return group ? pass_shared(self, op, call, group) : check_and_dispatch(self, op, call);
  }
  set_message(self, call);
  return dispatch(op, FL_OPAQUE_SLOT, call);
}

/* A thread's first call, a call inside another call or inside another host's scope, an op without a tensor, no op. */
static __attribute__((noinline)) fl_status invoke_otherwise(fl_op *op, fl_call *call) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_invoke: the op is NULL: this host has no op of that name");
  if (fl_thread_join())
    return FL_ENOMEM;
  fl_status status = pass_otherwise(&fl_self, op, call, false);
  return status == SMALLER ? invoke_smaller(op, call) : status;
}

fl_status fl_invoke_opaque(fl_op *op, fl_call *given) {
  fl_call call;
  if (!op)
    return fl_error(FL_ENOENT, "fl_invoke_opaque: the op is NULL: this host has no op of that name");
  if (given->size < offsetof(fl_call, stream))
    return wrong_size(op, given);
  fl_sized_take(&call, sizeof call, given);
  call.count = 0;
  call.values = NULL;
  call.prepared = NULL;
  return fl_thread_join() ? FL_ENOMEM : pass_otherwise(&fl_self, op, &call, true);
}

/* The state of a thread that is in no call. */
static inline uint64_t state_outside(const fl_thread *self) {
  return self->scope ? FL_THREAD_SCOPED : 0;
}

/* The call on the short way, as it was given: of what an implementation may have changed there, only the values were
 * kept; their number is the schema's. */
static fl_call given_to(const fl_thread *self, const fl_binding *binding) {
  fl_call given = *self->call;
  if (given.size < sizeof given)
    given.size = sizeof given;
  given.values = self->values;
  if (binding && binding->op->host->checks)
    given.count = binding->op->schema->n_arguments + binding->op->schema->n_results;
  return given;
}

/* A call on the short way that an exception, or the end of the thread, leaves. */
static __attribute__((noinline, cold)) void left_early(void) {
  fl_left_early(atomic_load_explicit(&fl_self.target, memory_order_relaxed));
  atomic_store_explicit(&fl_self.running, NULL, memory_order_relaxed);
  fl_read_end(&fl_self, state_outside(&fl_self));
}

static inline void short_way_ends(const bool *returned) {
  if (unlikely(!*returned))
    left_early();
}

static __attribute__((noinline)) fl_status finish_failed(fl_status status) {
  const fl_target *target = atomic_load_explicit(&fl_self.target, memory_order_relaxed);
  const fl_call given = given_to(&fl_self, target->binding);
  __attribute__((cleanup(short_way_ends))) bool returned = false;
  status = fl_finish_failed(target, fl_self.call, &given, status);
  returned = true;
  fl_read_end(&fl_self, state_outside(&fl_self));
  return status;
}

static __attribute__((noinline)) fl_status unknown_device(fl_op *op, fl_call *call) {
  fl_status status = fl_dispatch(op, call);
  fl_read_end(&fl_self, state_outside(&fl_self));
  return status;
}

static __attribute__((noinline)) fl_status run_others(void) {
  const fl_target *target = atomic_load_explicit(&fl_self.target, memory_order_relaxed);
  __attribute__((cleanup(short_way_ends))) bool returned = false;
  fl_status status = fl_run_candidates(target->binding, fl_self.call);
  returned = true;
  if (status)
    return finish_failed(status);
  fl_read_end(&fl_self, state_outside(&fl_self));
  return FL_OK;
}

static inline bool ask(const fl_target *target, fl_call *call) {
  __attribute__((cleanup(short_way_ends))) bool returned = false;
  bool taken = target->supports_args(target->asked, call, &fl_self.reason);
  returned = true;
  return taken;
}

static inline fl_status call_kernel(const fl_target *target, fl_call *call, bool scoped) {
  __attribute__((cleanup(short_way_ends))) bool returned = false;
  fl_status status = target->fn(target->self, call);
  returned = true;
  if (unlikely(status))
    return finish_failed(status);
  fl_read_end(&fl_self, scoped ? state_outside(&fl_self) : 0);
  return FL_OK;
}

/* The thread is reading, outside of any other call. Target and call are left in the thread's own memory, so that
 * nothing has to be kept across the kernel, or the predicate before it. */
static inline __attribute__((always_inline)) fl_status run(fl_thread *self, fl_op *op, const fl_slots *slots,
                                                           fl_call *call, bool scoped) {
  fl_value *values = call->values;
  const fl_value *value = (const fl_value *)((const char *)values + op->device_offset);
  uint32_t device = (uint32_t)value->v.tensor->device.device_type;
  if (unlikely(device >= FL_DEVICE_SLOTS))
    return unknown_device(op, call);
  const fl_target *target = atomic_load_explicit(&slots->by_device[device], memory_order_acquire);
  set_message(self, call);
  atomic_store_explicit(&self->target, target, memory_order_relaxed);
  self->call = call;
  self->values = values;
  if (unlikely(target->supports_args)) {
    atomic_signal_fence(memory_order_seq_cst); /* read again, so that the test above need not keep it */
    bool taken = ask(target, call);
    fl_self.reason = NULL; /* no room, for the next */
    if (unlikely(!taken))
      return run_others();
    return call_kernel(atomic_load_explicit(&fl_self.target, memory_order_relaxed), fl_self.call, scoped);
  }
  return call_kernel(target, call, scoped);
}

/* The full check, outside of any other call: it may call functions of the op's plugin. */
static fl_status check_outermost(fl_thread *self, const fl_op *op, const fl_call *call) {
  atomic_store_explicit(&self->target, NULL, memory_order_relaxed);
  __attribute__((cleanup(short_way_ends))) bool returned = false;
  fl_status status = check(self, op, call);
  returned = true;
  return status;
}

/* A call of a form that is new or not plain, or that goes otherwise. The thread is reading. */
static __attribute__((noinline)) fl_status invoke_checking_again(fl_op *op, fl_call *call) {
  fl_path path = path_of(op);
  if (path >= FL_PATH_OTHERWISE) {
    fl_read_end(&fl_self, 0);
    return invoke_otherwise(op, call);
  }
  fl_status status = path == FL_PATH_CHECKED ? check_outermost(&fl_self, op, call) : SMALLER;
  if (!status)
    return run(&fl_self, op, &op->slots, call, false);
  fl_read_end(&fl_self, 0);
  return status == SMALLER ? invoke_smaller(op, call) : status;
}

static __attribute__((noinline)) fl_status invoke_checked(fl_op *op, fl_call *call) {
  fl_thread *self = &fl_self;
  fl_read_begin_outermost(self);
  if (unlikely(!call || !fl_checked_form_has_plain(self->kept, checked_as(op), call)))
    return invoke_checking_again(op, call);
  return run(self, op, &op->slots, call, false);
}

/* In a scope of the op's host, outside of any other call; anything else goes on. */
static __attribute__((noinline)) fl_status invoke_scoped(fl_op *op, fl_call *call) {
  fl_thread *self = &fl_self;
  if (!op || path_of(op) >= FL_PATH_OTHERWISE || self->scope->host != op->host || fl_scope_ranks(op))
    return invoke_otherwise(op, call);
  fl_read_begin_outermost(self);
  const fl_slots *slots = fl_view_slots(self->scope->view, op);
  fl_status status = slots ? FL_OK : fl_error_no_memory();
  if (likely(!status))
    status = path_of(op) == FL_PATH_CHECKED ? check_outermost(self, op, call) : check_size(call);
  if (likely(!status))
    return run(self, op, slots, call, true);
  fl_read_end(self, FL_THREAD_SCOPED);
  return status == SMALLER ? invoke_smaller(op, call) : status;
}

/* What nearly every call is: of a known thread, from outside any other call and any scope. */
fl_status fl_invoke(fl_op *op, fl_call *call) {
  fl_thread *self = &fl_self;
  uint64_t state = atomic_load_explicit(&self->state, memory_order_relaxed);
  if (unlikely(state || !op))
    return state == FL_THREAD_SCOPED ? invoke_scoped(op, call) : invoke_otherwise(op, call);
  if (unlikely(path_of(op) != FL_PATH_TRUSTING || call->size < sizeof *call))
    return invoke_checked(op, call);
  fl_read_begin_outermost(self);
  return run(self, op, &op->slots, call, false);
}

/* It may load a plugin. */
static inline fl_op *find(fl_host *host, const char *name) {
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  return fl_registry_find(host, name);
}

fl_op *fl_find_op(fl_host *host, const char *name) {
  if (fl_thread_join())
    return NULL;
  fl_op *op = find(host, name);
  if (!op)
    fl_registry_no_such_op(host, name);
  return op;
}

fl_status fl_call_op(fl_host *host, const char *name, fl_call *call) {
  fl_thread *self = &fl_self;
  if (unlikely(atomic_load_explicit(&self->state, memory_order_relaxed) == FL_THREAD_UNKNOWN) && fl_thread_join())
    return FL_ENOMEM;
  fl_op *op = find(host, name);
  return likely(op) ? fl_invoke(op, call) : fl_registry_no_impl(host, name);
}

void fl_calls_start(void) {
  fl_thread_keeps(fl_checked_forms_create, fl_checked_forms_free, fl_ends_inside);
}
