/* Opening a vendor's driver library from a plugin that must load on machines without it. */
#ifndef FLHOST_PLUGINS_DRIVER_H
#define FLHOST_PLUGINS_DRIVER_H

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct driver {
  const char *libraries[5]; /* newest first, ended by NULL */
  const char *nodes[3];     /* device nodes, one of which must exist; ended by NULL */
  const char *root;         /* variable that names the vendor's directory, */
  const char *usual_root;   /* and that directory where it is not set. NULL: only the loader's own are searched */
  void *library;            /* once open, for the life of the process */
  char reason[256];         /* why it is not usable */
} driver;

/* The vendor's directory need not be one of those that the loader searches. */
static inline void *driver_open_in_root(const driver *d, const char *name, int flags) {
  char path[512];
  const char *named = d->root ? secure_getenv(d->root) : NULL;
  const char *root = named && *named ? named : d->usual_root;
  if (!root || flags & RTLD_NOLOAD || (size_t)snprintf(path, sizeof path, "%s/lib/%s", root, name) >= sizeof path)
    return NULL;
  return dlopen(path, flags);
}

/* The engine's own copy goes first: two versions of one driver library in a process do not get along. */
static inline void *driver_open(driver *d, int flags) {
  for (const char **name = d->libraries; *name && !d->library; name++) {
    d->library = dlopen(*name, flags);
    if (!d->library && name == d->libraries) {
      const char *words = dlerror();
      snprintf(d->reason, sizeof d->reason, "%s", words ? words : "dlopen failed");
    }
    if (!d->library)
      d->library = driver_open_in_root(d, *name, flags);
  }
  return d->library;
}

/* Is there a device node, and a driver? The node first: without one there is nothing to open a library for, and looking
 * for a library takes a hundred times as long. Nothing is initialised, so that the process may still fork. */
static inline bool driver_present(driver *d, const char **reason) {
  const char *forbidden = NULL;
  const char **node = d->nodes;
  *reason = d->reason;
  for (; *node && access(*node, R_OK | W_OK); node++)
    if (errno != ENOENT)
      forbidden = *node;
  if (!*node) {
    snprintf(d->reason, sizeof d->reason, forbidden ? "no permission on the device node %s" : "no device node %s",
             forbidden ? forbidden : d->nodes[0]);
    return false;
  }
  return d->library || driver_open(d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) || driver_open(d, RTLD_LAZY | RTLD_LOCAL);
}

/* A function of the open library; NULL if it has none of that name. `function` is the address of a function pointer. */
static inline bool driver_find(const driver *d, const char *name, void *function) {
  void *address = d->library ? dlsym(d->library, name) : NULL;
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

#endif
