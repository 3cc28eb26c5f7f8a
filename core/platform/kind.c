/* Kinds of platforms: see kind.h. The text of a note is split in place, in a copy. */
#include "core/platform/kind.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char space[] = " \t\n";

/* ----------------------------------------------------------------------------------------------- FL_PLUGIN_HARDWARE */

static FL_PRINTF(1, 2) fl_status damaged(const char *format, ...) {
  char words[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  return fl_error(FL_EPLUGIN, "damaged 'flhost' note: FL_PLUGIN_HARDWARE: %s", words);
}

/* The words of `text`, divided by any of `separators`, into a list of FL_KIND_WORDS; those that begin with `but` are
 * left out. */
static fl_status read_list(const char *key, char *text, const char *separators, char but, const char **list) {
  char *rest = NULL;
  uint32_t n = 0;
  for (char *word = strtok_r(text, separators, &rest); word; word = strtok_r(NULL, separators, &rest)) {
    if (*word == but)
      continue;
    if (n == FL_KIND_WORDS)
      return damaged("'%s' has more than %d words", key, FL_KIND_WORDS);
    list[n++] = word;
  }
  return FL_OK;
}

static fl_status read_words(const char *key, char *text, void *list) {
  return read_list(key, text, space, 0, list);
}

static fl_status read_text(const char *key, char *text, void *string) {
  (void)key;
  *(const char **)string = text;
  return FL_OK;
}

/* By DLPack's names. */
static fl_status read_device(const char *key, char *text, void *device_type) {
  int32_t type = 0;
  while (type < 64 && (!fl_device_type_name(type) || strcmp(fl_device_type_name(type), text)))
    type++;
  *(int32_t *)device_type = type;
  return type < 64 ? FL_OK : damaged("'%s' is '%s', expected one of DLPack's device types (cuda, ext_dev)", key, text);
}

/* The vendor's number, then classes. */
static fl_status read_pci(const char *key, char *text, void *field) {
  fl_platform_kind *kind = field;
  const char *words[FL_KIND_WORDS + 1] = {NULL};
  fl_status status = read_words(key, text, words);
  for (uint32_t i = 0; words[i] && !status; i++) {
    char *end;
    unsigned long number = strtoul(words[i], &end, 16);
    if (*end || !number || number > UINT16_MAX)
      status = damaged("'%s' has '%s', expected four hexadecimal digits", key, words[i]);
    *(i ? &kind->pci_classes[i - 1] : &kind->pci_vendor) = (uint16_t)number;
  }
  return !status && !kind->pci_classes[0] ? damaged("'%s' needs a vendor and its classes of devices", key) : status;
}

static const struct {
  const char *key;
  size_t offset;
  fl_status (*read)(const char *key, char *text, void *field);
} keys[] = {
    {"title", offsetof(fl_platform_kind, title), read_text},
    {"aliases", offsetof(fl_platform_kind, aliases), read_words},
    {"device", offsetof(fl_platform_kind, device_type), read_device},
    {"pci", 0, read_pci},
    {"nodes", offsetof(fl_platform_kind, patterns), read_words},
    {"kernel", offsetof(fl_platform_kind, kernel), read_words},
    {"module", offsetof(fl_platform_kind, module), read_text},
    {"version", offsetof(fl_platform_kind, versions), read_words},
    {"masks", offsetof(fl_platform_kind, masks), read_words},
    {"driver", offsetof(fl_platform_kind, driver.libraries), read_words},
    {"directories", offsetof(fl_platform_kind, driver.directories), read_words},
};
enum { N_KEYS = sizeof keys / sizeof *keys };

static fl_status unknown_key(const char *key) {
  const char *names[N_KEYS];
  for (size_t i = 0; i < N_KEYS; i++)
    names[i] = keys[i].key;
  return damaged("'%s' is none of its keys%s", key, fl_suggest(fl_nearest_word(key, names, N_KEYS)).text);
}

/* Without the white space around it, in place. */
static char *trim(char *text) {
  const char *begin = text;
  size_t length = fl_trim(&begin, strlen(text));
  text += begin - text;
  text[length] = 0;
  return text;
}

/* "key: words" */
static fl_status read_clause(char *clause, bool is_newer, fl_platform_kind *kind) {
  char *colon = strchr(clause, ':');
  if (!colon)
    return damaged("'%s' is not a key, a colon and words", trim(clause));
  *colon = 0;
  const char *key = trim(clause);
  for (size_t i = 0; i < N_KEYS; i++)
    if (!strcmp(keys[i].key, key))
      return keys[i].read(key, trim(colon + 1), (char *)kind + keys[i].offset);
  return is_newer ? FL_OK : unknown_key(key);
}

static fl_status read_hardware(char *text, bool is_newer, fl_platform_kind *kind) {
  char *rest = NULL;
  fl_status status = FL_OK;
  for (char *clause = strtok_r(text, ";", &rest); clause && !status; clause = strtok_r(NULL, ";", &rest))
    if (clause[strspn(clause, space)])
      status = read_clause(clause, is_newer, kind);
  if (!status && (!*kind->title || !kind->pci_vendor || !kind->kernel[0] || !kind->driver.libraries[0]))
    status = damaged("it needs title, pci, kernel and driver");
  return status;
}

fl_status fl_platform_kind_read(const fl_platform_note *note, fl_arena *arena, fl_platform_kind *kind) {
  *kind = (fl_platform_kind){.title = "", .device_type = kDLExtDev, .is_described = note->hardware};
  kind->plugin = fl_arena_string(arena, note->plugin);
  kind->name = fl_arena_string(arena, note->name);
  if (!note->hardware)
    return arena->failed ? fl_error_no_memory() : FL_OK;
  char *signs = (char *)fl_arena_string(arena, note->signs), *hardware = (char *)fl_arena_string(arena, note->hardware);
  if (arena->failed)
    return fl_error_no_memory();
  fl_status status = read_list("signs", signs, ", \t\n", '$', kind->nodes);
  if (!status)
    status = read_hardware(hardware, note->is_newer, kind);
  return !status && !kind->nodes[0] ? damaged("FL_PLUGIN_PLATFORM names no device node") : status;
}

/* ---------------------------------------------------------------------------------------------------- a host's list */

/* One plugin says one thing of one platform. */
static bool is_known(const fl_host *host, const fl_platform_note *note) {
  bool known = false;
  for (uint32_t i = 0; i < host->n_kinds && !known; i++)
    known = !strcmp(host->kinds[i].name, note->name) && !strcmp(host->kinds[i].plugin, note->plugin);
  return known;
}

static fl_status add(fl_host *host, const fl_platform_note *note) {
  if (!fl_array_grow(&host->kinds, host->n_kinds, sizeof *host->kinds))
    return fl_error_no_memory();
  fl_status status = fl_platform_kind_read(note, &host->owned, &host->kinds[host->n_kinds]);
  host->n_kinds += !status;
  host->owned.failed = false; /* there may be memory for the next */
  return status;
}

fl_status fl_platform_kinds_add(fl_host *host, const fl_platform_note *note) {
  pthread_mutex_lock(&host->lock);
  fl_status status = is_known(host, note) ? FL_OK : add(host, note);
  pthread_mutex_unlock(&host->lock);
  return status;
}

/* Adds a kind; of two with one name, that which is described stays. */
static void take(fl_platform_kind *list, const fl_platform_kind *kind) {
  while (list->name && strcmp(list->name, kind->name) != 0)
    list++;
  if (!list->name || (list->plugin && !list->is_described))
    *list = *kind;
}

fl_platform_kind *fl_platform_kinds_list(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  fl_platform_kind *list = calloc(host->n_kinds + 2, sizeof *list);
  if (list)
    list[0] = (fl_platform_kind){.name = "cpu", .title = "CPU", .device_type = kDLCPU};
  for (uint32_t i = 0; list && i < host->n_kinds; i++)
    take(list, &host->kinds[i]);
  pthread_mutex_unlock(&host->lock);
  return list;
}

static bool is_named(const fl_platform_kind *kind, const char *word) {
  bool found = !strcasecmp(kind->name, word);
  for (const char *const *alias = kind->aliases; *alias && !found; alias++)
    found = !strcasecmp(*alias, word);
  return found;
}

bool fl_platform_kind_words(const fl_platform_kind *list, fl_strings *words) {
  bool done = true;
  for (; list->name && done; list++) {
    done = fl_strings_add(words, list->name);
    for (const char *const *alias = list->aliases; *alias && done; alias++)
      done = fl_strings_add(words, *alias);
  }
  return done;
}

fl_suggestion fl_platform_suggest(const char *word, const fl_strings *words) {
  return strcasecmp(word, "gpu") ? fl_suggest_among(word, words) : fl_suggest(NULL);
}

const fl_platform_kind *fl_platform_kind_named(const fl_platform_kind *list, const char *word) {
  while (list->name && !is_named(list, word))
    list++;
  return list->name ? list : NULL;
}
