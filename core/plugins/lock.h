/*
 * plugins.lock: the plugin files that may be loaded, each with its digest and what it may register. Where one is in
 * force, nothing else is loaded. There are two places for one, the system's file and the setting's, and where both are
 * there both count: a setting can only narrow what the system allows.
 */
#ifndef FLHOST_CORE_PLUGINS_LOCK_H
#define FLHOST_CORE_PLUGINS_LOCK_H

#include "core/plugins/trust.h"
#include "core/registry.h"
#include "core/settings.h"

enum { FL_SHA256_TEXT = 65, FL_LOCKS_MAX = 2 };

#define FL_SYSTEM_LOCK "/etc/flhost/plugins.lock"

/* One file of a lock. */
typedef struct fl_lock_entry {
  const char *file; /* absolute */
  char sha256[FL_SHA256_TEXT];
  fl_allowance allowed;
  bool executable_stack, text_relocations; /* it may have these (fl_note_info) */
  unsigned line;
} fl_lock_entry;

typedef struct fl_lock {
  fl_arena owned;
  const char *path; /* absolute */
  fl_lock_entry *entries;
  uint32_t n;
} fl_lock;

/* Reads one, which has to be as trustworthy as what it lists. FL_ENOENT: there is none; FL_ECONFIG: what is wrong with
 * it, where. `lock` is empty then. */
fl_status fl_lock_read(const char *path, fl_lock *lock);
void fl_lock_free(fl_lock *lock);

/* The entry for a file, by its path or the one that this leads to; NULL: none. */
const fl_lock_entry *fl_lock_find(const fl_lock *lock, const char *path);

/* Those in force. Zero-initialise. */
typedef struct fl_locks {
  fl_lock items[FL_LOCKS_MAX];
  uint32_t n;
} fl_locks;

/* FL_ECONFIG: one is broken, or that of the setting is not there. */
fl_status fl_locks_read(const fl_config_sources *sources, fl_locks *locks);
void fl_locks_free(fl_locks *locks);

/* What they say of one file: an entry of each. Borrowed. */
typedef struct fl_locked {
  const fl_lock_entry *entries[FL_LOCKS_MAX];
  const fl_lock *locks[FL_LOCKS_MAX];
  uint32_t n; /* 0: no lock is in force */
} fl_locked;

/* FL_EPLUGIN: one of them does not list it. Reads no file. */
fl_status fl_locks_find(const fl_locks *locks, const char *path, fl_locked *locked);

/* FL_EPLUGIN: the file is another than they expect. Reads all of it, unless no lock is in force; it has to be the file
 * of that device and inode. */
fl_status fl_locked_check(const fl_locked *locked, const char *path, dev_t device, ino_t inode);

/* The digest of a file. `inode` 0: of whichever it is. FL_EPLUGIN: it cannot be read, or is another. */
fl_status fl_digest_file(const char *path, dev_t device, ino_t inode, char sha256[FL_SHA256_TEXT]);

#endif
