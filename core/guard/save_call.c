/* A call as a file that `flhost run` repeats (tests/golden/README.md has the format): public as fl_save_call. */
#include "core/guard/layout.h"
#include "core/registry.h"
#include "core/support.h"

#include <flhost/device.h>
#include <flhost/testing.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A file as it is put together. */
typedef struct saving {
  const fl_op *op;
  const fl_call *call;
  fl_saved_call about;
  uint32_t n_tensors, n_metadata;
  char *names[2 * FL_SCHEMA_MAX_VALUES];
  DLTensor shown[2 * FL_SCHEMA_MAX_VALUES]; /* on the host */
  void *copies[2 * FL_SCHEMA_MAX_VALUES];   /* of what lies on a device; NULL: none */
  char *metadata[2 * (FL_SCHEMA_MAX_VALUES + 8)];
} saving;

/* ------------------------------------------------------------------------------------------------------- the parts */

/* A pair of metadata; `value` NULL: there is none. */
static fl_status add_metadata(saving *s, const char *prefix, const char *key, const char *value) {
  if (!value)
    return FL_OK;
  char **pair = &s->metadata[2 * s->n_metadata++];
  pair[0] = fl_format("%s%s", prefix, key);
  pair[1] = fl_strdup(value);
  return pair[0] && pair[1] ? FL_OK : fl_error_no_memory();
}

/* What lies on a device is copied, gaps included. */
static fl_status fetch(saving *s, DLTensor *tensor, void **copy) {
  size_t size = fl_tensor_span(tensor);
  if (fl_tensor_is_on_host(tensor))
    return FL_OK;
  *copy = malloc(size ? size : 1);
  if (!*copy)
    return fl_error_no_memory();
  fl_status status =
      fl_device_copy(s->op->host, tensor->device, *copy, fl_data(tensor), size, FL_COPY_TO_HOST, s->call->stream);
  tensor->data = *copy;
  tensor->byte_offset = 0;
  tensor->device = (DLDevice){kDLCPU, 0};
  return status;
}

static fl_status add_tensor(saving *s, const char *prefix, const char *name, const DLTensor *tensor) {
  uint32_t i = s->n_tensors++;
  s->names[i] = fl_format("%s%s", prefix, name);
  s->shown[i] = *tensor;
  return s->names[i] ? fetch(s, &s->shown[i], &s->copies[i]) : fl_error_no_memory();
}

/* NULL: the value has no form in JSON, or out of memory. */
static json_t *to_json(const fl_value *value) {
  json_t *list;
  switch (value->type) {
  case FL_INT:
    return json_integer(value->v.i);
  case FL_FLOAT:
    return json_real(value->v.f);
  case FL_BOOL:
    return json_boolean(value->v.b);
  case FL_STRING:
    return json_string(value->v.s);
  case FL_INT_LIST:
    list = json_array();
    for (uint32_t i = 0; i < value->length; i++)
      json_array_append_new(list, json_integer(value->v.ints[i]));
    return list;
  default:
    return json_null();
  }
}

static fl_status add_attribute(const saving *s, json_t *attributes, uint32_t i) {
  const fl_argument *argument = &s->op->schema->values[i];
  const fl_value *value = &s->call->values[i];
  if (value->type == FL_NONE && !argument->has_default)
    return FL_OK;
  if (!json_object_set_new(attributes, argument->name, to_json(value)))
    return FL_OK;
  return fl_error(FL_EINVAL, "%s: attribute '%s' has no form in JSON, or out of memory", s->op->name, argument->name);
}

static fl_status add_arguments(saving *s) {
  json_t *attributes = json_object();
  fl_status status = attributes ? FL_OK : fl_error_no_memory();
  for (uint32_t i = 0; i < s->op->schema->n_arguments && !status; i++) {
    const fl_argument *argument = &s->op->schema->values[i];
    const fl_value *value = &s->call->values[i];
    if (argument->type != FL_TENSOR)
      status = add_attribute(s, attributes, i);
    else if (value->type == FL_TENSOR)
      status = add_tensor(s, "", argument->name, value->v.tensor);
  }
  char *text = status ? NULL : json_dumps(attributes, JSON_SORT_KEYS);
  if (!status)
    status = text ? add_metadata(s, "", "attrs", text) : fl_error_no_memory();
  free(text);
  json_decref(attributes);
  return status;
}

/* A result that is no tensor is text, in the form in which `flhost run` prints it. */
static fl_status add_text(saving *s, const char *name, const fl_value *value) {
  char text[64];
  switch (value->type) {
  case FL_STRING:
    return add_metadata(s, "out.", name, value->v.s);
  case FL_INT:
    snprintf(text, sizeof text, "%lld", (long long)value->v.i);
    break;
  case FL_FLOAT:
    snprintf(text, sizeof text, "%.17g", value->v.f);
    break;
  case FL_BOOL:
    snprintf(text, sizeof text, "%s", value->v.b ? "true" : "false");
    break;
  default:
    return FL_OK;
  }
  return add_metadata(s, "out.", name, text);
}

/* Is it a state: an argument that calls overwrite, and no result stands for? */
static bool is_state(const fl_schema *schema, uint32_t i) {
  for (uint32_t r = schema->n_arguments; r < schema->n_arguments + schema->n_results; r++)
    if (schema->values[r].alias == (int32_t)i)
      return false;
  return schema->values[i].mutates;
}

static fl_status add_expected(saving *s) {
  const fl_schema *schema = s->op->schema;
  uint32_t n = schema->n_arguments + schema->n_results;
  fl_status status = FL_OK;
  for (uint32_t i = 0; s->about.expected && i < n && !status; i++) {
    const fl_value *value = &s->about.expected[i];
    bool is_result = i >= schema->n_arguments;
    if (value->type == FL_TENSOR && (is_result || is_state(schema, i)))
      status = add_tensor(s, is_result ? "out." : "after.", schema->values[i].name, value->v.tensor);
    else if (is_result)
      status = add_text(s, schema->values[i].name, value);
  }
  return status;
}

static fl_status add_origin(saving *s) {
  fl_status status = add_metadata(s, "", "op", s->op->name);
  if (!status)
    status = add_metadata(s, "", "source", s->about.source);
  if (!status)
    status = add_metadata(s, "", "note", s->about.note);
  return status || !s->about.bit_exact ? status : add_metadata(s, "", "bitexact", "yes");
}

/* How it has to be called for it to fail. */
static fl_status add_circumstances(saving *s) {
  static const char *const edges[] = {[FL_EDGE_NONE] = NULL, [FL_EDGE_END] = "end", [FL_EDGE_BEGINNING] = "beginning"};
  const fl_schema *schema = s->op->schema;
  uint32_t most = schema->n_arguments + schema->n_results, n = s->call->count < most ? s->call->count : most;
  json_t *layout = fl_layout_to_json(schema, s->about.layout ? s->about.layout : s->call->values, n);
  char *text = layout ? json_dumps(layout, JSON_SORT_KEYS) : NULL, calls[24];
  fl_status status = text ? add_metadata(s, "", "layout", text) : fl_error_no_memory();
  free(text);
  json_decref(layout);
  if (!status)
    status = add_metadata(s, "", "edge", edges[s->about.edge]);
  snprintf(calls, sizeof calls, "%u", (unsigned)s->about.calls);
  return status || !s->about.calls ? status : add_metadata(s, "", "calls", calls);
}

/* -------------------------------------------------------------------------------------------------------- the file */

static void release(saving *s) {
  for (uint32_t i = 0; i < s->n_tensors; i++) {
    free(s->names[i]);
    free(s->copies[i]);
  }
  for (uint32_t i = 0; i < 2 * s->n_metadata; i++)
    free(s->metadata[i]);
  free(s);
}

static fl_status write_file(const saving *s, const char *path) {
  const DLTensor *tensors[2 * FL_SCHEMA_MAX_VALUES];
  for (uint32_t i = 0; i < s->n_tensors; i++)
    tensors[i] = &s->shown[i];
  return fl_save_tensors(path, (const char *const *)s->names, tensors, s->n_tensors, (const char *const *)s->metadata,
                         s->n_metadata);
}

fl_status fl_save_call(const char *path, fl_op *op, const fl_call *call, const fl_saved_call *about) {
  if (!path || !op || !call)
    return fl_error(FL_EINVAL, "fl_save_call: the %s is NULL", !path ? "path" : !op ? "op" : "call");
  fl_status status =
      about ? fl_sized_check(about, offsetof(fl_saved_call, expected), "fl_save_call: about's", "fl_saved_call")
            : FL_OK;
  if (status || (status = fl_registry_open(op)))
    return status;
  if (call->count < op->schema->n_arguments)
    return fl_error(FL_EINVAL, "fl_save_call: %s: %u values, expected at least its %u arguments", op->name, call->count,
                    op->schema->n_arguments);
  saving *s = calloc(1, sizeof *s);
  if (!s)
    return fl_error_no_memory();
  s->op = op;
  s->call = call;
  if (about)
    fl_sized_take(&s->about, sizeof s->about, about);
  status = s->about.edge <= FL_EDGE_BEGINNING ? add_origin(s) : fl_error(FL_EINVAL, "fl_save_call: no such edge");
  if (!status)
    status = add_circumstances(s);
  if (!status)
    status = add_arguments(s);
  if (!status)
    status = add_expected(s);
  if (!status)
    status = write_file(s, path);
  release(s);
  return status;
}
