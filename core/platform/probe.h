/*
 * Asking a driver library for its devices, in a child process: contexts that a driver makes do not survive a later
 * fork of the engine, and a driver that crashes or hangs must not take the engine with it.
 */
#ifndef FLHOST_CORE_PLATFORM_PROBE_H
#define FLHOST_CORE_PLATFORM_PROBE_H

#include <flhost/plugin.h>

/* A driver that has to start many devices first takes its time. */
enum { FL_PROBE_WORDS = 400, FL_DRIVER_TIMEOUT_MS = 30000, FL_DEVICES_MAX = 64 };

/* What a probe found. */
typedef struct fl_probe {
  bool opened;                /* the driver library opens */
  int32_t count;              /* devices; -1: not asked, or it failed */
  const char *driver;         /* of the names asked for, the one that opened; NULL if none */
  char version[32];           /* of the driver, "13.0"; "" if not asked or unknown */
  char words[FL_PROBE_WORDS]; /* the loader's or driver's words when something failed, else "" */
} fl_probe;

/* Counts the devices through an open driver library: the number, or -1 with the driver's words. */
typedef int (*fl_count_fn)(void *library, char *words, size_t size);

/* The driver's version as text, through an open library and before it is initialised; leaves `text` alone if unknown.
 */
typedef void (*fl_version_fn)(void *library, char *text, size_t size);

/* A driver library and how to ask it. */
typedef struct fl_driver {
  const char *libraries[6]; /* names to try, newest first, ended by NULL */
  const char *root;         /* variable that names the vendor's directory, whose lib/ is searched as well; NULL: none */
  const char *usual_root;   /* that directory where it is not set */
  fl_count_fn count;
  /* The same without initialising anything, for a library that this process uses already: a driver that was initialised
   * before the fork refuses to work in the child. -1: it is not in use after all. NULL: there is no such way. */
  fl_count_fn count_in_use;
  fl_version_fn version;
} fl_driver;

int fl_count_cuda(void *library, char *words, size_t size);
int fl_count_cuda_in_use(void *library, char *words, size_t size);
int fl_count_rocm(void *library, char *words, size_t size);
int fl_count_ascend(void *library, char *words, size_t size);
void fl_version_cuda(void *library, char *text, size_t size);
void fl_version_rocm(void *library, char *text, size_t size);
void fl_version_ascend(void *library, char *text, size_t size);

/* Opens the driver's library and, with `count`, counts devices. Waits `timeout_ms` at most. What goes wrong is told in
 * the probe. */
void fl_probe_driver(const fl_driver *driver, bool count, int timeout_ms, fl_probe *probe);

/* What a plugin's platform says of its devices. */
typedef struct fl_device_list {
  int32_t count;                                /* of devices; -1: unknown */
  uint32_t n;                                   /* of `devices`, from the first on */
  fl_device_properties devices[FL_DEVICES_MAX]; /* strings end in NUL */
  char words[FL_PROBE_WORDS];                   /* why it could not say all, else "" */
} fl_device_list;

/* Asks in this process. */
void fl_list_devices(const fl_platform *platform, void *self, fl_device_list *list);

/* Asks in a child process: what a plugin's functions do there is nobody else's business. `name` is the plugin's. false:
 * the child did not come to an end. */
bool fl_probe_devices(const fl_platform *platform, void *self, const char *name, int timeout_ms, fl_device_list *list);

#endif
