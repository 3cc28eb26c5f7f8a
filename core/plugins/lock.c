/* The files that may be loaded: see lock.h. */
#include "core/plugins/lock.h"

#include "core/support.h"

#include <errno.h>
#include <fcntl.h>
#include <sha256.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------- reading a lock */

enum { MAX_ENTRIES = 4096 };

typedef enum key { FILE_KEY, SHA256_KEY, OPS_KEY, KINDS_KEY, ALLOW_KEY, N_KEYS } key;
static const char *const key_names[N_KEYS] = {"file", "sha256", "ops", "kinds", "allow"};

typedef struct reader {
  fl_lock *lock;
  fl_yaml *yaml;
  const fl_yaml_node *values[N_KEYS]; /* of the entry that is read */
  fl_text ops;                        /* of that */
} reader;

/* `at` may be NULL: the file is empty. */
static fl_status problem(const reader *r, const fl_yaml_node *at, const char *format, ...) FL_PRINTF(3, 4);
static fl_status problem(const reader *r, const fl_yaml_node *at, const char *format, ...) {
  char text[1024];
  fl_place place = at ? fl_yaml_place(r->yaml, at) : (fl_place){r->lock->path, 1, 1};
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return fl_error(FL_ECONFIG, "%s:%u:%u: %s", r->lock->path, place.line, place.column, text);
}

static bool is_scalar(const fl_yaml_node *node) {
  fl_yaml_kind kind = fl_yaml_kind_of(node);
  return kind != FL_YAML_LIST && kind != FL_YAML_MAP;
}

static fl_status take_keys(reader *r, const fl_yaml_node *entry) {
  memset(r->values, 0, sizeof r->values);
  if (fl_yaml_kind_of(entry) != FL_YAML_MAP)
    return problem(r, entry, "found %s, expected a mapping: file, sha256, ops, kinds",
                   fl_yaml_kind_name(fl_yaml_kind_of(entry)));
  for (uint32_t i = 0; i < fl_yaml_count(entry); i++) {
    const fl_yaml_node *name = fl_yaml_key(r->yaml, entry, i);
    unsigned which = 0;
    while (which < N_KEYS && strcmp(fl_yaml_text(name), key_names[which]) != 0)
      which++;
    if (which == N_KEYS)
      return problem(r, name, "unknown key '%s', expected file, sha256, ops, kinds or allow%s", fl_yaml_text(name),
                     fl_suggest(fl_nearest_word(fl_yaml_text(name), key_names, N_KEYS)).text);
    if (r->values[which])
      return problem(r, name, "'%s' stands twice", key_names[which]);
    r->values[which] = fl_yaml_value(r->yaml, entry, i);
  }
  return FL_OK;
}

/* The text of a key that has to be there. */
static fl_status take_text(const reader *r, const fl_yaml_node *entry, key which, const char **text) {
  const fl_yaml_node *node = r->values[which];
  if (!node)
    return problem(r, entry, "'%s' is missing", key_names[which]);
  if (!is_scalar(node) || !*fl_yaml_text(node))
    return problem(r, node, "'%s': expected a non-empty string", key_names[which]);
  *text = fl_yaml_text(node);
  return FL_OK;
}

/* A file by its path, relative to the lock's directory. */
static fl_status take_file(const reader *r, const fl_yaml_node *entry, fl_lock_entry *item) {
  const char *text = NULL, *slash = strrchr(r->lock->path, '/');
  fl_status status = take_text(r, entry, FILE_KEY, &text);
  if (status)
    return status;
  item->line = fl_yaml_place(r->yaml, entry).line;
  item->file = *text == '/'
                   ? fl_arena_string(&r->lock->owned, text)
                   : fl_arena_format(&r->lock->owned, "%.*s/%s", (int)(slash - r->lock->path), r->lock->path, text);
  for (uint32_t i = 0; i < r->lock->n; i++)
    if (!strcmp(r->lock->entries[i].file, item->file))
      return problem(r, r->values[FILE_KEY], "'%s' is listed before, in line %u", text, r->lock->entries[i].line);
  return FL_OK;
}

static fl_status take_sha256(const reader *r, const fl_yaml_node *entry, fl_lock_entry *item) {
  const char *text = NULL;
  fl_status status = take_text(r, entry, SHA256_KEY, &text);
  if (status)
    return status;
  if (strlen(text) != FL_SHA256_TEXT - 1 || text[strspn(text, "0123456789abcdef")])
    return problem(r, r->values[SHA256_KEY],
                   "'sha256': found '%s', expected 64 of the digits 0-9 and a-f, as 'sha256sum FILE' prints them",
                   text);
  memcpy(item->sha256, text, FL_SHA256_TEXT);
  return FL_OK;
}

/* One word of a list. */
typedef fl_status (*take_word_fn)(reader *r, const fl_yaml_node *at, fl_lock_entry *item);

/* A list of words, or the word that stands for all of them: *all. */
static fl_status take_words(reader *r, key which, const char *all, bool *is_all, take_word_fn take,
                            fl_lock_entry *item) {
  const fl_yaml_node *node = r->values[which];
  *is_all = all && (!node || (is_scalar(node) && !strcmp(fl_yaml_text(node), all)));
  if (*is_all || !node)
    return FL_OK;
  if (fl_yaml_kind_of(node) != FL_YAML_LIST)
    return problem(r, node, "'%s': expected a list%s%s", key_names[which], all ? ", or the word " : "", all ? all : "");
  fl_status status = FL_OK;
  for (uint32_t i = 0; i < fl_yaml_count(node) && !status; i++) {
    const fl_yaml_node *word = fl_yaml_item(r->yaml, node, i);
    status =
        is_scalar(word) ? take(r, word, item) : problem(r, word, "'%s': expected a list of words", key_names[which]);
  }
  return status;
}

static fl_status take_op(reader *r, const fl_yaml_node *at, fl_lock_entry *item) {
  const char *name = fl_yaml_text(at);
  (void)item;
  if (!*name || strchr(name, ','))
    return problem(r, at, "'ops': '%s' is not the name of an op", name);
  fl_text_add(&r->ops, "%s%s", r->ops.length ? "," : "", name);
  return FL_OK;
}

static fl_status no_such_kind(reader *r, const fl_yaml_node *at) {
  fl_text expected = {0};
  const char *word = fl_yaml_text(at);
  fl_text_add_choices(&expected, fl_row_kind_names, FL_N_ROW_KINDS);
  fl_status status = problem(r, at, "'kinds': found '%s', expected %s%s", word, fl_text_get(&expected),
                             fl_suggest(fl_nearest_word(word, fl_row_kind_names, FL_N_ROW_KINDS)).text);
  fl_text_free(&expected);
  return status;
}

static fl_status take_kind(reader *r, const fl_yaml_node *at, fl_lock_entry *item) {
  unsigned kind = 0;
  while (kind < FL_N_ROW_KINDS && strcmp(fl_yaml_text(at), fl_row_kind_names[kind]) != 0)
    kind++;
  if (kind == FL_N_ROW_KINDS)
    return no_such_kind(r, at);
  item->allowed.kinds |= 1u << kind;
  return FL_OK;
}

static fl_status take_exception(reader *r, const fl_yaml_node *at, fl_lock_entry *item) {
  static const char *const words[] = {"executable-stack", "text-relocations"};
  const char *word = fl_yaml_text(at);
  if (strcmp(word, words[0]) != 0 && strcmp(word, words[1]) != 0)
    return problem(r, at, "'allow': found '%s', expected executable-stack or text-relocations%s", word,
                   fl_suggest(fl_nearest_word(word, words, 2)).text);
  item->executable_stack |= !strcmp(word, words[0]);
  item->text_relocations |= !strcmp(word, words[1]);
  return FL_OK;
}

static fl_status take_entry(reader *r, const fl_yaml_node *entry, fl_lock_entry *item) {
  bool all_ops = false, all_kinds = false, none;
  fl_status status = take_keys(r, entry);
  if (!status)
    status = take_file(r, entry, item);
  if (!status)
    status = take_sha256(r, entry, item);
  if (!status)
    status = take_words(r, OPS_KEY, "all", &all_ops, take_op, item);
  if (!status)
    status = take_words(r, KINDS_KEY, "all", &all_kinds, take_kind, item);
  if (!status)
    status = take_words(r, ALLOW_KEY, NULL, &none, take_exception, item);
  const char *ops = fl_arena_text(&r->lock->owned, &r->ops);
  item->allowed.ops = all_ops ? NULL : ops;
  if (all_kinds)
    item->allowed.kinds = FL_ALL_ROW_KINDS;
  item->allowed.by = r->lock->path;
  return status;
}

static fl_status take_document(reader *r) {
  const fl_yaml_node *root = fl_yaml_root(r->yaml), *list = NULL;
  if (!root || fl_yaml_kind_of(root) != FL_YAML_MAP)
    return problem(r, root, "expected a mapping: 'plugins:' and a list; 'flhost lock' writes one");
  for (uint32_t i = 0; i < fl_yaml_count(root); i++) {
    const fl_yaml_node *name = fl_yaml_key(r->yaml, root, i);
    if (strcmp(fl_yaml_text(name), "plugins") != 0 || list)
      return problem(r, name, "%s '%s', expected 'plugins'", list ? "a second key" : "unknown key", fl_yaml_text(name));
    list = fl_yaml_value(r->yaml, root, i);
  }
  if (!list || (fl_yaml_kind_of(list) != FL_YAML_LIST && fl_yaml_kind_of(list) != FL_YAML_NULL))
    return problem(r, list ? list : root, "'plugins': expected a list");
  uint32_t n = fl_yaml_count(list);
  if (n > MAX_ENTRIES)
    return problem(r, list, "%u plugins, %d at most", (unsigned)n, (int)MAX_ENTRIES);
  r->lock->entries = fl_arena_array(&r->lock->owned, n, sizeof *r->lock->entries);
  fl_status status = r->lock->entries ? FL_OK : fl_error_no_memory();
  for (uint32_t i = 0; i < n && !status; i++) {
    status = take_entry(r, fl_yaml_item(r->yaml, list, i), &r->lock->entries[i]);
    r->lock->n += !status;
  }
  return status;
}

static bool is_missing(const char *path) {
  struct stat itself;
  return lstat(path, &itself) && errno == ENOENT;
}

fl_status fl_lock_read(const char *path, fl_lock *lock) {
  *lock = (fl_lock){.n = 0};
  lock->path = fl_arena_string(&lock->owned, path);
  reader r = {.lock = lock};
  fl_status status = is_missing(path) ? fl_error(FL_ENOENT, "no file '%s'", path) : FL_OK;
  if (!status)
    status = fl_file_trusted(path);
  if (status == FL_EPLUGIN)
    status = fl_error(FL_ECONFIG, "plugins.lock '%s': %s", path, fl_error_message());
  if (!status)
    status = fl_yaml_load(path, &r.yaml);
  if (!status)
    status = take_document(&r);
  if (status && status != FL_ENOENT && status != FL_ENOMEM)
    status = fl_error_note(FL_ECONFIG);
  fl_yaml_free(r.yaml);
  if (lock->owned.failed)
    status = fl_error_no_memory();
  if (status)
    fl_lock_free(lock);
  return status;
}

void fl_lock_free(fl_lock *lock) {
  fl_arena_free(&lock->owned);
  *lock = (fl_lock){.n = 0};
}

/* --------------------------------------------------------------------------------------------- which are in force */

static fl_status add_lock(const char *path, fl_locks *locks) {
  fl_status status = fl_lock_read(path, &locks->items[locks->n]);
  locks->n += !status;
  return status;
}

fl_status fl_locks_read(const fl_config_sources *sources, fl_locks *locks) {
  const char *variable = fl_setting_table[FL_SETTING_PLUGINS_LOCK].variable;
  const char *path = fl_config_getenv(sources, variable);
  *locks = (fl_locks){.n = 0};
  fl_status status = is_missing(FL_SYSTEM_LOCK) ? FL_OK : add_lock(FL_SYSTEM_LOCK, locks);
  if (status == FL_ENOENT) /* it went away */
    status = FL_OK;
  if (!status && path && *path != '/')
    status = fl_error(FL_ECONFIG, "%s: '%s' is relative to wherever the program starts, expected an absolute path",
                      variable, path);
  if (!status && path && strcmp(path, FL_SYSTEM_LOCK) != 0) {
    status = add_lock(path, locks);
    if (status == FL_ENOENT)
      status = fl_error(FL_ECONFIG, "%s: there is no file '%s', and without it nothing may be loaded", variable, path);
  }
  if (status)
    fl_locks_free(locks);
  return status;
}

void fl_locks_free(fl_locks *locks) {
  for (uint32_t i = 0; i < locks->n; i++)
    fl_lock_free(&locks->items[i]);
  locks->n = 0;
}

/* ------------------------------------------------------------------------------------------------- judging a file */

const fl_lock_entry *fl_lock_find(const fl_lock *lock, const char *path) {
  char *real = realpath(path, NULL);
  const fl_lock_entry *found = NULL;
  for (uint32_t i = 0; i < lock->n && !found; i++)
    if (!strcmp(lock->entries[i].file, path) || (real && !strcmp(lock->entries[i].file, real)))
      found = &lock->entries[i];
  free(real);
  return found;
}

fl_status fl_locks_find(const fl_locks *locks, const char *path, fl_locked *locked) {
  *locked = (fl_locked){.n = 0};
  for (uint32_t i = 0; i < locks->n; i++) {
    const fl_lock_entry *entry = fl_lock_find(&locks->items[i], path);
    if (!entry)
      return fl_error(FL_EPLUGIN,
                      "plugins.lock '%s' does not list it, so it is not loaded; 'flhost lock' prints what is there now",
                      locks->items[i].path);
    locked->locks[i] = &locks->items[i];
    locked->entries[i] = entry;
    locked->n = i + 1;
  }
  return FL_OK;
}

fl_status fl_digest_file(const char *path, dev_t device, ino_t inode, char sha256[FL_SHA256_TEXT]) {
  unsigned char block[65536];
  struct stat status;
  SHA256_CTX digest;
  fl_status result = FL_OK;
  ssize_t n = 1;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) {
    result = fl_error(FL_EPLUGIN, "cannot be read: %s", fd < 0 ? strerror(errno) : "it is no regular file");
    goto out;
  }
  if (inode && (status.st_ino != inode || status.st_dev != device)) {
    result = fl_error(FL_EPLUGIN, "it was replaced or removed while it was judged; nothing of that is used");
    goto out;
  }
  SHA256Init(&digest);
  while (n > 0) {
    n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR)
      n = 1;
    else if (n > 0)
      SHA256Update(&digest, block, (size_t)n);
  }
  SHA256End(&digest, sha256);
  if (n < 0)
    result = fl_error(FL_EPLUGIN, "cannot be read: %s", strerror(errno));
out:
  if (fd >= 0)
    close(fd);
  return result;
}

fl_status fl_locked_check(const fl_locked *locked, const char *path, dev_t device, ino_t inode) {
  char sha256[FL_SHA256_TEXT];
  fl_status status = locked->n ? fl_digest_file(path, device, inode, sha256) : FL_OK;
  for (uint32_t i = 0; i < locked->n && !status; i++)
    if (strcmp(locked->entries[i]->sha256, sha256) != 0)
      status =
          fl_error(FL_EPLUGIN,
                   "it is another file than plugins.lock expects: its SHA-256 is %s, '%s', line %u, has %s; 'flhost "
                   "lock' prints what is there now",
                   sha256, locked->locks[i]->path, locked->entries[i]->line, locked->entries[i]->sha256);
  return status;
}
