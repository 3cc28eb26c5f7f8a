/* Components, staged: see staged_components.h. */
#include "core/registry/staged_components.h"

#include "core/registry/class_path.h"
#include "core/registry/implementations.h"
#include "core/registry/layers.h"
#include "core/registry/registry.h"
#include "core/registry/staged_ops.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A component that nobody would look for. */
static fl_status check_listed(const fl_stage *stage, const char *type, const char *name) {
  bool of_platform = !strcmp(type, "platform") || fl_is_class_path(type);
  if (!stage->ops || (of_platform && stage->platform && !strcmp(name, stage->platform)))
    return FL_OK;
  if (!strcmp(type, "communicator")) {
    const char *listed = stage->communicators;
    return listed && fl_ops_list(listed, strlen(listed), name, strlen(name))
               ? FL_OK
               : fl_error(FL_EINVAL, "FL_PLUGIN_COMMUNICATORS does not list it, and the host would not look for it");
  }
  return fl_error(
      FL_EINVAL, "a plugin with FL_PLUGIN_OPS brings ops%s%s%s alone: the host would not look for %s '%s' there%s",
      stage->platform ? " and the platform '" : "", stage->platform ? stage->platform : "", stage->platform ? "'" : "",
      type, name, !of_platform || stage->platform ? "" : "; say so with FL_PLUGIN_PLATFORM");
}

/* Far more than there are classes of layers; each is compared with all. */
enum { MOST_COMPONENTS = 1024 };

/* Stages a record, unless `status` is an error already, which it gives back. `type` stays. */
static fl_status add(fl_stage *stage, fl_status status, fl_component_record record, const char *type,
                     const char *name) {
  record.plugin = stage->plugin;
  record.type = type;
  record.name = fl_arena_string(&record.owned, name);
  if (!status && stage->n_components == MOST_COMPONENTS)
    status = fl_error(FL_EINVAL, "more than %d components of one plugin", MOST_COMPONENTS);
  if (!status && (record.owned.failed || !fl_array_grow(&stage->components, stage->n_components, sizeof record)))
    status = fl_error_no_memory();
  if (status)
    fl_arena_free(&record.owned);
  else
    stage->components[stage->n_components++] = record;
  return status;
}

void fl_stage_drop_components(fl_stage *stage, uint32_t kept) {
  while (stage->n_components > kept)
    fl_arena_free(&stage->components[--stage->n_components].owned);
}

/* -------------------------------------------------------------------------------------------------------- platforms */

/* Functions that come together, or not at all: a row each. What is in none may be missing alone. */
enum { MEMORY, STREAMS, EVENTS, HOST_MEMORY, POOLS, GRAPHS, N_SETS };
#define FUNCTION(set_, name_)                                                                                          \
  { set_, #name_, offsetof(fl_platform, name_) }
static const struct platform_function {
  int set;
  const char *name;
  size_t offset;
} platform_functions[] = {
    FUNCTION(MEMORY, properties),
    FUNCTION(MEMORY, current_device),
    FUNCTION(MEMORY, allocate),
    FUNCTION(MEMORY, release),
    FUNCTION(MEMORY, copy),
    FUNCTION(MEMORY, synchronize),
    FUNCTION(MEMORY, error),
    FUNCTION(STREAMS, create_stream),
    FUNCTION(STREAMS, destroy_stream),
    FUNCTION(EVENTS, create_event),
    FUNCTION(EVENTS, destroy_event),
    FUNCTION(EVENTS, record_event),
    FUNCTION(EVENTS, wait_event),
    FUNCTION(EVENTS, is_event_done),
    FUNCTION(EVENTS, synchronize_event),
    FUNCTION(EVENTS, elapsed),
    FUNCTION(HOST_MEMORY, allocate_host),
    FUNCTION(HOST_MEMORY, release_host),
    FUNCTION(POOLS, allocate_async),
    FUNCTION(POOLS, release_async),
    FUNCTION(POOLS, trim_pool),
    FUNCTION(POOLS, pool_usage),
    FUNCTION(GRAPHS, begin_capture),
    FUNCTION(GRAPHS, end_capture),
    FUNCTION(GRAPHS, launch_graph),
    FUNCTION(GRAPHS, destroy_graph),
};
#undef FUNCTION
enum { N_FUNCTIONS = sizeof platform_functions / sizeof *platform_functions };

static bool is_given(const fl_platform *platform, const struct platform_function *function) {
  void (*address)(void);
  memcpy(&address, (const char *)platform + function->offset, sizeof address);
  return address != NULL;
}

static fl_status set_is_torn(int set, const char *missing, const char *given) {
  fl_text all = {0};
  const char *last = NULL;
  for (size_t i = 0; i < N_FUNCTIONS; i++) {
    if (platform_functions[i].set != set)
      continue;
    if (last)
      fl_text_add(&all, "%s%s", *fl_text_get(&all) ? ", " : "", last);
    last = platform_functions[i].name;
  }
  fl_status status =
      fl_error(FL_EINVAL, "functions: %s is missing, but %s is there; %s and %s come together: all, or none", missing,
               given, fl_text_get(&all), last);
  fl_text_free(&all);
  return status;
}

static fl_status check_sets(const fl_platform *platform) {
  const char *missing[N_SETS] = {0}, *given[N_SETS] = {0};
  for (size_t i = 0; i < N_FUNCTIONS; i++) {
    const struct platform_function *function = &platform_functions[i];
    const char **place = is_given(platform, function) ? given : missing;
    place[function->set] = place[function->set] ? place[function->set] : function->name;
  }
  for (int set = 0; set < N_SETS; set++) {
    if (missing[set] && given[set])
      return set_is_torn(set, missing[set], given[set]);
    if (missing[MEMORY] && given[set])
      return fl_error(FL_EINVAL, "functions: %s is there, but not what puts tensors on the device: %s and the others",
                      given[set], missing[MEMORY]);
  }
  return FL_OK;
}

static fl_status check_platform(const fl_platform *platform) {
  fl_status status = check_sets(platform);
  if (!status && platform->begin_capture && !platform->is_captured)
    return fl_error(FL_EINVAL, "functions: begin_capture is there, but is_captured is missing: the host has to know");
  bool memory = platform->allocate != NULL;
  int32_t least = memory ? kDLCPU + 1 : kDLCPU;
  if (!status && (platform->device_type < least || platform->device_type >= FL_DEVICE_SLOTS))
    return fl_error(FL_EINVAL, "device_type is %d, expected a DLDeviceType from %d to %d%s", platform->device_type,
                    least, FL_DEVICE_SLOTS - 1, memory ? ", other than the host's memory" : "");
  return status;
}

/* It becomes the name of a file, and a word of settings. */
static fl_status check_component_name(const char *name, const char *type) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-";
  if (*name != '.' && !name[strspn(name, allowed)] && strcasecmp(name, "auto") != 0)
    return FL_OK;
  return fl_error(FL_EINVAL,
                  "'%s' is no name of a %s, expected ASCII letters, digits, '_', '+', '-' and '.', this not first, "
                  "and not auto",
                  name, type);
}

static fl_status take_platform(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  const fl_platform *platform = given->functions;
  fl_status status = check_component_name(given->name, "platform");
  if (!status)
    status =
        fl_sized_check(platform, offsetof(fl_platform, is_active) + sizeof platform->is_active, "its", "fl_platform");
  if (status)
    return status;
  if (!platform->is_active)
    return fl_error(FL_EINVAL, "functions: is_active is missing");
  for (uint32_t i = 0; i < stage->n_components; i++)
    if (!strcmp(stage->components[i].type, "platform") && !strcmp(stage->components[i].name, given->name))
      return fl_error(FL_EEXIST, "plugin '%s' registers the platform '%s' twice", stage->plugin, given->name);
  fl_sized_take(&record->platform, sizeof record->platform, platform);
  return check_platform(&record->platform);
}

/* ---------------------------------------------------------------------------------------------------- communicators */

static fl_status communicator_taken(const fl_stage *stage, const char *name, const char *before) {
  return fl_error(FL_EEXIST, "communicator '%s' is brought twice: by plugin '%s', and before by plugin '%s'", name,
                  stage->plugin, before);
}

/* The plugin that brings one of that name; NULL: there is none. */
static const char *find_communicator(const fl_component_record *components, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(components[i].type, "communicator") && !strcmp(components[i].name, name))
      return components[i].plugin;
  return NULL;
}

/* Those without which nothing can be made up. */
static const char *missing_function(const fl_communicator *communicator) {
  const struct {
    const char *name;
    bool given;
  } required[] = {
      {"make_id", communicator->make_id != NULL},     {"join", communicator->join != NULL},
      {"leave", communicator->leave != NULL},         {"all_reduce", communicator->all_reduce != NULL},
      {"broadcast", communicator->broadcast != NULL}, {"send", communicator->send != NULL},
      {"recv", communicator->recv != NULL},
  };
  for (size_t i = 0; i < sizeof required / sizeof *required; i++)
    if (!required[i].given)
      return required[i].name;
  return NULL;
}

static fl_status check_communicator(const fl_communicator *communicator) {
  const char *missing = missing_function(communicator), *vendor = communicator->vendor;
  if (missing)
    return fl_error(FL_EINVAL,
                    "functions: %s is missing; make_id, join, leave, all_reduce, broadcast, send and recv "
                    "are required",
                    missing);
  if (communicator->device_type < kDLCPU || communicator->device_type >= FL_DEVICE_SLOTS)
    return fl_error(FL_EINVAL, "device_type is %d, expected a DLDeviceType from %d to %d", communicator->device_type,
                    kDLCPU, FL_DEVICE_SLOTS - 1);
  if (communicator->kind != FL_KIND_DEFAULT && communicator->kind != FL_KIND_VENDOR &&
      communicator->kind != FL_KIND_REFERENCE)
    return fl_error(FL_EINVAL, "kind is %d, expected FL_KIND_DEFAULT, FL_KIND_VENDOR or FL_KIND_REFERENCE",
                    communicator->kind);
  if (communicator->kind == FL_KIND_VENDOR && (fl_name_is_bad(vendor) || strchr(vendor, ',')))
    return fl_error(FL_EINVAL, "vendor is %s, expected a name for FL_KIND_VENDOR",
                    !vendor || !*vendor ? "missing" : "longer than 127 bytes or holds a comma");
  if (!communicator->id_size || communicator->id_size > FL_COMMUNICATOR_ID_MAX)
    return fl_error(FL_EINVAL, "id_size is %u, expected 1 to %d", (unsigned)communicator->id_size,
                    FL_COMMUNICATOR_ID_MAX);
  if (!(communicator->dtypes & FL_FLOAT32) || !(communicator->reductions & 1u << FL_REDUCE_SUM))
    return fl_error(FL_EINVAL, "%s: what else a library lacks is made up from sums of float32, which are not in it",
                    communicator->dtypes & FL_FLOAT32 ? "reductions" : "dtypes");
  if (communicator->most_ranks < 0)
    return fl_error(FL_EINVAL, "most_ranks is %d, expected 0 or more", communicator->most_ranks);
  return FL_OK;
}

static fl_status take_communicator(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  fl_communicator *taken = &record->communicator;
  fl_status status = check_component_name(given->name, "communicator");
  if (!status)
    status = fl_sized_check(given->functions, offsetof(fl_communicator, recv) + sizeof taken->recv, "its",
                            "fl_communicator");
  if (status)
    return status;
  fl_sized_take(taken, sizeof *taken, given->functions);
  status = check_communicator(taken);
  if (status)
    return status;
  const char *before = find_communicator(stage->components, stage->n_components, given->name);
  if (!before) {
    pthread_mutex_lock(&stage->host->lock);
    before = find_communicator(stage->host->components, stage->host->n_components, given->name);
    pthread_mutex_unlock(&stage->host->lock);
  }
  if (before)
    return communicator_taken(stage, given->name, before);
  taken->vendor = fl_arena_string(&record->owned, taken->vendor);
  if (!taken->priority)
    taken->priority = fl_kind_priority(taken->kind);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- layers */

static fl_status layer_taken(const fl_stage *stage, const char *class, const fl_layer *before) {
  return fl_error(FL_EEXIST, "layer class '%s' is replaced twice: by plugin '%s', and before by plugin '%s'", class,
                  stage->plugin, before->plugin);
}

fl_status fl_component_check_again(const fl_stage *stage, const fl_component_record *component) {
  fl_layer layer;
  const char *name = component->name, *before = NULL;
  if (component->op)
    return fl_layer_find(stage->host, name, &layer) ? layer_taken(stage, name, &layer) : FL_OK;
  if (!strcmp(component->type, "communicator"))
    before = find_communicator(stage->host->components, stage->host->n_components, name);
  return before ? communicator_taken(stage, name, before) : FL_OK;
}

/* Is the class replaced already, by the registry or by what the plugin itself staged? */
static bool is_replaced(const fl_stage *stage, const char *class, fl_layer *before) {
  pthread_mutex_lock(&stage->host->lock);
  bool found = fl_layer_find(stage->host, class, before);
  pthread_mutex_unlock(&stage->host->lock);
  for (uint32_t i = 0; i < stage->n_components && !found; i++) {
    const fl_component_record *staged = &stage->components[i];
    found = staged->op && !strcmp(staged->name, class);
    before->op = staged->op;
    before->plugin = staged->plugin;
  }
  return found;
}

/* The op must be there or staged before. */
static fl_status take_layer(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  const char *op = given->functions;
  if (fl_name_is_bad(op))
    return fl_error(FL_EINVAL, "functions: expected the name of the op that replaces the layer");
  fl_layer before;
  fl_status status = is_replaced(stage, given->name, &before) ? layer_taken(stage, given->name, &before) : FL_OK;
  pthread_mutex_lock(&stage->host->lock);
  bool known = fl_registry_known(stage->host, op) != NULL;
  pthread_mutex_unlock(&stage->host->lock);
  if (!status && !known && !fl_staged_op(stage, op))
    status = fl_registry_no_such_op(stage->host, op);
  record->op = fl_arena_string(&record->owned, op);
  return status;
}

/* One of an op's. If the op replaces the class already it may say so again. */
static fl_status stage_layer(fl_stage *stage, const fl_layer *layer, const char *op) {
  if (fl_name_is_bad(layer->class) || strlen(layer->former) > FL_NAME_MAX)
    return fl_error(FL_EINVAL, "layers: the name of a class is empty, or longer than %d bytes", FL_NAME_MAX);
  fl_layer before;
  bool replaced = is_replaced(stage, layer->class, &before);
  if (replaced && !strcmp(before.op, op))
    return FL_OK;
  fl_component_record record = {0};
  fl_status status = check_listed(stage, "layer", layer->class);
  if (!status)
    status = fl_check_component_allowed(stage, "layer");
  if (!status && replaced)
    status = layer_taken(stage, layer->class, &before);
  record.op = fl_arena_string(&record.owned, op);
  record.former = fl_arena_string(&record.owned, *layer->former ? layer->former : NULL);
  return add(stage, status, record, "layer", layer->class);
}

fl_status fl_stage_layers(fl_stage *stage, const char *layers, const char *op) {
  fl_status status = FL_OK;
  fl_layer layer;
  while (layers && !status) {
    layers = fl_layer_read(layers, &layer);
    status = stage_layer(stage, &layer, op);
  }
  return status;
}

/* ------------------------------------------------------------------------------------------------------ class paths */

/* Of another plugin's only one is taken, but which, that the policy in force decides when somebody asks. */
static fl_status take_class_path(const fl_stage *stage, const fl_component *given, fl_component_record *record) {
  const char *path = given->functions;
  fl_status status = check_component_name(given->name, "platform");
  if (!status)
    status = fl_class_path_check(path);
  for (uint32_t i = 0; i < stage->n_components && !status; i++)
    if (!strcmp(stage->components[i].type, given->type) && !strcmp(stage->components[i].name, given->name))
      status = fl_error(FL_EEXIST, "plugin '%s' registers '%s' for the platform '%s' twice: '%s', and before '%s'",
                        stage->plugin, given->type, given->name, path, stage->components[i].class_path);
  if (!status)
    record->class_path = fl_arena_string(&record->owned, path);
  return status;
}

/* ---------------------------------------------------------------------------------------------------- what is given */

/* What a plugin may bring besides ops, in the order of fl_row_kind_names. */
static const struct component_type {
  uint32_t functions; /* FL_FUNCTIONS_* */
  const char *points_to;
  fl_status (*take)(const fl_stage *stage, const fl_component *given, fl_component_record *record);
} component_types[FL_N_COMPONENT_TYPES] = {{FL_FUNCTIONS_PLATFORM, "fl_platform", take_platform},
                                           {FL_FUNCTIONS_OP_NAME, "string", take_layer},
                                           {FL_FUNCTIONS_COMMUNICATOR, "fl_communicator", take_communicator},
                                           {FL_FUNCTIONS_CLASS_PATH, "string", take_class_path},
                                           {FL_FUNCTIONS_CLASS_PATH, "string", take_class_path},
                                           {FL_FUNCTIONS_CLASS_PATH, "string", take_class_path},
                                           {FL_FUNCTIONS_CLASS_PATH, "string", take_class_path}};
static const char *const *const type_names = fl_row_kind_names + FL_FIRST_COMPONENT;

/* Its place in these; FL_EINVAL: there is no such type. */
static fl_status find_type(const char *name, uint32_t *place) {
  for (*place = 0; name && *place < FL_N_COMPONENT_TYPES; ++*place)
    if (!strcmp(type_names[*place], name))
      return FL_OK;
  fl_text expected = {0};
  fl_text_add_choices(&expected, type_names, FL_N_COMPONENT_TYPES);
  fl_status status = fl_error(FL_EINVAL, "type is '%s', expected %s%s", name ? name : "", fl_text_get(&expected),
                              fl_suggest(fl_nearest_word(name ? name : "", type_names, FL_N_COMPONENT_TYPES)).text);
  fl_text_free(&expected);
  return status;
}

/* Does `functions` point to what it is said to? The struct there says its size, too; a string ends in it. */
static fl_status check_functions(uint32_t place, const fl_component *given) {
  const struct component_type *type = &component_types[place];
  bool string = type->functions == FL_FUNCTIONS_OP_NAME || type->functions == FL_FUNCTIONS_CLASS_PATH;
  uint32_t size = 0, least = string ? 1 : sizeof size;
  if (!given->functions_type)
    return FL_OK;
  if (given->functions_type != type->functions)
    return fl_error(FL_EINVAL, "functions_type is %u, expected %u for %s", (unsigned)given->functions_type,
                    (unsigned)type->functions, type_names[place]);
  if (!given->functions || given->functions_size < least)
    return fl_error(FL_EINVAL, "functions: %s", given->functions ? "functions_size is missing" : "a null pointer");
  if (string)
    size = (uint32_t)strnlen(given->functions, given->functions_size) + 1;
  else
    memcpy(&size, given->functions, sizeof size);
  if (size == given->functions_size)
    return FL_OK;
  return fl_error(FL_EINVAL, "functions has %u bytes, but functions_size is %u: does it point to a %s?", (unsigned)size,
                  (unsigned)given->functions_size, type->points_to);
}

fl_status fl_stage_component(fl_stage *stage, const fl_component *given, fl_row_name *row) {
  fl_component component;
  fl_component_record record = {0};
  fl_status status =
      fl_sized_check(given, offsetof(fl_component, functions) + sizeof given->functions, "its", "fl_component");
  if (status)
    return status;
  fl_sized_take(&component, sizeof component, given);
  snprintf(row->text, sizeof row->text, "component '%.*s'", FL_NAME_MAX, component.name ? component.name : "");
  uint32_t place;
  if (fl_name_is_bad(component.name))
    return fl_error(FL_EINVAL, "name is empty or longer than %d bytes", FL_NAME_MAX);
  status = find_type(component.type, &place);
  if (status)
    return status;
  const char *type = type_names[place];
  record.self = component.self;
  status = check_listed(stage, type, component.name);
  if (!status)
    status = fl_check_component_allowed(stage, type);
  if (!status)
    status = check_functions(place, &component);
  if (!status)
    status = component_types[place].take(stage, &component, &record);
  return add(stage, status, record, type, component.name);
}
