/*
 * Loads one plugin file: judges it while it is still data, then opens it, finds its entry and calls that. A plugin has
 * the process's rights, so a file that anyone may write is refused; and once opened it stays mapped, since threads,
 * exit handlers and thread-local destructors of its libraries may point into it.
 */
#include "core/plugins/loader.h"

#include "core/platform.h"
#include "core/plugins/instruction_sets.h"
#include "core/plugins/note_cache.h"
#include "core/plugins/process_state.h"
#include "core/plugins/shortage.h"
#include "core/registry.h"
#include "core/support.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------ records */

const char *fl_plugin_name_of_file(fl_arena *arena, const char *path) {
  static const char *const prefixes[] = {"libflhost_", "lib"};
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  size_t length = strlen(name);
  if (length > 3 && !strcmp(name + length - 3, ".so"))
    length -= 3;
  for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
    size_t prefix = strlen(prefixes[i]);
    if (length > prefix && !strncmp(name, prefixes[i], prefix)) {
      name += prefix;
      length -= prefix;
      break;
    }
  }
  return fl_arena_bytes(arena, name, length);
}

/* ------------------------------------------------------------------------------------- what the file says of itself */

/* What no plugin registered stands under these names (fl_withdraw_plugin, manifests). */
static fl_status check_name(const char *name) {
  if (strcmp(name, "engine") != 0 && strcmp(name, "flhost") != 0)
    return FL_OK;
  return fl_error(FL_EPLUGIN,
                  "the plugin's name '%s' is reserved: under it stands what %s registers; give it another "
                  "in FL_PLUGIN",
                  name, *name == 'e' ? "an engine itself" : "the host itself");
}

/* One attempt to load. */
typedef struct loading {
  fl_loader *loader;
  fl_host *host;
  fl_log *log;
  const char *path, *symbol;
  fl_plugin_record *record;
  const fl_note_info *info;
  fl_register_fn entry;
  fl_stage *stage;
  fl_process_state before;
  bool is_opening; /* the dynamic linker is at work, initialisers included */
  double start;
} loading;

static fl_status check_abi(const fl_plugin_note *note) {
  if (note->abi_major == FL_ABI_MAJOR)
    return FL_OK;
  return fl_error(FL_EPLUGIN, "built for ABI %u.%u, this host has %d.%d; %s", note->abi_major, note->abi_minor,
                  FL_ABI_MAJOR, FL_ABI_MINOR,
                  note->abi_major > FL_ABI_MAJOR ? "it needs a newer flhost"
                                                 : "it must be built again with this flhost's <flhost/plugin.h>");
}

/* Of another ABI major only the version is believed: the rest may be laid out differently. */
static fl_status record_note(fl_plugin_record *record, const fl_note_info *info) {
  const fl_plugin_note *note = &info->note;
  fl_arena *owned = &record->owned;
  record->abi = fl_arena_format(owned, "%u.%u", note->abi_major, note->abi_minor);
  record->build_id = fl_arena_string(owned, info->build_id);
  if (note->abi_major == FL_ABI_MAJOR) {
    record->name = fl_arena_string(owned, note->name);
    record->version = fl_arena_string(owned, note->version);
    record->vendor = fl_arena_string(owned, note->vendor);
    record->licence = fl_arena_string(owned, note->licence);
    record->ops = fl_arena_string(owned, info->ops);
    record->platform = fl_arena_string(owned, info->platform);
    record->token = fl_arena_string(owned, info->vendor);
    record->communicators = fl_arena_string(owned, info->communicators);
  }
  return owned->failed ? fl_error_no_memory() : FL_OK;
}

/* Do all locks make this exception? */
static bool is_excepted(const fl_locked *locked, bool stack) {
  bool all = locked->n > 0;
  for (uint32_t i = 0; i < locked->n; i++)
    all = all && (stack ? locked->entries[i]->executable_stack : locked->entries[i]->text_relocations);
  return all;
}

/* What loading it would do to the memory of the whole process. */
static fl_status check_memory(const fl_note_info *info, const fl_locked *locked, const char *path) {
  if (info->executable_stack && !is_excepted(locked, true))
    return fl_error(FL_EPLUGIN,
                    "it asks for an executable stack, which the whole process would have from then on; link it with "
                    "-Wl,-z,noexecstack, or run 'patchelf --clear-execstack %s' (what asks for it is mostly an "
                    "assembler file without a .note.GNU-stack section)",
                    path);
  if (info->text_relocations && !is_excepted(locked, false))
    return fl_error(FL_EPLUGIN, "it has text relocations: its code would be writable while it is loaded; compile all "
                                "of it with -fPIC and link it with -Wl,-z,text, which names the object that is not");
  return FL_OK;
}

fl_status fl_loader_read_locks(fl_loader *loader) {
  fl_status status = loader->locks_are_read ? FL_OK : fl_locks_read(&loader->host->sources, &loader->locks);
  loader->locks_are_read = !status;
  return status;
}

/* Everything that can be said before any of its code runs. */
static fl_status judge(fl_loader *loader, const char *path, const fl_file *file, fl_plugin_record *record,
                       fl_note_info *info) {
  char missing[160];
  fl_locked locked;
  fl_status status = fl_trust_judge(&loader->trust, path, file);
  if (!status)
    status = fl_loader_read_locks(loader);
  if (!status)
    status = fl_locks_find(&loader->locks, path, &locked);
  if (!status)
    status = fl_note_of_file(path, file, info);
  if (!status)
    status = record_note(record, info);
  if (!status)
    status = check_abi(&info->note);
  if (!status)
    status = check_name(info->note.name);
  if (!status)
    status = check_memory(info, &locked, path);
  if (!status && info->platform) { /* known from now on, whether the plugin loads or not */
    const fl_platform_note note = fl_note_platform(info);
    status = fl_platform_kinds_add(loader->host, &note);
  }
  if (!status && !fl_isa_available(info->note.isa, missing, sizeof missing))
    status =
        fl_error(FL_EPLUGIN, "needs the instruction sets '%s', and this machine lacks %s", info->note.isa, missing);
  return status;
}

/* The end of either step. */
static fl_status conclude(fl_plugin_record *record, fl_status status, double start) {
  if (status && status != FL_ENOMEM)
    record->reason = fl_arena_string(&record->owned, fl_error_message());
  if (record->owned.failed)
    status = fl_error_no_memory();
  record->load_us += 1e6 * (fl_monotonic_seconds() - start);
  if (status == FL_ENOMEM)
    fl_plugin_record_clear(record);
  if (status && status != FL_ENOMEM) {
    record->status = FL_PLUGIN_FAILED;
    record->again = fl_is_shortage(record->reason);
  }
  status = status && status != FL_ENOMEM ? FL_EPLUGIN : status;
  if (status == FL_EPLUGIN || record->status == FL_PLUGIN_LOADED) /* else it is only judged so far */
    fl_probe_plugin_load(record->name, record->file, status, (uint64_t)record->load_us);
  return status;
}

fl_status fl_loader_judge(fl_loader *loader, const char *path, const fl_file *file, fl_plugin_record *record,
                          fl_note_info *info) {
  double start = fl_monotonic_seconds();
  *info = (fl_note_info){0};
  *record = fl_plugin_record_begin(path);
  record->name = fl_plugin_name_of_file(&record->owned, path);
  if (!file->error) {
    record->device = file->status.st_dev;
    record->inode = file->status.st_ino;
    record->size = file->status.st_size;
    record->modified = file->status.st_mtim;
  }
  fl_status status = judge(loader, path, file, record, info);
  if (status)
    fl_note_clear(info);
  return conclude(record, status, start);
}

/* ------------------------------------------------------------------------------------------------- loader's errors */

static void add_names(fl_text *text, const fl_strings *names) {
  for (uint32_t i = 0; i < names->n; i++)
    fl_text_add(text, "%s%s", i ? ", " : "", names->items[i]);
}

/* "libx.so.1: cannot open shared object file: …": who asks for it? */
static void hint_missing_library(fl_text *hint, const char *words, const fl_strings *needed) {
  const char *end = strchr(words, ':');
  char library[256];
  snprintf(library, sizeof library, "%.*s", end ? (int)(end - words) : 0, words);
  if (fl_strings_has(needed, library)) {
    fl_text_add(hint, "the plugin needs '%s': install it, or name its directory in LD_LIBRARY_PATH", library);
    return;
  }
  fl_text_add(hint, "'%s' is needed by one of the libraries that the plugin needs (", library);
  add_names(hint, needed);
  fl_text_add(hint, "): install it, or name its directory in LD_LIBRARY_PATH");
}

static const char links_nothing[] =
    "a plugin links nothing of the host: it uses the functions that register_builtins is handed";
static const char no_mapping[] = "does a mount option (noexec) or a security policy forbid to run code from there?";

static void hint_undefined_symbol(fl_text *hint, const char *words, const fl_strings *needed) {
  const char *symbol = strstr(words, "undefined symbol: ") + strlen("undefined symbol: ");
  if (!strncmp(symbol, "fl_", 3)) {
    fl_text_add(hint, "%s", links_nothing);
    return;
  }
  fl_text_add(hint, "neither the plugin nor the libraries that it names (%s", needed->n ? "" : "none");
  add_names(hint, needed);
  fl_text_add(hint, ") define it: one is missing on the plugin's link line, or has another version here; linking with "
                    "-Wl,-z,defs finds this when it is built");
}

static void hint_version(fl_text *hint, const char *words, const fl_strings *needed) {
  (void)needed;
  if (strstr(words, "GLIBC_"))
    fl_text_add(hint, "it was built for a newer C library than this system's (glibc %s)", gnu_get_libc_version());
  else
    fl_text_add(hint, "a library that it needs is older here than where it was built");
}

static void hint_architecture(fl_text *hint, const char *words, const fl_strings *needed) {
  (void)words;
  fl_text_add(hint, "the file that it names is for another architecture or damaged; the plugin needs ");
  add_names(hint, needed);
}

static const struct {
  const char *words;
  void (*hint)(fl_text *hint, const char *words, const fl_strings *needed);
  const char *text; /* where there is no function */
} hints[] = {
    {"cannot open shared object file: No such file", hint_missing_library, NULL},
    {"undefined symbol: ", hint_undefined_symbol, NULL},
    {"static TLS", NULL, "start the program with GLIBC_TUNABLES=glibc.rtld.optional_static_tls=65536"},
    {"' not found (required by", hint_version, NULL},
    {"wrong ELF class", hint_architecture, NULL},
    {"invalid ELF header", hint_architecture, NULL},
    {"file too short", hint_architecture, NULL},
    {"failed to map segment", NULL, no_mapping},
    {"executable stack", NULL, no_mapping},
    {"position-independent executable", NULL, "it is a program; link it with -shared"},
};

/* The loader's own words, and what to do about them. */
static fl_status loader_error(const loading *l, const char *words) {
  fl_text hint = {0};
  fl_strings needed = {0};
  fl_status status = fl_elf_read_dynamic(l->path, FL_ELF_NEEDED, &needed);
  for (size_t i = 0; i < sizeof hints / sizeof hints[0] && status != FL_ENOMEM; i++)
    if (strstr(words, hints[i].words)) {
      if (hints[i].hint)
        hints[i].hint(&hint, words, &needed);
      else
        fl_text_add(&hint, "%s", hints[i].text);
      break;
    }
  status = hint.failed || status == FL_ENOMEM ? fl_error_no_memory()
                                              : fl_error(FL_EPLUGIN, "%s%s%s%s", words, hint.length ? " (" : "",
                                                         fl_text_get(&hint), hint.length ? ")" : "");
  fl_text_free(&hint);
  fl_strings_free(&needed);
  return status;
}

/* --------------------------------------------------------------------------------------------------------- entry */

static fl_status no_entry(const loading *l, const char *words) {
  fl_strings exports = {0};
  fl_status status = fl_elf_read_dynamic(l->path, FL_ELF_EXPORTS, &exports);
  if (status != FL_ENOMEM) {
    status = fl_error(
        FL_EPLUGIN, "%s (it must export 'FL_EXPORT fl_status %s(fl_registry *registry)', in C++ within extern \"C\"%s)",
        words, l->symbol, fl_suggest_among(l->symbol, &exports).text);
  }
  fl_strings_free(&exports);
  return status;
}

/* dlsym also looks into the libraries that the file needs, and would find another plugin's entry there. */
static fl_status find_entry(loading *l, void *handle) {
  struct link_map *owner = NULL, *own = NULL;
  const ElfW(Sym) *symbol = NULL;
  Dl_info info;
  dlerror();
  void *address = dlsym(handle, l->symbol);
  const char *words = dlerror();
  if (!address)
    return no_entry(l, words ? words : "its entry symbol is NULL");
  if (dlinfo(handle, RTLD_DI_LINKMAP, &own) || !dladdr1(address, &info, (void **)&owner, RTLD_DL_LINKMAP))
    return fl_error(FL_EPLUGIN, "cannot tell which file '%s' belongs to", l->symbol);
  if (owner != own)
    return fl_error(FL_EPLUGIN, "it does not export '%s' itself: the one found is in '%s', which it needs", l->symbol,
                    owner->l_name);
  if (dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol &&
      ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT)
    return fl_error(FL_EPLUGIN, "'%s' is a variable, expected a function", l->symbol);
  /* The conversion from an object pointer that POSIX blesses. */
  memcpy(&l->entry, &address, sizeof l->entry);
  return FL_OK;
}

/* Its reason, by preference: what registry->error() was told or which rows were refused, else the last thing that went
 * wrong in this thread meanwhile. */
static fl_status refused(const loading *l, fl_stage *stage, fl_status status) {
  fl_text reason = {0};
  fl_stage_abort(stage, &reason);
  if (!reason.length)
    fl_text_add(&reason, "%s", fl_error_message());
  const char *name = fl_status_name(status), *rest = reason.length ? ": " : " and gave no reason";
  if (strcmp(name, "unknown status") != 0)
    status = fl_error(FL_EPLUGIN, "%s returned %s%s%s", l->symbol, name, rest, fl_text_get(&reason));
  else
    status = fl_error(FL_EPLUGIN, "%s returned status %d%s%s", l->symbol, (int)status, rest, fl_text_get(&reason));
  fl_text_free(&reason);
  return status;
}

static void report_change(void *user, const char *what, bool restored) {
  const loading *l = user;
  const char *name = l->record->name;
  if (l->host->load_watch)
    l->host->load_watch->changed(l->host->load_watch->user, what);
  if (restored)
    fl_log_line(l->log, FL_LOG_WARNING, "plugin %s changed %s while loading; restored", name, what);
  else
    fl_log_line(l->log, FL_LOG_WARNING,
                "changed while plugin %s was being loaded: %s; it is left so, since another thread may have done it",
                name, what);
}

/*
 * Ops may be looked for at any time, so files are opened at any time: no fork may come in between, since the dynamic
 * linker's own lock would then be taken in the child for ever. Recursive, for a plugin whose initialisers fork.
 */
static pthread_mutex_t opening = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t opening_once = PTHREAD_ONCE_INIT;

/* A thread ended in an initialiser: the dynamic linker's lock stays taken, and whoever asks it anything would wait for
 * ever. */
static _Atomic bool linker_is_stuck;

static _Thread_local loading *current; /* whose code this thread runs, or did when it called exit */

static void fork_prepare(void) {
  pthread_mutex_lock(&opening);
}

static void fork_parent(void) {
  pthread_mutex_unlock(&opening);
}

static void fork_child(void) {
  pthread_mutex_unlock(&opening); /* so the thread sanitizer sees; the owner had another number, and is refused */
  opening = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
  current = NULL; /* what a plugin forks may exit */
}

static void name_who_exits(void) {
  if (current)
    fl_log_line(current->log, FL_LOG_ERROR, "plugin %s ends the process (exit) while it is being loaded",
                current->record->name);
}

static void guard(void) {
  pthread_atfork(fork_prepare, fork_parent, fork_child);
  atexit(name_who_exits);
}

/* Is it a function of this library, which the process happens to show to all? */
static bool is_hosts(const char *symbol) {
  Dl_info host, found;
  void *address = strncmp(symbol, "fl_", 3) ? NULL : dlsym(RTLD_DEFAULT, symbol);
  return address && dladdr(address, &found) && dladdr(links_nothing, &host) && found.dli_fbase == host.dli_fbase;
}

/* Where the host is linked as a shared library, the dynamic linker would find its functions; where it is linked
 * statically or loaded by a program of another language, not. A plugin is the same everywhere. */
static fl_status check_links_nothing(const loading *l) {
  fl_strings undefined = {0};
  fl_status status = fl_elf_read_dynamic(l->path, FL_ELF_UNDEFINED, &undefined);
  if (status == FL_EPLUGIN) /* the dynamic linker needs no section headers */
    status = FL_OK;
  for (uint32_t i = 0; i < undefined.n && !status; i++)
    if (is_hosts(undefined.items[i]))
      status = fl_error(FL_EPLUGIN, "%s: undefined symbol: %s (%s)", l->path, undefined.items[i], links_nothing);
  fl_strings_free(&undefined);
  return status;
}

/* The header says that it throws nothing; an initialiser that ends the thread unwinds through it like an exception. */
static void *(*volatile const open_library)(const char *path, int mode) = dlopen;

/* Is the file that the path leads to still the one that was judged, with what was in it? Asked before its code runs,
 * and once more when it is mapped: who could change it in between, and back again, is trusted with it. Of one that is
 * cut short while the dynamic linker maps it a page is missing that something reads: that ends the process (SIGBUS). */
static fl_status check_same(const loading *l, const char *path) {
  const fl_plugin_record *judged = l->record;
  struct stat now;
  if (stat(path, &now) || now.st_dev != judged->device || now.st_ino != judged->inode)
    return fl_error(FL_EPLUGIN, "it was replaced or removed while it was judged; nothing of that is used");
  if (now.st_size != judged->size || now.st_mtim.tv_sec != judged->modified.tv_sec ||
      now.st_mtim.tv_nsec != judged->modified.tv_nsec)
    return fl_error(FL_EPLUGIN,
                    "it was written to while it was judged (%lld bytes then, %lld now); write another file and rename "
                    "it: one that is cut short while it is mapped ends the process",
                    (long long)judged->size, (long long)now.st_size);
  return FL_OK;
}

static fl_status open_file(loading *l, void **handle) {
  /* A name without a slash would be searched for in the library path. */
  char *path = strchr(l->path, '/') ? fl_strdup(l->path) : fl_format("./%s", l->path);
  fl_status status = FL_OK;
  if (!path)
    return fl_error_no_memory();
  /* The last line of a process that a plugin takes with it. */
  fl_log_line(l->log, FL_LOG_DEBUG, "plugin %s: opening %s", l->record->name, path);
  pthread_once(&opening_once, guard);
  pthread_mutex_lock(&opening);
  l->is_opening = true;
  dlerror();
  status = check_same(l, path);
  if (!status)
    *handle = open_library(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  l->is_opening = false;
  pthread_mutex_unlock(&opening);
  if (*handle) {
    status = check_same(l, path);
  } else if (!status) {
    const char *words = dlerror();
    status = loader_error(l, words ? words : "dlopen failed");
  }
  free(path);
  return status;
}

/* Reporting may run the engine's log callback, which may fail calls of its own. */
static void compare_state(loading *l) {
  fl_kept_error why;
  fl_error_keep(&why);
  fl_process_state_compare(&l->before, report_change, l);
  fl_error_restore(&why);
}

/* The plugin's code left without returning: the thread ends, or an exception is on its way to somebody who catches it.
 * Nothing above here runs, so this is all that is done. */
static void give_up(void *user) {
  loading *l = user;
  current = NULL;
  if (l->is_opening) {
    linker_is_stuck = true;
    pthread_mutex_unlock(&opening);
  }
  fl_stage_abort(l->stage, NULL);
  fl_error(FL_EPLUGIN, "%s did not return: it ended the thread (pthread_exit) or threw an exception%s",
           l->is_opening ? "an initialiser of it" : l->symbol,
           l->is_opening ? ", and no library can be opened in this process any more" : "");
  compare_state(l);
  conclude(l->record, FL_EPLUGIN, l->start);
}

static void enter(const loading *l, const char *phase) {
  if (l->host->load_watch)
    l->host->load_watch->enters(l->host->load_watch->user, phase);
}

static fl_status open_and_find(loading *l) {
  void *handle = NULL;
  fl_status status = open_file(l, &handle);
  return status ? status : find_entry(l, handle);
}

/* Runs the plugin's code: its initialisers, then its entry, whose status goes to *entered. */
static fl_status run(loading *l, fl_status *entered) {
  fl_status status = FL_OK;
  if (linker_is_stuck)
    return fl_error(FL_EPLUGIN,
                    "no library can be opened in this process any more: a thread ended in an initialiser of "
                    "another plugin; start the process again");
  loading *outer = current;
  fl_process_state_read(&l->before);
  pthread_cleanup_push(give_up, l);
  current = l;
  enter(l, "its initialisers");
  status = check_links_nothing(l);
  if (!status)
    status = open_and_find(l);
  if (!status) {
    enter(l, l->symbol);
    fl_error_clear();
    *entered = l->entry(fl_stage_table(l->stage));
  }
  current = outer;
  pthread_cleanup_pop(false);
  compare_state(l);
  return status;
}

/* The next platform of the plugin after number *at; components may be withdrawn meanwhile, so it is copied. */
static bool next_platform(const loading *l, uint32_t *at, fl_component_record *platform, char name[FL_NAME_MAX + 1]) {
  bool found = false;
  pthread_mutex_lock(&l->host->lock);
  for (; *at < l->host->n_components && !found; ++*at) {
    const fl_component_record *component = &l->host->components[*at];
    found = !strcmp(component->plugin, l->record->name) && !strcmp(component->type, "platform");
    if (found) {
      *platform = *component;
      platform->not_asked = fl_platform_not_asked(l->host, component, &l->record->owned);
      snprintf(name, FL_NAME_MAX + 1, "%s", component->name);
    }
  }
  pthread_mutex_unlock(&l->host->lock);
  return found;
}

/* Why a plugin that brings nothing but platforms is of no use here, if so, in the place of another remark. */
static void explain_inactive(const loading *l, fl_text *remark) {
  fl_component_record platform;
  fl_text inactive = {0};
  char name[FL_NAME_MAX + 1];
  for (uint32_t at = 0; !l->record->impls && next_platform(l, &at, &platform, name);) {
    fl_said said;
    fl_text_free(&inactive);
    if (fl_component_is_active(&platform, &said))
      return;
    fl_text_add(&inactive, "platform '%s' is not %s: %s", name, platform.not_asked ? "asked" : "active",
                fl_said_shown(&said, "no reason given"));
  }
  if (!inactive.length)
    return;
  fl_text_free(remark);
  *remark = inactive;
}

/* A lock's digest is compared here, not when the file is judged: it takes reading all of it. */
static fl_status check_locks(const loading *l, fl_locked *locked) {
  fl_status status = fl_loader_read_locks(l->loader);
  if (!status)
    status = fl_locks_find(&l->loader->locks, l->path, locked);
  return status ? status : fl_locked_check(locked, l->path, l->record->device, l->record->inode);
}

/* Not what it was when it was judged: whoever replaces it meanwhile is told by the next who looks. */
static fl_status try_elsewhere(const loading *l) {
  fl_suspect suspect = {.file = l->path,
                        .symbol = strcmp(l->symbol, "register_builtins") != 0 ? l->symbol : NULL,
                        .name = l->record->name,
                        .info = l->info};
  char why[FL_JUDGE_WORDS];
  if (stat(l->path, &suspect.status))
    return fl_error(FL_EPLUGIN, "cannot be opened: %s", strerror(errno));
  if (fl_judge_allows(&l->loader->judge, l->host, &suspect, why))
    return FL_OK;
  return fl_error(FL_EPLUGIN, "%s", why);
}

static fl_status open_and_register(loading *l, fl_committed *committed) {
  fl_status entered = FL_OK;
  fl_locked locked;
  fl_status status = check_locks(l, &locked);
  if (!status)
    status = try_elsewhere(l);
  if (status)
    return status;
  fl_stage *stage = fl_stage_begin(l->host, l->record->name, l->record->build_id, l->info->note.flags);
  if (!stage)
    return fl_error_no_memory();
  l->stage = stage;
  if (l->info->ops)
    fl_stage_limit(stage, l->info->ops, l->info->platform, l->info->communicators);
  fl_stage_limit_vendor(stage, l->info->vendor);
  for (uint32_t i = 0; i < locked.n; i++)
    fl_stage_allow(stage, &locked.entries[i]->allowed);
  status = run(l, &entered);
  if (status) {
    fl_stage_abort(stage, NULL);
    return status;
  }
  if (entered)
    return refused(l, stage, entered);
  status = fl_stage_commit(stage, committed);
  l->record->impls = committed->impls;
  if (!status)
    explain_inactive(l, &committed->remark);
  return status;
}

/* The reason of a plugin that loaded is what was said of its rows or its platform. */
fl_status fl_loader_open(fl_loader *loader, const char *symbol, const fl_note_info *info, fl_plugin_record *record) {
  double start = fl_monotonic_seconds();
  loading l = {.loader = loader,
               .host = loader->host,
               .log = loader->log,
               .path = record->file,
               .record = record,
               .info = info,
               .start = start,
               .symbol = symbol ? symbol : "register_builtins"};
  fl_committed committed = {0};
  fl_status status = open_and_register(&l, &committed);
  record->status = FL_PLUGIN_LOADED;
  if (!status) {
    record->reason = fl_arena_text(&record->owned, &committed.remark);
    record->owned.failed = false; /* what is published is loaded, be it without the remark */
  }
  fl_text_free(&committed.remark);
  return conclude(record, status, start);
}

void fl_loader_begin(fl_loader *loader, fl_host *host, fl_log *log) {
  *loader = (fl_loader){.host = host, .log = log};
}

void fl_loader_end(fl_loader *loader) {
  fl_kept_error why;
  fl_error_keep(&why);
  fl_judge_end(&loader->judge, loader->log);
  fl_error_restore(&why);
  fl_trust_free(&loader->trust);
  fl_locks_free(&loader->locks);
}
