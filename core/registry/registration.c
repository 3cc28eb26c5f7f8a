/*
 * The functions that a plugin is handed, and what becomes of what it registers with them. Rows are judged and staged
 * (staged_ops.h, staged_components.h), then published as a whole (publish.h).
 */
#include "core/registry/registration.h"

#include "core/registry/frozen.h"
#include "core/registry/implementations.h"
#include "core/registry/publish.h"
#include "core/registry/registry.h"
#include "core/registry/staged_components.h"
#include "core/registry/staged_ops.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* How many refused rows are named; and how much is kept of what a plugin tells. */
enum { ROWS_NAMED = 8, TOLD_MAX = 4096 };

/* What a plugin is handed. One that keeps the pointer hears that it is too late, for as long as the host is there. */
typedef struct fl_registrar {
  fl_registry table; /* first: the plugin's pointer leads back here */
  struct fl_registrar *next;
  fl_host *host;
  const fl_provider *provider;
  fl_stage *stage; /* NULL: register_builtins has returned */
} fl_registrar;

/* ------------------------------------------------------------------------------------------------------------- rows */

/* What became of a row. */
static fl_status judged(fl_stage *stage, fl_status status, const fl_row_name *row) {
  fl_kept_error why; /* the engine's log function may call this library */
  if (!status)
    return FL_OK;
  stage->no_memory |= status == FL_ENOMEM;
  if (stage->n_refused++ >= ROWS_NAMED)
    return status;
  fl_error_keep(&why);
  fl_text_add(&stage->refused, "%s%s: %s", stage->refused.length ? "\n" : "", row->text, why.message);
  fl_log_line(&stage->host->log, FL_LOG_WARNING, "plugin %s: refused %s: %s", stage->plugin, row->text, why.message);
  return fl_error_restore(&why);
}

/* All that were refused, in words; said once, when no more come. */
static const char *refused_rows(fl_stage *stage) {
  if (stage->n_refused > ROWS_NAMED) {
    unsigned more = stage->n_refused - ROWS_NAMED;
    fl_text_add(&stage->refused, "\n… and %u more", more);
    fl_log_line(&stage->host->log, FL_LOG_WARNING, "plugin %s: refused %u more rows", stage->plugin, more);
  }
  return fl_text_get(&stage->refused);
}

/* NULL, with words, when the plugin comes too late. */
static fl_stage *stage_of(fl_registry *registry, const char *function) {
  const fl_registrar *registrar = (fl_registrar *)registry;
  if (!registrar->stage)
    fl_error(FL_ESTATE, "plugin '%s' called %s after its register_builtins had returned: rows are taken only meanwhile",
             registrar->provider->plugin, function);
  return registrar->stage;
}

static fl_status register_op(fl_registry *registry, const fl_op_def *op) {
  fl_stage *stage = stage_of(registry, "register_op");
  fl_row_name row = {"op"};
  return stage ? judged(stage, fl_stage_op(stage, op, &row), &row) : FL_ESTATE;
}

static fl_status register_impl(fl_registry *registry, const fl_impl *impl) {
  fl_stage *stage = stage_of(registry, "register_impl");
  fl_row_name row = {"impl"};
  return stage ? judged(stage, fl_stage_impl(stage, impl, &row), &row) : FL_ESTATE;
}

static fl_status register_component(fl_registry *registry, const fl_component *component) {
  fl_stage *stage = stage_of(registry, "register_component");
  fl_row_name row = {"component"};
  return stage ? judged(stage, fl_stage_component(stage, component, &row), &row) : FL_ESTATE;
}

static fl_status setting_of_host(fl_registry *registry, const char *name, char *value, size_t size) {
  fl_stage *stage = stage_of(registry, "setting");
  fl_host *host = ((fl_registrar *)registry)->host;
  return stage ? host->hooks->setting(host, name, value, size) : FL_ESTATE;
}

static void log_of_plugin(fl_registry *registry, int level, const char *message) {
  const fl_registrar *registrar = (fl_registrar *)registry;
  fl_log_of_plugin(&registrar->host->log, level, registrar->provider->plugin, message);
}

/* Too late to be the reason of anything it is logged. */
static void error_of_plugin(fl_registry *registry, const char *message) {
  fl_stage *stage = ((fl_registrar *)registry)->stage;
  if (!stage)
    log_of_plugin(registry, FL_LOG_WARNING, message);
  else if (stage->told.length < TOLD_MAX)
    fl_text_add(&stage->told, "%s%.*s", stage->told.length ? "; " : "", TOLD_MAX, message ? message : "");
}

/* ----------------------------------------------------------------------------------------------------------- stages */

/* One that nobody stages with, or a new one. The host's lock is held. */
static fl_registrar *take_registrar(fl_host *host, const char *plugin, const char *build_id) {
  const fl_provider *provider = fl_registry_provider(host, plugin, build_id);
  fl_registrar *registrar = host->registrars;
  while (registrar && (registrar->stage || registrar->provider != provider))
    registrar = registrar->next;
  if (registrar || !provider || !(registrar = calloc(1, sizeof *registrar)))
    return registrar;
  registrar->table = (fl_registry){
      .size = sizeof registrar->table,
      .abi_major = FL_ABI_MAJOR,
      .abi_minor = FL_ABI_MINOR,
      .host = host,
      .register_op = register_op,
      .register_impl = register_impl,
      .register_component = register_component,
      .error = error_of_plugin,
      .log = log_of_plugin,
      .logger = {.log = host->hooks->log, .host = host->number, .plugin = provider},
      .parallel_for = host->hooks->parallel_for,
      .setting = setting_of_host,
  };
  registrar->host = host;
  registrar->provider = provider;
  registrar->next = host->registrars;
  return host->registrars = registrar;
}

void fl_registrars_free(fl_host *host) {
  while (host->registrars) {
    fl_registrar *next = host->registrars->next;
    free(host->registrars);
    host->registrars = next;
  }
}

fl_stage *fl_stage_begin(fl_host *host, const char *plugin, const char *build_id, uint32_t flags) {
  fl_stage *stage = calloc(1, sizeof *stage);
  if (!stage)
    return NULL;
  pthread_mutex_lock(&host->lock);
  fl_registrar *registrar = take_registrar(host, plugin, build_id);
  if (registrar)
    registrar->stage = stage;
  pthread_mutex_unlock(&host->lock);
  if (!registrar) {
    free(stage);
    return NULL;
  }
  stage->host = host;
  stage->registrar = registrar;
  stage->provider = registrar->provider;
  stage->plugin = registrar->provider->plugin;
  stage->flags = flags;
  return stage;
}

void fl_stage_limit(fl_stage *stage, const char *ops, const char *platform, const char *communicators) {
  stage->ops = ops;
  stage->platform = platform;
  stage->communicators = communicators;
}

void fl_stage_limit_vendor(fl_stage *stage, const char *vendor) {
  stage->vendor = vendor;
}

fl_registry *fl_stage_table(fl_stage *stage) {
  return &stage->registrar->table;
}

/* What the plugin was handed refuses rows from now on. The host's lock is held. */
static void close_registrar(fl_stage *stage) {
  stage->registrar->stage = NULL;
}

static void stage_free(fl_stage *stage) {
  fl_staged_ops_free(stage);
  fl_stage_drop_components(stage, 0);
  free(stage->components);
  fl_text_free(&stage->refused);
  fl_text_free(&stage->told);
  free(stage);
}

void fl_stage_abort(fl_stage *stage, fl_text *reason) {
  if (reason && stage->told.length)
    fl_text_add(reason, "%s", fl_text_get(&stage->told));
  else if (reason && stage->n_refused)
    fl_text_add(reason, "refused rows:\n%s", refused_rows(stage));
  pthread_mutex_lock(&stage->host->lock);
  close_registrar(stage);
  pthread_mutex_unlock(&stage->host->lock);
  stage_free(stage);
}

static const char registered_nothing[] = "it registered nothing: no implementation, no component, no op that is new";

/* What is wrong with a stage that is published even so; logged, too. */
static void remark(fl_stage *stage, bool nothing, fl_text *text) {
  fl_log *log = &stage->host->log;
  if (stage->told.length)
    fl_log_line(log, FL_LOG_WARNING, "plugin %s: it gave an error, but returned FL_OK: %s", stage->plugin,
                fl_text_get(&stage->told));
  if (nothing) {
    fl_log_line(log, FL_LOG_WARNING, "plugin %s: %s", stage->plugin, registered_nothing);
    fl_text_add(text, "%s", registered_nothing);
  } else if (stage->n_refused) {
    fl_text_add(text, "refused rows:\n%s", refused_rows(stage));
  }
}

fl_status fl_stage_commit(fl_stage *stage, fl_committed *committed) {
  fl_host *host = stage->host;
  fl_committed made = {.impls = stage->n_impls};
  bool nothing = !stage->n_new_ops && !stage->n_impls && !stage->n_components && !stage->n_refused;
  fl_status status = FL_OK;
  if (stage->no_memory)
    status = fl_error(FL_ENOMEM, "out of memory, so nothing of it is registered");
  else if (stage->n_refused && !(stage->flags & FL_PLUGIN_SKIP_REFUSED))
    status = fl_error(FL_EPLUGIN, "refused rows, so nothing of it is registered:\n%s", refused_rows(stage));
  pthread_mutex_lock(&host->lock);
  if (!status)
    status = fl_refuse_frozen(host, "registering");
  if (!status)
    status = fl_stage_publish(stage);
  close_registrar(stage);
  pthread_mutex_unlock(&host->lock);
  if (!status)
    remark(stage, nothing, &made.remark);
  if (!status && committed)
    *committed = made;
  else
    fl_text_free(&made.remark);
  stage_free(stage);
  return status;
}

/* ----------------------------------------------------------------------------------------------------- the engine */

/* A deferred plugin that was found before comes first, as if it had been loaded then. `op` begins with an op's name. */
static void load_listers(fl_host *host, const char *op) {
  char name[FL_NAME_MAX + 1];
  if (!op || !atomic_load(&host->n_deferred))
    return;
  fl_name_of_schema(op, name);
  host->hooks->load_deferred(host, name);
}

/* The one row that was handed in. */
static fl_status commit_row(fl_stage *stage, fl_status status) {
  if (!status)
    return fl_stage_commit(stage, NULL);
  fl_stage_abort(stage, NULL);
  return status;
}

fl_status fl_register_op(fl_host *host, const fl_op_def *op) {
  if (op && op->size >= offsetof(fl_op_def, schema) + sizeof op->schema)
    load_listers(host, op->schema);
  fl_stage *stage = fl_stage_begin(host, "engine", "engine", 0);
  return stage ? commit_row(stage, register_op(fl_stage_table(stage), op)) : fl_error_no_memory();
}

fl_status fl_register_impl(fl_host *host, const fl_impl *impl) {
  if (impl && impl->size >= offsetof(fl_impl, op_name) + sizeof impl->op_name)
    load_listers(host, impl->op_name);
  fl_stage *stage = fl_stage_begin(host, "engine", "engine", 0);
  return stage ? commit_row(stage, register_impl(fl_stage_table(stage), impl)) : fl_error_no_memory();
}
