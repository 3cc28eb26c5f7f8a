/* Names in orders that nobody has registered: see unknown_names.h. */
#include "core/host/unknown_names.h"

#include "core/plugins.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"

#include <string.h>

/* Vendors that somebody has registered, or would if he were let in. The host's lock is held. */
static void list_vendors(const fl_host *host, fl_strings *vendors) {
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++)
      if (set->impls[j]->vendor && !fl_strings_has(vendors, set->impls[j]->vendor))
        fl_strings_add(vendors, set->impls[j]->vendor);
  }
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].kept_out && !fl_strings_has(vendors, host->plugins[i].token))
      fl_strings_add(vendors, host->plugins[i].token);
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

/* Does a token name what nobody has registered? What a plugin that is kept out would bring nobody knows. The host's
 * lock is held. */
static bool is_unknown(const fl_host *host, const char *op, const char *token, const fl_strings *vendors) {
  const char *impl_id = named_impl(token);
  return impl_id ? !has_impl(host, op, impl_id) && !fl_kept_out_lister(host, op)
                 : !strncmp(token, "vendor:", 7) && !fl_strings_has(vendors, token + 7);
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
  if (!strcmp(token, FL_TOKEN_PARTS) && op && !op->parts)
    fl_text_add(lines, "%s: token '" FL_TOKEN_PARTS "' for op '%s': it has no parts\n", origin, order->op);
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
  if (!fl_registry_known(host, order->op) && !fl_is_deferred(host, order->op) && !fl_kept_out_lister(host, order->op))
    fl_text_add(lines, "%s: no op '%s' is registered%s\n", origin, order->op,
                fl_suggest_among(order->op, &names->ops).text);
  for (uint32_t i = 0; i < order->n_tokens; i++)
    warn_of_token(host, order, order->tokens[i], origin, names, lines);
}

/* Bytes of warnings that somebody may read: to find what was meant takes time for each. */
enum { SAID_MAX = 4096 };

void fl_warn_of_unknown_names(fl_host *host) {
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
  uint32_t i = 0;
  for (; wanted && i < fields->n_per_op && lines.length < SAID_MAX; i++)
    warn_of_order(host, &fields->per_op[i], &names, &lines);
  if (wanted && i < fields->n_per_op)
    fl_text_add(&lines, "names in the orders of %u more ops were not looked at\n", fields->n_per_op - i);
  pthread_mutex_unlock(&host->lock);
  for (char *line = lines.text, *end; line && (end = strchr(line, '\n')); line = end + 1)
    fl_log_line(&host->log, FL_LOG_WARNING, "%.*s", (int)(end - line), line);
  fl_text_free(&lines);
  fl_strings_free(&names.vendors);
  fl_strings_free(&names.ops);
}
