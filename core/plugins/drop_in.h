/*
 * Manifests: how a package of its own tells flhost of its plugin, wherever the library lies. One small YAML file each:
 *
 *     name: acme                  # shown until the library's own note is read
 *     library: ../../lib/acme.so  # required; relative to this file
 *     symbol: register_builtins
 *     critical: false             # true: the host does not start without it
 *     enabled: true
 *
 * Directories are read in the order packages, system, user; a file of the same name in a later directory takes the
 * place of the earlier one, so that a user can change or (enabled: false) switch off what the system brings.
 */
#ifndef FLHOST_CORE_PLUGINS_DROP_IN_H
#define FLHOST_CORE_PLUGINS_DROP_IN_H

#include "core/plugins/discovery.h"

/* Reads one file. What is wrong with it is its problem, "path:line:column: …". */
void fl_manifest_read(const char *path, fl_found_list *found);

/* All *.yaml files of the directories (those that do not exist are passed over), sorted by file name bytewise. */
void fl_manifests_find(const fl_strings *directories, fl_found_list *found);

#endif
