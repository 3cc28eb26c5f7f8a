/*
 * vLLM's CustomOp rules: which ops custom_ops disables, so that they run their reference, and what overrides that; and
 * which may use kind default.
 */
#include "core/vllm/custom_ops.h"

#include "core/plugins.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"

#include <flhost/vllm.h>
#include <stdlib.h>
#include <string.h>

fl_status fl_op_enforce_enable(fl_op *op, bool enforce) {
  if (!op)
    return fl_error(FL_ENOENT, "fl_op_enforce_enable: the op is NULL: this host has no op of that name");
  pthread_mutex_lock(&op->host->lock);
  fl_status status = fl_refuse_frozen(op->host, "enforcing an op (fl_op_enforce_enable)");
  if (!status && op->enforced != enforce) {
    op->enforced = enforce;
    fl_unbind(op, NULL, NULL);
  }
  pthread_mutex_unlock(&op->host->lock);
  return status;
}

void fl_custom_op_counts(fl_host *host, uint32_t *enabled, uint32_t *disabled) {
  uint32_t counts[2] = {0};
  fl_load_deferred(host, NULL);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    if (set && set->n)
      counts[fl_custom_op_enabled(host->ops[i])]++;
  }
  pthread_mutex_unlock(&host->lock);
  *enabled = counts[true];
  *disabled = counts[false];
}

bool fl_is_flagos_allowed(fl_host *host, const char *op) {
  pthread_mutex_lock(&host->lock);
  bool allowed = fl_config_flagos_allowed(host->config, op, NULL, 0);
  pthread_mutex_unlock(&host->lock);
  return allowed;
}

/* ------------------------------------------------------------------------------------------------- dispatch names */

enum { ONE_API = 14 }; /* kDLOneAPI, newer than the DLPack header of Debian 12 */

int32_t fl_dispatch_device(const char *name) {
  static const char *const names[] = {"cuda", "hip", "xpu", "cpu", "tpu", "oot", "native"};
  static const int32_t devices[] = {kDLCUDA, kDLROCM, ONE_API, kDLCPU, kDLExtDev, kDLExtDev, 0};
  enum { N = sizeof names / sizeof *names };
  for (size_t i = 0; i < N; i++)
    if (!strcmp(name, names[i]))
      return devices[i];
  fl_error(FL_EINVAL, "'%s' is no name of dispatch, expected cuda, hip, xpu, cpu, tpu, oot or native%s", name,
           fl_suggest(fl_nearest_word(name, names, N)).text);
  return -1;
}

/* ------------------------------------------------------------------------------------------------------- the list */

/* +op or -op */
static void check_directive(fl_problems *problems, const char *origin, const char *directive, const fl_strings *ops) {
  const char *name = directive + 1;
  if (!fl_strings_has(ops, name))
    fl_problem(problems, (fl_place){.source = origin}, "custom_ops: '%s' has no effect: no op '%s' is registered%s",
               directive, name, fl_suggest_among(name, ops).text);
}

/* Ops may be missing that a plugin would have brought, and the engine may bring some. */
static bool is_complete(const fl_host *host) {
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_FAILED)
      return false;
  return !host->without_plugins;
}

fl_status fl_custom_ops_check(fl_host *host, const fl_config *config) {
  const fl_setting_value *list = &config->values[FL_SETTING_CUSTOM_OPS];
  fl_problems problems = {.check = config->check, .log = &host->log};
  fl_strings ops = {0};
  if (!list->set)
    return FL_OK;
  pthread_mutex_lock(&host->lock);
  problems.no_memory = !fl_deferred_ops(host, &ops);
  for (uint32_t i = 0; i < host->n_ops; i++)
    if (!fl_strings_add(&ops, host->ops[i]->name))
      problems.no_memory = true;
  if (problems.check == FL_CHECK_ERROR && !is_complete(host))
    problems.check = FL_CHECK_WARN;
  pthread_mutex_unlock(&host->lock);
  for (const char *sign = "+-"; *sign; sign++)
    for (uint32_t i = 0; i < list->names.n; i++)
      if (*list->names.items[i] == *sign)
        check_directive(&problems, list->origin, list->names.items[i], &ops);
  fl_strings_free(&ops);
  return fl_problems_finish(&problems);
}
