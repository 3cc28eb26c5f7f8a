/* Creating and ending hosts: settings, plugins and platform are brought together here. */
#include "core/call.h"
#include "core/guard.h"
#include "core/host/hosts.h"
#include "core/host/platforms.h"
#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"
#include "core/vllm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------------------------------------------ creation */

static void copy_environment(fl_host *host, const char *const *environment) {
  uint32_t n = 0;
  while (environment[n])
    n++;
  host->environment = fl_arena_strings(&host->owned, environment, n);
}

static fl_status copy_options(fl_host *host, const fl_host_options *options) {
  fl_arena *owned = &host->owned;
  if (options->environment)
    copy_environment(host, options->environment);
  char *default_config_dir = fl_default_config_directory();
  host->sources = (fl_config_sources){
      .environment = host->environment,
      .config_file = fl_arena_string(owned, options->config_file),
      .config_dir = fl_arena_string(owned, options->config_dir),
      .platform = fl_arena_string(owned, options->platform),
      .plugin_path = fl_arena_string(owned, options->plugin_path),
      .plugin_modules = fl_arena_string(owned, options->plugin_modules),
      .default_config_dir = fl_arena_string(owned, default_config_dir),
      .find_platform = fl_find_platform,
      .platform_context = host,
  };
  free(default_config_dir);
  host->log.fn = options->log;
  host->log.user = options->log_user;
  atomic_init(&host->log.level, fl_config_log_level(&host->sources));
  host->statistics = options->flags & FL_HOST_STATISTICS;
  host->without_plugins = options->flags & FL_HOST_NO_PLUGINS;
  host->checks = !(options->flags & FL_HOST_NO_ARGUMENT_CHECKS);
  return owned->failed ? fl_error_no_memory() : FL_OK;
}

static void init_locks(fl_host *host) {
  pthread_mutex_init(&host->lock, NULL);
  host->availability_lock = host->loading = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/* Loads the settings and puts them in force. */
static fl_status load_settings(fl_host *host) {
  fl_config *config = NULL;
  fl_status status = fl_config_load(&host->sources, host->platform, &host->log, &config);
  if (!status)
    status = fl_custom_ops_check(host, config);
  if (status) {
    fl_config_free(config);
    return status;
  }
  pthread_mutex_lock(&host->lock);
  status = fl_refuse_frozen(host, "resetting the global policy");
  if (status) {
    pthread_mutex_unlock(&host->lock);
    fl_config_free(config);
    return status;
  }
  fl_config *before = host->config;
  fl_policy *policy_before = host->policy;
  host->config = config;
  host->policy = fl_policy_retain(config->policy);
  host->policy_is_set = false;
  atomic_store(&host->log.level, config->log_level);
  fl_host_advance(host);
  pthread_mutex_unlock(&host->lock);
  fl_config_free(before);
  fl_policy_release(policy_before);
  return FL_OK;
}

/* Vendors that somebody has registered. The host's lock is held. */
static void list_vendors(const fl_host *host, fl_strings *vendors) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++)
      if (set->impls[j]->vendor && !fl_strings_has(vendors, set->impls[j]->vendor))
        fl_strings_add(vendors, set->impls[j]->vendor);
  }
}

/* The host's lock is held. */
static bool has_impl(const fl_host *host, const char *op_name, const char *impl_id) {
  const fl_op *op = fl_registry_known(host, op_name);
  return op && fl_registry_find_impl(op, impl_id);
}

/* The implementation's id that a token names; NULL: it names none. */
static const char *named_impl(const char *token) {
  return strncmp(token, "impl:", 5) ? NULL : token + 5;
}

/* Does a token name what nobody has registered? The host's lock is held. */
static bool is_unknown(const fl_host *host, const char *op, const char *token, const fl_strings *vendors) {
  const char *impl_id = named_impl(token);
  return impl_id ? !has_impl(host, op, impl_id) : !strncmp(token, "vendor:", 7) && !fl_strings_has(vendors, token + 7);
}

/* Whether a deferred plugin brings what a token of the policy names is known when it is loaded: those that list the op
 * are, before anything is said. */
static void load_for_tokens(fl_host *host) {
  fl_strings vendors = {0};
  if (!atomic_load(&host->n_deferred))
    return;
  pthread_mutex_lock(&host->lock);
  list_vendors(host, &vendors);
  fl_policy *policy = fl_policy_retain(host->policy);
  pthread_mutex_unlock(&host->lock);
  for (uint32_t i = 0; i < policy->fields.n_per_op; i++) {
    const fl_op_order *order = &policy->fields.per_op[i];
    bool unknown = false;
    pthread_mutex_lock(&host->lock);
    for (uint32_t j = 0; j < order->n_tokens; j++)
      unknown |= is_unknown(host, order->op, order->tokens[j], &vendors);
    pthread_mutex_unlock(&host->lock);
    if (unknown)
      fl_load_deferred(host, order->op);
  }
  fl_policy_release(policy);
  fl_strings_free(&vendors);
}

/* The host's lock is held. */
static void warn_of_impl(const fl_op *op, const char *token, const char *origin, fl_text *lines) {
  char nearest[FL_NAME_MAX + 8];
  const char *id = fl_registry_nearest_impl(op, named_impl(token));
  snprintf(nearest, sizeof nearest, "impl:%s", id ? id : "");
  fl_text_add(lines, "%s: token '%s' for op '%s': no plugin has registered that implementation%s\n", origin, token,
              op->name, fl_suggest(id ? nearest : NULL).text);
}

/* What an order may name: all vendors, all ops. */
typedef struct known_names {
  fl_strings vendors, ops;
} known_names;

static void warn_of_token(const fl_host *host, const fl_op_order *order, const char *token, const char *origin,
                          const known_names *names, fl_text *lines) {
  const fl_op *op = fl_registry_known(host, order->op);
  if (!strcmp(token, "unfused") && op && !op->unfused)
    fl_text_add(lines, "%s: token 'unfused' for op '%s': the host cannot run it by parts\n", origin, order->op);
  if (!is_unknown(host, order->op, token, &names->vendors))
    return;
  if (named_impl(token)) {
    if (op) /* else that is said */
      warn_of_impl(op, token, origin, lines);
    return;
  }
  const char *vendor = token + strlen("vendor:");
  fl_text_add(lines, "%s: token '%s' for op '%s': no plugin has registered vendor '%s'%s\n", origin, token, order->op,
              vendor, fl_suggest_among(vendor, &names->vendors).text);
}

static void warn_of_order(fl_host *host, const fl_op_order *order, const known_names *names, fl_text *lines) {
  const char *from = fl_config_op_origin(host->config, order->op), *origin = from ? from : "op_backends";
  if (!fl_registry_known(host, order->op) && !fl_is_deferred(host, order->op))
    fl_text_add(lines, "%s: no op '%s' is registered%s\n", origin, order->op,
                fl_suggest_among(order->op, &names->ops).text);
  for (uint32_t i = 0; i < order->n_tokens; i++)
    warn_of_token(host, order, order->tokens[i], origin, names, lines);
}

/* T2, and its like for ops and implementations: what no plugin has registered may come later, so these are warnings. */
static void warn_of_unknown_names(fl_host *host) {
  known_names names = {0};
  fl_text lines = {0};
  load_for_tokens(host);
  pthread_mutex_lock(&host->lock);
  const fl_policy_fields *fields = &host->policy->fields;
  bool wanted = fields->n_per_op && host->config->check != FL_CHECK_OFF;
  if (wanted) {
    list_vendors(host, &names.vendors);
    fl_deferred_ops(host, &names.ops);
    for (uint32_t i = 0; i < host->n_ops; i++)
      fl_strings_add(&names.ops, host->ops[i]->name);
  }
  for (uint32_t i = 0; wanted && i < fields->n_per_op; i++)
    warn_of_order(host, &fields->per_op[i], &names, &lines);
  pthread_mutex_unlock(&host->lock);
  for (char *line = lines.text, *end; line && (end = strchr(line, '\n')); line = end + 1)
    fl_log_line(&host->log, FL_LOG_WARNING, "%.*s", (int)(end - line), line);
  fl_text_free(&lines);
  fl_strings_free(&names.vendors);
  fl_strings_free(&names.ops);
}

/* VLLM_FL_DISPATCH_DEBUG: the table of ops and implementations. */
static void log_registered(fl_host *host) {
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  if (!snapshot)
    return;
  fl_log_line(&host->log, FL_LOG_INFO, "VLLM-FL Dispatch: Registered Operators");
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    if (!fl_snapshot_impl_count(snapshot, i))
      continue;
    fl_log_line(&host->log, FL_LOG_INFO, "[Operator: %s]", fl_snapshot_op_name(snapshot, i));
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      const fl_impl_info *impl = fl_snapshot_impl(snapshot, i, j);
      fl_log_line(&host->log, FL_LOG_INFO, "  %s %s (kind=%s, priority=%d%s%s)",
                  impl->available ? "✓"
                  : impl->asked   ? "✗"
                                  : "-",
                  impl->impl_id, fl_kind_name(impl->kind), impl->priority, impl->vendor ? ", vendor=" : "",
                  impl->vendor ? impl->vendor : "");
    }
  }
  fl_snapshot_release(snapshot);
}

static void log_summary(fl_host *host) {
  uint32_t ops = 0, impls = 0;
  char deferred[64] = "";
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    ops += set && set->n;
    impls += set ? set->n : 0;
  }
  if (host->n_deferred)
    snprintf(deferred, sizeof deferred, "; plugins that wait until an op of theirs is looked for: %u",
             (unsigned)host->n_deferred);
  pthread_mutex_unlock(&host->lock);
  fl_log_line(&host->log, FL_LOG_INFO, "OpManager initialized: %u ops with %u implementations%s", ops, impls, deferred);
}

/* What rooms above the registry do for it. */
static const fl_host_hooks hooks = {
    .run_unbound = fl_run_unbound,
    .add_parts = fl_parts_add,
    .load_deferred = fl_load_deferred,
    .load_deferred_platform = fl_load_deferred_platform,
    .log = fl_hosts_log,
};

fl_status fl_host_create(const fl_host_options *given, fl_host **result) {
  fl_host_options options = {.size = sizeof options};
  if (given &&
      fl_sized_check(given, offsetof(fl_host_options, environment), "fl_host_create: the options'", "fl_host_options"))
    return FL_EINVAL;
  if (given)
    fl_sized_take(&options, sizeof options, given);
  fl_host *host = calloc(1, sizeof *host);
  if (!host)
    return fl_error_no_memory();
  host->hooks = &hooks;
  init_locks(host);
  fl_calls_start();
  fl_hosts_add(host);
  fl_status status = copy_options(host, &options);
  if (!status)
    status = fl_device_types_create(host);
  if (!status)
    status = fl_registry_init(host);
  if (!status && !(options.flags & FL_HOST_NO_PLUGINS))
    status = fl_discover_plugins(host, NULL);
  if (!status)
    status = fl_choose_platform(host);
  if (!status)
    status = load_settings(host);
  if (status) {
    fl_kept_error why;
    fl_error_keep(&why);
    fl_host_destroy(host);
    return fl_error_restore(&why);
  }
  host->sources.reload = true; /* what was said of the sources once is not said again */
  host->dispatch_debug = host->config->values[FL_SETTING_DISPATCH_DEBUG].flag;
  host->synchronous = host->config->values[FL_SETTING_SYNCHRONIZE].flag || options.flags & FL_HOST_SYNCHRONOUS;
  if ((status = fl_watch_create(host))) {
    fl_host_destroy(host);
    return fl_error_no_memory();
  }
  warn_of_unknown_names(host);
  log_summary(host);
  if (host->dispatch_debug)
    log_registered(host);
  *result = host;
  return FL_OK;
}

void fl_host_destroy(fl_host *host) {
  if (!host)
    return;
  fl_hosts_remove(host);
  fl_views_free(host);
  fl_registry_free(host);
  fl_device_types_free(host);
  fl_retired_free(&host->retired);
  fl_policy_release(host->policy);
  fl_watch_free(host);
  fl_config_free(host->config);
  for (uint32_t i = 0; i < host->n_plugins; i++)
    fl_plugin_record_clear(&host->plugins[i]);
  free(host->plugins);
  fl_platform_kinds_free(host);
  fl_strings_free(&host->oplist);
  fl_strings_free(&host->reasons);
  fl_strings_free(&host->frozen_by);
  fl_strings_free(&host->directories);
  fl_arena_free(&host->owned);
  free(host->platform);
  free(host->platform_origin);
  free(host->platform_plugin);
  pthread_mutex_destroy(&host->lock);
  pthread_mutex_destroy(&host->loading);
  pthread_mutex_destroy(&host->availability_lock);
  free(host);
}

/* ---------------------------------------------------------------------------------------------- settings in force */

fl_status fl_set_log_level(fl_host *host, const char *level) {
  static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR", NULL};
  int number = fl_log_level_from_name(level);
  if (!number) {
    const char *nearest = fl_nearest_word(level, names, SIZE_MAX);
    if (!nearest)
      nearest = fl_nearest_beginning(level, names, SIZE_MAX);
    return fl_error(FL_EINVAL, "log level '%s': expected DEBUG, INFO, WARNING or ERROR%s", level,
                    fl_suggest(nearest).text);
  }
  atomic_store(&host->log.level, number);
  return FL_OK;
}

fl_status fl_reset_global_policy(fl_host *host) {
  fl_status status = fl_refuse_frozen_unlocked(host, "resetting the global policy");
  if (!status)
    status = load_settings(host);
  if (!status)
    warn_of_unknown_names(host);
  fl_host_bound_memory(host);
  return status;
}

fl_status fl_get_settings(fl_host *host, fl_settings **result) {
  fl_arena *arena;
  fl_settings *list = fl_arena_create(sizeof *list, &arena);
  if (!list)
    return fl_error_no_memory();
  pthread_mutex_lock(&host->lock);
  const fl_config *config = host->config;
  fl_setting *items = fl_arena_array(arena, FL_N_SETTINGS, sizeof *items);
  for (uint32_t i = 0; items && i < FL_N_SETTINGS; i++) {
    const fl_setting_row *row = &fl_setting_table[i];
    fl_text json = {0};
    fl_config_add_json(config, (fl_setting_id)i, &json);
    items[i] = (fl_setting){
        .name = fl_setting_name(row),
        .variable = row->variable,
        .value = fl_arena_text(arena, &json),
        .origin = fl_arena_string(arena, fl_config_origin(config, (fl_setting_id)i)),
        .doc = row->doc,
    };
  }
  *list = (fl_settings){.size = sizeof *list, .n = FL_N_SETTINGS, .item_size = sizeof *items, .items = items};
  pthread_mutex_unlock(&host->lock);
  fl_status status = fl_arena_finish(list, sizeof *list);
  if (!status)
    *result = list;
  return status;
}

void fl_settings_free(fl_settings *settings) {
  fl_arena_destroy(settings, sizeof *settings);
}
