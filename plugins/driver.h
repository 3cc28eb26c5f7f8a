/* Opening a vendor's driver library from a plugin that must load on machines without it. */
#ifndef FLHOST_PLUGINS_DRIVER_H
#define FLHOST_PLUGINS_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct driver {
  const char *libraries[4]; /* newest first, ended by NULL */
  const char *nodes[3];     /* device nodes, one of which must exist; ended by NULL */
  void *library;            /* once open, for the life of the process */
  char reason[256];         /* why it is not usable */
} driver;

/* The engine's own copy goes first: two versions of one driver library in a process do not get along. */
static void *driver_open(driver *d, int flags) {
  for (const char **name = d->libraries; *name && !d->library; name++) {
    d->library = dlopen(*name, flags);
    if (!d->library && name == d->libraries) {
      const char *words = dlerror();
      snprintf(d->reason, sizeof d->reason, "%s", words ? words : "dlopen failed");
    }
  }
  return d->library;
}

/* Is there a driver and a device node? Nothing is initialised, so that the process may still fork. */
static bool driver_present(driver *d, const char **reason) {
  const char **node = d->nodes;
  *reason = d->reason;
  if (!d->library && !driver_open(d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) && !driver_open(d, RTLD_LAZY | RTLD_LOCAL))
    return false;
  while (*node && access(*node, R_OK | W_OK))
    node++;
  if (*node)
    return true;
  snprintf(d->reason, sizeof d->reason, "%s opens, but the device node %s is not there or not accessible",
           d->libraries[0], d->nodes[0]);
  return false;
}

/* A function of the open library; NULL if it has none of that name. `function` is the address of a function pointer. */
static bool driver_find(const driver *d, const char *name, void *function) {
  void *address = d->library ? dlsym(d->library, name) : NULL;
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

#endif
