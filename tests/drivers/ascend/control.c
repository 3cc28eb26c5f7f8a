/* How the stand-in behaves, and what it has seen: see control.h. FLHOST_STAND_IN=name=value,… sets it from outside. */
#include "tests/drivers/ascend/control.h"
#include "tests/drivers/ascend/stand_in.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* By this the plugin knows that it is none of the vendor's. */
EXPORT const char flhost_stand_in_driver[] = "a stand-in of flhost's tests: it computes on the CPU";

EXPORT void stand_in_set(const char *name, const char *value);
EXPORT int64_t stand_in_count(const char *name);
EXPORT const char *stand_in_log(void);
EXPORT void stand_in_clear(void);

static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { MAX_SETTINGS = 64, NAME_SIZE = 64, LOG_SIZE = 1 << 20 };

static struct setting {
  char name[NAME_SIZE], value[NAME_SIZE];
  int64_t calls; /* since it was set */
} settings[MAX_SETTINGS];

/* The first ones say how many there are, and stay. */
static struct counter {
  const char *name;
  int64_t n;
} counters[] = {{"tensors", 0},     {"lists", 0},     {"scalars", 0},    {"arrays", 0},        {"executors", 0},
                {"blocks", 0},      {"queued", 0},    {"contexts", 0},   {"host blocks", 0},   {"streams", 0},
                {"events", 0},      {"graphs", 0},    {"violations", 0}, {"launched", 0},      {"waits", 0},
                {"allocations", 0}, {"finalised", 0}, {"reset", 0},      {"made contexts", 0}, {"stalls", 0}};
enum { N_COUNTERS = sizeof counters / sizeof counters[0], N_PRESENT = 12 };

static char log_text[LOG_SIZE];
static size_t log_length;

/* --------------------------------------------------------------------------------------------------------- settings */

static struct setting *find_setting(const char *name, int make) {
  for (int i = 0; i < MAX_SETTINGS; i++) {
    if (!settings[i].name[0] && make)
      snprintf(settings[i].name, NAME_SIZE, "%s", name);
    if (!strcmp(settings[i].name, name))
      return &settings[i];
  }
  return NULL;
}

static void set(const char *name, const char *value) {
  struct setting *setting = find_setting(name, 1);
  if (!setting)
    abort();
  snprintf(setting->value, NAME_SIZE, "%s", value);
  setting->calls = 0;
}

static void set_up(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&lock, &recursive);
  set("soc", "Ascend910B3");
  set("devices", "2");
  set("workspace", "192");
  const char *given = getenv("FLHOST_STAND_IN");
  char *copy = strdup(given ? given : ""), *rest = NULL;
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    char *value = strchr(word, '=');
    if (value)
      *value++ = 0;
    set(word, value ? value : "");
  }
  free(copy);
}

void stand_in_lock(void) {
  pthread_once(&once, set_up);
  pthread_mutex_lock(&lock);
}

void stand_in_unlock(void) {
  pthread_mutex_unlock(&lock);
}

void stand_in_set(const char *name, const char *value) {
  stand_in_lock();
  set(name, value);
  stand_in_unlock();
}

int64_t stand_in_setting(const char *name) {
  stand_in_lock();
  const struct setting *setting = find_setting(name, 0);
  int64_t value = setting ? strtoll(setting->value, NULL, 10) : 0;
  stand_in_unlock();
  return value;
}

void stand_in_words(char *text, size_t size) {
  stand_in_lock();
  const struct setting *setting = find_setting("words", 0);
  snprintf(text, size, "%s", setting ? setting->value : "");
  stand_in_unlock();
}

static void stall(const char *function) {
  char name[NAME_SIZE];
  snprintf(name, sizeof name, "stall %s", function);
  int64_t milliseconds = stand_in_setting(name);
  if (milliseconds) {
    stand_in_add("stalls", 1);
    usleep((useconds_t)milliseconds * 1000);
  }
}

int stand_in_ordered(const char *function) {
  int code = 0;
  stand_in_lock();
  struct setting *setting = find_setting(function, 0);
  if (setting) {
    char *at;
    int ordered = (int)strtol(setting->value, &at, 10);
    setting->calls++;
    if (*at != '@' || strtoll(at + 1, NULL, 10) == setting->calls)
      code = ordered;
  }
  stand_in_unlock();
  stall(function);
  return code;
}

const char *stand_in_soc(void) {
  stand_in_lock();
  const char *name = find_setting("soc", 0)->value;
  stand_in_unlock();
  return *name ? name : NULL;
}

int stand_in_chip(void) {
  const char *name = stand_in_soc();
  return !name                                ? 0
         : !strncmp(name, "Ascend910_93", 12) ? A3
         : !strncmp(name, "Ascend910B", 10)   ? A2
         : !strncmp(name, "Ascend310P", 10)   ? P310
         : !strncmp(name, "Ascend950", 9)     ? A5
                                              : 0;
}

/* ----------------------------------------------------------------------------------------------- counters and notes */

void stand_in_add(const char *counter, int64_t n) {
  stand_in_lock();
  for (int i = 0; i < N_COUNTERS; i++)
    if (!strcmp(counters[i].name, counter))
      counters[i].n += n;
  stand_in_unlock();
}

int64_t stand_in_count(const char *name) {
  int64_t n = -1;
  stand_in_lock();
  for (int i = 0; i < N_COUNTERS; i++)
    if (!strcmp(counters[i].name, name))
      n = counters[i].n;
  stand_in_unlock();
  return n;
}

static void note(const char *prefix, const char *format, va_list arguments) {
  stand_in_lock();
  if (log_length + 512 < LOG_SIZE) {
    log_length += (size_t)snprintf(log_text + log_length, 64, "%s", prefix);
    int written = vsnprintf(log_text + log_length, 256, format, arguments);
    log_length += (size_t)(written < 255 ? written : 255);
    log_text[log_length++] = '\n';
    log_text[log_length] = 0;
  }
  stand_in_unlock();
}

void stand_in_note(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  note("", format, arguments);
  va_end(arguments);
}

void stand_in_violation(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  note("violation: ", format, arguments);
  va_end(arguments);
  stand_in_add("violations", 1);
}

const char *stand_in_log(void) {
  return log_text;
}

void stand_in_clear(void) {
  stand_in_lock();
  for (int i = N_PRESENT; i < N_COUNTERS; i++)
    counters[i].n = 0;
  log_length = 0;
  log_text[0] = 0;
  stand_in_unlock();
}
