/* Creating and ending hosts: settings, plugins and platform are brought together here. */
#include "core/call.h"
#include "core/guard.h"
#include "core/host/hosts.h"
#include "core/host/in_force.h"
#include "core/host/platforms.h"
#include "core/host/unknown_names.h"
#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"
#include "core/threads.h"
#include "core/vllm.h"

#include <ctype.h>
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
  owned->failed |= !default_config_dir; /* nothing else stands in its way */
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

/* Of OpenMP's list, a number for each level of nesting, the first. */
static void set_threads(fl_host *host) {
  uint32_t wanted = host->config->values[FL_SETTING_CPU_THREADS].number;
  const char *list = fl_config_getenv(&host->sources, "OMP_NUM_THREADS");
  unsigned long number = list && isdigit((unsigned char)*list) ? strtoul(list, NULL, 10) : 0;
  host->n_threads = wanted < FL_THREADS_MAX ? wanted : FL_THREADS_MAX;
  host->n_openmp_threads = number < FL_THREADS_MAX ? (uint32_t)number : FL_THREADS_MAX;
}

/* What rooms above the registry do for it. */
static const fl_host_hooks hooks = {
    .run_unbound = fl_run_unbound,
    .parts = &fl_parts_impl,
    .host_fallback = &fl_host_fallback_impl,
    .load_deferred = fl_load_deferred,
    .load_deferred_platform = fl_load_deferred_platform,
    .let_in = fl_let_in,
    .log = fl_hosts_log,
    .setting = fl_settings_text,
    .parallel_for = fl_parallel_for,
};

/* All but the memory. */
static fl_status set_up(fl_host *host, const fl_host_options *options) {
  host->hooks = &hooks;
  init_locks(host);
  fl_calls_start();
  fl_hosts_add(host);
  fl_status status = copy_options(host, options);
  if (!status)
    status = fl_device_types_create(host);
  if (!status)
    status = fl_registry_init(host);
  if (!status)
    status = fl_settings_load_first(host);
  if (!status && !(options->flags & FL_HOST_NO_PLUGINS))
    status = fl_discover_plugins(host, NULL);
  if (!status)
    status = fl_choose_platform(host);
  if (!status)
    status = fl_settings_load(host);
  if (status)
    return status;
  host->sources.reload = true; /* what was said of the sources once is not said again */
  host->dispatch_debug = host->config->values[FL_SETTING_DISPATCH_DEBUG].flag;
  host->synchronous = host->config->values[FL_SETTING_SYNCHRONIZE].flag || options->flags & FL_HOST_SYNCHRONOUS;
  set_threads(host);
  host->statistics |= host->config->values[FL_SETTING_STATISTICS].flag;
  status = fl_watch_create(host);
  if (status)
    return status;
  fl_warn_of_unknown_names(host);
  log_summary(host);
  if (host->dispatch_debug)
    log_registered(host);
  return FL_OK;
}

/* One that is not handed out, also since a plugin threw or ended the thread. */
static void abandon(fl_host **host) {
  fl_kept_error why;
  fl_error_keep(&why);
  fl_host_destroy(*host);
  fl_error_restore(&why);
}

fl_status fl_host_create(const fl_host_options *given, fl_host **result) {
  fl_host_options options = {.size = sizeof options};
  if (given &&
      fl_sized_check(given, offsetof(fl_host_options, environment), "fl_host_create: the options'", "fl_host_options"))
    return FL_EINVAL;
  if (given)
    fl_sized_take(&options, sizeof options, given);
  __attribute__((cleanup(abandon))) fl_host *host = calloc(1, sizeof *host);
  fl_status status = host ? set_up(host, &options) : fl_error_no_memory();
  if (!status) {
    *result = host;
    host = NULL;
  }
  return status;
}

void fl_host_destroy(fl_host *host) {
  if (!host)
    return;
  if (fl_hosts_remove(host))
    fl_threads_end();
  fl_calls_end(host);
  fl_prepared_end(host);
  fl_workspaces_end(host);
  fl_views_free(host);
  fl_registry_free(host);
  fl_device_types_free(host);
  fl_retired_free(&host->retired);
  fl_policy_release(host->policy);
  fl_watch_free(host);
  fl_config_free(host->config);
  fl_config_free(host->first_config);
  for (uint32_t i = 0; i < host->n_plugins; i++)
    fl_plugin_record_clear(&host->plugins[i]);
  free(host->plugins);
  free(host->plugins_by_file);
  free(host->kinds);
  fl_strings_free(&host->oplist);
  fl_strings_free(&host->reasons);
  fl_strings_free(&host->class_paths);
  fl_strings_free(&host->frozen_by);
  fl_strings_free(&host->directories);
  fl_arena_free(&host->owned);
  pthread_mutex_destroy(&host->lock);
  pthread_mutex_destroy(&host->loading);
  pthread_mutex_destroy(&host->availability_lock);
  free(host);
}
