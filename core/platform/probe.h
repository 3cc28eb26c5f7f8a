/*
 * Asking for a driver library, and a plugin for its devices, in a child process: contexts that a driver makes do not
 * survive a later fork of the engine, and a driver that crashes or hangs must not take the engine with it.
 */
#ifndef FLHOST_CORE_PLATFORM_PROBE_H
#define FLHOST_CORE_PLATFORM_PROBE_H

#include <flhost/plugin.h>

/* A driver that has to start many devices first takes its time. */
enum { FL_PROBE_WORDS = 400, FL_DRIVER_TIMEOUT_MS = 30000, FL_DEVICES_MAX = 64 };

/*
 * Lets `ask` fill `answer` in a child process: bytes without pointers, which whoever asked has to check, since what
 * runs there may have written anywhere: counts, ends of strings. Where that does not come about the answer is zero, and
 * `words`, which may lie in it, say why `name` was not asked or did not answer.
 */
bool fl_ask_in_child(const char *name, void (*ask)(void *answer, void *user), void *user, int timeout_ms, void *answer,
                     size_t answer_size, char *words, size_t size);

/* What a probe found. */
typedef struct fl_probe {
  bool opened;                /* the driver library opens */
  const char *driver;         /* of the names asked for, the one that opened; NULL if none */
  char words[FL_PROBE_WORDS]; /* the loader's words when none did, else "" */
} fl_probe;

/* A driver library. Lists end in NULL. */
typedef struct fl_driver {
  const char *libraries[9];   /* names to try, newest first */
  const char *directories[9]; /* the vendor's own, whose lib/ is searched as well: the first that is given; "$NAME" is
                                 given when that variable is set */
} fl_driver;

/* Opens the driver's library, and closes it with the child. What goes wrong is told in the probe. */
void fl_probe_driver(const fl_driver *driver, int timeout_ms, fl_probe *probe);

/* What a plugin's platform says of its devices. */
typedef struct fl_device_list {
  int32_t count;                                /* of devices; -1: unknown */
  uint32_t n;                                   /* of `devices`, from the first on */
  fl_device_properties devices[FL_DEVICES_MAX]; /* strings end in NUL */
  char version[64];                             /* of the driver; "" if unknown */
  char words[FL_PROBE_WORDS];                   /* why it could not say all, else "" */
} fl_device_list;

/* Asks in this process. */
void fl_list_devices(const fl_platform *platform, void *self, fl_device_list *list);

/* Asks in a child process: what a plugin's functions do there is nobody else's business. `name` is the plugin's. Where
 * the child learns nothing that may be because the driver is initialised here, which does not survive a fork: then this
 * process asks. */
void fl_probe_devices(const fl_platform *platform, void *self, const char *name, int timeout_ms, fl_device_list *list);

#endif
