/*
 * Ops by name, their implementations, and whether these are available. Writers hold the host's lock and publish;
 * readers follow published pointers (records.h). Staging by plugins is in registration.c.
 */
#include "core/registry/registry.h"

#include "core/ops/ops.h"
#include "core/plugins/deferred.h"
#include "core/registry/records.h"
#include "core/support/error.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------- names */

static uint64_t mix(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Eight bytes at a time; the constants are odd numbers with as many ones as zeros. */
uint64_t fl_hash_name(const char *name, size_t length) {
  const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t hash = k ^ length, word;
  for (; length >= 8; name += 8, length -= 8) {
    memcpy(&word, name, 8);
    hash = mix(hash ^ word, k);
  }
  word = 0;
  if (length >= 4) {
    uint32_t low, high;
    memcpy(&low, name, 4);
    memcpy(&high, name + length - 4, 4);
    word = (uint64_t)high << 32 | low;
  } else if (length) {
    word = (uint64_t)(unsigned char)name[0] << 16 | (uint64_t)(unsigned char)name[length / 2] << 8 |
           (unsigned char)name[length - 1];
  }
  return mix(hash ^ word, UINT64_C(0xd6e8feb86659fd93));
}

static inline fl_op *table_find(const fl_name_table *table, const char *name, size_t length, uint64_t hash) {
  for (uint32_t i = (uint32_t)hash & table->mask;; i = (i + 1) & table->mask) {
    fl_op *op = atomic_load_explicit(&table->places[i], memory_order_acquire);
    if (!op)
      return NULL;
    if (op->hash == hash && !memcmp(op->name, name, length + 1))
      return op;
  }
}

static void table_put(fl_name_table *table, fl_op *op) {
  uint32_t i = (uint32_t)op->hash & table->mask;
  while (atomic_load_explicit(&table->places[i], memory_order_relaxed))
    i = (i + 1) & table->mask;
  atomic_store_explicit(&table->places[i], op, memory_order_release);
  table->n++;
}

static fl_name_table *table_create(uint32_t places) {
  fl_name_table *table = calloc(1, sizeof *table + places * sizeof table->places[0]);
  if (table)
    table->mask = places - 1;
  return table;
}

/* A table of twice the size where `table` is full, `table` itself where it is not. NULL: out of memory. */
static fl_name_table *table_grow(fl_name_table *table) {
  if (table->n * 2 <= table->mask)
    return table;
  fl_name_table *grown = table_create((table->mask + 1) * 2);
  for (uint32_t i = 0; grown && i <= table->mask; i++) {
    fl_op *op = atomic_load_explicit(&table->places[i], memory_order_relaxed);
    if (op)
      table_put(grown, op);
  }
  return grown;
}

/* Room for one more op in the list and the tables of names. */
static bool ops_reserve(fl_host *host) {
  if (host->n_ops == host->ops_capacity) {
    uint32_t capacity = host->ops_capacity * 2;
    fl_op **grown = realloc(host->ops, capacity * sizeof *grown);
    if (!grown)
      return false;
    host->ops = grown;
    host->ops_capacity = capacity;
  }
  fl_name_table *table = atomic_load_explicit(&host->names, memory_order_relaxed), *grown = table_grow(table);
  if (grown && grown != table) {
    atomic_store_explicit(&host->names, grown, memory_order_release);
    fl_retire(&host->retired, table, free);
  }
  fl_name_table *declared = table_grow(host->declared);
  if (declared && declared != host->declared) {
    free(host->declared);
    host->declared = declared;
  }
  return grown && declared;
}

static void op_clear(fl_op *op) {
  fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  for (uint32_t i = 0; set && i < set->n; i++)
    fl_impl_record_free(set->impls[i]);
  free(set);
  fl_impl_record_free(op->unfused);
  while (op->bindings) {
    fl_binding *next = op->bindings->next;
    free(op->bindings);
    op->bindings = next;
  }
  fl_failures_free(op);
  fl_schema_free(op->schema);
  free(op->last_used);
}

/* Of one that is not built-in. */
static void op_free(fl_op *op) {
  if (!op)
    return;
  op_clear(op);
  free((char *)op->name);
  free((char *)op->schema_plugin);
  free(op);
}

/* The rest of an op that has its name. There is room. */
static void op_add(fl_host *host, fl_op *op) {
  op->host = host;
  op->hash = fl_hash_name(op->name, strlen(op->name));
  op->index = host->n_ops;
  host->ops[host->n_ops++] = op;
}

/* What calls need. */
static void op_set_schema(fl_op *op, fl_schema *schema) {
  op->schema = schema;
  op->device_argument = schema->device_argument;
  op->device_offset = op->device_argument < 0 ? 0 : (uint32_t)op->device_argument * (uint32_t)sizeof(fl_value);
  op->path = op->device_argument < 0 || schema->values[op->device_argument].optional ? FL_PATH_OTHERWISE
             : op->host->checks                                                      ? FL_PATH_CHECKED
                                                                                     : FL_PATH_TRUSTING;
  op->checked_as = op->path == FL_PATH_OTHERWISE ? UINT64_MAX : schema->id;
  op->unbound = (fl_target){.fn = fl_run_unbound, .self = op};
  fl_slots_init(&op->slots, op);
}

fl_op *fl_registry_add_op(fl_host *host, fl_schema *schema, const char *plugin) {
  fl_op *op = calloc(1, sizeof *op);
  if (!op || !(op->name = fl_strdup(schema->op_name)) || !(op->schema_plugin = fl_strdup(plugin)) ||
      !ops_reserve(host)) {
    op_free(op);
    return NULL;
  }
  op_add(host, op);
  op_set_schema(op, schema);
  table_put(fl_is_deferred(host, op->name) ? host->declared : atomic_load_explicit(&host->names, memory_order_relaxed),
            op);
  return op;
}

bool fl_registry_is_ready(const fl_host *host, const char *name) {
  size_t length = strlen(name);
  return table_find(atomic_load_explicit(&host->names, memory_order_relaxed), name, length,
                    fl_hash_name(name, length)) != NULL;
}

fl_op *fl_registry_known(const fl_host *host, const char *name) {
  size_t length = strlen(name);
  uint64_t hash = fl_hash_name(name, length);
  fl_op *op = table_find(atomic_load_explicit(&host->names, memory_order_relaxed), name, length, hash);
  return op ? op : table_find(host->declared, name, length, hash);
}

fl_status fl_registry_parse(fl_op *op) {
  fl_schema *schema = NULL;
  pthread_mutex_lock(&op->host->lock);
  bool parsed = op->schema != NULL;
  pthread_mutex_unlock(&op->host->lock);
  fl_status status = parsed ? FL_OK : fl_schema_create_builtin(op->def, &schema);
  if (!schema)
    return status;
  pthread_mutex_lock(&op->host->lock);
  if (!op->schema) { /* else another thread was first */
    op_set_schema(op, schema);
    schema = NULL;
  }
  pthread_mutex_unlock(&op->host->lock);
  fl_schema_free(schema);
  return FL_OK;
}

/* An op that has its schema gets into the table that readers use. */
static bool make_ready(fl_host *host, fl_op *op) {
  pthread_mutex_lock(&host->lock);
  bool done = fl_registry_is_ready(host, op->name);
  if (!done && (done = ops_reserve(host)))
    table_put(atomic_load_explicit(&host->names, memory_order_relaxed), op);
  pthread_mutex_unlock(&host->lock);
  return done;
}

/* The thread may be reading: a kernel may call ops by name. */
static __attribute__((noinline)) fl_op *find_otherwise(fl_host *host, const char *name) {
  fl_loading_begin(host);
  fl_status status = fl_load_deferred(host, name);
  pthread_mutex_lock(&host->lock);
  fl_op *op = status ? NULL : fl_registry_known(host, name);
  pthread_mutex_unlock(&host->lock);
  if (op && (fl_registry_parse(op) || !make_ready(host, op)))
    op = NULL;
  fl_loading_end(host);
  return op;
}

fl_status fl_registry_prepare_all(fl_host *host) {
  fl_loading_begin(host);
  fl_status status = fl_load_deferred(host, NULL);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops && !status; i++) {
    fl_op *op = host->ops[i]; /* an op stays */
    pthread_mutex_unlock(&host->lock);
    status = fl_registry_parse(op);
    if (!status && !make_ready(host, op))
      status = fl_error_no_memory();
    pthread_mutex_lock(&host->lock);
  }
  pthread_mutex_unlock(&host->lock);
  fl_loading_end(host);
  return status;
}

fl_op *fl_registry_find(fl_host *host, const char *name) {
  size_t length = strlen(name);
  const fl_name_table *names = atomic_load_explicit(&host->names, memory_order_acquire);
  fl_op *op = table_find(names, name, length, fl_hash_name(name, length));
  return __builtin_expect(op != NULL, 1) ? op : find_otherwise(host, name);
}

const char *fl_registry_nearest_impl(const fl_op *op, const char *impl_id) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  const char **ids = set ? malloc(set->n * sizeof *ids) : NULL;
  for (uint32_t i = 0; ids && i < set->n; i++)
    ids[i] = set->impls[i]->impl_id;
  const char *nearest = ids ? fl_nearest_word(impl_id, ids, set->n) : NULL;
  free(ids);
  return nearest;
}

fl_status fl_registry_no_such_impl(const fl_op *op, const char *impl_id) {
  char hint[FL_NAME_MAX + 32];
  return fl_error(FL_ENOENT, "op '%s' has no implementation '%s'%s", op->name, impl_id,
                  fl_did_you_mean(hint, sizeof hint, fl_registry_nearest_impl(op, impl_id)));
}

fl_status fl_registry_no_such_op(fl_host *host, const char *name) {
  char hint[FL_NAME_MAX + 32];
  fl_strings names = {0};
  fl_status status;
  pthread_mutex_lock(&host->lock);
  const fl_plugin_record *failed = fl_failed_lister(host, name);
  bool unready = fl_registry_known(host, name) && !fl_registry_is_ready(host, name);
  bool listed = fl_deferred_ops(host, &names);
  for (uint32_t i = 0; listed && i < host->n_ops; i++)
    listed = fl_strings_add(&names, host->ops[i]->name);
  if (unready || !listed)
    status = fl_error_no_memory();
  else if (failed)
    status =
        fl_error(FL_ENOENT, "no op '%s': plugin '%s', which lists it, failed: %s", name, failed->name, failed->reason);
  else
    status =
        fl_error(FL_ENOENT, "no op '%s'%s", name,
                 fl_did_you_mean(hint, sizeof hint, fl_nearest_word(name, (const char *const *)names.items, names.n)));
  pthread_mutex_unlock(&host->lock);
  fl_strings_free(&names);
  return status;
}

fl_status fl_registry_no_impl(fl_host *host, const char *name) {
  char why[FL_ERROR_MAX];
  fl_status status = fl_registry_no_such_op(host, name);
  snprintf(why, sizeof why, "%s", fl_error_message());
  return status == FL_ENOENT
             ? fl_error(status, "No available implementation for op='%s'. Registered: []\n  %s", name, why)
             : status;
}

/* Length of the name that a built-in op's schema begins with. */
static size_t builtin_name(const fl_op_def *def) {
  return strcspn(def->schema, "(");
}

/* The built-in ops, all in one piece and by name alone: most processes use few of them. */
static bool add_builtin_ops(fl_host *host) {
  size_t n = 0, length = 0;
  bool done = true;
  for (; fl_builtin_ops[n]; n++)
    length += builtin_name(fl_builtin_ops[n]) + 1;
  host->builtin = calloc(n, sizeof *host->builtin);
  host->builtin_names = malloc(length);
  if (!host->builtin || !host->builtin_names)
    return false;
  char *name = host->builtin_names;
  for (size_t i = 0; i < n && done; i++) {
    fl_op *op = &host->builtin[i];
    size_t size = builtin_name(fl_builtin_ops[i]);
    memcpy(name, fl_builtin_ops[i]->schema, size);
    name[size] = 0;
    op->def = fl_builtin_ops[i];
    op->name = name;
    op->schema_plugin = "flhost";
    name += size + 1;
    done = ops_reserve(host);
    if (done) {
      op_add(host, op);
      table_put(host->declared, op);
      done = fl_unfused_add(op);
    }
  }
  return done;
}

fl_status fl_registry_init(fl_host *host) {
  enum { FIRST_PLACES = 256, FIRST_OPS = 128 };
  fl_name_table *table = table_create(FIRST_PLACES);
  atomic_init(&host->names, table);
  host->declared = table_create(FIRST_PLACES);
  host->ops = malloc(FIRST_OPS * sizeof *host->ops);
  if (!table || !host->declared || !host->ops)
    return fl_error_no_memory();
  host->ops_capacity = FIRST_OPS;
  host->registry_generation = 1;
  host->epoch = 1;
  pthread_mutex_lock(&host->lock); /* nobody knows the host yet but fork, which looks through its ops */
  bool done = add_builtin_ops(host);
  pthread_mutex_unlock(&host->lock);
  return done ? FL_OK : fl_error_no_memory();
}

/* --------------------------------------------------------------------------------------------- implementations */

const fl_provider *fl_registry_provider(fl_host *host, const char *plugin, const char *build_id) {
  for (const fl_provider *known = host->providers; known; known = known->next)
    if (!strcmp(known->plugin, plugin) && !strcmp(known->build_id, build_id))
      return known;
  size_t length = strlen(plugin) + 1;
  fl_provider *provider = malloc(sizeof *provider + length + strlen(build_id) + 1);
  if (!provider)
    return NULL;
  memcpy(provider->plugin, plugin, length);
  provider->build_id = strcpy(provider->plugin + length, build_id);
  provider->next = host->providers;
  host->providers = provider;
  return provider;
}

static void providers_free(fl_host *host) {
  while (host->providers) {
    fl_provider *next = host->providers->next;
    free(host->providers);
    host->providers = next;
  }
}

static int32_t priority_of(const fl_impl *impl) {
  static const int32_t by_kind[] = {0, FL_PRIORITY_DEFAULT, FL_PRIORITY_VENDOR, FL_PRIORITY_REFERENCE};
  return impl->priority || impl->flags & FL_IMPL_PRIORITY_ZERO ? impl->priority : by_kind[impl->kind];
}

/* Puts a string behind others; NULL and "" are none. */
static const char *put(char **at, const char *text) {
  if (!text || !*text)
    return NULL;
  char *start = *at;
  *at = stpcpy(start, text) + 1;
  return start;
}

fl_impl_record *fl_impl_record_create(const fl_impl *impl, const fl_provider *provider) {
  const char *vendor = impl->vendor ? impl->vendor : "", *min_arch = impl->min_arch ? impl->min_arch : "";
  size_t text = strlen(impl->impl_id) + strlen(vendor) + strlen(min_arch) + 3;
  fl_impl_record *record = calloc(1, offsetof(fl_impl_record, impl_id) + text);
  if (!record)
    return NULL;
  char *at = record->impl_id;
  put(&at, impl->impl_id);
  record->vendor = put(&at, vendor);
  record->min_arch = put(&at, min_arch);
  record->fn = impl->fn;
  record->self = impl->self;
  record->is_available = impl->is_available;
  record->supports_args = impl->supports_args;
  record->workspace_size = impl->workspace_size;
  record->provider = provider;
  record->devices = impl->devices;
  record->dtypes = impl->dtypes;
  record->flags = impl->flags;
  record->priority = priority_of(impl);
  record->kind = (uint8_t)impl->kind;
  record->count = UINT32_MAX;
  atomic_init(&record->reason, "is_available was not asked yet");
  return record;
}

void fl_impl_record_count(fl_impl_record *record, fl_event event) {
  fl_tally *tally = atomic_load_explicit(&record->tally, memory_order_acquire);
  if (!tally) {
    fl_tally *made = calloc(1, sizeof *made);
    if (!made)
      return; /* out of memory: this one is not counted */
    if (atomic_compare_exchange_strong(&record->tally, &tally, made))
      tally = made;
    else
      free(made);
  }
  atomic_fetch_add_explicit(&tally->events[event], 1, memory_order_relaxed);
}

uint64_t fl_impl_record_events(const fl_impl_record *record, fl_event event) {
  const fl_tally *tally = atomic_load_explicit(&record->tally, memory_order_acquire);
  return tally ? atomic_load_explicit(&tally->events[event], memory_order_relaxed) : 0;
}

void fl_impl_record_free(void *memory) {
  fl_impl_record *record = memory;
  if (!record)
    return;
  if (record->count != UINT32_MAX)
    fl_count_release(record->count);
  free(atomic_load_explicit(&record->tally, memory_order_relaxed));
  free(record);
}

void fl_component_record_clear(fl_component_record *component) {
  free(component->plugin);
  free(component->type);
  free(component->name);
  free(component->op);
}

fl_impl_record *fl_registry_find_impl(const fl_op *op, const char *impl_id) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (!strcmp(set->impls[i]->impl_id, impl_id))
      return set->impls[i];
  return op->unfused && !strcmp(op->unfused->impl_id, impl_id) ? op->unfused : NULL;
}

bool fl_registry_has_impl(const fl_op *op, int32_t device_type) {
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++)
    if (fl_impl_is_for(set->impls[i], device_type))
      return true;
  return false;
}

void fl_registry_ask_availability(fl_host *host, const fl_op *op, int32_t device_type) {
  if (fl_thread_join())
    return;
  pthread_mutex_lock(&host->lock);
  uint32_t generation = host->registry_generation;
  pthread_mutex_unlock(&host->lock);

  /* Reading keeps the records; plugins stay mapped. */
  fl_thread *self = &fl_self;
  uint64_t outer = fl_read_begin(self);
  pthread_mutex_lock(&host->availability_lock);
  const fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_acquire);
  for (uint32_t i = 0; set && i < set->n; i++) {
    fl_impl_record *record = set->impls[i];
    uint32_t asked = atomic_load(&record->asked);
    if (!fl_impl_is_for(record, device_type))
      continue;
    if (asked && (int32_t)(asked - generation) >= 0) /* for a later one, perhaps, by another thread */
      continue;
    const char *reason = NULL;
    if (!record->is_available || record->is_available(record->self, &reason))
      reason = NULL;
    else if (!reason)
      reason = "is_available says no and gives no reason";
    atomic_store(&record->reason, reason);
    atomic_store(&record->asked, generation);
  }
  pthread_mutex_unlock(&host->availability_lock);
  fl_read_end(self, outer);
}

static void ask_all(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    fl_op *op = host->ops[i]; /* an op stays */
    pthread_mutex_unlock(&host->lock);
    fl_registry_ask_availability(host, op, 0);
    fl_architectures_ask_all(host, op);
    pthread_mutex_lock(&host->lock);
  }
  pthread_mutex_unlock(&host->lock);
}

/* In this generation? The host's lock is held. */
static bool all_asked(const fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++)
      if (atomic_load(&set->impls[j]->asked) != host->registry_generation)
        return false;
  }
  return true;
}

void fl_registry_lock_asked(fl_host *host) {
  for (;;) {
    ask_all(host);
    pthread_mutex_lock(&host->lock);
    if (all_asked(host)) /* else some were registered, or are out of date, meanwhile */
      return;
    pthread_mutex_unlock(&host->lock);
  }
}

void fl_registry_advance(fl_host *host) {
  host->registry_generation++;
  host->registry_generation += !host->registry_generation; /* 0 is never */
  fl_host_advance(host);
}

void fl_host_advance(fl_host *host) {
  host->epoch++;
  while (host->bound) {
    fl_op *op = host->bound;
    host->bound = op->next_bound;
    op->is_bound = false;
    fl_unbind(op, NULL, NULL);
  }
}

void fl_registry_free(fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    if (host->ops[i]->def)
      op_clear(host->ops[i]);
    else
      op_free(host->ops[i]);
  }
  free(host->ops);
  free(host->builtin);
  free(host->builtin_names);
  free(host->declared);
  free(atomic_load_explicit(&host->names, memory_order_relaxed));
  for (uint32_t i = 0; i < host->n_components; i++)
    fl_component_record_clear(&host->components[i]);
  free(host->components);
  providers_free(host);
}
