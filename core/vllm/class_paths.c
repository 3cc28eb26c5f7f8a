/* Classes of vLLM's that plugins bring, by their paths: which one is handed to the engine. */
#include "core/registry.h"
#include "core/support.h"

#include <flhost/vllm.h>
#include <string.h>

/* What FL_PLUGIN_VENDOR says of the plugin that brings it; NULL: nothing. The host's lock is held. */
static const char *token_of(const fl_host *host, const fl_component_record *component) {
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (host->plugins[i].status == FL_PLUGIN_LOADED && !strcmp(host->plugins[i].name, component->plugin))
      return host->plugins[i].token;
  return NULL;
}

/* A vendor that the policy in force keeps out, and the component with it; NULL: none. The host's lock is held. */
static const char *vendor_kept_out(const fl_host *host, const fl_policy *filter, const fl_component_record *component) {
  const char *token = filter ? token_of(host, component) : NULL;
  if (token)
    return fl_policy_vendor_allowed(filter, token) ? NULL : token;
  return filter ? fl_component_kept_out(host, filter, component) : NULL;
}

/* Why it is not the one. The host's lock is held. */
static void add_reason(fl_host *host, const fl_component_record *component, const char *vendor, fl_text *text) {
  bool scoped;
  fl_scope_policy(host, &scoped);
  fl_text_add(text, "\n  plugin '%s' brings '%s' for the platform '%s'", component->plugin, component->class_path,
              component->name);
  if (!vendor)
    return;
  fl_text_add(text, ", but ");
  fl_kept_out_reason(host, fl_vendor_filter(host), scoped, vendor, text);
}

/* FL_ENOENT, with who brings one even so in `others`. */
static fl_status nobody_brings_one(const fl_host *host, const char *type, const fl_text *others) {
  return others->failed ? fl_error_no_memory()
                        : fl_error(FL_ENOENT, "no plugin brings '%s' for the platform '%s'%s%s", type, host->platform,
                                   others->length ? ":" : "", fl_text_get(others));
}

/* The host's lock is held. */
static fl_status find(fl_host *host, const char *type, const char **path) {
  fl_text others = {0};
  fl_status status = FL_ENOENT;
  const fl_policy *filter = fl_vendor_filter(host);
  for (uint32_t i = 0; i < host->n_components && status; i++) {
    const fl_component_record *component = &host->components[i];
    if (strcmp(component->type, type) != 0)
      continue;
    bool is_for = !strcmp(component->name, host->platform);
    const char *vendor = is_for ? vendor_kept_out(host, filter, component) : NULL;
    if (!is_for || vendor) {
      add_reason(host, component, vendor, &others);
      continue;
    }
    *path = fl_strings_keep(&host->class_paths, component->class_path); /* the plugin may be withdrawn */
    status = *path ? FL_OK : fl_error_no_memory();
    break;
  }
  if (status == FL_ENOENT)
    status = nobody_brings_one(host, type, &others);
  fl_text_free(&others);
  return status;
}

static fl_status check_type(const char *type) {
  const char *const *names = fl_row_kind_names + FL_FIRST_CLASS_PATH;
  if (fl_is_class_path(type))
    return FL_OK;
  fl_text expected = {0};
  const char *word = type ? type : "";
  fl_text_add_choices(&expected, names, FL_N_CLASS_PATHS);
  fl_status status = fl_error(FL_EINVAL, "no plugin brings a class for '%s', expected %s%s", word,
                              fl_text_get(&expected), fl_suggest(fl_nearest_word(word, names, FL_N_CLASS_PATHS)).text);
  fl_text_free(&expected);
  return status;
}

fl_status fl_class_path(fl_host *host, const char *type, const char **path) {
  *path = NULL;
  fl_status status = check_type(type);
  if (status)
    return status;
  pthread_mutex_lock(&host->lock);
  status = find(host, type, path);
  pthread_mutex_unlock(&host->lock);
  return status;
}
