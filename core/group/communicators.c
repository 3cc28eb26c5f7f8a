/*
 * Communicators: see communicators.h. They are few and groups are made rarely, so that each time all are listed and
 * asked anew, under the loading lock, under which none comes or goes.
 */
#include "core/group/communicators.h"

#include "core/platform.h"
#include "core/plugins.h"
#include "core/settings.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* Of its function in fl_communicator. */
static const size_t functions[FL_COLLECTIVES] = {
    [FL_ALL_REDUCE] = offsetof(fl_communicator, all_reduce),
    [FL_REDUCE] = offsetof(fl_communicator, reduce),
    [FL_BROADCAST] = offsetof(fl_communicator, broadcast),
    [FL_ALL_GATHER] = offsetof(fl_communicator, all_gather),
    [FL_ALL_GATHER_V] = offsetof(fl_communicator, all_gather_v),
    [FL_REDUCE_SCATTER] = offsetof(fl_communicator, reduce_scatter),
    [FL_REDUCE_SCATTER_V] = offsetof(fl_communicator, reduce_scatter_v),
    [FL_GATHER] = offsetof(fl_communicator, gather),
    [FL_SCATTER] = offsetof(fl_communicator, scatter),
    [FL_ALL_TO_ALL] = offsetof(fl_communicator, all_to_all),
    [FL_ALL_TO_ALL_V] = offsetof(fl_communicator, all_to_all_v),
    [FL_SEND] = offsetof(fl_communicator, send),
    [FL_RECV] = offsetof(fl_communicator, recv),
    [FL_BARRIER] = offsetof(fl_communicator, barrier),
};

const char *fl_collective_name(int32_t kind) {
  return fl_collective_kind_name(kind);
}

const char *fl_reduction_name(int32_t reduction) {
  static const char *const names[FL_REDUCTIONS] = {"sum", "prod", "max", "min", "avg"};
  return reduction >= 0 && reduction < FL_REDUCTIONS ? names[reduction] : NULL;
}

fl_collective_fn fl_communicator_function(const fl_communicator *communicator, int32_t kind) {
  fl_collective_fn function;
  memcpy(&function, (const char *)communicator + functions[kind], sizeof function);
  return function;
}

/* ---------------------------------------------------------------------------------------------------------- listing */

/* One that is judged. */
typedef struct candidate {
  fl_component_record component; /* strings are the registry's: the loading lock is held */
  uint32_t place[2];             /* in the setting's list, and in the policy's order of kinds; less is better */
  bool allowed, available;
  const char *reason; /* why not, in the arena */
} candidate;

typedef struct candidates {
  candidate *items;
  uint32_t n;
  fl_arena arena;
} candidates;

/* The place of a name in VLLM_FL_COMMUNICATOR; UINT32_MAX: it is not in the list. The host's lock is held. */
static uint32_t place_in_setting(const fl_host *host, const char *name) {
  const fl_setting_value *value = &host->config->values[FL_SETTING_COMMUNICATOR];
  if (!value->set)
    return 0;
  for (uint32_t i = 0; i < value->names.n; i++)
    if (!strcmp(value->names.items[i], name))
      return i;
  return UINT32_MAX;
}

static uint32_t place_in_order(const fl_policy *policy, const fl_communicator *communicator, const char *name) {
  bool per_op;
  uint32_t n, place = 0;
  const char *const *tokens = fl_policy_order(policy, "", &n, &per_op);
  while (place < n && !fl_token_matches(tokens[place], (fl_kind)communicator->kind, communicator->vendor, name))
    place++;
  return place;
}

/* By settings and policy alone. The host's lock is held. */
static void judge(fl_host *host, candidate *c, fl_arena *arena) {
  bool scoped;
  fl_text reason = {0};
  const fl_communicator *communicator = &c->component.communicator;
  const fl_policy *filter = fl_vendor_filter(host), *policy = fl_scope_policy(host, &scoped);
  c->place[0] = place_in_setting(host, c->component.name);
  c->place[1] = place_in_order(policy, communicator, c->component.name);
  if (c->place[0] == UINT32_MAX)
    fl_text_add(&reason, "not listed (communicator: %s)", fl_config_origin(host->config, FL_SETTING_COMMUNICATOR));
  else if (filter && communicator->vendor && !fl_policy_vendor_allowed(filter, communicator->vendor))
    fl_kept_out_reason(host, filter, scoped, communicator->vendor, &reason);
  c->allowed = !reason.length;
  c->reason = fl_arena_text(arena, &reason);
}

static int compare(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  const fl_communicator *left = &x->component.communicator, *right = &y->component.communicator;
  if (left->device_type != right->device_type)
    return left->device_type < right->device_type ? -1 : 1;
  for (int i = 0; i < 2; i++)
    if (x->place[i] != y->place[i])
      return x->place[i] < y->place[i] ? -1 : 1;
  if (left->priority != right->priority)
    return left->priority > right->priority ? -1 : 1;
  return strcmp(x->component.name, y->component.name);
}

static void unlock(pthread_mutex_t *const *lock) {
  pthread_mutex_unlock(*lock);
}

/* A plugin's code, which may throw: the lock is let go of. One that is not allowed is not asked. */
static void ask(fl_host *host, candidate *c, fl_arena *arena) {
  const fl_communicator *communicator = &c->component.communicator;
  fl_said said;
  c->available = c->allowed;
  if (!c->allowed || !communicator->is_available)
    return;
  __attribute__((cleanup(unlock))) pthread_mutex_t *lock = &host->availability_lock;
  pthread_mutex_lock(lock);
  c->available = communicator->is_available(c->component.self, fl_said_room(&said));
  if (!c->available)
    c->reason = fl_arena_string(arena, fl_said_shown(&said, "it does not say why"));
}

static void candidates_free(candidates *list) {
  fl_arena_free(&list->arena);
}

/* All, by device type and the best first, asked. The loading lock is held. */
static fl_status list(fl_host *host, candidates *all) {
  pthread_mutex_lock(&host->lock);
  all->items = fl_arena_array(&all->arena, host->n_components, sizeof *all->items);
  for (uint32_t i = 0; all->items && i < host->n_components; i++) {
    const fl_component_record *component = &host->components[i];
    if (strcmp(component->type, "communicator") != 0)
      continue;
    candidate *c = &all->items[all->n++];
    c->component = *component;
    judge(host, c, &all->arena);
  }
  pthread_mutex_unlock(&host->lock);
  if (!all->items)
    return fl_error_no_memory();
  if (all->n)
    qsort(all->items, all->n, sizeof *all->items, compare);
  for (uint32_t i = 0; i < all->n; i++)
    ask(host, &all->items[i], &all->arena);
  return all->arena.failed ? fl_error_no_memory() : FL_OK;
}

/* --------------------------------------------------------------------------------------------------------- choosing */

/* "shm: …; mpi: …", and the plugins that bring some and failed. */
static void add_reasons(fl_host *host, const candidates *all, fl_text *text) {
  for (uint32_t i = 0; i < all->n; i++)
    fl_text_add(text, "\n  %s: %s", all->items[i].component.name, all->items[i].reason);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].communicators && host->plugins[i].status != FL_PLUGIN_LOADED)
      fl_text_add(text, "\n  %s, of plugin '%s': %s", host->plugins[i].communicators, host->plugins[i].name,
                  host->plugins[i].reason);
  pthread_mutex_unlock(&host->lock);
  if (!text->length)
    fl_text_add(text, " there is none");
}

static fl_status none_is_left(fl_host *host, int32_t device_type, const candidates *all) {
  fl_text reasons = {0};
  add_reasons(host, all, &reasons);
  const char *type = fl_device_type_name(device_type);
  fl_status status = fl_error(FL_ENOIMPL, "no communicator for device type %s is available:%s", type ? type : "?",
                              fl_text_get(&reasons));
  fl_text_free(&reasons);
  return status;
}

static fl_status not_there(const candidates *all, const char *name, const char *who) {
  fl_strings names = {0};
  fl_text known = {0};
  for (uint32_t i = 0; i < all->n; i++) {
    fl_strings_add(&names, all->items[i].component.name);
    fl_text_add(&known, "%s%s", i ? ", " : "", all->items[i].component.name);
  }
  fl_status status = fl_error(FL_ENOENT, "%s names the communicator '%s', which no plugin brings%s; there are: %s", who,
                              name, fl_suggest_among(name, &names).text, all->n ? fl_text_get(&known) : "none");
  fl_text_free(&known);
  fl_strings_free(&names);
  return status;
}

static candidate *find(const candidates *all, const char *name) {
  for (uint32_t i = 0; i < all->n; i++)
    if (!strcmp(all->items[i].component.name, name))
      return &all->items[i];
  return NULL;
}

/* A setting that names what is not there is a misspelt one. */
static fl_status check_setting(fl_host *host, const candidates *all) {
  fl_status status = FL_OK;
  char origin[512];
  fl_strings names = {0};
  pthread_mutex_lock(&host->lock);
  const fl_setting_value *value = &host->config->values[FL_SETTING_COMMUNICATOR];
  for (uint32_t i = 0; value->set && i < value->names.n; i++)
    fl_strings_add(&names, value->names.items[i]);
  snprintf(origin, sizeof origin, "the setting communicator (%s)",
           fl_config_origin(host->config, FL_SETTING_COMMUNICATOR));
  pthread_mutex_unlock(&host->lock);
  for (uint32_t i = 0; i < names.n && !status; i++)
    if (!find(all, names.items[i]))
      status = not_there(all, names.items[i], origin);
  fl_strings_free(&names);
  return status;
}

static fl_status choose_among(fl_host *host, int32_t device_type, const char *name, const candidates *all,
                              const candidate **chosen) {
  candidate *named = name ? find(all, name) : NULL;
  if (name && !named)
    return not_there(all, name, "the group's id");
  if (named && !named->available)
    return fl_error(FL_ENOIMPL, "the group's id is of communicator '%s', which cannot be used here: %s", name,
                    named->reason);
  *chosen = named;
  for (uint32_t i = 0; i < all->n && !*chosen; i++)
    if (all->items[i].available && all->items[i].component.communicator.device_type == device_type)
      *chosen = &all->items[i];
  return *chosen ? FL_OK : none_is_left(host, device_type, all);
}

static void loading_end(fl_host *const *host) {
  fl_loading_end(*host);
}

fl_status fl_communicator_choose(fl_host *given, int32_t device_type, const char *name,
                                 fl_communicator_choice *choice) {
  __attribute__((cleanup(candidates_free))) candidates all = {0};
  const candidate *chosen = NULL;
  __attribute__((cleanup(loading_end))) fl_host *host = given;
  fl_loading_begin(host);
  fl_status status = fl_load_deferred_communicators(host);
  if (!status)
    status = list(host, &all);
  if (!status)
    status = check_setting(host, &all);
  if (!status)
    status = choose_among(host, device_type, name, &all, &chosen);
  if (!chosen)
    return status ? status : FL_ENOIMPL;
  choice->functions = chosen->component.communicator;
  choice->functions.vendor = NULL;
  choice->self = chosen->component.self;
  snprintf(choice->name, sizeof choice->name, "%s", chosen->component.name);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- report */

static uint32_t native_kinds(const fl_communicator *communicator) {
  uint32_t set = 0;
  for (int32_t kind = 0; kind < FL_COLLECTIVES; kind++)
    if (fl_communicator_function(communicator, kind))
      set |= 1u << kind;
  return set;
}

static void describe(const candidates *all, uint32_t i, fl_communicator_info *info, fl_arena *arena) {
  const candidate *c = &all->items[i], *chosen = NULL;
  const fl_communicator *communicator = &c->component.communicator;
  for (uint32_t j = 0; j < all->n && !chosen; j++)
    if (all->items[j].available && all->items[j].component.communicator.device_type == communicator->device_type)
      chosen = &all->items[j];
  *info = (fl_communicator_info){.name = fl_arena_string(arena, c->component.name),
                                 .plugin = fl_arena_string(arena, c->component.plugin),
                                 .vendor = fl_arena_string(arena, communicator->vendor),
                                 .kind = (fl_kind)communicator->kind,
                                 .priority = communicator->priority,
                                 .device_type = communicator->device_type,
                                 .available = c->available,
                                 .chosen = c == chosen,
                                 .native = native_kinds(communicator),
                                 .dtypes = communicator->dtypes,
                                 .reductions = communicator->reductions,
                                 .batches = communicator->batch != NULL,
                                 .splits = communicator->split != NULL};
  info->reason = c == chosen              ? ""
                 : c->available && chosen ? fl_arena_format(arena, "'%s' comes before it", chosen->component.name)
                                          : fl_arena_string(arena, c->reason);
}

fl_status fl_get_communicators(fl_host *given, fl_communicators **result) {
  __attribute__((cleanup(candidates_free))) candidates all = {0};
  __attribute__((cleanup(loading_end))) fl_host *host = given;
  fl_arena *arena;
  fl_loading_begin(host);
  fl_status status = fl_load_deferred_communicators(host);
  if (!status)
    status = list(host, &all);
  if (status)
    return status;
  fl_communicators *made = fl_arena_create(sizeof *made, &arena);
  if (!made)
    return fl_error_no_memory();
  fl_communicator_info *items = fl_arena_array(arena, all.n, sizeof *items);
  for (uint32_t i = 0; items && i < all.n; i++)
    describe(&all, i, &items[i], arena);
  *made = (fl_communicators){.size = sizeof *made, .n = all.n, .item_size = sizeof *items, .items = items};
  status = fl_arena_finish(made, sizeof *made);
  if (!status)
    *result = made;
  return status;
}

void fl_communicators_free(fl_communicators *communicators) {
  fl_arena_destroy(communicators, sizeof *communicators);
}
