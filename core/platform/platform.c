/*
 * The hardware platform: see platform.h. Device nodes say cheaply that there is nothing to ask; the bus and the driver
 * are looked at apart, so that a device without driver is told from no device at all (H1).
 */
#include "core/platform/platform.h"
#include "core/support.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *fl_platform_node(const fl_platform_kind *kind) {
  for (const char *const *node = kind->nodes; *node; node++)
    if (!access(*node, F_OK))
      return *node;
  return NULL;
}

bool fl_component_is_platform(const fl_component_record *component) {
  return !strcmp(component->type, "platform");
}

const fl_component_record *fl_component_of_platform(const char *name, const fl_component_record *components,
                                                    uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (fl_component_is_platform(&components[i]) && !strcmp(components[i].name, name))
      return &components[i];
  return NULL;
}

const char *fl_platform_not_asked(fl_host *host, const fl_component_record *component, fl_arena *arena) {
  bool scoped;
  fl_text reason = {0};
  const fl_policy *filter = fl_vendor_filter(host);
  const char *vendor =
      filter && fl_component_is_platform(component) ? fl_component_kept_out(host, filter, component) : NULL;
  if (!vendor)
    return NULL;
  fl_scope_policy(host, &scoped);
  fl_kept_out_reason(host, filter, scoped, vendor, &reason);
  return fl_arena_text(arena, &reason);
}

fl_component_record fl_platform_of_file(fl_host *host, const char *plugin, const char *name, fl_arena *arena) {
  fl_component_record component = {.plugin = (char *)plugin, .type = (char *)"platform", .name = (char *)name};
  component.not_asked = fl_platform_not_asked(host, &component, arena);
  return component;
}

fl_component_record *fl_platforms_take(fl_host *host, fl_arena *arena, uint32_t *n) {
  pthread_mutex_lock(&host->lock);
  *n = host->n_components;
  fl_component_record *list = fl_arena_array(arena, (size_t)*n + host->n_plugins, sizeof *list);
  for (uint32_t i = 0; list && i < *n; i++) {
    list[i] = host->components[i];
    list[i].not_asked = fl_platform_not_asked(host, &list[i], arena);
  }
  for (uint32_t i = 0; list && i < host->n_plugins; i++) {
    const fl_plugin_record *plugin = &host->plugins[i];
    if (plugin->status == FL_PLUGIN_DEFERRED && plugin->platform) {
      list[*n] = fl_platform_of_file(host, plugin->name, plugin->platform, arena);
      *n += list[*n].not_asked != NULL;
    } else if (plugin->kept_out && plugin->platform) {
      list[*n] = (fl_component_record){.plugin = plugin->name, .type = "platform", .name = plugin->platform};
      list[(*n)++].not_asked = fl_arena_string(arena, plugin->denied);
    }
  }
  pthread_mutex_unlock(&host->lock);
  return arena->failed ? NULL : list;
}

static void unlock(pthread_mutex_t *const *lock) {
  if (*lock)
    pthread_mutex_unlock(*lock);
}

bool fl_component_is_active(const fl_component_record *component, fl_said *said) {
  if (component->not_asked) {
    said->text = component->not_asked;
    return false;
  }
  /* Also when it throws. */
  __attribute__((cleanup(unlock))) pthread_mutex_t *lock = component->asking;
  if (lock)
    pthread_mutex_lock(lock);
  return component->platform.is_active(component->self, fl_said_room(said));
}

/* ------------------------------------------------------------------------------------------------------ forced, H2 */

static bool add_name(fl_strings *names, const char *name) {
  return fl_strings_has(names, name) || fl_strings_add(names, name);
}

/* Those that have a platform file: NAME.yaml. */
static bool list_files(const char *config_dir, fl_strings *names) {
  enum { SUFFIX = 5 };
  char *pattern = fl_format("%s/*.yaml", config_dir);
  bool done = pattern != NULL;
  glob_t found;
  if (done && !glob(pattern, 0, NULL, &found)) {
    for (size_t i = 0; i < found.gl_pathc && done; i++) {
      const char *name = strrchr(found.gl_pathv[i], '/') + 1;
      char *word = strndup(name, strlen(name) - SUFFIX);
      done = word && add_name(names, word);
      free(word);
    }
    globfree(&found);
  }
  free(pattern);
  return done;
}

/* Every name that may be forced. */
static bool list_names(const fl_platform_kind *kinds, const char *config_dir, const fl_component_record *components,
                       uint32_t n, fl_strings *names) {
  bool done = fl_platform_kind_words(kinds, names);
  for (uint32_t i = 0; i < n && done; i++)
    done = !fl_component_is_platform(&components[i]) || add_name(names, components[i].name);
  return done && (!config_dir || list_files(config_dir, names)) && fl_strings_add(names, "auto");
}

static fl_status unknown_platform(const char *forced, const fl_strings *names) {
  fl_text list = {0};
  for (uint32_t i = 0; i < names->n; i++)
    fl_text_add(&list, "%s%s", i ? ", " : "", names->items[i]);
  fl_status status = list.failed ? fl_error_no_memory()
                                 : fl_error(FL_ECONFIG, "unknown platform '%s', expected one of %s%s", forced,
                                            fl_text_get(&list), fl_platform_suggest(forced, names).text);
  fl_text_free(&list);
  return status;
}

/* A plugin's platform of that name goes before what is merely known of it. */
static fl_status activate_forced(const fl_platform_kind *kinds, const char *config_dir, const char *forced,
                                 const fl_component_record *components, uint32_t n, const char **name,
                                 const char **plugin) {
  fl_strings names = {0};
  const fl_platform_kind *kind = fl_platform_kind_named(kinds, forced);
  const fl_component_record *component = fl_component_of_platform(kind ? kind->name : forced, components, n);
  *name = component ? component->name : kind ? kind->name : NULL;
  *plugin = component ? component->plugin : NULL;
  if (*name)
    return FL_OK;
  fl_status status = list_names(kinds, config_dir, components, n, &names) ? FL_OK : fl_error_no_memory();
  if (!status && fl_strings_has(&names, forced))
    *name = forced;
  else if (!status)
    status = unknown_platform(forced, &names);
  fl_strings_free(&names);
  return status;
}

/* ---------------------------------------------------------------------------------------------------- detected, H2 */

/* Of a vendor that is kept out, so that its code is not asked: is there a device of it? */
static bool has_node(const fl_platform_kind *kinds, const fl_component_record *component) {
  const fl_platform_kind *kind = component->not_asked ? fl_platform_kind_named(kinds, component->name) : NULL;
  return kind && fl_platform_node(kind);
}

/* H2. Who says to be active goes before who may not be asked. *active NULL: no plugin's platform is active. */
static fl_status find_active_component(const fl_platform_kind *kinds, const fl_component_record *components, uint32_t n,
                                       const fl_component_record **active) {
  *active = NULL;
  for (uint32_t i = 0; i < n; i++) {
    fl_said said;
    if (!fl_component_is_platform(&components[i]) || !fl_component_is_active(&components[i], &said))
      continue;
    if (*active)
      return fl_error(FL_EINVAL,
                      "two platforms claim to be active: '%s' of plugin '%s' and '%s' of plugin '%s'; choose one with "
                      "VLLM_FL_PLATFORM, or remove one of the plugins",
                      (*active)->name, (*active)->plugin, components[i].name, components[i].plugin);
    *active = &components[i];
  }
  for (uint32_t i = 0; i < n && !*active; i++)
    *active = has_node(kinds, &components[i]) ? &components[i] : NULL;
  return FL_OK;
}

fl_status fl_platform_activate(const fl_platform_kind *kinds, const char *config_dir, const char *forced,
                               const fl_component_record *components, uint32_t n, const char **name,
                               const char **plugin) {
  const fl_component_record *active;
  if (forced)
    return activate_forced(kinds, config_dir, forced, components, n, name, plugin);
  fl_status status = find_active_component(kinds, components, n, &active);
  if (status)
    return status;
  *name = active ? active->name : kinds->name;
  *plugin = active ? active->plugin : NULL;
  return FL_OK;
}
