/* Records of plugins by their files: see by_file.h. Chains of numbers, which begin in a table that grows with them; all
 * files of one name, whatever their directories, are in one chain. */
#include "core/plugins/by_file.h"

#include "core/support.h"

#include <stdlib.h>
#include <string.h>

enum { LEAST = 16 };

static const char *base_of(const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

static uint32_t *chain_of(const fl_host *host, const char *file) {
  const char *base = base_of(file);
  return &host->plugins_by_file[fl_hash_name(base, strlen(base)) & (host->n_by_file - 1)];
}

/* A chain ends in UINT32_MAX, and has the higher numbers first. */
static void put(fl_host *host, uint32_t i) {
  uint32_t *chain = chain_of(host, host->plugins[i].file);
  host->plugins[i].same_chain = *chain;
  *chain = i;
}

static bool is_behind(uint32_t i, uint32_t before) {
  return before == UINT32_MAX || i > before;
}

static bool is_file(const char *a, const char *b) {
  return !strcmp(a, b);
}

static bool is_elsewhere(const char *a, const char *b) {
  return strcmp(a, b) != 0 && !strcmp(base_of(a), base_of(b));
}

static uint32_t find(const fl_host *host, const char *file, uint32_t before,
                     bool (*is_it)(const char *, const char *)) {
  uint32_t found = host->n_plugins;
  if (!host->n_by_file) {
    for (uint32_t i = before + 1; i < host->n_plugins && found == host->n_plugins; i++)
      found = is_it(host->plugins[i].file, file) ? i : found;
    return found;
  }
  for (uint32_t i = *chain_of(host, file); i != UINT32_MAX && is_behind(i, before); i = host->plugins[i].same_chain)
    found = is_it(host->plugins[i].file, file) ? i : found;
  return found;
}

uint32_t fl_plugin_of_file(const fl_host *host, const char *file, uint32_t before) {
  return find(host, file, before, is_file);
}

uint32_t fl_plugin_elsewhere(const fl_host *host, const char *file, uint32_t before) {
  return find(host, file, before, is_elsewhere);
}

void fl_plugins_by_file_renew(fl_host *host) {
  uint32_t n = LEAST;
  while (n < host->n_plugins)
    n *= 2;
  uint32_t *table = malloc(n * sizeof *table);
  free(host->plugins_by_file);
  host->plugins_by_file = table;
  host->n_by_file = table ? n : 0;
  for (uint32_t i = 0; i < host->n_by_file; i++)
    table[i] = UINT32_MAX;
  for (uint32_t i = 0; table && i < host->n_plugins; i++)
    put(host, i);
}

void fl_plugin_of_file_added(fl_host *host) {
  if (host->n_plugins > host->n_by_file)
    fl_plugins_by_file_renew(host);
  else
    put(host, host->n_plugins - 1);
}
