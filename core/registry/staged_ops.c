/* Ops and implementations, staged: see staged_ops.h. */
#include "core/registry/staged_ops.h"

#include "core/cases.h"
#include "core/registry/implementations.h"
#include "core/registry/parts.h"
#include "core/registry/registry.h"
#include "core/registry/staged_components.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------- what is staged */

static uint64_t hash_of(const char *name) {
  return fl_hash_name(name, strlen(name));
}

/* Of the same id there is one implementation of each op at most, and those of an op are many with names alike. */
static uint64_t hash_of_impl(const fl_op *op, const char *impl_id) {
  return (uint64_t)(uintptr_t)op * UINT64_C(0x9e3779b97f4a7c15) >> 32 ^ hash_of(impl_id);
}

fl_op *fl_staged_op(const fl_stage *stage, const char *name) {
  uint64_t hash = stage->n_new_ops ? hash_of(name) : 0;
  uint32_t at = 0, row;
  while ((row = fl_row_index_next(&stage->ops_by_name, hash, &at)) != UINT32_MAX)
    if (!strcmp(stage->new_ops[row]->name, name))
      return stage->new_ops[row];
  return NULL;
}

static bool is_staged(const fl_stage *stage, const fl_op *op, const char *impl_id, uint64_t hash) {
  uint32_t at = 0, row;
  while ((row = fl_row_index_next(&stage->impls_by_id, hash, &at)) != UINT32_MAX)
    if (stage->impls[row]->op == op && !strcmp(stage->impls[row]->impl_id, impl_id))
      return true;
  return false;
}

static fl_status check_listed(const fl_stage *stage, const char *op) {
  fl_strings names = {0};
  if (!stage->ops || fl_ops_list(stage->ops, strlen(stage->ops), op, strlen(op)))
    return FL_OK;
  if (!fl_split(&names, stage->ops, ',')) {
    fl_strings_free(&names);
    return fl_error_no_memory();
  }
  fl_status status =
      fl_error(FL_EINVAL, "its FL_PLUGIN_OPS does not list '%s', so the host would not look for it there%s", op,
               fl_suggest_among(op, &names).text);
  fl_strings_free(&names);
  return status;
}

/* -------------------------------------------------------------------------------------------------------------- ops */

void fl_name_of_schema(const char *schema, char name[FL_NAME_MAX + 1]) {
  schema = schema ? schema + strspn(schema, " \t\r\n") : "";
  snprintf(name, FL_NAME_MAX + 1, "%.*s", (int)strcspn(schema, " \t\r\n("), schema);
}

fl_status fl_check_same_op(const fl_op *known, const fl_schema *schema) {
  if (!known || fl_schema_same(known->schema, schema))
    return FL_OK;
  return fl_error(FL_EEXIST, "op '%s' is declared as '%s', but plugin '%s' declared it as '%s'", schema->op_name,
                  schema->text, known->schema_plugin, known->schema->text);
}

/* The op if it is known to the registry, where it is parsed then, or staged; else NULL. */
static fl_status find_op(const fl_stage *stage, const char *name, fl_op **op) {
  pthread_mutex_lock(&stage->host->lock);
  *op = fl_registry_known(stage->host, name);
  pthread_mutex_unlock(&stage->host->lock); /* an op stays */
  if (*op)
    return fl_registry_parse(*op);
  *op = fl_staged_op(stage, name);
  return FL_OK;
}

static bool add_parts(fl_host *host, fl_op *op) {
  if (!op->schema->parsed)
    return true;
  pthread_mutex_lock(&host->lock);
  bool added = fl_parts_create(host, op);
  pthread_mutex_unlock(&host->lock);
  return added;
}

/* Takes over the schema. */
static fl_status add_op(fl_stage *stage, fl_schema *schema) {
  fl_op *op = fl_registry_make_op(schema, stage->plugin);
  if (!op)
    fl_schema_free(schema);
  if (!op || !add_parts(stage->host, op) || !fl_array_grow(&stage->new_ops, stage->n_new_ops, sizeof op) ||
      !fl_row_index_add(&stage->ops_by_name, hash_of(op->name), stage->n_new_ops)) {
    fl_registry_free_op(op);
    return fl_error_no_memory();
  }
  stage->new_ops[stage->n_new_ops++] = op;
  return FL_OK;
}

fl_status fl_stage_op(fl_stage *stage, const fl_op_def *given, fl_row_name *row) {
  fl_op_def def;
  fl_schema *schema = NULL;
  fl_op *known = NULL;
  uint32_t n_components = stage->n_components;
  char name[FL_NAME_MAX + 1];
  fl_status status = fl_sized_check(given, offsetof(fl_op_def, schema) + sizeof given->schema, "its", "fl_op_def");
  if (status)
    return status;
  fl_sized_take(&def, sizeof def, given);
  status = fl_schema_create_checked(&def, &schema);
  if (!status)
    status = check_listed(stage, schema->op_name);
  if (!status)
    status = fl_check_op_allowed(stage, schema->op_name);
  if (!status)
    status = find_op(stage, schema->op_name, &known);
  if (!status)
    status = fl_check_same_op(known, schema);
  if (!status)
    status = fl_stage_layers(stage, def.layers, schema->op_name);
  if (!status && !known) {
    status = add_op(stage, schema);
    schema = NULL;
  }
  if (status) {
    fl_stage_drop_components(stage, n_components);
    fl_name_of_schema(def.schema, name);
    if (*name)
      snprintf(row->text, sizeof row->text, "op '%s'", name);
  }
  fl_schema_free(schema);
  return status;
}

/* -------------------------------------------------------------------------------------------------- implementations */

/* What no implementation may take for a name: vLLM IR's tokens, and the host's own implementations. */
static fl_status check_reserved(const char *field, const char *name) {
  static const char *const reserved[] = {"native", FL_TOKEN_PARTS, FL_PARTS_IMPL, FL_HOST_IMPL};
  for (size_t i = 0; name && i < sizeof reserved / sizeof *reserved; i++)
    if (!strcmp(name, reserved[i]))
      return fl_error(
          FL_EINVAL,
          "%s '%s' is reserved: 'native' names the reference, 'unfused' and 'reference.parts' running an op "
          "by its parts, 'reference.host' running it on the CPU; by convention an id is default.flagos, "
          "vendor.<vendor> or reference.<name>",
          field, name);
  return FL_OK;
}

/* R1. */
static fl_status check_impl(const fl_impl *impl) {
  if (fl_name_is_bad(impl->op_name))
    return fl_error(FL_EINVAL, "op_name is %s", impl->op_name && *impl->op_name ? "longer than 127 bytes" : "empty");
  if (fl_name_is_bad(impl->impl_id))
    return fl_error(FL_EINVAL, "impl_id is %s", impl->impl_id && *impl->impl_id ? "longer than 127 bytes" : "empty");
  if (impl->kind < FL_KIND_DEFAULT || impl->kind > FL_KIND_REFERENCE)
    return fl_error(FL_EINVAL, "kind is %d, expected FL_KIND_DEFAULT (1), FL_KIND_VENDOR (2) or FL_KIND_REFERENCE (3)",
                    impl->kind);
  const char *vendor = impl->vendor ? impl->vendor : "";
  size_t length = fl_trim(&vendor, strlen(vendor));
  if (impl->kind == FL_KIND_VENDOR && !length)
    return fl_error(FL_EINVAL, "vendor is empty, but kind is FL_KIND_VENDOR");
  if (impl->vendor && strlen(impl->vendor) > FL_NAME_MAX)
    return fl_error(FL_EINVAL, "vendor is longer than %d bytes", FL_NAME_MAX);
  if (length != strlen(impl->vendor ? impl->vendor : "") || strchr(vendor, ','))
    return fl_error(FL_EINVAL, "vendor '%s' holds a comma, or white space at an end: deny_vendors could not name it",
                    impl->vendor);
  if (impl->variant && (fl_name_is_bad(impl->variant) || strpbrk(impl->variant, " \t\n")))
    return fl_error(FL_EINVAL, "variant is not one word of 1 to %d bytes, or NULL", FL_NAME_MAX);
  if (!impl->devices)
    return fl_error(FL_EINVAL, "devices is empty: set FL_DEVICE(kDLCPU), another device type, or FL_DEVICE_ANY");
  if (!impl->fn)
    return fl_error(FL_EINVAL, "fn is NULL");
  if (impl->prepares && (!impl->prepared_size || !impl->prepare))
    return fl_error(FL_EINVAL, "prepares is 0x%llx, but %s is NULL", (unsigned long long)impl->prepares,
                    impl->prepared_size ? "prepare" : "prepared_size");
  fl_status status = check_reserved("impl_id", impl->impl_id);
  return status ? status : check_reserved("vendor", impl->vendor);
}

/* Who denies the vendor that the file names is to have denied all of it. */
static fl_status check_vendor(const fl_stage *stage, const fl_impl *impl) {
  if (!stage->vendor || (impl->kind == FL_KIND_VENDOR && !strcmp(impl->vendor, stage->vendor)))
    return FL_OK;
  return fl_error(FL_EINVAL, "its FL_PLUGIN_VENDOR says that all are of kind vendor and vendor '%s', this is of %s%s%s",
                  stage->vendor, impl->kind == FL_KIND_VENDOR ? "vendor '" : "kind ",
                  impl->kind == FL_KIND_VENDOR ? impl->vendor : fl_kind_name((fl_kind)impl->kind),
                  impl->kind == FL_KIND_VENDOR ? "'" : "");
}

fl_status fl_check_free_id(const fl_stage *stage, fl_op *op, const char *impl_id) {
  const fl_impl_record *taken = fl_registry_find_impl_locked(op, impl_id);
  if (!taken)
    return FL_OK;
  return fl_error(FL_EEXIST, "Duplicate impl_id '%s' for op='%s': from plugin '%s', registered before by plugin '%s'",
                  impl_id, op->name, stage->plugin, taken->provider->plugin);
}

/* Its op, the registry's or staged, that has no implementation of that id there. */
static fl_status find_op_of(const fl_stage *stage, const fl_impl *impl, fl_op **op) {
  pthread_mutex_lock(&stage->host->lock);
  *op = fl_registry_known(stage->host, impl->op_name);
  fl_status status = *op ? fl_check_free_id(stage, *op, impl->impl_id) : FL_OK;
  pthread_mutex_unlock(&stage->host->lock);
  if (!*op)
    *op = fl_staged_op(stage, impl->op_name);
  return *op ? status : fl_registry_no_such_op(stage->host, impl->op_name);
}

/* R2, against what the plugin itself staged; and stages it. */
static fl_status add_impl(fl_stage *stage, const fl_impl *impl, fl_op *op) {
  uint64_t hash = hash_of_impl(op, impl->impl_id);
  if (is_staged(stage, op, impl->impl_id, hash))
    return fl_error(FL_EEXIST, "Duplicate impl_id '%s' for op='%s': plugin '%s' registers it twice", impl->impl_id,
                    op->name, stage->plugin);
  fl_impl_record *record = fl_impl_record_create(impl, stage->provider, op);
  if (record && fl_array_grow(&stage->impls, stage->n_impls, sizeof record) &&
      fl_row_index_add(&stage->impls_by_id, hash, stage->n_impls)) {
    stage->impls[stage->n_impls++] = record;
    return FL_OK;
  }
  fl_impl_record_free(record);
  return fl_error_no_memory();
}

static fl_status stage_impl(fl_stage *stage, const fl_impl *impl) {
  fl_op *op;
  fl_status status = check_impl(impl);
  if (!status)
    status = check_vendor(stage, impl);
  if (!status)
    status = check_listed(stage, impl->op_name);
  if (!status)
    status = fl_check_op_allowed(stage, impl->op_name);
  if (!status)
    status = fl_check_kind_allowed(stage, impl->kind);
  if (!status)
    status = find_op_of(stage, impl, &op);
  return status ? status : add_impl(stage, impl, op);
}

fl_status fl_stage_impl(fl_stage *stage, const fl_impl *given, fl_row_name *row) {
  fl_impl impl;
  fl_status status = fl_sized_check(given, offsetof(fl_impl, fn) + sizeof given->fn, "its", "fl_impl");
  if (status)
    return status;
  fl_sized_take(&impl, sizeof impl, given);
  status = stage_impl(stage, &impl);
  if (status)
    snprintf(row->text, sizeof row->text, "impl '%.*s' of op '%.*s'", FL_NAME_MAX, impl.impl_id ? impl.impl_id : "",
             FL_NAME_MAX, impl.op_name ? impl.op_name : "");
  return status;
}

void fl_staged_ops_free(fl_stage *stage) {
  fl_row_index_free(&stage->ops_by_name);
  fl_row_index_free(&stage->impls_by_id);
  for (uint32_t i = 0; i < stage->n_new_ops; i++)
    fl_registry_free_op(stage->new_ops[i]);
  for (uint32_t i = 0; i < stage->n_impls; i++)
    fl_impl_record_free(stage->impls[i]);
  free(stage->new_ops);
  free(stage->impls);
}
