/* Driver probes: see probe.h. */
#include "core/platform/probe.h"

#include "core/support.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------ the child */

/* In the vendor's own directory. */
static void *open_in_directory(const fl_driver *driver, const char *name) {
  char path[PATH_MAX];
  const char *directory = NULL;
  for (const char *const *at = driver->directories; *at && !(directory && *directory); at++)
    directory = **at == '$' ? secure_getenv(*at + 1) : *at;
  if (!directory || !*directory || (size_t)snprintf(path, sizeof path, "%s/lib/%s", directory, name) >= sizeof path)
    return NULL;
  return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* The first library that opens. When none does, the words are about the first that is there but broken, else about the
 * first of the list. */
static void open_driver(const fl_driver *driver, fl_probe *probe) {
  bool told = false;
  for (const char *const *libraries = driver->libraries; *libraries; libraries++) {
    void *library = dlopen(*libraries, RTLD_LAZY | RTLD_LOCAL);
    char words[FL_PROBE_WORDS] = "dlopen failed"; /* dlerror's are good until the next dlopen */
    const char *said = library ? NULL : dlerror();
    if (said)
      snprintf(words, sizeof words, "%s", said);
    if (!library)
      library = open_in_directory(driver, *libraries);
    if (library) {
      probe->opened = true;
      probe->words[0] = 0;
      probe->driver = *libraries; /* in the parent at the same address */
      return;
    }
    bool absent = !strncmp(words, *libraries, strlen(*libraries)) && strstr(words, "No such file");
    if (!probe->words[0] || (!absent && !told))
      memcpy(probe->words, words, sizeof words);
    told |= !absent;
  }
}

/* What is asked in a child. */
typedef struct question {
  void (*ask)(void *answer, void *user);
  void *user;
  void *answer; /* the child fills its copy; in the parent as much of it as came */
  size_t size, come;
} question;

static int child(void *user, int channel) {
  const question *q = user;
  const char *bytes = q->answer;
  size_t written = 0;
  q->ask(q->answer, q->user);
  while (written < q->size) {
    ssize_t n = write(channel, bytes + written, q->size - written);
    if (n < 0 && errno != EINTR)
      return EXIT_FAILURE;
    written += n > 0 ? (size_t)n : 0;
  }
  return EXIT_SUCCESS;
}

/* ----------------------------------------------------------------------------------------------------- the parent */

static void receive(void *user, const void *data, size_t length) {
  question *q = user;
  size_t room = q->size - q->come, n = length < room ? length : room;
  memcpy((char *)q->answer + q->come, data, n);
  q->come += n;
}

bool fl_ask_in_child(const char *name, void (*ask)(void *answer, void *user), void *user, int timeout_ms, void *answer,
                     size_t answer_size, char *words, size_t size) {
  question q = {.ask = ask, .user = user, .answer = answer, .size = answer_size};
  fl_child_result ended = {.size = sizeof ended};
  const fl_child_options options = {
      .size = sizeof options, .run = child, .receive = receive, .user = &q, .timeout_ms = (uint32_t)timeout_ms};
  memset(answer, 0, answer_size);
  bool asked = !fl_child_run(&options, &ended);
  if (asked && q.come == answer_size)
    return true;
  memset(answer, 0, answer_size);
  if (!asked)
    snprintf(words, size, "not asked: %s", fl_error_message());
  else if (ended.end == FL_CHILD_HUNG)
    snprintf(words, size, "%s did not answer within %d s", name, (timeout_ms + 999) / 1000);
  else
    snprintf(words, size, "%s crashed or ended the process that asked it (%s)", name,
             ended.end == FL_CHILD_KILLED ? strsignal((int)ended.signal) : "no signal");
  return false;
}

/* A driver may have written all over the child's memory, so no pointer comes from there. */
typedef struct driver_answer {
  uint32_t opened; /* which of the libraries did, from 1; 0: none */
  char words[FL_PROBE_WORDS];
} driver_answer;

static void ask_driver(void *answer, void *user) {
  const fl_driver *driver = user;
  driver_answer *told = answer;
  fl_probe probe = {0};
  open_driver(driver, &probe);
  while (probe.opened && driver->libraries[told->opened++] != probe.driver)
    ;
  memcpy(told->words, probe.words, sizeof told->words);
}

void fl_probe_driver(const fl_driver *driver, int timeout_ms, fl_probe *probe) {
  fl_driver asked = *driver;
  driver_answer answer;
  uint32_t n = 0;
  fl_ask_in_child(driver->libraries[0], ask_driver, &asked, timeout_ms, &answer, sizeof answer, answer.words,
                  sizeof answer.words);
  while (driver->libraries[n])
    n++;
  answer.words[sizeof answer.words - 1] = 0;
  *probe = (fl_probe){.opened = answer.opened && answer.opened <= n};
  probe->driver = probe->opened ? driver->libraries[answer.opened - 1] : NULL;
  snprintf(probe->words, sizeof probe->words, "%s", probe->opened || *answer.words ? answer.words : "no answer");
}

/* ----------------------------------------------------------------------------------------------------- the devices */

/* Strings of a plugin's may fill their places without an end. */
static void end_strings(fl_device_properties *properties) {
  properties->name[sizeof properties->name - 1] = 0;
  properties->arch[sizeof properties->arch - 1] = 0;
  properties->driver[sizeof properties->driver - 1] = 0;
}

/* Without a count there is at least the first, if it answers. */
void fl_list_devices(const fl_platform *platform, void *self, fl_device_list *list) {
  memset(list, 0, sizeof *list);
  if (platform->driver_version)
    platform->driver_version(self, list->version, sizeof list->version);
  list->version[sizeof list->version - 1] = 0;
  list->count = platform->device_count ? platform->device_count(self) : -1;
  const char *failed = platform->device_count && list->count < 0 && platform->error ? platform->error(self) : NULL;
  snprintf(list->words, sizeof list->words, "%s", failed ? failed : "");
  int32_t n = platform->device_count ? list->count : FL_DEVICES_MAX;
  for (int32_t i = 0; platform->properties && i < n && i < FL_DEVICES_MAX; i++) {
    list->devices[i].size = sizeof list->devices[i];
    if (platform->properties(self, i, &list->devices[i])) {
      const char *words = platform->device_count ? platform->error(self) : NULL;
      if (words)
        snprintf(list->words, sizeof list->words, "device %d: %s", i, words);
      return;
    }
    end_strings(&list->devices[i]);
    list->n++;
  }
}

typedef struct asked_platform {
  const fl_platform *platform;
  void *self;
} asked_platform;

static void ask_platform(void *answer, void *user) {
  const asked_platform *asked = user;
  fl_list_devices(asked->platform, asked->self, answer);
}

void fl_probe_devices(const fl_platform *platform, void *self, const char *name, int timeout_ms, fl_device_list *list) {
  asked_platform asked = {platform, self};
  bool answered =
      fl_ask_in_child(name, ask_platform, &asked, timeout_ms, list, sizeof *list, list->words, sizeof list->words);
  list->n = list->n < FL_DEVICES_MAX ? list->n : FL_DEVICES_MAX;
  list->version[sizeof list->version - 1] = list->words[sizeof list->words - 1] = 0;
  for (uint32_t i = 0; i < list->n; i++) {
    list->devices[i].size = sizeof list->devices[i];
    end_strings(&list->devices[i]);
  }
  if (!answered)
    list->count = -1;
  else if (!list->n && (list->count < 0 || (list->count && platform->properties)))
    fl_list_devices(platform, self, list);
}
