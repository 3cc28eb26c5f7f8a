/* The policy in force in a thread: see in_force.h. */
#include "core/registry/in_force.h"

#include "core/schema.h"

#include <string.h>

const fl_scope *fl_scope_innermost(const fl_host *host) {
  const fl_scope *scope = fl_self.scope;
  while (scope && scope->host != host)
    scope = scope->outer;
  return scope;
}

/* In the innermost scope with such a group; `name` 0: with any. */
static const fl_ranks *ranks_in_scope(const fl_host *host, uint64_t name) {
  for (const fl_scope *scope = fl_self.scope; scope; scope = scope->outer)
    if (scope->host == host && scope->reserved[FL_SCOPE_GROUP] &&
        (!name || scope->reserved[FL_SCOPE_GROUP_NAME] == name))
      return (const fl_ranks *)(uintptr_t)scope->reserved[FL_SCOPE_GROUP];
  return NULL;
}

const fl_ranks *fl_scope_find_ranks(const fl_op *op) {
  const fl_ranks_plan *plan = op->schema->over_ranks;
  const fl_ranks *found = plan->n_groups ? NULL : ranks_in_scope(op->host, 0);
  for (uint32_t i = 0; i < plan->n_groups && !found; i++)
    found = ranks_in_scope(op->host, plan->groups[i]);
  return found ? found : ranks_in_scope(op->host, fl_ranks_group_of("world"));
}

const fl_call *fl_call_with_ranks(const fl_op *op, const fl_call *call, fl_call *shared) {
  const fl_ranks *group = fl_scope_ranks(op);
  if (!group || !call || call->size < offsetof(fl_call, stream))
    return call;
  fl_sized_take(shared, sizeof *shared, call);
  shared->group = group;
  return shared;
}

fl_policy *fl_scope_policy(fl_host *host, bool *scoped) {
  const fl_scope *scope = fl_scope_innermost(host);
  *scoped = scope != NULL;
  return scope ? scope->policy : host->policy;
}

static const fl_config *config_of(const fl_host *host) {
  return host->config ? host->config : host->first_config;
}

fl_policy *fl_vendor_filter(fl_host *host) {
  bool scoped;
  const fl_config *config = config_of(host);
  if (!config || !config->values[FL_SETTING_PREFER_ENABLED].flag)
    return NULL;
  fl_policy *policy = config == host->config ? fl_scope_policy(host, &scoped) : config->policy;
  return fl_filters_vendors(policy) ? policy : NULL;
}

bool fl_vendor_is_kept_out(const fl_host *host, const char *vendor, fl_text *reason) {
  const fl_config *config = config_of(host);
  const fl_scope *scope = fl_scope_innermost(host);
  if (!config || !config->values[FL_SETTING_PREFER_ENABLED].flag)
    return false;
  const fl_policy *policy = config == host->config ? host->policy : config->policy;
  if (fl_policy_vendor_allowed(policy, vendor) || (scope && fl_policy_vendor_allowed(scope->policy, vendor)))
    return false;
  fl_kept_out_reason(host, policy, false, vendor, reason);
  return true;
}

fl_policy *fl_vendor_filter_take(fl_host *host, uint32_t *generation) {
  pthread_mutex_lock(&host->lock);
  *generation = host->registry_generation;
  fl_policy *filter = fl_policy_retain(fl_vendor_filter(host));
  pthread_mutex_unlock(&host->lock);
  return filter;
}

const char *fl_component_kept_out(const fl_host *host, const fl_policy *filter, const fl_component_record *component) {
  const char *vendor = NULL;
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_relaxed);
    for (uint32_t j = 0; set && j < set->n; j++) {
      const fl_impl_record *impl = set->impls[j];
      if (impl->kind != FL_KIND_VENDOR || strcmp(impl->provider->plugin, component->plugin) != 0)
        continue;
      if (!fl_keeps_out(filter, impl))
        return NULL;
      vendor = impl->vendor;
    }
  }
  return vendor ? vendor : fl_policy_vendor_allowed(filter, component->name) ? NULL : component->name;
}

void fl_kept_out_reason(const fl_host *host, const fl_policy *filter, bool scoped, const char *vendor,
                        fl_text *reason) {
  const fl_policy_fields *fields = &filter->fields;
  bool denied = false;
  for (uint32_t i = 0; i < fields->n_deny_vendors; i++)
    denied |= !strcmp(fields->deny_vendors[i], vendor);
  fl_setting_id setting = denied ? FL_SETTING_DENY_VENDORS : FL_SETTING_ALLOW_VENDORS;
  fl_text_add(reason, "vendor '%s' is %s (%s: %s)", vendor, denied ? "denied" : "not allowed",
              denied ? "deny_vendors" : "allow_vendors", fl_policy_origin(host, setting, scoped));
}

const char *fl_policy_origin(const fl_host *host, fl_setting_id setting, bool scoped) {
  if (scoped)
    return "the thread's scope";
  const fl_config *config = config_of(host);
  return host->policy_is_set || !config ? "fl_set_global_policy" : fl_config_origin(config, setting);
}
