/*
 * Finding plugins: see discovery.h. Directories are found relative to this very library, so that a tree that was moved,
 * or is used from the build directory, finds its own plugins and nobody else's.
 */
#include "core/plugins/discovery.h"
#include "core/plugins/drop_in.h"
#include "core/support.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------- lists of finds */

void fl_found_add(fl_found_list *list, fl_found found) {
  if (!fl_array_grow(&list->items, list->n, sizeof *list->items))
    list->owned.failed = true;
  else
    list->items[list->n++] = found;
}

void fl_found_list_free(fl_found_list *list) {
  free(list->items);
  fl_arena_free(&list->owned);
  *list = (fl_found_list){0};
}

static bool ends_with(const char *string, const char *suffix) {
  size_t length = strlen(string), n = strlen(suffix);
  return length > n && !strcmp(string + length - n, suffix);
}

int fl_list_directory(const char *directory, const char *suffix, fl_strings *names) {
  DIR *stream = opendir(directory);
  const struct dirent *entry;
  if (!stream)
    return errno;
  uint32_t before = names->n;
  for (errno = 0; names->n - before <= FL_DIRECTORY_MOST && (entry = readdir(stream)); errno = 0)
    if (entry->d_name[0] != '.' && ends_with(entry->d_name, suffix))
      fl_strings_add(names, entry->d_name);
  int error = errno;
  closedir(stream);
  if (names->n - before > FL_DIRECTORY_MOST) {
    fl_strings_cut(names, before);
    error = E2BIG;
  }
  fl_strings_sort_unique(names);
  return error;
}

void fl_found_add_crowded(fl_found_list *list, const char *route, const char *directory, const char *suffix) {
  fl_found_add(list, (fl_found){.route = route,
                                .path = fl_arena_string(&list->owned, directory),
                                .problem = fl_arena_format(
                                    &list->owned,
                                    "it has more than %d files *%s, and none of them is looked at: each is read "
                                    "when a host starts",
                                    (int)FL_DIRECTORY_MOST, suffix)});
}

/* ------------------------------------------------------------------------------------------- default directories */

/* The file that holds this library, and whether that is a program that it is linked into. */
typedef struct own_place {
  bool is_program;
  char *file, *directory; /* canonical; NULL: not found */
} own_place;

/* Found out once, since neither changes while it is mapped; again where there was no memory to find out. */
static _Atomic(own_place *) own_place_known;

/* A program's name in the link map is whatever its caller put into argv[0]. A library's may be relative to a working
 * directory that is no longer the same; the linker knows the directory that it was then. */
static own_place *find_own_place(void) {
  static const char here = 0;
  struct link_map *map = NULL;
  Dl_info info;
  char origin[PATH_MAX];
  own_place *found = calloc(1, sizeof *found), *before = NULL;
  bool no_memory = !found;
  if (no_memory)
    return NULL;
  errno = 0;
  found->is_program = !dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) || !map || !map->l_name[0];
  if (found->is_program) {
    found->directory = realpath("/proc/self/exe", NULL);
  } else if (!dlinfo(map, RTLD_DI_ORIGIN, origin)) { /* a handle is a pointer to the map */
    const char *slash = strrchr(map->l_name, '/');
    char *path = fl_format("%s/%s", origin, slash ? slash + 1 : map->l_name);
    found->directory = path ? realpath(path, NULL) : NULL;
    no_memory = !path;
    free(path);
  }
  no_memory |= !found->directory && errno == ENOMEM;
  found->file = fl_strdup(found->directory);
  no_memory |= found->directory && !found->file;
  char *slash = found->directory ? strrchr(found->directory, '/') : NULL;
  if (slash)
    slash[slash == found->directory] = 0;
  if (!no_memory && atomic_compare_exchange_strong(&own_place_known, &before, found))
    return found;
  free(found->file);
  free(found->directory);
  free(found);
  return before;
}

/* NULL: out of memory. */
static const own_place *know_own_place(void) {
  const own_place *own = atomic_load(&own_place_known);
  return own ? own : find_own_place();
}

const char *fl_own_file(void) {
  const own_place *own = know_own_place();
  return own ? own->file : NULL;
}

/* Where things lie relative to the library's or (statically linked) the program's directory. */
typedef struct places {
  const char *beside[3]; /* of the library: the first that exists */
  const char *program;   /* of the program */
  const char *prefix;    /* under the configured prefix */
} places;

static const places plugin_places = {
    {"flhost/plugins", "plugins", NULL}, "../lib/flhost/plugins", FLHOST_PREFIX "/lib/flhost/plugins"};
static const places config_places = {
    {"../share/flhost/config", "config", NULL}, "../share/flhost/config", FLHOST_PREFIX "/share/flhost/config"};
static const places manifest_places = {
    {"../share/flhost/plugins.d", NULL, NULL}, "../share/flhost/plugins.d", FLHOST_PREFIX "/share/flhost/plugins.d"};

/* The place near the library as an absolute path without "..": NULL if there is none. False: out of memory. */
static bool find_nearby(const places *where, char **nearby) {
  const own_place *own = know_own_place();
  bool done = own != NULL;
  *nearby = NULL;
  for (int i = 0; done && own->directory && !*nearby && i < (own->is_program ? 1 : 3); i++) {
    const char *relative = own->is_program ? where->program : where->beside[i];
    char *path = relative ? fl_format("%s/%s/.", own->directory, relative) : NULL; /* with "/." only a directory is */
    done = !relative || path;
    /* One system call where there is none, which is most of the time; realpath makes one for each directory above. */
    if (path && (access(path, F_OK) || !(*nearby = realpath(path, NULL))))
      done = errno != ENOMEM;
    free(path);
  }
  return done;
}

/* The place nearby, then that of the prefix. */
static bool add_places(const places *where, fl_strings *directories) {
  char *nearby;
  bool done = find_nearby(where, &nearby) && (!nearby || fl_strings_add(directories, nearby)) &&
              (fl_strings_has(directories, where->prefix) || fl_strings_add(directories, where->prefix));
  free(nearby);
  return done;
}

bool fl_default_plugin_directories(fl_strings *directories) {
  return add_places(&plugin_places, directories);
}

char *fl_default_config_directory(void) {
  char *nearby;
  if (!find_nearby(&config_places, &nearby))
    return NULL;
  return nearby ? nearby : fl_strdup(config_places.prefix);
}

char *fl_default_command(void) {
  static const char *const beside[] = {"flhost", "../bin/flhost", "../../bin/flhost"};
  const char *named = secure_getenv("FLHOST_COMMAND");
  char *found = NULL;
  struct stat status;
  if (named && *named == '/')
    return fl_strdup(named);
  const own_place *own = know_own_place();
  if (!own)
    return NULL;
  for (int i = 0; own->directory && !found && i < (own->is_program ? 1 : 3); i++) {
    char *path = fl_format("%s/%s", own->directory, beside[i]);
    if (!path)
      return NULL;
    if (!stat(path, &status) && S_ISREG(status.st_mode) && !access(path, X_OK))
      found = realpath(path, NULL);
    free(path);
  }
  return found ? found : fl_strdup(FLHOST_PREFIX "/bin/flhost");
}

/* ---------------------------------------------------------------------------------------------- route: directories */

/* The *.so files of one directory. A default one need not be there. */
static void search_directory(const char *directory, const char *setting, fl_log *log, fl_found_list *found) {
  fl_strings names = {0};
  int error = fl_list_directory(directory, ".so", &names);
  bool may_lack = !setting && (error == ENOENT || error == ENOTDIR || error == EACCES);
  if (error == E2BIG)
    fl_found_add_crowded(found, "directory", directory, ".so");
  else if (error)
    fl_log_line(log, may_lack ? FL_LOG_DEBUG : FL_LOG_WARNING, "%s: '%s': %s",
                setting ? setting : "default plugin directory", directory, strerror(error));
  else if (setting && !names.n)
    fl_log_line(log, FL_LOG_WARNING, "%s: '%s': no plugin (*.so) there", setting, directory);
  for (uint32_t i = 0; i < names.n; i++) {
    const char *slash = ends_with(directory, "/") ? "" : "/";
    fl_found_add(found, (fl_found){.route = "directory",
                                   .path = fl_arena_format(&found->owned, "%s%s%s", directory, slash, names.items[i])});
  }
  found->owned.failed |= names.failed;
  fl_strings_free(&names);
}

/* Directories that the user listed; a relative one would depend on where the program is started. */
static void search_listed(const fl_strings *listed, const char *setting, fl_log *log, fl_found_list *found) {
  for (uint32_t i = 0; i < listed->n; i++) {
    const char *directory = listed->items[i];
    if (*directory == '/')
      search_directory(directory, setting, log, found);
    else
      fl_found_add(found,
                   (fl_found){.route = "directory",
                              .path = fl_arena_string(&found->owned, directory),
                              .problem = fl_arena_format(
                                  &found->owned,
                                  "%s: '%s' is relative to wherever the program starts, expected an absolute path",
                                  setting, directory)});
  }
}

/* ------------------------------------------------------------------------------------------------ route: manifests */

/* Packages, system, user. The XDG rules say that a relative $XDG_CONFIG_HOME is to be ignored. */
static void search_manifests(const fl_config_sources *sources, fl_found_list *found) {
  const char *config_home = fl_config_getenv(sources, "XDG_CONFIG_HOME"), *home = fl_config_getenv(sources, "HOME");
  fl_strings directories = {0};
  found->owned.failed |= !add_places(&manifest_places, &directories);
  fl_strings_add(&directories, "/etc/flhost/plugins.d");
  if (config_home && *config_home == '/')
    fl_strings_add(&directories, fl_arena_format(&found->owned, "%s/flhost/plugins.d", config_home));
  else if (home && *home == '/')
    fl_strings_add(&directories, fl_arena_format(&found->owned, "%s/.config/flhost/plugins.d", home));
  fl_manifests_find(&directories, found);
  fl_strings_free(&directories);
}

/* -------------------------------------------------------------------------------------------------- route: modules */

static bool is_symbol(const char *word) {
  if (!isalpha((unsigned char)*word) && *word != '_')
    return false;
  while (isalnum((unsigned char)*word) || *word == '_')
    word++;
  return !*word;
}

/* "lib", "libflhost_" before a name, ".so" behind it. */
static const struct {
  const char *prefix, *suffix;
} forms[] = {{"", ""}, {"", ".so"}, {"lib", ".so"}, {"libflhost_", ".so"}};

/* Looks a name up; NULL: not there. */
static const char *find_by_name(const fl_strings *directories, const char *name, fl_arena *owned) {
  bool whole = ends_with(name, ".so");
  for (uint32_t i = 0; i < directories->n; i++)
    for (size_t form = whole ? 0 : 1; form < (whole ? 1 : sizeof forms / sizeof forms[0]); form++) {
      const char *candidate =
          fl_arena_format(owned, "%s/%s%s%s", directories->items[i], forms[form].prefix, name, forms[form].suffix);
      if (!access(candidate, F_OK))
        return candidate;
    }
  return NULL;
}

static const char *say_missing_name(const fl_strings *directories, const char *name, fl_arena *owned) {
  fl_strings files = {0}, known = {0}; /* names under which the plugins there could have been asked for */
  fl_text text = {0};
  for (uint32_t i = 0; i < directories->n; i++)
    fl_list_directory(directories->items[i], ".so", &files);
  for (uint32_t i = 0; i < files.n; i++)
    fl_strings_add(&known, fl_plugin_name_of_file(owned, files.items[i]));
  if (ends_with(name, ".so"))
    fl_text_add(&text, "no plugin '%s' in ", name);
  else
    fl_text_add(&text, "no plugin '%s': looked for %s.so, lib%s.so and libflhost_%s.so in ", name, name, name, name);
  for (uint32_t i = 0; i < directories->n; i++)
    fl_text_add(&text, "%s%s", i ? ", " : "", directories->items[i]);
  fl_text_add(&text, "%s%s", directories->n ? "" : "no directory",
              fl_suggest_among(fl_plugin_name_of_file(owned, name), &known).text);
  fl_strings_free(&files);
  fl_strings_free(&known);
  return fl_arena_text(owned, &text);
}

static const char *say_missing_path(const char *path, fl_arena *owned) {
  fl_strings files = {0};
  const char *slash = strrchr(path, '/'), *problem;
  const char *directory = fl_arena_bytes(owned, path, (size_t)(slash - path));
  fl_list_directory(*directory ? directory : "/", ".so", &files);
  const char *nearest = fl_nearest_word(slash + 1, (const char *const *)files.items, files.n);
  if (nearest)
    problem = fl_arena_format(owned, "no file '%s'; did you mean '%s/%s'?", path, directory, nearest);
  else
    problem = fl_arena_format(owned, "no file '%s'", path);
  fl_strings_free(&files);
  return problem;
}

/* A path or name without symbol. */
static void find_file(const fl_strings *directories, const char *name, fl_arena *owned, fl_found *found) {
  if (strchr(name, '/')) {
    char *path = realpath(name, NULL);
    found->path = fl_arena_string(owned, path);
    if (!path)
      found->problem = errno == ENOENT || errno == ENOTDIR
                           ? say_missing_path(name, owned)
                           : fl_arena_format(owned, "'%s' cannot be looked at: %s", name, strerror(errno));
    free(path);
  } else {
    found->path = find_by_name(directories, name, owned);
    if (!found->path)
      found->problem = say_missing_name(directories, name, owned);
  }
  if (!found->path)
    found->path = name;
}

void fl_find_module(const fl_strings *directories, const char *entry, fl_found_list *found) {
  fl_arena *owned = &found->owned;
  const char *colon = strrchr(entry, ':'), *slash = strrchr(entry, '/');
  fl_found one = {.route = "module"};
  if (colon && slash && slash > colon) /* part of a path */
    colon = NULL;
  const char *name = fl_arena_bytes(owned, entry, colon ? (size_t)(colon - entry) : strlen(entry));
  if (!*name || (colon && !is_symbol(colon + 1))) {
    one.path = fl_arena_string(owned, entry);
    one.problem = fl_arena_format(owned, "'%s': %s%s%s, expected a path or name, with or without ':symbol'", entry,
                                  *name ? "'" : "", *name ? colon + 1 : "the plugin's name is empty",
                                  *name ? "' is not a symbol's name" : "");
  } else {
    one.symbol = colon ? fl_arena_string(owned, colon + 1) : NULL;
    find_file(directories, name, owned, &one);
  }
  fl_found_add(found, one);
}

/* ------------------------------------------------------------------------------------------------------------ all */

fl_status fl_discover(const fl_config_sources *sources, fl_log *log, fl_strings *directories, fl_found_list *found) {
  const char *setting = sources->plugin_path ? "plugin_path" : "VLLM_FL_PLUGIN_PATH";
  fl_strings path = {0}, modules = {0};
  bool has_path = false, done = fl_config_plugins(sources, &has_path, &path, &modules) && fl_strings_unique(&path);
  for (uint32_t i = 0; i < path.n; i++)
    if (*path.items[i] == '/')
      fl_strings_add(directories, path.items[i]);
  if (!has_path)
    done = done && fl_default_plugin_directories(directories);
  for (uint32_t i = 0; i < modules.n; i++)
    fl_find_module(directories, modules.items[i], found);
  search_listed(has_path ? &path : directories, has_path ? setting : NULL, log, found);
  search_manifests(sources, found);
  done = done && !directories->failed && !found->owned.failed;
  fl_strings_free(&path);
  fl_strings_free(&modules);
  return done ? FL_OK : fl_error_no_memory();
}
