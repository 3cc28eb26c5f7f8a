/* What would run, and why: resolving without a call, and explanations. */
#include "core/call.h"
#include "core/platform.h"
#include "core/registry.h"
#include "core/support.h"
#include "core/vllm.h"

#include <string.h>

fl_status fl_resolve_op(fl_host *host, const char *name, int32_t device_type, fl_resolution *resolution) {
  fl_selection selection;
  bool scoped;
  fl_status status =
      fl_sized_check(resolution, offsetof(fl_resolution, self), "fl_resolve_op: the resolution's", "fl_resolution");
  if (status)
    return status;
  fl_op *op = fl_find_op(host, name);
  if (!op)
    return fl_registry_no_impl(host, name);
  status = fl_select_locked(op, device_type, FL_ASK_ALL, &selection, &scoped);
  if (status)
    return status;
  if (selection.n_accepted) {
    const fl_impl_record *impl = selection.items[0].record;
    fl_resolution found = {.fn = impl->fn, .self = impl->self, .kind = (fl_kind)impl->kind, .priority = impl->priority};
    snprintf(found.impl_id, sizeof found.impl_id, "%s", impl->impl_id);
    snprintf(found.vendor, sizeof found.vendor, "%s", impl->vendor ? impl->vendor : "");
    fl_sized_give(resolution, &found, sizeof found);
  } else {
    status = fl_selection_error(&selection);
  }
  pthread_mutex_unlock(&host->lock);
  fl_selection_free(&selection);
  return status;
}

fl_status fl_get_selected_impl_id(fl_host *host, const char *op, int32_t device_type, char *buffer, size_t size) {
  fl_resolution resolution = {.size = sizeof resolution};
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

/* Of the implementation that the selection lists at that place. */
static fl_explained describe(fl_arena *arena, const fl_selection *selection, uint32_t i, bool scoped) {
  const fl_impl_record *record = selection->items[i].record;
  const fl_failure *failure = fl_failure_find_locked(selection->op, record);
  fl_text reason = {0};
  fl_selection_reason(selection, i, scoped, &reason);
  if (failure && (failure->barred || !selection->policy->fields.strict)) {
    fl_text_add(&reason, "; %s (%s)", failure->barred ? "barred" : "failed before",
                failure->reason ? failure->reason : "");
    double now = fl_monotonic_seconds();
    if (!failure->retry_at)
      fl_text_add(&reason, ", skipped until it is cleared");
    else if (!fl_is_due(failure->retry_at, failure->backoff, now))
      fl_text_add(&reason, ", skipped for %.1f s more", failure->retry_at - now);
    else
      fl_text_add(&reason, ", tried again with the next call");
  }
  if (record->supports_args && !selection->items[i].rejection)
    fl_text_add(&reason, "; per call if it supports the arguments");
  return (fl_explained){
      .impl_id = fl_arena_string(arena, record->impl_id),
      .kind = fl_kind_name((fl_kind)record->kind),
      .vendor = fl_arena_string(arena, record->vendor),
      .priority = record->priority,
      .plugin = fl_arena_string(arena, record->provider->plugin),
      .verdict = selection->items[i].rejection ? FL_REJECTED
                 : i                           ? FL_CANDIDATE
                                               : FL_SELECTED,
      .reason = fl_arena_text(arena, &reason),
      .variant = fl_arena_string(arena, record->variant),
      .prepares = fl_impl_prepares(record) != 0,
  };
}

/* The plugins that are not there, or not with all that they list. */
static void list_missing(fl_explanation *explanation, fl_arena *arena, const fl_op *op) {
  const fl_host *host = op->host;
  uint32_t n = 0;
  for (uint32_t i = 0; i < host->n_plugins; i++)
    n += fl_is_missing(&host->plugins[i], op);
  fl_missing_plugin *items = fl_arena_array(arena, n, sizeof *items), *next = items;
  for (uint32_t i = 0; items && i < host->n_plugins; i++) {
    const fl_plugin_record *record = &host->plugins[i];
    if (fl_is_missing(record, op))
      *next++ = (fl_missing_plugin){
          .plugin = fl_arena_string(arena, record->name),
          .file = fl_arena_string(arena, record->file),
          .status = fl_plugin_status_name(record->status),
          .lists_op = record->ops != NULL,
          .reason = fl_arena_string(arena, record->reason),
      };
  }
  explanation->missing = items;
  explanation->n_missing = n;
  explanation->missing_size = sizeof *items;
}

static void fill(fl_explanation *explanation, fl_arena *arena, const fl_selection *selection, bool scoped) {
  fl_text origin = {0}, error = {0};
  fl_explained *impls = fl_arena_array(arena, selection->n, sizeof *impls);
  for (uint32_t i = 0; impls && i < selection->n; i++)
    impls[i] = describe(arena, selection, i, scoped);
  fl_selection_order_origin(selection, scoped, &origin);
  *explanation = (fl_explanation){
      .size = sizeof *explanation,
      .op = fl_arena_string(arena, selection->op->name),
      .order = fl_arena_strings(arena, selection->order, selection->n_order),
      .n_order = selection->n_order,
      .order_origin = fl_arena_text(arena, &origin),
      .impls = impls,
      .n_impls = selection->n,
      .impl_size = sizeof *impls,
      .replaced_size = sizeof(fl_replaced),
  };
  explanation->replaces = fl_layers_of(selection->op->host, selection->op->name, arena, &explanation->n_replaces);
  list_missing(explanation, arena, selection->op);
  if (selection->n_accepted) {
    explanation->selected = impls ? impls[0].impl_id : NULL;
  } else {
    fl_selection_error_text(selection, &error);
    explanation->error = fl_arena_text(arena, &error);
  }
}

/* The op of that name, or the one that replaces a layer class of that name. */
static fl_op *find_op_or_layer(fl_host *host, const char *name) {
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  bool is_class = !fl_registry_known(host, name) && fl_layer_named(host, name, &layer);
  const fl_op *op = is_class ? fl_layer_op(host, layer.class) : NULL;
  pthread_mutex_unlock(&host->lock);
  return is_class && !op ? NULL : fl_find_op(host, is_class ? op->name : name);
}

fl_status fl_explain(fl_host *host, const char *name, int32_t device_type, fl_explanation **result) {
  fl_selection selection;
  bool scoped;
  fl_arena *arena;
  fl_op *op = find_op_or_layer(host, name);
  if (!op)
    return FL_ENOENT;
  fl_status status = fl_select_locked(op, device_type, FL_ASK_ALL, &selection, &scoped);
  if (status)
    return status;
  fl_explanation *explanation = fl_arena_create(sizeof *explanation, &arena);
  if (explanation)
    fill(explanation, arena, &selection, scoped);
  pthread_mutex_unlock(&host->lock);
  fl_selection_free(&selection);
  status = explanation ? fl_arena_finish(explanation, sizeof *explanation) : fl_error_no_memory();
  if (!status)
    *result = explanation;
  return status;
}

void fl_explanation_free(fl_explanation *explanation) {
  fl_arena_destroy(explanation, sizeof *explanation);
}
