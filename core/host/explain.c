/* What would run, and why: resolving without a call, and explanations. */
#include "core/call.h"
#include "core/platform.h"
#include "core/registry.h"
#include "core/support.h"
#include "core/vllm.h"

#include <stdlib.h>
#include <string.h>

fl_status fl_resolve_op(fl_host *host, const char *name, int32_t device_type, fl_resolution *resolution) {
  fl_selection selection;
  bool scoped;
  fl_op *op = fl_find_op(host, name);
  if (!op)
    return fl_registry_no_impl(host, name);
  fl_status status = fl_select_locked(op, device_type, FL_ASK_ALL, &selection, &scoped);
  if (status)
    return status;
  if (selection.n_accepted) {
    const fl_impl_record *impl = selection.items[0].record;
    *resolution =
        (fl_resolution){.fn = impl->fn, .self = impl->self, .kind = (fl_kind)impl->kind, .priority = impl->priority};
    snprintf(resolution->impl_id, sizeof resolution->impl_id, "%s", impl->impl_id);
    snprintf(resolution->vendor, sizeof resolution->vendor, "%s", impl->vendor ? impl->vendor : "");
  } else {
    status = fl_selection_error(&selection);
  }
  pthread_mutex_unlock(&host->lock);
  fl_selection_free(&selection);
  return status;
}

fl_status fl_get_selected_impl_id(fl_host *host, const char *op, int32_t device_type, char *buffer, size_t size) {
  fl_resolution resolution;
  fl_status status = fl_resolve_op(host, op, device_type, &resolution);
  if (status)
    return status;
  if (strlen(resolution.impl_id) >= size)
    return fl_error(FL_EINVAL, "the buffer has %zu bytes, '%s' needs %zu", size, resolution.impl_id,
                    strlen(resolution.impl_id) + 1);
  strcpy(buffer, resolution.impl_id);
  return FL_OK;
}

/* -------------------------------------------------------------------------------------------------- explanations */

/* An explanation and the strings that it points to. */
typedef struct explanation {
  fl_explanation public; /* first */
  fl_strings strings;
  fl_explained *impls;
  const char **order;
  fl_replaced *replaces;
} explanation;

/* A copy that lives as long as the explanation; "" when out of memory, which `failed` tells. */
static const char *keep(explanation *e, const char *string, bool *failed) {
  if (fl_strings_add(&e->strings, string))
    return e->strings.items[e->strings.n - 1];
  *failed = true;
  return "";
}

static void describe(explanation *e, const fl_selection *selection, uint32_t i, bool scoped, bool *failed) {
  const fl_impl_record *record = selection->items[i].record;
  const fl_failure *failure = selection->policy->fields.strict ? NULL : fl_failure_find_locked(selection->op, record);
  fl_explained *to = &e->impls[i];
  fl_text reason = {0};
  to->impl_id = keep(e, record->impl_id, failed);
  to->kind = fl_kind_name((fl_kind)record->kind);
  to->vendor = record->vendor ? keep(e, record->vendor, failed) : NULL;
  to->priority = record->priority;
  to->plugin = keep(e, record->provider->plugin, failed);
  to->verdict = selection->items[i].rejection ? FL_REJECTED : i ? FL_CANDIDATE : FL_SELECTED;
  fl_selection_reason(selection, i, scoped, &reason);
  if (failure) {
    fl_text_add(&reason, "; failed before (%s)", failure->reason ? failure->reason : "");
    double left = failure->retry_at - fl_monotonic_seconds();
    if (!failure->retry_at)
      fl_text_add(&reason, ", skipped until it is cleared");
    else if (left > 0)
      fl_text_add(&reason, ", skipped for %.1f s more", left);
    else
      fl_text_add(&reason, ", tried again with the next call");
  }
  if (record->supports_args && !selection->items[i].rejection)
    fl_text_add(&reason, "; per call if it supports the arguments");
  to->reason = keep(e, fl_text_get(&reason), failed);
  fl_text_free(&reason);
}

static void fill(explanation *e, const fl_selection *selection, bool scoped, bool *failed) {
  fl_explanation *public = &e->public;
  fl_text origin = {0};
  for (uint32_t i = 0; i < selection->n_order; i++)
    e->order[i] = keep(e, selection->order[i], failed);
  for (uint32_t i = 0; i < selection->n; i++)
    describe(e, selection, i, scoped, failed);
  fl_selection_order_origin(selection, scoped, &origin);
  *public = (fl_explanation){
      .op = keep(e, selection->op->name, failed),
      .order = e->order,
      .n_order = selection->n_order,
      .order_origin = keep(e, fl_text_get(&origin), failed),
      .impls = e->impls,
      .n_impls = selection->n,
  };
  if (selection->n_accepted) {
    public->selected = e->impls[0].impl_id;
  } else {
    fl_selection_error(selection);
    public->error = keep(e, fl_error_message(), failed);
  }
  if (!fl_layers_of(selection->op->host, selection->op->name, &e->strings, &e->replaces, &public->n_replaces))
    *failed = true;
  public->replaces = e->replaces;
  fl_text_free(&origin);
}

/* The op of that name, or the one that replaces a layer class of that name. */
static fl_op *find_op_or_layer(fl_host *host, const char *name) {
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  bool is_class = !fl_registry_known(host, name) && fl_layer_find(host, name, &layer);
  const fl_op *op = is_class ? fl_layer_op(host, name) : NULL;
  pthread_mutex_unlock(&host->lock);
  return is_class && !op ? NULL : fl_find_op(host, is_class ? op->name : name);
}

fl_status fl_explain(fl_host *host, const char *name, int32_t device_type, fl_explanation **result) {
  fl_selection selection;
  bool scoped, failed = false;
  fl_op *op = find_op_or_layer(host, name);
  if (!op)
    return FL_ENOENT;
  fl_status status = fl_select_locked(op, device_type, FL_ASK_ALL, &selection, &scoped);
  if (status)
    return status;
  explanation *e = calloc(1, sizeof *e);
  if (e) {
    e->impls = calloc(selection.n + 1, sizeof *e->impls);
    e->order = calloc(selection.n_order + 1, sizeof *e->order);
  }
  if (e && e->impls && e->order)
    fill(e, &selection, scoped, &failed);
  else
    failed = true;
  pthread_mutex_unlock(&host->lock);
  fl_selection_free(&selection);
  if (failed) {
    fl_explanation_free((fl_explanation *)e);
    return fl_error_no_memory();
  }
  *result = &e->public;
  return FL_OK;
}

void fl_explanation_free(fl_explanation *result) {
  explanation *e = (explanation *)result;
  if (!e)
    return;
  fl_strings_free(&e->strings);
  free(e->impls);
  free(e->order);
  free(e->replaces);
  free(e);
}
