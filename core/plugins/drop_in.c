/* Drop-ins: see drop_in.h. */
#include "core/plugins/drop_in.h"
#include "core/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef enum key { NAME, LIBRARY, SYMBOL, CRITICAL, ENABLED, N_KEYS } key;
static const char *const key_names[N_KEYS] = {"name", "library", "symbol", "critical", "enabled"};

typedef struct manifest {
  const char *path;
  fl_found *found;
  fl_yaml *yaml;
  const fl_yaml_node *values[N_KEYS];
} manifest;

/* The first problem is kept; `at` may be NULL: the file is empty. False: out of memory. */
static bool problem(manifest *m, const fl_yaml_node *at, const char *format, ...) FL_PRINTF(3, 4);
static bool problem(manifest *m, const fl_yaml_node *at, const char *format, ...) {
  char text[1024];
  fl_place place = at ? fl_yaml_place(m->yaml, at) : (fl_place){m->path, 1, 1};
  va_list arguments;
  if (m->found->problem)
    return true;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  m->found->problem = fl_format("%s:%u:%u: %s", m->path, place.line, place.column, text);
  return m->found->problem != NULL;
}

static bool is_scalar(const fl_yaml_node *node) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  return kind != FL_YAML_LIST && kind != FL_YAML_MAP;
}

static bool take_string(manifest *m, key which, char **string) {
  const fl_yaml_node *node = m->values[which];
  if (!node)
    return true;
  if (!is_scalar(node) || !*fl_yaml_text(node))
    return problem(m, node, "'%s': expected a non-empty string", key_names[which]);
  *string = fl_strdup(fl_yaml_text(node));
  return *string != NULL;
}

static bool take_bool(manifest *m, key which, bool *value) {
  const fl_yaml_node *node = m->values[which];
  if (!node)
    return true;
  if (!is_scalar(node))
    return problem(m, node, "'%s': found a list or mapping, expected true or false", key_names[which]);
  if (fl_yaml_kind_of(node) != FL_YAML_BOOL)
    return problem(m, node, "'%s': found '%s', expected true or false", key_names[which], fl_yaml_text(node));
  *value = fl_yaml_truth(node);
  return true;
}

static bool take_key(manifest *m, const fl_yaml_node *name, const fl_yaml_node *value) {
  int which = 0;
  if (!is_scalar(name))
    return problem(m, name, "a key must be a word");
  while (which < N_KEYS && strcmp(fl_yaml_text(name), key_names[which]))
    which++;
  if (which == N_KEYS)
    return problem(m, name, "unknown key '%s', expected name, library, symbol, critical or enabled%s",
                   fl_yaml_text(name), fl_suggest(fl_nearest_word(fl_yaml_text(name), key_names, N_KEYS)).text);
  if (m->values[which])
    return problem(m, name, "'%s' stands twice", key_names[which]);
  m->values[which] = value;
  return true;
}

static bool take_library(manifest *m) {
  char *library = NULL;
  if (!m->values[LIBRARY])
    return problem(m, fl_yaml_root(m->yaml), "'library' is missing: the path of the plugin, relative to this file");
  if (!take_string(m, LIBRARY, &library))
    return false;
  if (!library) /* a problem by now */
    return true;
  const char *slash = strrchr(m->path, '/');
  m->found->path =
      *library == '/' || !slash ? fl_strdup(library) : fl_format("%.*s/%s", (int)(slash - m->path), m->path, library);
  free(library);
  return m->found->path != NULL;
}

/* The message of a failed step is the problem, unless there is one. */
static bool take_failure(manifest *m, fl_status status) {
  if (status && status != FL_ENOMEM && !m->found->problem)
    m->found->problem = fl_strdup(fl_error_message());
  return !status || m->found->problem;
}

static bool take_document(manifest *m) {
  const fl_yaml_node *root = fl_yaml_root(m->yaml);
  bool enabled = true, done = true;
  if (!root || fl_yaml_kind_of(root) != FL_YAML_MAP)
    return problem(m, root, "expected a mapping: 'library: acme.so' and other keys");
  /* All are read, also after a problem: a critical plugin's broken manifest is critical too. */
  for (uint32_t i = 0; done && i < fl_yaml_count(root); i++)
    done = take_key(m, fl_yaml_key(m->yaml, root, i), fl_yaml_value(m->yaml, root, i));
  done = done && take_bool(m, CRITICAL, &m->found->critical) && take_bool(m, ENABLED, &enabled) &&
         take_string(m, NAME, &m->found->name) && take_string(m, SYMBOL, &m->found->symbol) && take_library(m);
  m->found->disabled = !enabled;
  return done && take_failure(m, fl_yaml_check(m->yaml));
}

/* A manifest decides which library is loaded, so it must be as trustworthy as that. */
fl_status fl_manifest_read(const char *path, fl_found *found) {
  manifest m = {.path = path, .found = found};
  *found = (fl_found){.route = "manifest"};
  fl_status status = fl_file_trusted(path);
  status = status ? fl_error(status, "%s: %s", path, fl_error_message()) : fl_yaml_parse(path, &m.yaml);
  bool done = take_failure(&m, status) && (status || take_document(&m));
  fl_yaml_free(m.yaml);
  if (done && !found->path) /* what there is to name */
    done = (found->path = fl_strdup(path)) != NULL;
  if (done)
    return FL_OK;
  fl_found_clear(found);
  return fl_error_no_memory();
}

/* The directory, of those in `directories`, whose file of that name counts: the last one that has it. */
static const char *last_with(const fl_strings *directories, const fl_strings *listings, const char *name) {
  for (uint32_t i = directories->n; i-- > 0;)
    if (fl_strings_has(&listings[i], name))
      return directories->items[i];
  return NULL;
}

fl_status fl_manifests_find(const fl_strings *directories, fl_found_list *found) {
  fl_strings *listings = calloc(directories->n + 1, sizeof *listings), names = {0};
  fl_status status = listings ? FL_OK : fl_error_no_memory();
  for (uint32_t i = 0; i < directories->n && !status; i++) {
    if (!fl_list_directory(directories->items[i], ".yaml", &listings[i]) && errno == ENOMEM)
      status = fl_error_no_memory();
    for (uint32_t j = 0; j < listings[i].n && !status; j++)
      if (!fl_strings_add(&names, listings[i].items[j]))
        status = fl_error_no_memory();
  }
  fl_strings_sort_unique(&names);
  for (uint32_t i = 0; i < names.n && !status; i++) {
    char *path = fl_format("%s/%s", last_with(directories, listings, names.items[i]), names.items[i]);
    fl_found *item = path ? fl_found_list_add(found) : NULL;
    status = item ? fl_manifest_read(path, item) : fl_error_no_memory();
    free(path);
  }
  for (uint32_t i = 0; listings && i < directories->n; i++)
    fl_strings_free(&listings[i]);
  free(listings);
  fl_strings_free(&names);
  return status;
}
