/* Kinds of platforms: see kind.h. The text of a note is split in place, in a copy. */
#include "core/platform/kind.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char space[] = " \t\n";

/* ------------------------------------------------------------------------------------------------ FL_PLUGIN_HARDWARE
 */

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
  const char *nearest = fl_nearest_word(key, names, N_KEYS);
  return damaged("'%s' is none of its keys%s%s%s", key, nearest ? "; did you mean '" : "", nearest ? nearest : "",
                 nearest ? "'?" : "");
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

fl_status fl_platform_kind_read(const fl_platform_note *note, fl_platform_kind *kind) {
  *kind = (fl_platform_kind){.title = "", .device_type = kDLExtDev, .is_described = note->hardware};
  kind->owned[0] = fl_strdup(note->plugin);
  kind->owned[1] = fl_strdup(note->name);
  kind->owned[2] = fl_strdup(note->signs);
  kind->owned[3] = fl_strdup(note->hardware);
  kind->plugin = kind->owned[0];
  kind->name = kind->owned[1];
  fl_status status = FL_OK;
  if (!kind->plugin || !kind->name || !kind->owned[2] || (note->hardware && !kind->owned[3]))
    status = fl_error_no_memory();
  if (!status && note->hardware)
    status = read_list("signs", kind->owned[2], ", \t\n", '$', kind->nodes);
  if (!status && note->hardware)
    status = read_hardware(kind->owned[3], note->is_newer, kind);
  if (!status && note->hardware && !kind->nodes[0])
    status = damaged("FL_PLUGIN_PLATFORM names no device node");
  if (status)
    fl_platform_kind_clear(kind);
  return status;
}

void fl_platform_kind_clear(fl_platform_kind *kind) {
  for (size_t i = 0; i < sizeof kind->owned / sizeof *kind->owned; i++)
    free(kind->owned[i]);
  *kind = (fl_platform_kind){0};
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
  fl_platform_kind *grown = realloc(host->kinds, (host->n_kinds + 1) * sizeof *grown);
  if (!grown)
    return fl_error_no_memory();
  host->kinds = grown;
  fl_status status = fl_platform_kind_read(note, &host->kinds[host->n_kinds]);
  host->n_kinds += !status;
  return status;
}

fl_status fl_platform_kinds_add(fl_host *host, const fl_platform_note *note) {
  pthread_mutex_lock(&host->lock);
  fl_status status = is_known(host, note) ? FL_OK : add(host, note);
  pthread_mutex_unlock(&host->lock);
  return status;
}

void fl_platform_kinds_free(fl_host *host) {
  for (uint32_t i = 0; i < host->n_kinds; i++)
    fl_platform_kind_clear(&host->kinds[i]);
  free(host->kinds);
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

const fl_platform_kind *fl_platform_kind_named(const fl_platform_kind *list, const char *word) {
  while (list->name && !is_named(list, word))
    list++;
  return list->name ? list : NULL;
}
