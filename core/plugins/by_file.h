/*
 * Records of plugins by their files, so that very many of them are not compared with each other: a list may name ten
 * thousand. Where there is no memory for the table all are looked at. The host's lock is held around all of
 * these; the loading lock is enough to look.
 */
#ifndef FLHOST_CORE_PLUGINS_BY_FILE_H
#define FLHOST_CORE_PLUGINS_BY_FILE_H

#include "core/registry.h"

/* The first record of the file behind number `before` (UINT32_MAX: of all); host->n_plugins: none. */
uint32_t fl_plugin_of_file(const fl_host *host, const char *file, uint32_t before);

/* The last record is new. */
void fl_plugin_of_file_added(fl_host *host);

/* All may be others than they were. */
void fl_plugins_by_file_renew(fl_host *host);

/* The same, of a file of that name in another directory. */
uint32_t fl_plugin_elsewhere(const fl_host *host, const char *file, uint32_t before);

#endif
