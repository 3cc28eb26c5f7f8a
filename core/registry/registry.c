/* Ops by name: writers hold the host's lock and publish; readers follow published pointers (records.h). */
#include "core/registry/registry.h"

#include "core/ops.h"
#include "core/registry/failures.h"
#include "core/registry/implementations.h"
#include "core/registry/loading.h"
#include "core/registry/parts.h"
#include "core/registry/registration.h"
#include "core/registry/slots.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------- names */

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

/* `table` itself where it has room for `more`, else a larger one. NULL: out of memory. */
static fl_name_table *table_grow(fl_name_table *table, uint32_t more) {
  uint32_t places = table->mask + 1;
  while ((table->n + more) * 2 > places)
    places *= 2;
  if (places == table->mask + 1)
    return table;
  fl_name_table *grown = table_create(places);
  for (uint32_t i = 0; grown && i <= table->mask; i++) {
    fl_op *op = atomic_load_explicit(&table->places[i], memory_order_relaxed);
    if (op)
      table_put(grown, op);
  }
  return grown;
}

bool fl_registry_reserve(fl_host *host, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!fl_array_grow(&host->ops, host->n_ops + i, sizeof *host->ops))
      return false;
  fl_name_table *table = atomic_load_explicit(&host->names, memory_order_relaxed), *grown = table_grow(table, n);
  if (grown && grown != table) {
    atomic_store_explicit(&host->names, grown, memory_order_release);
    fl_retire(&host->retired, table, free);
  }
  fl_name_table *declared = table_grow(host->declared, n);
  if (declared && declared != host->declared) {
    free(host->declared);
    host->declared = declared;
  }
  return grown && declared;
}

static void op_clear(fl_op *op) {
  fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
  fl_failures_free_locked(op); /* they are of the records */
  for (uint32_t i = 0; set && i < set->n; i++)
    if (set->impls[i] != op->parts)
      fl_impl_record_free(set->impls[i]);
  fl_impl_record_free(op->parts);
  free(set);
  free(op->by_id);
  while (op->bindings) {
    fl_bound *next = op->bindings->next;
    free(op->bindings);
    op->bindings = next;
  }
  fl_schema_free(op->schema);
  free(op->last_used);
}

void fl_registry_free_op(fl_op *op) {
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
  atomic_init(&op->checked_as, UINT64_MAX);
  atomic_init(&op->path, FL_PATH_UNREADY);
  host->ops[host->n_ops++] = op;
  fl_parts_add_op(host, op);
}

/* What calls need. */
static void op_set_schema(fl_op *op, fl_schema *schema) {
  op->schema = schema;
  op->device_argument = schema->device_argument;
  op->device_offset = op->device_argument < 0 ? 0 : (uint32_t)op->device_argument * (uint32_t)sizeof(fl_value);
  op->unbound = (fl_target){.fn = op->host->hooks->run_unbound, .self = op};
  fl_slots_init(&op->slots, op);
}

/* Lets calls by handle in. The op has its schema, and the host's lock is held. */
static void op_open(fl_op *op) {
  const fl_schema *schema = op->schema;
  fl_path path = op->device_argument < 0 || schema->values[op->device_argument].optional ? FL_PATH_OTHERWISE
                 : op->host->checks                                                      ? FL_PATH_CHECKED
                                                                                         : FL_PATH_TRUSTING;
  atomic_store_explicit(&op->checked_as, path == FL_PATH_OTHERWISE ? UINT64_MAX : schema->id, memory_order_relaxed);
  atomic_store_explicit(&op->path, path, memory_order_release);
}

fl_op *fl_registry_make_op(fl_schema *schema, const char *plugin) {
  fl_op *op = calloc(1, sizeof *op);
  if (op && (op->name = fl_strdup(schema->op_name)) && (op->schema_plugin = fl_strdup(plugin))) {
    op->schema = schema;
    return op;
  }
  fl_registry_free_op(op);
  return NULL;
}

void fl_registry_add_op(fl_host *host, fl_op *op) {
  op_add(host, op);
  op_set_schema(op, op->schema);
  if (fl_is_deferred(host, op->name)) {
    table_put(host->declared, op);
    return;
  }
  table_put(atomic_load_explicit(&host->names, memory_order_relaxed), op);
  op_open(op);
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
  fl_status status = parsed ? FL_OK : fl_schema_create(op->def, &schema);
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

/* An op that has its schema gets into the table that readers use, and calls by handle find it. */
static bool make_ready(fl_host *host, fl_op *op) {
  pthread_mutex_lock(&host->lock);
  bool done = fl_registry_is_ready(host, op->name);
  if (!done && (done = fl_registry_reserve(host, 1))) {
    table_put(atomic_load_explicit(&host->names, memory_order_relaxed), op);
    op_open(op);
  }
  pthread_mutex_unlock(&host->lock);
  return done;
}

/* Those of its parts are wanted with it: it may be run by them. */
static fl_status load_deferred(fl_host *host, const char *name) {
  char part[FL_NAME_MAX + 1];
  size_t length;
  fl_status status = host->hooks->load_deferred(host, name);
  pthread_mutex_lock(&host->lock);
  const fl_op *op = fl_registry_known(host, name);
  const char *at = op && op->parts ? fl_parts_text(op) : "", *found;
  pthread_mutex_unlock(&host->lock); /* an op stays */
  while (!status && fl_parts_next_op(&at, &found, &length)) {
    snprintf(part, sizeof part, "%.*s", (int)length, found);
    status = host->hooks->load_deferred(host, part);
  }
  return status;
}

/* The thread may be reading: a kernel may call ops by name. An op is not ready as long as a plugin that lists it is to
 * be tried again: the next who looks for it comes here, too. */
static __attribute__((noinline)) fl_op *find_otherwise(fl_host *host, const char *name) {
  fl_loading_begin(host);
  fl_status status = load_deferred(host, name);
  pthread_mutex_lock(&host->lock);
  fl_op *op = status ? NULL : fl_registry_known(host, name);
  bool again = fl_is_tried_again(host, name);
  pthread_mutex_unlock(&host->lock);
  if (op && (fl_registry_parse(op) || (!again && !make_ready(host, op))))
    op = NULL;
  fl_loading_end(host);
  return op;
}

fl_status fl_registry_prepare_all(fl_host *host) {
  fl_loading_begin(host);
  fl_status status = host->hooks->load_deferred(host, NULL);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops && !status; i++) {
    fl_op *op = host->ops[i]; /* an op stays */
    bool again = fl_is_tried_again(host, op->name);
    pthread_mutex_unlock(&host->lock);
    status = fl_registry_parse(op);
    if (!status && !again && !make_ready(host, op))
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

fl_status fl_registry_look_for(const fl_op *op) {
  if (fl_thread_join())
    return FL_ENOMEM;
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  bool found = fl_registry_find(op->host, op->name) != NULL;
  return found ? FL_OK : fl_registry_no_such_op(op->host, op->name);
}

fl_op *fl_op_handle(fl_host *host, const char *name) {
  pthread_mutex_lock(&host->lock);
  fl_op *op = fl_registry_known(host, name);
  pthread_mutex_unlock(&host->lock);
  if (!op)
    fl_registry_no_such_op(host, name);
  return op;
}

fl_status fl_registry_no_such_op(fl_host *host, const char *name) {
  fl_strings names = {0};
  fl_status status;
  pthread_mutex_lock(&host->lock);
  const fl_plugin_record *failed = fl_failed_lister(host, name);
  const fl_plugin_record *kept_out = failed ? NULL : fl_kept_out_lister(host, name);
  kept_out = kept_out && kept_out->ops ? kept_out : NULL;
  bool unready = fl_registry_known(host, name) && !fl_registry_is_ready(host, name);
  bool listed = fl_deferred_ops(host, &names);
  for (uint32_t i = 0; listed && i < host->n_ops; i++)
    listed = fl_strings_add(&names, host->ops[i]->name);
  if (failed && listed)
    status = fl_error(FL_ENOENT, "no op '%s': plugin '%s', which %s it, failed: %s", name, failed->name,
                      failed->ops ? "lists" : "may have", failed->reason);
  else if (kept_out && listed)
    status =
        fl_error(FL_ENOENT, "no op '%s': plugin '%s', which lists it, is %s", name, kept_out->name, kept_out->reason);
  else if (unready || !listed)
    status = fl_error_no_memory();
  else
    status = fl_error(FL_ENOENT, "no op '%s'%s", name, fl_suggest_among(name, &names).text);
  pthread_mutex_unlock(&host->lock);
  fl_strings_free(&names);
  return status;
}

fl_status fl_registry_no_impl(fl_host *host, const char *name) {
  fl_status status = fl_registry_no_such_op(host, name);
  return status == FL_ENOENT ? fl_error(status, "No available implementation for op='%s'. Registered: []\n  %s", name,
                                        fl_error_message())
                             : status;
}

bool fl_custom_op_enabled(const fl_op *op) {
  const fl_config *config = op->host->config;
  return op->enforced || !config || fl_config_op_enabled(config, op->name);
}

/* Length of the name that a built-in op's schema begins with. */
static size_t builtin_name(const fl_op_def *def) {
  return strcspn(def->schema, "(");
}

/* The built-in ops, all in one piece and by name alone: most processes use few of them. */
static bool add_builtin_ops(fl_host *host) {
  size_t length = 0;
  uint32_t n = 0;
  for (; fl_builtin_ops[n]; n++)
    length += builtin_name(fl_builtin_ops[n]) + 1;
  host->builtin = calloc(n, sizeof *host->builtin);
  host->builtin_names = malloc(length);
  if (!host->builtin || !host->builtin_names)
    return false;
  char *name = host->builtin_names;
  bool done = fl_registry_reserve(host, n);
  for (uint32_t i = 0; i < n && done; i++) {
    fl_op *op = &host->builtin[i];
    size_t size = builtin_name(fl_builtin_ops[i]);
    memcpy(name, fl_builtin_ops[i]->schema, size);
    name[size] = 0;
    op->def = fl_builtin_ops[i];
    op->name = name;
    op->schema_plugin = "flhost";
    name += size + 1;
    done = !op->def->parts || fl_parts_create(host, op);
    op_add(host, op);
    table_put(host->declared, op);
  }
  fl_parts_find_devices(host, NULL, 0);
  return done;
}

fl_status fl_registry_init(fl_host *host) {
  enum { FIRST_PLACES = 256 };
  fl_name_table *table = table_create(FIRST_PLACES);
  atomic_init(&host->names, table);
  host->declared = table_create(FIRST_PLACES);
  if (!table || !host->declared)
    return fl_error_no_memory();
  host->registry_generation = 1;
  host->epoch = 1;
  pthread_mutex_lock(&host->lock); /* nobody knows the host yet but fork, which looks through its ops */
  bool done = add_builtin_ops(host);
  pthread_mutex_unlock(&host->lock);
  return done ? FL_OK : fl_error_no_memory();
}

void fl_registry_free(fl_host *host) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    if (host->ops[i]->def)
      op_clear(host->ops[i]);
    else
      fl_registry_free_op(host->ops[i]);
  }
  free(host->ops);
  free(host->builtin);
  free(host->builtin_names);
  free(host->declared);
  free(atomic_load_explicit(&host->names, memory_order_relaxed));
  for (uint32_t i = 0; i < host->n_components; i++)
    fl_arena_free(&host->components[i].owned);
  free(host->components);
  fl_registrars_free(host);
  fl_providers_free(host);
}
