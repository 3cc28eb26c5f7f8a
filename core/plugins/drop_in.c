/* Drop-ins: see drop_in.h. libyaml's document interface reads them: it keeps the place of each node. */
#include "core/plugins/drop_in.h"
#include "core/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

typedef enum key { NAME, LIBRARY, SYMBOL, CRITICAL, ENABLED, N_KEYS } key;
static const char *const key_names[N_KEYS] = {"name", "library", "symbol", "critical", "enabled"};

typedef struct manifest {
  const char *path;
  fl_found *found;
  const yaml_node_t *values[N_KEYS];
} manifest;

/* The first problem is kept. False: out of memory. */
static bool problem(manifest *m, yaml_mark_t at, const char *format, ...) FL_PRINTF(3, 4);
static bool problem(manifest *m, yaml_mark_t at, const char *format, ...) {
  char text[1024];
  va_list arguments;
  if (m->found->problem)
    return true;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  m->found->problem = fl_format("%s:%zu:%zu: %s", m->path, at.line + 1, at.column + 1, text);
  return m->found->problem != NULL;
}

static const char *scalar(const yaml_node_t *node) {
  return (const char *)node->data.scalar.value;
}

/* A non-empty string without NUL in it. */
static bool take_string(manifest *m, key which, char **string) {
  const yaml_node_t *node = m->values[which];
  if (!node)
    return true;
  if (node->type != YAML_SCALAR_NODE || !node->data.scalar.length || strlen(scalar(node)) != node->data.scalar.length)
    return problem(m, node->start_mark, "'%s': expected a non-empty string", key_names[which]);
  *string = fl_strdup(scalar(node));
  return *string != NULL;
}

/* YAML's booleans, unquoted. */
static bool take_bool(manifest *m, key which, bool *value) {
  static const struct {
    const char *word;
    bool value;
  } words[] = {{"true", true}, {"yes", true}, {"on", true}, {"false", false}, {"no", false}, {"off", false}};
  const yaml_node_t *node = m->values[which];
  if (!node)
    return true;
  if (node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
      if (!strcasecmp(scalar(node), words[i].word)) {
        *value = words[i].value;
        return true;
      }
  return problem(m, node->start_mark, "'%s': found %s%s%s, expected true or false", key_names[which],
                 node->type == YAML_SCALAR_NODE ? "'" : "",
                 node->type == YAML_SCALAR_NODE ? scalar(node) : "a list or mapping",
                 node->type == YAML_SCALAR_NODE ? "'" : "");
}

/* Finds each known key's value. */
static bool take_keys(manifest *m, yaml_document_t *document, const yaml_node_t *root) {
  for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; pair++) {
    const yaml_node_t *name = yaml_document_get_node(document, pair->key);
    int which = 0;
    if (name->type != YAML_SCALAR_NODE) {
      if (!problem(m, name->start_mark, "a key must be a word"))
        return false;
      continue;
    }
    while (which < N_KEYS && strcmp(scalar(name), key_names[which]))
      which++;
    if (which < N_KEYS && m->values[which]) {
      if (!problem(m, name->start_mark, "'%s' stands twice", key_names[which]))
        return false;
    } else if (which < N_KEYS) {
      m->values[which] = yaml_document_get_node(document, pair->value);
    } else {
      const char *nearest = fl_nearest_word(scalar(name), key_names, N_KEYS);
      if (!problem(m, name->start_mark, "unknown key '%s', expected name, library, symbol, critical or enabled%s%s%s",
                   scalar(name), nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : ""))
        return false;
    }
  }
  return true;
}

static bool take_library(manifest *m, const yaml_node_t *root) {
  char *library = NULL;
  if (!m->values[LIBRARY])
    return problem(m, root->start_mark, "'library' is missing: the path of the plugin, relative to this file");
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

static bool take_document(manifest *m, yaml_document_t *document) {
  const yaml_node_t *root = yaml_document_get_root_node(document);
  bool enabled = true;
  if (!root || root->type != YAML_MAPPING_NODE)
    return problem(m, root ? root->start_mark : document->start_mark,
                   "expected a mapping: 'library: acme.so' and other keys");
  /* All are read, also after a problem: a critical plugin's broken manifest is critical too. */
  if (!take_keys(m, document, root) || !take_bool(m, CRITICAL, &m->found->critical) ||
      !take_bool(m, ENABLED, &enabled) || !take_string(m, NAME, &m->found->name) ||
      !take_string(m, SYMBOL, &m->found->symbol) || !take_library(m, root))
    return false;
  m->found->disabled = !enabled;
  return true;
}

static bool parse(manifest *m, FILE *file) {
  yaml_parser_t parser;
  yaml_document_t document;
  if (!yaml_parser_initialize(&parser))
    return false;
  yaml_parser_set_input_file(&parser, file);
  bool done;
  if (yaml_parser_load(&parser, &document)) {
    done = take_document(m, &document);
    yaml_document_delete(&document);
  } else {
    done = parser.error != YAML_MEMORY_ERROR &&
           problem(m, parser.problem_mark, "%s", parser.problem ? parser.problem : "cannot be read");
  }
  yaml_parser_delete(&parser);
  return done;
}

/* A manifest decides which library is loaded, so it must be as trustworthy as that. */
fl_status fl_manifest_read(const char *path, fl_found *found) {
  manifest m = {.path = path, .found = found};
  FILE *file = NULL;
  bool done = true;
  *found = (fl_found){.route = "manifest"};
  fl_status status = fl_file_trusted(path);
  if (!status) {
    file = fopen(path, "re");
    if (!file)
      status = fl_error(FL_EPLUGIN, "cannot be opened: %s", strerror(errno));
  }
  if (status == FL_ENOMEM)
    return status;
  if (status)
    done = (found->problem = fl_format("%s: %s", path, fl_error_message())) != NULL;
  if (file) {
    done = parse(&m, file);
    fclose(file);
  }
  if (done && !found->path) /* what there is to name */
    done = (found->path = fl_strdup(path)) != NULL;
  if (!done) {
    fl_found_clear(found);
    return fl_error_no_memory();
  }
  return FL_OK;
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
