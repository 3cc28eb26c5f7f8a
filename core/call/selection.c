/* Selection: see selection.h. */
#include "core/call/selection.h"

#include "core/call/scope.h"
#include "core/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

static bool is_asked(const fl_selection *selection, const fl_impl_record *impl) {
  const fl_host *host = selection->op->host;
  return fl_impl_is_asked(host, impl) && fl_architectures_asked(host, impl, selection->device_type);
}

static fl_op *part_lacking(fl_selection *selection, const fl_op *op, unsigned depth);

/* Does something run the part on a device of the type? */
static bool has_running(fl_selection *selection, const fl_op *part, unsigned depth) {
  const fl_impl_set *set = atomic_load_explicit(&part->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    const fl_impl_record *impl = set->impls[i];
    if (!fl_impl_is_for(impl, selection->device_type) || fl_keeps_out(selection->policy, impl) ||
        impl == part->host_fallback) /* the whole op is better copied once */
      continue;
    if (!is_asked(selection, impl))
      selection->unasked = true;
    else if (!atomic_load(&impl->reason) && fl_architectures_reaching(part->host, impl, selection->device_type) &&
             (impl != part->parts || !part_lacking(selection, part, depth + 1)))
      return true;
  }
  return false;
}

/* The first part of the op that nothing runs there; NULL: all are run. */
static fl_op *part_lacking(fl_selection *selection, const fl_op *op, unsigned depth) {
  const char *at = fl_parts_text(op);
  fl_op *part;
  while (fl_parts_next(op->host, &at, &part))
    if (part && (depth == FL_PARTS_DEPTH_MAX || !has_running(selection, part, depth)))
      return part;
  return NULL;
}

/* S1: everything but the order, and but for host_fallback. */
static fl_rejection filter(fl_selection *selection, const fl_impl_record *impl, bool flagos_allowed,
                           uint64_t on_devices) {
  if (selection->override != FL_DISPATCH_OFF) {
    if (fl_keeps_out(selection->policy, impl))
      return FL_REJECTED_VENDOR;
    if (impl->kind == FL_KIND_DEFAULT && !flagos_allowed)
      return FL_REJECTED_LIST;
  }
  if (selection->device_type == FL_OPAQUE_SLOT && !(impl->flags & FL_IMPL_OPAQUE))
    return FL_REJECTED_OPAQUE;
  bool was_asked = fl_impl_is_asked(selection->op->host, impl);
  if (!was_asked && !fl_impl_is_for(impl, selection->device_type)) /* nor need it be */
    return FL_REJECTED_DEVICE;
  if (atomic_load(&impl->reason))
    return FL_REJECTED_UNAVAILABLE;
  if (!fl_impl_is_for(impl, selection->device_type))
    return FL_REJECTED_DEVICE;
  if (!on_devices)
    return FL_REJECTED_ARCHITECTURE;
  if (impl == selection->op->parts && part_lacking(selection, selection->op, 0))
    return FL_REJECTED_PART;
  return FL_ACCEPTED;
}

static bool matches(const char *token, const fl_impl_record *record) {
  return fl_token_matches(token, (fl_kind)record->kind, record->vendor, record->impl_id);
}

static bool has_token(const fl_selection *selection, const fl_impl_record *record) {
  uint32_t t = 0;
  while (t < selection->n_order && !matches(selection->order[t], record))
    t++;
  return t < selection->n_order;
}

/* On a device, with memory of its own, and the policy counts. */
static bool is_elsewhere(const fl_selection *selection) {
  int32_t device_type = selection->device_type;
  return selection->override == FL_NO_OVERRIDE && device_type > 0 && device_type != FL_OPAQUE_SLOT &&
         !fl_is_host_memory(device_type);
}

/* Is host_fallback in force for tensors there? */
static bool may_fall_back(const fl_selection *selection) {
  return selection->policy->fields.host_fallback && is_elsewhere(selection);
}

/* Would the op be run on the CPU, in the same order? */
static bool runs_on_host(fl_selection *selection, const fl_impl_set *set, bool flagos_allowed) {
  fl_selection there = *selection;
  bool found = false;
  there.device_type = kDLCPU;
  for (uint32_t i = 0; i < set->n && !found; i++) {
    fl_impl_record *impl = set->impls[i];
    if (!fl_impl_is_for(impl, kDLCPU) || fl_keeps_out(selection->policy, impl) || !has_token(selection, impl))
      continue;
    if (!is_asked(&there, impl))
      there.unasked = true;
    else
      found = !filter(&there, impl, flagos_allowed, fl_architectures_reaching(selection->op->host, impl, kDLCPU));
  }
  selection->unasked |= there.unasked;
  return found;
}

/* S2: by priority, then impl_id, both descending. */
static bool goes_before(const fl_impl_record *a, const fl_impl_record *b) {
  if (a->priority != b->priority)
    return a->priority > b->priority;
  return strcmp(a->impl_id, b->impl_id) > 0;
}

/* One of its own: parts are on any device, and only as good as what runs them; the CPU is another device. */
static bool has_reference(const fl_impl_set *set, int32_t device_type) {
  for (uint32_t i = 0; set && i < set->n; i++)
    if (set->impls[i]->kind == FL_KIND_REFERENCE && fl_impl_is_for(set->impls[i], device_type) &&
        strcmp(set->impls[i]->impl_id, FL_PARTS_IMPL) != 0 && strcmp(set->impls[i]->impl_id, FL_HOST_IMPL) != 0)
      return true;
  return false;
}

static void choose_order(fl_selection *selection, const fl_impl_set *set) {
  static const char *const reference[] = {"reference"}, *const vendor[] = {"vendor"};
  const fl_config *config = selection->op->host->config;
  if (config && !config->values[FL_SETTING_PREFER_ENABLED].flag)
    selection->override = FL_DISPATCH_OFF;
  else if (!fl_custom_op_enabled(selection->op))
    selection->override = FL_OP_DISABLED;
  if (selection->override == FL_NO_OVERRIDE) {
    selection->order = fl_policy_order(selection->policy, selection->op->name, &selection->n_order, &selection->per_op);
    return;
  }
  /* An op without a reference (attention_backend in the dispatcher before) runs its vendor's; a reference for the CPU
   * is none for tensors on a GPU, where nothing would be left to run. */
  selection->order = has_reference(set, selection->device_type) ? reference : vendor;
  selection->n_order = 1;
}

/* Moves item `from` up to `to`, those between one down. */
static void move_up(fl_selected *items, uint32_t from, uint32_t to) {
  fl_selected item = items[from];
  memmove(items + to + 1, items + to, (from - to) * sizeof *items);
  items[to] = item;
}

fl_status fl_select(fl_selection *selection, fl_op *op, const fl_policy *policy, int32_t device_type) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  uint32_t accepted = 0;
  selection->items = selection->local;
  selection->op = op;
  selection->policy = policy;
  selection->device_type = device_type;
  selection->override = FL_NO_OVERRIDE;
  selection->per_op = selection->unasked = false;
  choose_order(selection, set);
  bool falls_back = may_fall_back(selection);
  if (falls_back && set) {
    fl_status status = fl_host_fallback_publish(op);
    if (status)
      return status;
    set = atomic_load_explicit(&op->impls, memory_order_acquire);
  }
  uint32_t n = set ? set->n : 0;
  selection->n = n;
  if (n > sizeof selection->local / sizeof selection->local[0]) {
    selection->items = malloc(n * sizeof *selection->items);
    if (!selection->items)
      return fl_error_no_memory();
  }
  bool flagos_allowed = !op->host->config || fl_config_flagos_allowed(op->host->config, op->name, NULL, 0);
  fl_selected *items = selection->items;
  for (uint32_t i = 0; i < n; i++) {
    fl_impl_record *record = set->impls[i];
    uint64_t on_devices = fl_architectures_reaching(op->host, record, device_type);
    fl_rejection rejection = filter(selection, record, flagos_allowed, on_devices);
    if (rejection != FL_REJECTED_VENDOR && fl_impl_is_for(record, device_type) && !is_asked(selection, record))
      selection->unasked = true;
    if (!rejection && record == op->host_fallback && !(falls_back && runs_on_host(selection, set, flagos_allowed)))
      rejection = FL_REJECTED_HOST;
    /* Whatever passes is not a candidate until a token matches it. */
    items[i] = (fl_selected){record, rejection ? rejection : FL_REJECTED_ORDER, 0, on_devices};
  }
  for (uint32_t t = 0; t < selection->n_order; t++) {
    uint32_t first = accepted; /* of this token's matches */
    for (uint32_t i = accepted; i < n; i++) {
      if (items[i].rejection != FL_REJECTED_ORDER || items[i].record == op->host_fallback ||
          !matches(selection->order[t], items[i].record))
        continue;
      items[i].rejection = FL_ACCEPTED;
      items[i].token = t;
      uint32_t place = first;
      while (place < accepted && goes_before(items[place].record, items[i].record))
        place++;
      move_up(items, i, place);
      accepted++;
    }
  }
  /* The CPU comes last, whatever the order says of the device. */
  for (uint32_t i = accepted; i < n && op->host_fallback; i++)
    if (items[i].record == op->host_fallback && items[i].rejection == FL_REJECTED_ORDER) {
      items[i].rejection = FL_ACCEPTED;
      move_up(items, i, accepted++);
      break;
    }
  selection->n_accepted = accepted;
  return FL_OK;
}

void fl_selection_free(fl_selection *selection) {
  if (selection->items != selection->local)
    free(selection->items);
}

/* Those that the policy in force lets in, and, where the op can be run by its parts, theirs. */
static void ask(fl_op *op, int32_t device_type, fl_ask what, unsigned depth) {
  uint32_t generation;
  fl_host *host = op->host;
  __attribute__((cleanup(fl_filter_release))) fl_policy *filter = fl_vendor_filter_take(host, &generation);
  fl_registry_ask_availability(host, op, filter, generation, what == FL_ASK_ALL ? 0 : device_type);
  fl_architectures_ask(host, op, filter, device_type, what == FL_ASK_FOR_CALL);
  const char *at = op->parts && depth < FL_PARTS_DEPTH_MAX ? fl_parts_text(op) : "";
  for (bool more = *at; more;) {
    fl_op *part = NULL;
    pthread_mutex_lock(&host->lock);
    more = fl_parts_next(host, &at, &part);
    pthread_mutex_unlock(&host->lock); /* an op stays */
    if (part)
      ask(part, device_type, what, depth + 1);
  }
}

fl_status fl_select_locked(fl_op *op, int32_t device_type, fl_ask what, fl_selection *selection, bool *scoped) {
  fl_host *host = op->host;
  if (device_type == FL_DEVICE_OPAQUE)
    device_type = FL_OPAQUE_SLOT;
  if (device_type < 0 || device_type >= FL_SLOTS)
    return fl_error(FL_EINVAL, "device type %d is not known", device_type);
  for (bool on_host = false;;) {
    ask(op, device_type, what, 0);
    if (on_host)
      ask(op, kDLCPU, what, 0);
    pthread_mutex_lock(&host->lock);
    fl_status status = fl_select(selection, op, fl_scope_policy(host, scoped),
                                 op->device_argument < 0 && device_type != FL_OPAQUE_SLOT ? 0 : device_type);
    if (!status && !selection->unasked)
      return FL_OK;
    on_host = may_fall_back(selection);
    fl_selection_free(selection);
    pthread_mutex_unlock(&host->lock);
    if (status)
      return status;
  }
}

/* --------------------------------------------------------------------------------------------------- in words */

void fl_selection_order_origin(const fl_selection *selection, bool scoped, fl_text *text) {
  const fl_host *host = selection->op->host;
  if (selection->override == FL_DISPATCH_OFF) {
    fl_text_add(text, "dispatch is off: %s", fl_config_origin(host->config, FL_SETTING_PREFER_ENABLED));
  } else if (selection->override == FL_OP_DISABLED) {
    fl_text_add(text, "custom_ops: %s", fl_config_origin(host->config, FL_SETTING_CUSTOM_OPS));
  } else if (selection->per_op) {
    const char *own =
        !scoped && !host->policy_is_set && host->config ? fl_config_op_origin(host->config, selection->op->name) : NULL;
    fl_text_add(text, "op_backends: %s", own ? own : fl_policy_origin(host, FL_SETTING_OP_BACKENDS, scoped));
  } else {
    fl_text_add(text, "prefer %s: %s", selection->policy->fields.prefer,
                fl_policy_origin(host, FL_SETTING_PREFER, scoped));
  }
}

/* And where it comes from. */
static void add_order(const fl_selection *selection, bool scoped, fl_text *text) {
  for (uint32_t i = 0; i < selection->n_order; i++)
    fl_text_add(text, "%s%s", i ? " > " : "", selection->order[i]);
  fl_text_add(text, " (");
  fl_selection_order_origin(selection, scoped, text);
  fl_text_add(text, ")");
}

static void add_devices(uint64_t devices, fl_text *text) {
  const char *separator = "";
  for (int type = 1; type < 64; type++)
    if (devices & FL_DEVICE(type)) {
      const char *name = fl_device_type_name(type);
      if (name)
        fl_text_add(text, "%s%s", separator, name);
      else
        fl_text_add(text, "%sdevice type %d", separator, type);
      separator = ", ";
    }
}

static void rejection_reason(const fl_selection *selection, const fl_selected *item, bool scoped, fl_text *text) {
  const fl_impl_record *impl = item->record;
  const fl_host *host = selection->op->host;
  char list[512];
  switch (item->rejection) {
  case FL_ACCEPTED:
    break;
  case FL_REJECTED_VENDOR:
    fl_kept_out_reason(host, selection->policy, scoped, impl->vendor, text);
    break;
  case FL_REJECTED_LIST:
    fl_config_flagos_allowed(host->config, selection->op->name, list, sizeof list);
    fl_text_add(text, "%s", list);
    break;
  case FL_REJECTED_UNAVAILABLE: {
    const char *reason = atomic_load(&item->record->reason);
    fl_text_add(text, "not available: %s", reason ? reason : "it has become so since");
  } break;
  case FL_REJECTED_DEVICE:
    fl_text_add(text, "works on ");
    add_devices(impl->devices, text);
    fl_text_add(text, ", the tensors are on %s", fl_device_type_name(selection->device_type));
    break;
  case FL_REJECTED_OPAQUE:
    fl_text_add(text, "takes values, and the arguments of this call are none (fl_invoke_opaque)");
    break;
  case FL_REJECTED_ARCHITECTURE:
    fl_text_add(text, "not available: ");
    fl_architectures_reason(host, impl, selection->device_type, text);
    break;
  case FL_REJECTED_PART: {
    fl_selection again = *selection;
    const fl_op *part = part_lacking(&again, selection->op, 0);
    fl_text_add(text, "nothing runs its part '%s' there", part ? part->name : "");
  } break;
  case FL_REJECTED_HOST:
    if (selection->policy->fields.host_fallback) {
      fl_text_add(text, "nothing in the order runs the op on the CPU");
      break;
    }
    fl_text_add(text, "host_fallback is not set: %s", fl_policy_origin(host, FL_SETTING_HOST_FALLBACK, scoped));
    break;
  case FL_REJECTED_ORDER:
    fl_text_add(text, "no token of the order matches it: ");
    add_order(selection, scoped, text);
    break;
  }
}

void fl_selection_reason(const fl_selection *selection, uint32_t i, bool scoped, fl_text *text) {
  const fl_selected *item = &selection->items[i];
  if (item->rejection) {
    rejection_reason(selection, item, scoped, text);
    return;
  }
  if (item->record == selection->op->host_fallback) {
    fl_text_add(text, "on the CPU, where its tensors are copied and back (host_fallback: %s)",
                fl_policy_origin(selection->op->host, FL_SETTING_HOST_FALLBACK, scoped));
    return;
  }
  fl_text_add(text, "token '%s' of order ", selection->order[item->token]);
  add_order(selection, scoped, text);
  if (i && selection->items[i - 1].token == item->token)
    fl_text_add(text, ", %s %d after %s",
                item->record->priority == selection->items[i - 1].record->priority ? "impl_id at equal priority"
                                                                                   : "priority",
                item->record->priority, selection->items[i - 1].record->impl_id);
  if (item->on_devices != UINT64_MAX) {
    fl_text_add(text, "; not on each device: ");
    fl_architectures_reason(selection->op->host, item->record, selection->device_type, text);
  }
}

/* The ids in the order of registration: those that a filter left over, or all. */
static void add_ids(const fl_selection *selection, bool all, fl_text *text) {
  const fl_impl_set *set = atomic_load_explicit(&selection->op->impls, memory_order_acquire);
  const char *separator = "";
  fl_text_add(text, "[");
  for (uint32_t i = 0; i < selection->n; i++)
    for (uint32_t j = 0; j < selection->n; j++)
      if (selection->items[j].record == set->impls[i] &&
          (all || !selection->items[j].rejection || selection->items[j].rejection == FL_REJECTED_ORDER)) {
        fl_text_add(text, "%s'%s'", separator, selection->items[j].record->impl_id);
        separator = ", ";
      }
  fl_text_add(text, "]");
}

/* Would the CPU do, for all that is known? */
static bool is_advised(const fl_selection *selection) {
  bool runs_on_host = false;
  for (uint32_t i = 0; i < selection->n; i++)
    runs_on_host |= fl_impl_is_for(selection->items[i].record, kDLCPU);
  return runs_on_host && is_elsewhere(selection) && !selection->policy->fields.host_fallback;
}

void fl_selection_error_text(const fl_selection *selection, fl_text *text) {
  const char *op = selection->op->name;
  bool passed = false;
  for (uint32_t i = 0; i < selection->n; i++)
    passed = passed || !selection->items[i].rejection || selection->items[i].rejection == FL_REJECTED_ORDER;
  if (!passed) {
    fl_text_add(text, "No available implementation for op='%s'. Registered: ", op);
    add_ids(selection, true, text);
  } else if (selection->policy->fields.strict && selection->override == FL_NO_OVERRIDE) {
    fl_text_add(text, "No implementation available for op='%s' under strict policy. Candidates: ", op);
    add_ids(selection, false, text);
  } else {
    fl_text_add(text, "No implementation selected for op='%s'. Candidates: ", op);
    add_ids(selection, false, text);
    fl_text_add(text, ", Order: ");
    fl_text_add_list(text, selection->order, selection->n_order);
  }
  if (is_advised(selection))
    fl_text_add(text, "; host_fallback: true would run it on the CPU");
  for (uint32_t i = 0; i < selection->n; i++) {
    fl_text_add(text, "\n  %s: ", selection->items[i].record->impl_id);
    fl_selection_reason(selection, i, selection->policy != selection->op->host->policy, text);
  }
}

fl_status fl_selection_error(const fl_selection *selection) {
  fl_text text = {0};
  fl_selection_error_text(selection, &text);
  fl_status status = fl_error(FL_ENOIMPL, "%s", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}
