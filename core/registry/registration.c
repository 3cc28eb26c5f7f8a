/*
 * What one plugin registers is staged and then published as a whole (rule R3). Rows are judged when they are handed in,
 * so that the plugin hears of a refusal at once, and again when they are published, since others may have come first.
 */
#include "core/registry/registration.h"

#include "core/cases.h"
#include "core/registry/components.h"
#include "core/registry/frozen.h"
#include "core/registry/implementations.h"
#include "core/registry/layers.h"
#include "core/registry/registry.h"
#include "core/registry/slots.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* Finds staged rows by hash, so that a plugin of ten thousand rows is no different from one of ten. */
typedef struct row_index {
  uint32_t *places; /* index of a row + 1; 0: empty */
  uint32_t n_places, n_rows;
} row_index;

/* An implementation, and the name of its op as the registry, or the staged schema, keeps it. */
typedef struct staged_impl {
  const char *op_name;
  fl_impl_record *record;
} staged_impl;

struct fl_stage {
  fl_registry table; /* first: the plugin's pointer leads back here */
  fl_host *host;
  const fl_provider *provider;
  const char *plugin;   /* its name */
  const char *ops;      /* the only ones that it may bring anything of; NULL: any */
  const char *platform; /* the only component that it may bring then; NULL: none */
  const fl_allowance *allowed[2];
  uint32_t n_allowed;
  uint32_t flags;
  fl_schema **schemas;
  uint32_t n_schemas;
  row_index schemas_by_op;
  staged_impl *impls;
  uint32_t n_impls;
  row_index impls_by_id;
  fl_component_record *components;
  uint32_t n_components;
  fl_text refused; /* one line a row */
  fl_text told;    /* registry->error() */
};

/* The place of a hash's first row, and of the next after `place`. */
static uint32_t first_place(const row_index *index, uint64_t hash) {
  return (uint32_t)hash & (index->n_places - 1);
}

static uint32_t next_place(const row_index *index, uint32_t place) {
  return (place + 1) & (index->n_places - 1);
}

static void index_put(row_index *index, uint64_t hash, uint32_t row) {
  uint32_t place = first_place(index, hash);
  while (index->places[place])
    place = next_place(index, place);
  index->places[place] = row + 1;
}

/* Adds row `row`; where the index is full it is made anew with `hash_of`. */
static bool index_add(row_index *index, uint64_t (*hash_of)(const fl_stage *, uint32_t), const fl_stage *stage,
                      uint32_t row) {
  if (index->n_rows * 2 >= index->n_places) {
    row_index grown = {.n_places = index->n_places ? index->n_places * 2 : 16, .n_rows = index->n_rows};
    grown.places = calloc(grown.n_places, sizeof *grown.places);
    if (!grown.places)
      return false;
    for (uint32_t i = 0; i < index->n_rows; i++)
      index_put(&grown, hash_of(stage, i), i);
    free(index->places);
    *index = grown;
  }
  index_put(index, hash_of(stage, row), row);
  index->n_rows++;
  return true;
}

static uint64_t schema_hash(const fl_stage *stage, uint32_t row) {
  const char *op = stage->schemas[row]->op_name;
  return fl_hash_name(op, strlen(op));
}

static uint64_t names_hash(const char *op, const char *impl_id) {
  return fl_hash_name(op, strlen(op)) * 31 + fl_hash_name(impl_id, strlen(impl_id));
}

static uint64_t record_hash(const fl_stage *stage, uint32_t row) {
  return names_hash(stage->impls[row].op_name, stage->impls[row].record->impl_id);
}

static fl_status refuse(fl_stage *stage, fl_status status, const char *row) {
  fl_kept_error why; /* the engine's log function may call this library */
  fl_error_keep(&why);
  fl_text_add(&stage->refused, "%s%s: %s", stage->refused.length ? "\n" : "", row, why.message);
  fl_log_line(&stage->host->log, FL_LOG_WARNING, "plugin %s: refused %s: %s", stage->plugin, row, why.message);
  fl_error_restore(&why);
  return status;
}

/* ------------------------------------------------------------------------------------------------- the list of ops */

void fl_stage_limit(fl_stage *stage, const char *ops, const char *platform) {
  stage->ops = ops;
  stage->platform = platform;
}

const char *const fl_row_kind_names[FL_N_ROW_KINDS] = {"flagos", "vendor", "reference", "platform", "layer"};

void fl_stage_allow(fl_stage *stage, const fl_allowance *allowance) {
  if (stage->n_allowed < sizeof stage->allowed / sizeof *stage->allowed)
    stage->allowed[stage->n_allowed++] = allowance;
}

static fl_status check_op_allowed(const fl_stage *stage, const char *op) {
  for (uint32_t i = 0; i < stage->n_allowed; i++) {
    const fl_allowance *allowed = stage->allowed[i];
    if (allowed->ops && !fl_ops_list(allowed->ops, strlen(allowed->ops), op, strlen(op)))
      return fl_error(FL_EINVAL, "plugins.lock '%s' does not allow it the op '%s'; its ops there are: %s", allowed->by,
                      op, *allowed->ops ? allowed->ops : "none");
  }
  return FL_OK;
}

static fl_status check_kind_allowed(const fl_stage *stage, uint32_t kind) {
  for (uint32_t i = 0; i < stage->n_allowed; i++)
    if (!(stage->allowed[i]->kinds & 1u << kind))
      return fl_error(FL_EINVAL, "plugins.lock '%s' does not allow it the kind '%s'", stage->allowed[i]->by,
                      fl_row_kind_names[kind]);
  return FL_OK;
}

/* The two types of components are the last of the kinds. */
static fl_status check_type_allowed(const fl_stage *stage, const char *type) {
  uint32_t kind = FL_KIND_REFERENCE;
  while (kind < FL_N_ROW_KINDS - 1 && strcmp(fl_row_kind_names[kind], type) != 0)
    kind++;
  return check_kind_allowed(stage, kind);
}

static fl_status check_listed(const fl_stage *stage, const char *op) {
  fl_strings names = {0};
  fl_status allowed = check_op_allowed(stage, op);
  if (allowed)
    return allowed;
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

/* A component that nobody would look for. */
static fl_status check_component_listed(const fl_stage *stage, const char *type, const char *name) {
  fl_status allowed = check_type_allowed(stage, type);
  if (allowed)
    return allowed;
  if (!stage->ops || (!strcmp(type, "platform") && stage->platform && !strcmp(name, stage->platform)))
    return FL_OK;
  return fl_error(
      FL_EINVAL, "a plugin with FL_PLUGIN_OPS brings ops%s%s%s alone: the host would not look for a %s '%s' there%s",
      stage->platform ? " and the platform '" : "", stage->platform ? stage->platform : "", stage->platform ? "'" : "",
      type, name, strcmp(type, "platform") || stage->platform ? "" : "; say so with FL_PLUGIN_PLATFORM");
}

/* ---------------------------------------------------------------------------------------------------------- ops */

static fl_schema *staged_schema(const fl_stage *stage, const char *op) {
  const row_index *index = &stage->schemas_by_op;
  if (!index->n_rows)
    return NULL;
  uint32_t row, place = first_place(index, fl_hash_name(op, strlen(op)));
  for (; (row = index->places[place]); place = next_place(index, place))
    if (!strcmp(stage->schemas[row - 1]->op_name, op))
      return stage->schemas[row - 1];
  return NULL;
}

/* FL_EEXIST when the op is known with another schema; *known when it is known with this one. */
static fl_status schema_conflict(const fl_schema *known_schema, const char *plugin, const fl_schema *schema,
                                 bool *known) {
  *known = known_schema != NULL;
  if (!known_schema || fl_schema_same(known_schema, schema))
    return FL_OK;
  return fl_error(FL_EEXIST, "op '%s' is declared as '%s', but plugin '%s' declared it as '%s'", schema->op_name,
                  schema->text, plugin, known_schema->text);
}

/* A schema begins with its op's name; it need not be parsed for that. */
static void name_of_schema(const char *schema, char name[FL_NAME_MAX + 1]) {
  schema = schema ? schema + strspn(schema, " \t\r\n") : "";
  snprintf(name, FL_NAME_MAX + 1, "%.*s", (int)strcspn(schema, " \t\r\n("), schema);
}

static fl_status stage_layers(fl_stage *stage, const char *layers, const char *op);
static void drop_components(fl_stage *stage, uint32_t kept);

static fl_status stage_op(fl_registry *registry, const fl_op_def *op) {
  fl_stage *stage = (fl_stage *)registry;
  fl_op_def def;
  fl_schema *schema = NULL;
  bool known = false;
  uint32_t n_components = stage->n_components;
  char name[FL_NAME_MAX + 1], row[FL_NAME_MAX + 8] = "op";
  fl_status status = fl_sized_check(op, offsetof(fl_op_def, schema) + sizeof op->schema, "its", "fl_op_def");
  if (status)
    return refuse(stage, status, row);
  fl_sized_take(&def, sizeof def, op);
  name_of_schema(def.schema, name);
  if (*name)
    snprintf(row, sizeof row, "op '%s'", name);
  status = fl_schema_create_checked(&def, &schema);
  if (!status)
    status = check_listed(stage, schema->op_name);
  if (!status) {
    pthread_mutex_lock(&stage->host->lock);
    fl_op *existing = fl_registry_known(stage->host, schema->op_name);
    pthread_mutex_unlock(&stage->host->lock); /* an op stays */
    status = existing ? fl_registry_parse(existing) : FL_OK;
    if (!status)
      status = schema_conflict(existing ? existing->schema : staged_schema(stage, schema->op_name),
                               existing ? existing->schema_plugin : stage->plugin, schema, &known);
  }
  if (!status)
    status = stage_layers(stage, def.layers, schema->op_name);
  if (!status && !known) {
    if (fl_array_grow(&stage->schemas, stage->n_schemas, sizeof *stage->schemas)) {
      stage->schemas[stage->n_schemas++] = schema; /* the stage's from now on */
      if (index_add(&stage->schemas_by_op, schema_hash, stage, stage->n_schemas - 1))
        return FL_OK;
      schema = NULL;
    }
    status = fl_error_no_memory();
  }
  fl_schema_free(schema);
  if (!status)
    return FL_OK;
  drop_components(stage, n_components);
  return refuse(stage, status, row);
}

/* ------------------------------------------------------------------------------------------------ implementations */

static bool name_is_bad(const char *name) {
  return !name || !*name || strlen(name) > FL_NAME_MAX;
}

/* Tokens of vLLM's IR that no implementation may take for a name. */
static fl_status check_reserved(const char *field, const char *name) {
  if (!name || (strcmp(name, "native") != 0 && strcmp(name, "unfused") != 0))
    return FL_OK;
  return fl_error(FL_EINVAL,
                  "%s '%s' is reserved: 'native' names the reference and 'unfused' running an op by its parts; by "
                  "convention an id is default.flagos, vendor.<vendor> or reference.<name>",
                  field, name);
}

/* R1. */
static fl_status check_impl(const fl_impl *impl) {
  if (name_is_bad(impl->op_name))
    return fl_error(FL_EINVAL, "op_name is %s", impl->op_name && *impl->op_name ? "longer than 127 bytes" : "empty");
  if (name_is_bad(impl->impl_id))
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
  if (!impl->devices)
    return fl_error(FL_EINVAL, "devices is empty: set FL_DEVICE(kDLCPU), another device type, or FL_DEVICE_ANY");
  if (!impl->fn)
    return fl_error(FL_EINVAL, "fn is NULL");
  fl_status status = check_reserved("impl_id", impl->impl_id);
  return status ? status : check_reserved("vendor", impl->vendor);
}

/* R2, against the registry. `known` gets the op's name as the registry keeps it, or NULL. The host's lock is held. */
static fl_status check_registered(const fl_stage *stage, const char *op_name, const char *impl_id, const char **known) {
  const fl_op *op = fl_registry_known(stage->host, op_name);
  const fl_impl_record *taken = op ? fl_registry_find_impl(op, impl_id) : NULL;
  *known = op ? op->name : NULL;
  if (!taken)
    return FL_OK;
  return fl_error(FL_EEXIST, "Duplicate impl_id '%s' for op='%s': from plugin '%s', registered before by plugin '%s'",
                  impl_id, op_name, stage->plugin, taken->provider->plugin);
}

static bool is_staged(const fl_stage *stage, const char *op_name, const char *impl_id) {
  const row_index *index = &stage->impls_by_id;
  if (!index->n_rows)
    return false;
  uint32_t row, place = first_place(index, names_hash(op_name, impl_id));
  for (; (row = index->places[place]); place = next_place(index, place)) {
    const staged_impl *impl = &stage->impls[row - 1];
    if (!strcmp(impl->op_name, op_name) && !strcmp(impl->record->impl_id, impl_id))
      return true;
  }
  return false;
}

/* R2, against the registry and what the plugin itself staged; and is there such an op? `known` gets its name as it is
 * kept there. */
static fl_status check_free(const fl_stage *stage, const char *op_name, const char *impl_id, const char **known) {
  pthread_mutex_lock(&stage->host->lock);
  fl_status status = check_registered(stage, op_name, impl_id, known);
  pthread_mutex_unlock(&stage->host->lock);
  if (status)
    return status;
  if (is_staged(stage, op_name, impl_id))
    return fl_error(FL_EEXIST, "Duplicate impl_id '%s' for op='%s': plugin '%s' registers it twice", impl_id, op_name,
                    stage->plugin);
  const fl_schema *own = *known ? NULL : staged_schema(stage, op_name);
  if (own)
    *known = own->op_name;
  return *known ? FL_OK : fl_registry_no_such_op(stage->host, op_name);
}

static fl_status refuse_impl(fl_stage *stage, fl_status status, const fl_impl *impl) {
  char row[2 * FL_NAME_MAX + 32];
  snprintf(row, sizeof row, "impl '%.*s' of op '%.*s'", FL_NAME_MAX, impl->impl_id ? impl->impl_id : "", FL_NAME_MAX,
           impl->op_name ? impl->op_name : "");
  return refuse(stage, status, row);
}

static fl_status stage_impl(fl_registry *registry, const fl_impl *given) {
  fl_stage *stage = (fl_stage *)registry;
  const char *op_name;
  fl_impl impl;
  fl_status status = fl_sized_check(given, offsetof(fl_impl, fn) + sizeof given->fn, "its", "fl_impl");
  if (status)
    return refuse(stage, status, "impl");
  fl_sized_take(&impl, sizeof impl, given);
  status = check_impl(&impl);
  if (!status)
    status = check_listed(stage, impl.op_name);
  if (!status)
    status = check_kind_allowed(stage, (uint32_t)impl.kind - FL_KIND_DEFAULT);
  if (!status)
    status = check_free(stage, impl.op_name, impl.impl_id, &op_name);
  if (status)
    return refuse_impl(stage, status, &impl);
  fl_impl_record *record = fl_impl_record_create(&impl, stage->provider);
  if (!record || !fl_array_grow(&stage->impls, stage->n_impls, sizeof *stage->impls)) {
    fl_impl_record_free(record);
    return refuse_impl(stage, fl_error_no_memory(), &impl);
  }
  stage->impls[stage->n_impls++] = (staged_impl){op_name, record};
  if (!index_add(&stage->impls_by_id, record_hash, stage, stage->n_impls - 1))
    return refuse_impl(stage, fl_error_no_memory(), &impl);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------- components */

/* The functions that put tensors on a device come together, or not at all. */
static fl_status check_memory(const fl_platform *platform) {
  const struct {
    const char *name;
    bool given;
  } functions[] = {
      {"properties", platform->properties != NULL},
      {"current_device", platform->current_device != NULL},
      {"allocate", platform->allocate != NULL},
      {"release", platform->release != NULL},
      {"copy", platform->copy != NULL},
      {"synchronize", platform->synchronize != NULL},
      {"error", platform->error != NULL},
  };
  enum { N = sizeof functions / sizeof *functions };
  const char *missing = NULL, *given = NULL;
  for (size_t i = 0; i < N; i++) {
    missing = missing || functions[i].given ? missing : functions[i].name;
    given = given || !functions[i].given ? given : functions[i].name;
  }
  if (missing && given)
    return fl_error(FL_EINVAL,
                    "functions: %s is missing, but %s is there; properties, current_device, allocate, release, copy, "
                    "synchronize and error come together: all, or none",
                    missing, given);
  int32_t least = given ? kDLCPU + 1 : kDLCPU;
  if (platform->device_type < least || platform->device_type >= FL_DEVICE_SLOTS)
    return fl_error(FL_EINVAL, "device_type is %d, expected a DLDeviceType from %d to %d%s", platform->device_type,
                    least, FL_DEVICE_SLOTS - 1, given ? ", other than the host's memory" : "");
  return FL_OK;
}

static fl_status take_platform(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  const fl_platform *platform = given->functions;
  fl_status status =
      fl_sized_check(platform, offsetof(fl_platform, is_active) + sizeof platform->is_active, "its", "fl_platform");
  if (status)
    return status;
  if (!platform->is_active)
    return fl_error(FL_EINVAL, "functions: is_active is missing");
  for (uint32_t i = 0; i < stage->n_components; i++)
    if (!stage->components[i].op && !strcmp(stage->components[i].name, given->name))
      return fl_error(FL_EEXIST, "plugin '%s' registers the platform '%s' twice", stage->plugin, given->name);
  fl_sized_take(&record->platform, sizeof record->platform, platform);
  return check_memory(&record->platform);
}

static fl_status layer_taken(const char *class, const char *plugin, const char *by) {
  return fl_error(FL_EEXIST, "layer class '%s' is replaced twice: by plugin '%s', and before by plugin '%s'", class,
                  plugin, by);
}

/* Against the registry. The host's lock is held. */
static fl_status check_layer(const fl_stage *stage, const char *class) {
  fl_layer before;
  return fl_layer_find(stage->host, class, &before) ? layer_taken(class, stage->plugin, before.plugin) : FL_OK;
}

/* Against what the plugin itself staged. */
static const fl_component_record *staged_layer(const fl_stage *stage, const char *class) {
  for (uint32_t i = 0; i < stage->n_components; i++)
    if (stage->components[i].op && !strcmp(stage->components[i].name, class))
      return &stage->components[i];
  return NULL;
}

/* The class must not be replaced yet, and the op be there or staged before. */
static fl_status take_layer(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  const char *op = given->functions;
  if (name_is_bad(op))
    return fl_error(FL_EINVAL, "functions: expected the name of the op that replaces the layer");
  pthread_mutex_lock(&stage->host->lock);
  fl_status status = check_layer(stage, given->name);
  bool known = fl_registry_known(stage->host, op) != NULL;
  pthread_mutex_unlock(&stage->host->lock);
  if (!status && staged_layer(stage, given->name))
    status = layer_taken(given->name, stage->plugin, stage->plugin);
  if (!status && !known && !staged_schema(stage, op))
    status = fl_registry_no_such_op(stage->host, op);
  if (!status && !(record->op = fl_strdup(op)))
    status = fl_error_no_memory();
  return status;
}

/* What a plugin may bring besides ops. */
static const struct component_type {
  const char *name;
  uint32_t functions; /* FL_FUNCTIONS_* */
  fl_status (*take)(const fl_stage *stage, const fl_component *given, fl_component_record *record);
} component_types[] = {{"platform", FL_FUNCTIONS_PLATFORM, take_platform}, {"layer", FL_FUNCTIONS_OP_NAME, take_layer}};

static const struct component_type *find_type(const char *name) {
  for (size_t i = 0; name && i < sizeof component_types / sizeof *component_types; i++)
    if (!strcmp(component_types[i].name, name))
      return &component_types[i];
  return NULL;
}

/* Does `functions` point to what it is said to? The struct there says its size, too; a string ends in it. */
static fl_status check_functions(const struct component_type *type, const fl_component *given) {
  bool string = type->functions == FL_FUNCTIONS_OP_NAME;
  uint32_t size = 0, least = string ? 1 : sizeof size;
  if (!given->functions_type)
    return FL_OK;
  if (given->functions_type != type->functions)
    return fl_error(FL_EINVAL, "functions_type is %u, expected %u for a %s", (unsigned)given->functions_type,
                    (unsigned)type->functions, type->name);
  if (!given->functions || given->functions_size < least)
    return fl_error(FL_EINVAL, "functions: %s", given->functions ? "functions_size is missing" : "a null pointer");
  if (string)
    size = (uint32_t)strnlen(given->functions, given->functions_size) + 1;
  else
    memcpy(&size, given->functions, sizeof size);
  if (size == given->functions_size)
    return FL_OK;
  return fl_error(FL_EINVAL, "functions has %u bytes, but functions_size is %u: does it point to a %s?", (unsigned)size,
                  (unsigned)given->functions_size, string ? "string" : "fl_platform");
}

/* Stages a record, of which it takes over the strings; unless `status` is an error already, which it gives back. */
static fl_status add_component(fl_stage *stage, fl_status status, fl_component_record *record, const char *type,
                               const char *name) {
  record->plugin = fl_strdup(stage->plugin);
  record->type = fl_strdup(type);
  record->name = fl_strdup(name);
  if (!status && !(record->plugin && record->type && record->name &&
                   fl_array_grow(&stage->components, stage->n_components, sizeof *record)))
    status = fl_error_no_memory();
  if (status)
    fl_component_record_clear(record);
  else
    stage->components[stage->n_components++] = *record;
  return status;
}

static fl_status stage_component(fl_registry *registry, const fl_component *given) {
  fl_stage *stage = (fl_stage *)registry;
  char row[FL_NAME_MAX + 16] = "component";
  fl_component component;
  fl_status status =
      fl_sized_check(given, offsetof(fl_component, functions) + sizeof given->functions, "its", "fl_component");
  if (status)
    return refuse(stage, status, row);
  fl_sized_take(&component, sizeof component, given);
  snprintf(row, sizeof row, "component '%.*s'", FL_NAME_MAX, component.name ? component.name : "");
  const struct component_type *type = find_type(component.type);
  if (name_is_bad(component.name))
    return refuse(stage, fl_error(FL_EINVAL, "name is empty or longer than %d bytes", FL_NAME_MAX), row);
  if (!type)
    return refuse(
        stage,
        fl_error(FL_EINVAL, "type is '%s', expected 'platform' or 'layer'", component.type ? component.type : ""), row);
  status = check_component_listed(stage, type->name, component.name);
  if (status)
    return refuse(stage, status, row);
  fl_component_record record = {.self = component.self};
  status = check_functions(type, &component);
  if (!status)
    status = type->take(stage, &component, &record);
  status = add_component(stage, status, &record, type->name, component.name);
  return status ? refuse(stage, status, row) : FL_OK;
}

/* Does the op replace the class already? Then it may say so again. */
static bool is_replaced_by(const fl_stage *stage, const char *class, const char *op) {
  fl_layer before;
  const fl_component_record *staged = staged_layer(stage, class);
  pthread_mutex_lock(&stage->host->lock);
  bool same = fl_layer_find(stage->host, class, &before) && !strcmp(before.op, op);
  pthread_mutex_unlock(&stage->host->lock);
  return same || (staged && !strcmp(staged->op, op));
}

/* One of an op's, which is there or will be staged. */
static fl_status stage_layer(fl_stage *stage, const fl_layer *layer, const char *op) {
  if (name_is_bad(layer->class) || strlen(layer->former) > FL_NAME_MAX)
    return fl_error(FL_EINVAL, "layers: the name of a class is empty, or longer than %d bytes", FL_NAME_MAX);
  if (is_replaced_by(stage, layer->class, op))
    return FL_OK;
  fl_status status = check_component_listed(stage, "layer", layer->class);
  pthread_mutex_lock(&stage->host->lock);
  if (!status)
    status = check_layer(stage, layer->class);
  pthread_mutex_unlock(&stage->host->lock);
  if (!status && staged_layer(stage, layer->class))
    status = layer_taken(layer->class, stage->plugin, stage->plugin);
  fl_component_record record = {.op = fl_strdup(op), .former = *layer->former ? fl_strdup(layer->former) : NULL};
  if (!status && (!record.op || (*layer->former && !record.former)))
    status = fl_error_no_memory();
  return add_component(stage, status, &record, "layer", layer->class);
}

/* What an op's entry says that it replaces is a component of the plugin, and goes with it. */
static fl_status stage_layers(fl_stage *stage, const char *layers, const char *op) {
  fl_status status = FL_OK;
  fl_layer layer;
  while (layers && !status) {
    layers = fl_layer_read(layers, &layer);
    status = stage_layer(stage, &layer, op);
  }
  return status;
}

/* Those that were staged last, of a row that is refused. */
static void drop_components(fl_stage *stage, uint32_t kept) {
  while (stage->n_components > kept)
    fl_component_record_clear(&stage->components[--stage->n_components]);
}

static void stage_error(fl_registry *registry, const char *message) {
  fl_stage *stage = (fl_stage *)registry;
  fl_text_add(&stage->told, "%s%s", stage->told.length ? "; " : "", message ? message : "");
}

static void stage_log(fl_registry *registry, int level, const char *message) {
  fl_stage *stage = (fl_stage *)registry;
  fl_log_line(&stage->host->log, level, "plugin %s: %s", stage->plugin, message ? message : "");
}

/* ------------------------------------------------------------------------------------------- begin, commit, abort */

fl_stage *fl_stage_begin(fl_host *host, const char *plugin, const char *build_id, uint32_t flags) {
  fl_stage *stage = calloc(1, sizeof *stage);
  if (!stage)
    return NULL;
  stage->table = (fl_registry){
      .size = sizeof stage->table,
      .abi_major = FL_ABI_MAJOR,
      .abi_minor = FL_ABI_MINOR,
      .host = host,
      .register_op = stage_op,
      .register_impl = stage_impl,
      .register_component = stage_component,
      .error = stage_error,
      .log = stage_log,
  };
  stage->host = host;
  stage->flags = flags;
  pthread_mutex_lock(&host->lock);
  stage->provider = fl_registry_provider(host, plugin, build_id);
  pthread_mutex_unlock(&host->lock);
  if (!stage->provider) {
    fl_stage_abort(stage, NULL);
    return NULL;
  }
  stage->plugin = stage->provider->plugin;
  stage->table.logger = (fl_logger){.log = host->hooks->log, .host = host->number, .plugin = stage->provider};
  return stage;
}

fl_registry *fl_stage_table(fl_stage *stage) {
  return &stage->table;
}

static void stage_free(fl_stage *stage) {
  for (uint32_t i = 0; i < stage->n_schemas; i++)
    fl_schema_free(stage->schemas[i]);
  for (uint32_t i = 0; i < stage->n_impls; i++)
    fl_impl_record_free(stage->impls[i].record);
  for (uint32_t i = 0; i < stage->n_components; i++)
    fl_component_record_clear(&stage->components[i]);
  free(stage->schemas);
  free(stage->schemas_by_op.places);
  free(stage->impls);
  free(stage->impls_by_id.places);
  free(stage->components);
  fl_text_free(&stage->refused);
  fl_text_free(&stage->told);
  free(stage);
}

void fl_stage_abort(fl_stage *stage, fl_text *reason) {
  if (reason && stage->told.length)
    fl_text_add(reason, "%s", fl_text_get(&stage->told));
  else if (reason && stage->refused.length)
    fl_text_add(reason, "refused rows:\n%s", fl_text_get(&stage->refused));
  stage_free(stage);
}

/* Adds a record to its op; the set is replaced, since calls may be reading it. */
static bool publish_record(fl_host *host, fl_op *op, fl_impl_record *record) {
  fl_impl_set *old = atomic_load_explicit(&op->impls, memory_order_relaxed);
  uint32_t n = old ? old->n : 0;
  fl_impl_set *set = malloc(sizeof *set + (n + 1) * sizeof set->impls[0]);
  if (!set)
    return false;
  set->n = n + 1;
  if (n)
    memcpy(set->impls, old->impls, n * sizeof set->impls[0]);
  set->impls[n] = record;
  record->op = op;
  atomic_store_explicit(&op->impls, set, memory_order_release);
  fl_retire(&host->retired, old, free);
  return true;
}

/* What came first since the rows were staged. The host's lock is held. */
static fl_status check_again(fl_stage *stage) {
  for (uint32_t i = 0; i < stage->n_schemas; i++) {
    bool known;
    fl_op *op = fl_registry_known(stage->host, stage->schemas[i]->op_name);
    fl_status status = schema_conflict(op ? op->schema : NULL, op ? op->schema_plugin : "", stage->schemas[i], &known);
    if (status)
      return status;
  }
  for (uint32_t i = 0; i < stage->n_impls; i++) {
    const char *op_name;
    fl_status status = check_registered(stage, stage->impls[i].op_name, stage->impls[i].record->impl_id, &op_name);
    if (status)
      return status;
  }
  for (uint32_t i = 0; i < stage->n_components; i++) {
    fl_status status = stage->components[i].op ? check_layer(stage, stage->components[i].name) : FL_OK;
    if (status)
      return status;
  }
  return FL_OK;
}

/* The host's lock is held; nothing conflicts. Running out of memory half-way leaves what is there, and says so. */
static fl_status publish(fl_stage *stage, uint32_t *n_impls) {
  fl_host *host = stage->host;
  for (uint32_t i = 0; i < stage->n_schemas; i++) {
    if (fl_registry_known(host, stage->schemas[i]->op_name))
      continue;
    if (!fl_registry_add_op(host, stage->schemas[i], stage->plugin))
      return fl_error_no_memory();
    stage->schemas[i] = NULL;
  }
  for (uint32_t i = 0; i < stage->n_impls; i++) {
    if (!publish_record(host, fl_registry_known(host, stage->impls[i].op_name), stage->impls[i].record))
      return fl_error_no_memory();
    stage->impls[i].record = NULL;
    (*n_impls)++;
  }
  for (uint32_t i = 0; i < stage->n_components; i++) {
    if (!fl_array_grow(&host->components, host->n_components, sizeof *host->components))
      return fl_error_no_memory();
    host->components[host->n_components] = stage->components[i];
    host->components[host->n_components++].asking = &host->availability_lock;
    stage->components[i] = (fl_component_record){0};
  }
  return FL_OK;
}

static const char registered_nothing[] = "it registered nothing: no implementation, no component, no op that is new";

fl_status fl_stage_commit(fl_stage *stage, fl_committed *committed) {
  fl_host *host = stage->host;
  fl_status status = FL_OK;
  uint32_t published = 0;
  bool nothing = !stage->n_schemas && !stage->n_impls && !stage->n_components && !stage->refused.length;
  if (stage->refused.length && !(stage->flags & FL_PLUGIN_SKIP_REFUSED))
    status = fl_error(FL_EPLUGIN, "refused rows, so nothing of it is registered:\n%s", fl_text_get(&stage->refused));
  if (!status) {
    pthread_mutex_lock(&host->lock);
    status = fl_refuse_frozen(host, "registering");
    if (!status)
      status = check_again(stage);
    if (!status) {
      status = publish(stage, &published);
      fl_registry_advance(host);
    }
    pthread_mutex_unlock(&host->lock);
  }
  if (!status && stage->told.length)
    fl_log_line(&host->log, FL_LOG_WARNING, "plugin %s: it gave an error, but returned FL_OK: %s", stage->plugin,
                fl_text_get(&stage->told));
  if (!status && nothing)
    fl_log_line(&host->log, FL_LOG_WARNING, "plugin %s: %s", stage->plugin, registered_nothing);
  if (!status && committed) {
    committed->impls = published;
    if (nothing)
      fl_text_add(&committed->remark, "%s", registered_nothing);
    else if (stage->refused.length)
      fl_text_add(&committed->remark, "refused rows:\n%s", fl_text_get(&stage->refused));
  }
  stage_free(stage);
  return status;
}

/* ----------------------------------------------------------------------------------------------------- the engine */

/* A deferred plugin that was found before comes first, as if it had been loaded then. `op` begins with an op's name. */
static void load_listers(fl_host *host, const char *op) {
  char name[FL_NAME_MAX + 1];
  if (!op || !atomic_load(&host->n_deferred))
    return;
  name_of_schema(op, name);
  host->hooks->load_deferred(host, name);
}

fl_status fl_register_op(fl_host *host, const fl_op_def *op) {
  if (op && op->size >= offsetof(fl_op_def, schema) + sizeof op->schema)
    load_listers(host, op->schema);
  fl_stage *stage = fl_stage_begin(host, "engine", "engine", 0);
  if (!stage)
    return fl_error_no_memory();
  fl_status status = stage->table.register_op(&stage->table, op);
  if (!status)
    return fl_stage_commit(stage, NULL);
  stage_free(stage);
  return status;
}

fl_status fl_register_impl(fl_host *host, const fl_impl *impl) {
  if (impl && impl->size >= offsetof(fl_impl, op_name) + sizeof impl->op_name)
    load_listers(host, impl->op_name);
  fl_stage *stage = fl_stage_begin(host, "engine", "engine", 0);
  if (!stage)
    return fl_error_no_memory();
  fl_status status = stage->table.register_impl(&stage->table, impl);
  if (!status)
    return fl_stage_commit(stage, NULL);
  stage_free(stage);
  return status;
}
