/*
 * flhost/plugins.h: loading, listing and withdrawing plugins.
 */
#ifndef FLHOST_PLUGINS_H
#define FLHOST_PLUGINS_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What was found of one plugin. */
typedef struct fl_plugin_info {
  const char *name, *file, *version, *vendor, *licence; /* "" where unknown */
  const char *route;                                    /* "directory", "manifest", "module" (also fl_load_plugin) */
  const char *abi;                                      /* "0.3", "" where unknown */
  const char *status;                                   /* "loaded", "unavailable", "skipped", "failed", "deferred" */
  const char *reason; /* why that; of a loaded one what is missing of it, "" if nothing: implementations that are not
                         available, or were not asked since their vendor is denied; rows that were refused */
  double load_us;     /* time that loading took, microseconds */
  uint32_t impls;     /* number of implementations that it registered */
  const char *impl_vendor; /* the vendor of all of its implementations, as its file says (FL_PLUGIN_VENDOR), else "" */
} fl_plugin_info;

/* All of them. */
typedef struct fl_plugins {
  uint32_t size; /* sizeof(fl_plugins) of the library */
  uint32_t n, item_size;
  const void *items; /* fl_plugin_at */
} fl_plugins;

/* Item i of the list; NULL: there are fewer. */
static inline const fl_plugin_info *fl_plugin_at(const fl_plugins *list, uint32_t i) {
  return (const fl_plugin_info *)fl_item_at(list->items, list->n, list->item_size, i);
}

/*
 * Every plugin that was found, in the order of loading. The caller frees the list. One that says in its file which ops
 * it implements (FL_PLUGIN_OPS) is "deferred", without implementations so far, until one of these is first looked for:
 * by fl_find_op, a call by name, a registration of that name, or anything that shows all implementations; or until its
 * platform is (FL_PLUGIN_PLATFORM). This function and fl_withdraw_plugin load none.
 */
FL_API fl_status fl_get_discovered_plugins(fl_host *host, fl_plugins **plugins);
FL_API void fl_plugins_free(fl_plugins *plugins);

/* Looks again: loads, or defers, what was not found before. `n_loaded` (may be NULL) gets the number of those that were
 * loaded now. A plugin that fails is no error but in the list; FL_EPLUGIN: one that its manifest calls critical;
 * FL_ESTATE: the host is frozen. */
FL_API fl_status fl_discover_plugins(fl_host *host, uint32_t *n_loaded);

/* Forgets the record of plugins that are not loaded, nor deferred, nor kept out since their vendor is denied. */
FL_API void fl_clear_discovered_plugins(fl_host *host);

/* Loads one, at once: a path, or a name that is looked up in the plugin directories; either may carry ":symbol". A file
 * that is loaded already is left alone. FL_EPLUGIN: it is not there, failed, or its vendor is denied, and why;
 * FL_ESTATE: the host is frozen.
 */
FL_API fl_status fl_load_plugin(fl_host *host, const char *module);

/* The directories that are searched, in order; the list ends in NULL and is valid as long as the host. */
FL_API const char *const *fl_plugin_directories(fl_host *host);

/* What a plugins.lock says of one plugin file. */
typedef struct fl_locked_plugin {
  const char *file;     /* absolute */
  const char *lock;     /* the plugins.lock; "" where it was compared with none */
  const char *status;   /* "listed", "changed", "unlisted", "missing" (listed, and not there or not readable) */
  const char *sha256;   /* of the file as it is now, 64 hexadecimal digits; "" if it cannot be read */
  const char *expected; /* by the lock; "" where it does not list the file */
  const char *reason;   /* what is wrong, "" if nothing */
} fl_locked_plugin;

/* All of them. */
typedef struct fl_lock_report {
  uint32_t size; /* sizeof(fl_lock_report) of the library */
  uint32_t n, item_size;
  const void *items; /* fl_locked_plugin_at */
} fl_lock_report;

/* Item i of the report; NULL: there are fewer. */
static inline const fl_locked_plugin *fl_locked_plugin_at(const fl_lock_report *report, uint32_t i) {
  return (const fl_locked_plugin *)fl_item_at(report->items, report->n, report->item_size, i);
}

/*
 * Compares the plugin files that the host found, those that are loaded or deferred or that a lock keeps out, with the
 * plugins.lock at `path`, and what this lists beside them; NULL: with each that is in force (VLLM_FL_PLUGINS_LOCK and
 * /etc/flhost/plugins.lock); "": with none, so that all are "unlisted", each with its digest. Reads every file, in any
 * thread, and loads none. The caller frees the report. FL_ENOENT: there is no such lock, or none in force; FL_ECONFIG:
 * it is broken, and where.
 */
FL_API fl_status fl_check_plugins_lock(fl_host *host, const char *path, fl_lock_report **report);
FL_API void fl_lock_report_free(fl_lock_report *report);

/* Withdraws all impls and components of a plugin, of each of that name (or "engine"): returns when no call of them is
 * in flight. Ops that it defined stay. FL_ENOENT: no such plugin; FL_ESTATE: called from inside a call of an op, or the
 * host is frozen; or it is withdrawn, but a call that began before has not ended within 30 seconds: the message names
 * thread, implementation and op. Its code may then still run, and what that uses is kept. */
FL_API fl_status fl_withdraw_plugin(fl_host *host, const char *plugin);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_PLUGINS_H */
