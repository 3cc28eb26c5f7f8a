/* Drop-ins: see drop_in.h. */
#include "core/plugins/drop_in.h"
#include "core/support.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

typedef enum key { NAME, LIBRARY, SYMBOL, CRITICAL, ENABLED, N_KEYS } key;
static const char *const key_names[N_KEYS] = {"name", "library", "symbol", "critical", "enabled"};

typedef struct manifest {
  const char *path;
  fl_arena *owned;
  fl_found found;
  fl_yaml *yaml;
  const fl_yaml_node *values[N_KEYS];
} manifest;

/* The first problem is kept; `at` may be NULL: the file is empty. */
static void problem(manifest *m, const fl_yaml_node *at, const char *format, ...) FL_PRINTF(3, 4);
static void problem(manifest *m, const fl_yaml_node *at, const char *format, ...) {
  char text[1024];
  fl_place place = at ? fl_yaml_place(m->yaml, at) : (fl_place){m->path, 1, 1};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (!m->found.problem)
    m->found.problem = fl_arena_format(m->owned, "%s:%u:%u: %s", m->path, place.line, place.column, text);
}

/* The message of a failed step is the problem, unless there is one. */
static void take_failure(manifest *m, fl_status status) {
  m->owned->failed |= status == FL_ENOMEM;
  if (status && !m->found.problem)
    m->found.problem = fl_arena_string(m->owned, fl_error_message());
}

static bool is_scalar(const fl_yaml_node *node) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  return kind != FL_YAML_LIST && kind != FL_YAML_MAP;
}

/* NULL: not there, or a problem by now. */
static const char *take_string(manifest *m, key which) {
  const fl_yaml_node *node = m->values[which];
  if (node && is_scalar(node) && *fl_yaml_text(node))
    return fl_arena_string(m->owned, fl_yaml_text(node));
  if (node)
    problem(m, node, "'%s': expected a non-empty string", key_names[which]);
  return NULL;
}

static bool take_bool(manifest *m, key which, bool otherwise) {
  const fl_yaml_node *node = m->values[which];
  if (node && fl_yaml_kind_of(node) == FL_YAML_BOOL)
    return fl_yaml_truth(node);
  if (node && is_scalar(node))
    problem(m, node, "'%s': found '%s', expected true or false", key_names[which], fl_yaml_text(node));
  else if (node)
    problem(m, node, "'%s': found a list or mapping, expected true or false", key_names[which]);
  return otherwise;
}

static void take_key(manifest *m, const fl_yaml_node *name, const fl_yaml_node *value) {
  int which = 0;
  if (!is_scalar(name)) {
    problem(m, name, "a key must be a word");
    return;
  }
  while (which < N_KEYS && strcmp(fl_yaml_text(name), key_names[which]))
    which++;
  if (which == N_KEYS)
    problem(m, name, "unknown key '%s', expected name, library, symbol, critical or enabled%s", fl_yaml_text(name),
            fl_suggest(fl_nearest_word(fl_yaml_text(name), key_names, N_KEYS)).text);
  else if (m->values[which])
    problem(m, name, "'%s' stands twice", key_names[which]);
  else
    m->values[which] = value;
}

static void take_library(manifest *m) {
  const char *slash = strrchr(m->path, '/'), *library = take_string(m, LIBRARY);
  if (!m->values[LIBRARY])
    problem(m, fl_yaml_root(m->yaml), "'library' is missing: the path of the plugin, relative to this file");
  else if (library && *library != '/' && slash)
    m->found.path = fl_arena_format(m->owned, "%.*s/%s", (int)(slash - m->path), m->path, library);
  else if (library)
    m->found.path = library;
}

static void take_document(manifest *m) {
  const fl_yaml_node *root = fl_yaml_root(m->yaml);
  if (!root || fl_yaml_kind_of(root) != FL_YAML_MAP) {
    problem(m, root, "expected a mapping: 'library: acme.so' and other keys");
    return;
  }
  /* All are read, also after a problem: a critical plugin's broken manifest is critical too. */
  for (uint32_t i = 0; i < fl_yaml_count(root); i++)
    take_key(m, fl_yaml_key(m->yaml, root, i), fl_yaml_value(m->yaml, root, i));
  m->found.critical = take_bool(m, CRITICAL, false);
  m->found.disabled = !take_bool(m, ENABLED, true);
  m->found.name = take_string(m, NAME);
  m->found.symbol = take_string(m, SYMBOL);
  take_library(m);
  take_failure(m, fl_yaml_check(m->yaml));
}

/* A manifest decides which library is loaded, so it must be as trustworthy as that. */
void fl_manifest_read(const char *path, fl_found_list *found) {
  manifest m = {.owned = &found->owned, .found.route = "manifest"};
  m.path = m.found.path = fl_arena_string(m.owned, path); /* what there is to name, until the library is known */
  fl_status status = fl_file_trusted(path);
  status = status ? fl_error(status, "%s: %s", path, fl_error_message()) : fl_yaml_parse(path, &m.yaml);
  take_failure(&m, status);
  if (!status)
    take_document(&m);
  fl_yaml_free(m.yaml);
  fl_found_add(found, m.found);
}

/* Of files of one name that in the last directory counts. */
void fl_manifests_find(const fl_strings *directories, fl_found_list *found) {
  fl_strings names = {0};
  for (uint32_t i = 0; i < directories->n; i++)
    if (fl_list_directory(directories->items[i], ".yaml", &names) == E2BIG)
      fl_found_add_crowded(found, "manifest", directories->items[i], ".yaml");
  for (uint32_t i = 0; i < names.n; i++)
    for (uint32_t from = directories->n; from-- > 0;) {
      const char *path = fl_arena_format(&found->owned, "%s/%s", directories->items[from], names.items[i]);
      struct stat status;
      if (!lstat(path, &status)) {
        fl_manifest_read(path, found);
        break;
      }
    }
  found->owned.failed |= names.failed || directories->failed;
  fl_strings_free(&names);
}
