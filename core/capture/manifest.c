/*
 * The manifest of calls: which implementations calls may run, and a digest of it for the key of a compile cache. Its
 * form is described in flhost/manifest.h, so that others can make the digest again; SHA-256 is libmd's.
 */
#include "core/call.h"
#include "core/platform.h"
#include "core/registry.h"
#include "core/support.h"

#include <sha2.h>
#include <stdlib.h>
#include <string.h>

/* A manifest while it is made. */
typedef struct draft {
  fl_manifest *public;
  fl_arena *arena;
  fl_text text;
  fl_manifest_row *rows; /* `rows` and `without` have room for all there can be */
  const char **without;
} draft;

/* ------------------------------------------------------------------------------------------------------- the text */

/* A field of a line, and what separates it from the one before. */
static void add_field(fl_text *text, const char *field) {
  fl_text_add(text, "\t");
  for (const char *c = field; *c; c++)
    if (*c == '\\' || (unsigned char)*c < 0x20 || *c == 0x7f)
      fl_text_add(text, "\\x%02x", (unsigned char)*c);
    else
      fl_text_add_bytes(text, c, 1);
}

/* A whole line. `fields` ends in NULL. */
static void add_line(fl_text *text, const char *word, const char *const *fields) {
  fl_text_add(text, "%s", word);
  for (; *fields; fields++)
    add_field(text, *fields);
  fl_text_add(text, "\n");
}

#define ADD_LINE(text_, word_, ...) add_line((text_), (word_), (const char *const[]){__VA_ARGS__, NULL})

/* The names, sorted. */
static void add_names(draft *m, const fl_strings *names) {
  fl_strings sorted = {0};
  for (uint32_t i = 0; i < names->n; i++)
    m->text.failed |= !fl_strings_add(&sorted, names->items[i]);
  fl_strings_sort_unique(&sorted);
  for (uint32_t i = 0; i < sorted.n; i++)
    add_field(&m->text, sorted.items[i]);
  fl_strings_free(&sorted);
}

static void add_list(draft *m, const char *name, const fl_strings *names) {
  fl_text_add(&m->text, "setting\t%s", name);
  add_names(m, names);
  fl_text_add(&m->text, "\n");
}

/* A setting that is a list, if it is set. */
static void add_setting(draft *m, const fl_config *config, fl_setting_id id) {
  if (config->values[id].set)
    add_list(m, fl_setting_name(&fl_setting_table[id]), &config->values[id].names);
}

static void add_switch(draft *m, const fl_config *config, fl_setting_id id) {
  ADD_LINE(&m->text, "setting", fl_setting_name(&fl_setting_table[id]), config->values[id].flag ? "true" : "false");
}

/* all or none first, then what has a sign. */
static void add_custom_ops(draft *m, const fl_config *config) {
  const fl_strings *items = &config->values[FL_SETTING_CUSTOM_OPS].names;
  const char *mode = "all";
  fl_strings directives = {0};
  for (uint32_t i = 0; i < items->n; i++)
    if (*items->items[i] != '+' && *items->items[i] != '-')
      mode = items->items[i];
    else
      m->text.failed |= !fl_strings_add(&directives, items->items[i]);
  fl_text_add(&m->text, "setting\tcustom_ops\t%s", mode);
  add_names(m, &directives);
  fl_text_add(&m->text, "\n");
  fl_strings_free(&directives);
}

static void add_enforced(draft *m, const fl_host *host) {
  fl_strings enforced = {0};
  for (uint32_t i = 0; i < host->n_ops; i++)
    if (host->ops[i]->enforced)
      m->text.failed |= !fl_strings_add(&enforced, host->ops[i]->name);
  if (enforced.n)
    add_list(m, "enforced", &enforced);
  fl_strings_free(&enforced);
}

/* What selects beside the policy, and which layers the engine is told to replace. */
static void add_settings(draft *m, const fl_host *host) {
  const fl_config *config = host->config;
  add_switch(m, config, FL_SETTING_PREFER_ENABLED);
  add_switch(m, config, FL_SETTING_USE_FLAGGEMS);
  add_setting(m, config, FL_SETTING_FLAGOS_WHITELIST);
  add_setting(m, config, FL_SETTING_FLAGOS_BLACKLIST);
  add_custom_ops(m, config);
  add_enforced(m, host);
  add_switch(m, config, FL_SETTING_OOT_ENABLED);
  add_setting(m, config, FL_SETTING_OOT_WHITELIST);
  add_setting(m, config, FL_SETTING_OOT_BLACKLIST);
}

static int compare_layers(const void *a, const void *b) {
  return strcmp((*(const fl_component_record *const *)a)->name, (*(const fl_component_record *const *)b)->name);
}

/* The host's own layers go with its version. */
static void add_layers(draft *m, const fl_host *host) {
  uint32_t n = 0;
  const fl_component_record **layers = calloc((size_t)host->n_components + 1, sizeof *layers);
  m->text.failed |= !layers;
  for (uint32_t i = 0; layers && i < host->n_components; i++)
    if (host->components[i].op)
      layers[n++] = &host->components[i];
  if (n)
    qsort(layers, n, sizeof *layers, compare_layers);
  for (uint32_t i = 0; i < n; i++)
    ADD_LINE(&m->text, "layer", layers[i]->name, layers[i]->op, layers[i]->plugin);
  free(layers);
}

static void add_head(draft *m, const fl_host *host, const fl_policy *policy) {
  char device[16];
  snprintf(device, sizeof device, "%d", m->public->device_type);
  ADD_LINE(&m->text, "flhost-manifest", "1");
  ADD_LINE(&m->text, "library", fl_version());
  ADD_LINE(&m->text, "device", device);
  ADD_LINE(&m->text, "policy", policy->fingerprint);
  add_settings(m, host);
  add_layers(m, host);
}

/* ------------------------------------------------------------------------------------------------------- the rows */

/* Of the plugin that registered it: two builds of one plugin may be loaded. */
static const char *version_of(const fl_host *host, const fl_impl_record *record) {
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_LOADED && !strcmp(host->plugins[i].name, record->provider->plugin) &&
        !strcmp(host->plugins[i].build_id, record->provider->build_id))
      return host->plugins[i].version;
  return !strcmp(record->provider->plugin, FL_PROVIDER_HOST) ? fl_version() : "";
}

static void add_row(draft *m, const fl_host *host, const fl_impl_record *record, uint32_t place) {
  char number[16];
  fl_manifest_row *row = &m->rows[m->public->n_rows++];
  *row = (fl_manifest_row){
      .op = fl_arena_string(m->arena, record->op->name),
      .impl_id = fl_arena_string(m->arena, record->impl_id),
      .vendor = fl_arena_string(m->arena, record->vendor),
      .kind = (fl_kind)record->kind,
      .place = place,
      .plugin = fl_arena_string(m->arena, record->provider->plugin),
      .version = fl_arena_string(m->arena, version_of(host, record)),
      .build_id = fl_arena_string(m->arena, record->provider->build_id),
  };
  snprintf(number, sizeof number, "%u", place);
  ADD_LINE(&m->text, "impl", number, row->impl_id, fl_kind_name(row->kind), row->vendor ? row->vendor : "", row->plugin,
           row->version, row->build_id);
  if (record->variant)
    ADD_LINE(&m->text, "variant", record->variant);
}

/* The rows of one op: its candidates, up to the first that takes every call. */
static void add_op(draft *m, const fl_selection *selection, double now) {
  const fl_op *op = selection->op;
  uint32_t place = 0;
  ADD_LINE(&m->text, "op", op->name, op->schema->text);
  for (uint32_t i = 0; i < selection->n_accepted; i++) {
    const fl_impl_record *record = selection->items[i].record;
    if (!selection->policy->fields.strict && fl_failure_skips(fl_failure_find_locked(op, record), now))
      continue;
    add_row(m, op->host, record, place++);
    if (selection->items[i].on_devices == UINT64_MAX && fl_takes_all(record))
      break;
  }
  if (!place)
    m->without[m->public->n_without++] = fl_arena_string(m->arena, op->name);
}

static int compare_ops(const void *a, const void *b) {
  return strcmp((*(fl_op *const *)a)->name, (*(fl_op *const *)b)->name);
}

/* Room for what every op may bring. */
static bool reserve(draft *m, const fl_host *host) {
  size_t n = 1;
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    n += set ? set->n : 0;
  }
  m->public->rows = m->rows = fl_arena_array(m->arena, n, sizeof *m->rows);
  m->public->without = m->without = fl_arena_array(m->arena, host->n_ops, sizeof *m->without);
  return m->rows && m->without;
}

/* *again: availability has to be asked anew, and all of this done again. The host's lock is held. */
static fl_status add_ops(draft *m, const fl_host *host, const fl_policy *policy, bool *again) {
  fl_status status = FL_OK;
  double now = fl_monotonic_seconds();
  fl_op **ops = malloc(((size_t)host->n_ops + 1) * sizeof *ops);
  if (!ops || !reserve(m, host)) {
    free(ops);
    return fl_error_no_memory();
  }
  memcpy(ops, host->ops, host->n_ops * sizeof *ops);
  qsort(ops, host->n_ops, sizeof *ops, compare_ops);
  for (uint32_t i = 0; i < host->n_ops && !status && !*again; i++) {
    fl_selection selection;
    status = fl_select(&selection, ops[i], policy, ops[i]->device_argument < 0 ? 0 : m->public->device_type);
    if (status)
      break;
    *again = selection.unasked;
    if (selection.n_accepted || fl_registry_has_impl(ops[i], selection.device_type))
      add_op(m, &selection, now);
    fl_selection_free(&selection);
  }
  free(ops);
  return status;
}

/* ----------------------------------------------------------------------------------------------------- the manifest */

static void add_digest(draft *m) {
  char *sha256 = fl_arena_allocate(m->arena, SHA256_DIGEST_STRING_LENGTH);
  for (uint32_t i = 0; sha256 && i < m->public->n_rows; i++)
    if (!*m->rows[i].build_id) {
      m->public->problem = fl_arena_format(m->arena, "plugin '%s' of '%s' has no build id: link it with -Wl,--build-id",
                                           m->rows[i].plugin, m->rows[i].impl_id);
      return;
    }
  if (sha256)
    SHA256Data((const uint8_t *)m->public->text, strlen(m->public->text), sha256);
  m->public->sha256 = sha256;
}

/* One attempt; *again as of add_ops. */
static fl_status create(fl_host *host, int32_t device_type, fl_manifest **made, bool *again) {
  bool scoped;
  draft m = {0};
  fl_registry_lock_asked(host); /* who is asked may throw: nothing is to be freed yet */
  m.public = fl_arena_create(sizeof *m.public, &m.arena);
  if (!m.public) {
    pthread_mutex_unlock(&host->lock);
    return fl_error_no_memory();
  }
  m.public->size = sizeof *m.public;
  m.public->row_size = sizeof *m.rows;
  m.public->device_type = device_type;
  const fl_policy *policy = fl_scope_policy(host, &scoped);
  m.public->library = fl_version();
  m.public->policy = fl_arena_string(m.arena, policy->fingerprint);
  add_head(&m, host, policy);
  fl_status status = add_ops(&m, host, policy, again);
  pthread_mutex_unlock(&host->lock);
  m.public->text = fl_arena_text(m.arena, &m.text);
  if (!status)
    add_digest(&m);
  if (status || *again) {
    fl_arena_destroy(m.public, sizeof *m.public);
    return status;
  }
  *made = m.public;
  return fl_arena_finish(m.public, sizeof *m.public);
}

fl_status fl_get_manifest(fl_host *host, int32_t device_type, fl_manifest **result) {
  fl_manifest *made = NULL;
  bool again;
  if (device_type <= 0 || device_type >= FL_DEVICE_SLOTS)
    return fl_error(FL_EINVAL, "fl_get_manifest: device type %d is not known", device_type);
  fl_status status = fl_thread_join();
  if (!status)
    status = fl_registry_prepare_all(host);
  if (status)
    return status;
  do {
    again = false;
    status = create(host, device_type, &made, &again);
  } while (!status && again);
  if (!status)
    *result = made;
  return status;
}

void fl_manifest_free(fl_manifest *manifest) {
  fl_arena_destroy(manifest, sizeof *manifest);
}
