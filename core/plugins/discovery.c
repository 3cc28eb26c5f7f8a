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
#include <inttypes.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------- lists of finds */

fl_found *fl_found_list_add(fl_found_list *found) {
  if (!fl_array_grow(&found->items, found->n, sizeof *found->items))
    return NULL;
  fl_found *item = &found->items[found->n++];
  *item = (fl_found){.route = ""};
  return item;
}

void fl_found_clear(fl_found *found) {
  free(found->path);
  free(found->symbol);
  free(found->name);
  free(found->problem);
  *found = (fl_found){.route = ""};
}

void fl_found_list_free(fl_found_list *found) {
  for (uint32_t i = 0; i < found->n; i++)
    fl_found_clear(&found->items[i]);
  free(found->items);
  *found = (fl_found_list){0};
}

static bool ends_with(const char *string, const char *suffix) {
  size_t length = strlen(string), n = strlen(suffix);
  return length > n && !strcmp(string + length - n, suffix);
}

bool fl_list_directory(const char *directory, const char *suffix, fl_strings *names) {
  DIR *stream = opendir(directory);
  const struct dirent *entry;
  bool done = stream != NULL;
  while (done && (entry = readdir(stream)))
    if (entry->d_name[0] != '.' && ends_with(entry->d_name, suffix) && !fl_strings_add(names, entry->d_name)) {
      errno = ENOMEM;
      done = false;
    }
  int error = errno;
  if (stream)
    closedir(stream);
  fl_strings_sort_unique(names);
  errno = error;
  return done;
}

/* ------------------------------------------------------------------------------------------- default directories */

static bool is_directory(const char *path) {
  struct stat status;
  return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* The path of the file that is mapped at `address`, by the kernel's word (malloc'ed; NULL: not found). */
static char *mapped_file(const void *address) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char *line = NULL, *path = NULL;
  size_t size = 0;
  while (maps && !path && getline(&line, &size, maps) > 0) {
    uintptr_t start, end;
    const char *slash = strchr(line, '/');
    if (slash && sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &start, &end) == 2 && (uintptr_t)address >= start &&
        (uintptr_t)address < end)
      path = fl_format("%.*s", (int)strcspn(slash, "\n"), slash);
  }
  free(line);
  if (maps)
    fclose(maps);
  return path;
}

/* The file that holds this library, and whether that is a program that it is linked into. */
typedef struct own_place {
  bool is_program;
  char *directory; /* canonical; NULL: not found */
} own_place;

/* Found out once, since neither changes while it is mapped; again where there was no memory to find out. */
static _Atomic(own_place *) own_place_known;

/* A program's name in the link map is whatever its caller put into argv[0], and a library's may be relative to a
 * working directory that is no longer the same: then the kernel is asked. */
static own_place *find_own_place(void) {
  static const char here = 0;
  struct link_map *map = NULL;
  Dl_info info;
  own_place *found = malloc(sizeof *found), *before = NULL;
  if (!found)
    return NULL;
  errno = 0;
  *found = (own_place){.is_program = true};
  if (dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) && map && map->l_name[0]) {
    found->is_program = false;
    found->directory = map->l_name[0] == '/' ? realpath(map->l_name, NULL) : NULL;
  }
  if (!found->directory)
    found->directory = mapped_file(&here);
  char *slash = found->directory ? strrchr(found->directory, '/') : NULL;
  if (slash)
    slash[slash == found->directory] = 0;
  bool is_known = found->directory || errno != ENOMEM;
  if (is_known && atomic_compare_exchange_strong(&own_place_known, &before, found))
    return found;
  free(found->directory);
  free(found);
  return before;
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
  const own_place *own = atomic_load(&own_place_known);
  if (!own)
    own = find_own_place();
  bool done = own != NULL;
  *nearby = NULL;
  for (int i = 0; done && own->directory && !*nearby && i < (own->is_program ? 1 : 3); i++) {
    const char *relative = own->is_program ? where->program : where->beside[i];
    char *path = relative ? fl_format("%s/%s", own->directory, relative) : NULL;
    bool found = path && is_directory(path);
    if (found)
      *nearby = realpath(path, NULL);
    done = (!relative || path) && !(found && !*nearby && errno == ENOMEM);
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

/* ---------------------------------------------------------------------------------------------- route: directories */

static bool add_problem(fl_found_list *found, const char *route, const char *path, char *problem) {
  fl_found *item = problem ? fl_found_list_add(found) : NULL;
  if (!item) {
    free(problem);
    return false;
  }
  item->route = route;
  item->problem = problem;
  item->path = fl_strdup(path);
  return item->path != NULL;
}

/* The *.so files of one directory. One that cannot be read is worth a word only where the user asked for it. */
static bool search_directory(const char *directory, const char *setting, fl_log *log, fl_found_list *found) {
  fl_strings names = {0};
  bool done = fl_list_directory(directory, ".so", &names);
  if (!done && errno != ENOMEM) {
    fl_log_line(log, setting ? FL_LOG_WARNING : FL_LOG_DEBUG, "%s: '%s': %s",
                setting ? setting : "default plugin directory", directory, strerror(errno));
    done = true;
  } else if (done && setting && !names.n) {
    fl_log_line(log, FL_LOG_WARNING, "%s: '%s': no plugin (*.so) there", setting, directory);
  }
  for (uint32_t i = 0; i < names.n && done; i++) {
    fl_found *item = fl_found_list_add(found);
    done = item != NULL;
    if (item) {
      item->route = "directory";
      item->path = fl_format("%s%s%s", directory, ends_with(directory, "/") ? "" : "/", names.items[i]);
      done = item->path != NULL;
    }
  }
  fl_strings_free(&names);
  return done;
}

/* Directories that the user listed; a relative one would depend on where the program is started. */
static bool search_listed(const fl_config_sources *sources, const fl_strings *path, fl_log *log,
                          fl_strings *directories, fl_found_list *found) {
  const char *setting = sources->plugin_path ? "plugin_path" : "VLLM_FL_PLUGIN_PATH";
  for (uint32_t i = 0; i < path->n; i++) {
    const char *directory = path->items[i];
    bool done;
    if (*directory != '/')
      done = add_problem(found, "directory", directory,
                         fl_format("%s: '%s' is relative to wherever the program starts, expected an absolute path",
                                   setting, directory));
    else
      done = fl_strings_has(directories, directory) ||
             (fl_strings_add(directories, directory) && search_directory(directory, setting, log, found));
    if (!done)
      return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------ route: manifests */

/* Packages, system, user. The XDG rules say that a relative $XDG_CONFIG_HOME is to be ignored. */
static bool manifest_directories(const fl_config_sources *sources, fl_strings *directories) {
  const char *config_home = fl_config_getenv(sources, "XDG_CONFIG_HOME"), *home = fl_config_getenv(sources, "HOME");
  char *user = NULL;
  if (!add_places(&manifest_places, directories) || !fl_strings_add(directories, "/etc/flhost/plugins.d"))
    return false;
  if (config_home && *config_home == '/')
    user = fl_format("%s/flhost/plugins.d", config_home);
  else if (home && *home == '/')
    user = fl_format("%s/.config/flhost/plugins.d", home);
  else
    return true;
  bool done = user && fl_strings_add(directories, user);
  free(user);
  return done;
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

/* Looks a name up. *path NULL: not there. */
static bool find_by_name(const fl_strings *directories, const char *name, char **path) {
  bool whole = ends_with(name, ".so");
  for (uint32_t i = 0; i < directories->n; i++)
    for (size_t form = whole ? 0 : 1; form < (whole ? 1 : sizeof forms / sizeof forms[0]); form++) {
      char *candidate = fl_format("%s/%s%s%s", directories->items[i], forms[form].prefix, name, forms[form].suffix);
      if (!candidate)
        return false;
      if (!access(candidate, F_OK)) {
        *path = candidate;
        return true;
      }
      free(candidate);
    }
  return true;
}

/* Names under which the plugins in a directory could have been asked for. */
static bool add_known(const char *directory, fl_strings *known) {
  fl_strings files = {0};
  bool done = fl_list_directory(directory, ".so", &files) || errno != ENOMEM;
  for (uint32_t i = 0; i < files.n && done; i++) {
    char *name = fl_plugin_name_of_file(files.items[i]);
    done = name && fl_strings_add(known, name);
    free(name);
  }
  fl_strings_free(&files);
  return done;
}

static void say_missing_name(const fl_strings *directories, const char *name, const fl_strings *known, fl_text *text) {
  if (ends_with(name, ".so"))
    fl_text_add(text, "no plugin '%s' in ", name);
  else
    fl_text_add(text, "no plugin '%s': looked for %s.so, lib%s.so and libflhost_%s.so in ", name, name, name, name);
  for (uint32_t i = 0; i < directories->n; i++)
    fl_text_add(text, "%s%s", i ? ", " : "", directories->items[i]);
  if (!directories->n)
    fl_text_add(text, "no directory");
  char *stem = fl_plugin_name_of_file(name);
  if (stem)
    fl_text_add(text, "%s", fl_suggest_among(stem, known).text);
  text->failed |= !stem;
  free(stem);
}

static void say_missing_path(const char *path, fl_text *text) {
  fl_strings files = {0};
  char *directory = fl_format("%.*s", (int)(strrchr(path, '/') - path), path);
  const char *nearest = NULL;
  fl_text_add(text, "no file '%s'", path);
  if (directory && fl_list_directory(*directory ? directory : "/", ".so", &files))
    nearest = fl_nearest_word(strrchr(path, '/') + 1, (const char *const *)files.items, files.n);
  if (nearest)
    fl_text_add(text, "; did you mean '%s/%s'?", directory, nearest);
  text->failed |= !directory;
  free(directory);
  fl_strings_free(&files);
}

/* A path or name without symbol. */
static bool find_file(const fl_strings *directories, const char *name, fl_found *found) {
  fl_strings known = {0};
  fl_text text = {0};
  bool done = true;
  if (strchr(name, '/')) {
    found->path = realpath(name, NULL);
    if (!found->path)
      say_missing_path(name, &text);
  } else {
    done = find_by_name(directories, name, &found->path);
    for (uint32_t i = 0; i < directories->n && done && !found->path; i++)
      done = add_known(directories->items[i], &known);
    if (done && !found->path)
      say_missing_name(directories, name, &known, &text);
  }
  if (done && !found->path) {
    found->path = fl_strdup(name);
    found->problem = fl_text_take(&text);
    done = found->path && found->problem;
  }
  fl_text_free(&text);
  fl_strings_free(&known);
  return done;
}

fl_status fl_find_module(const fl_strings *directories, const char *entry, fl_found *found) {
  const char *colon = strrchr(entry, ':'), *slash = strrchr(entry, '/');
  bool done;
  *found = (fl_found){.route = "module"};
  if (colon && slash && slash > colon) /* part of a path */
    colon = NULL;
  char *name = fl_format("%.*s", colon ? (int)(colon - entry) : (int)strlen(entry), entry);
  if (name && (!*name || (colon && !is_symbol(colon + 1)))) {
    found->path = fl_strdup(entry);
    found->problem =
        fl_format("'%s': %s%s%s, expected a path or name, with or without ':symbol'", entry, *name ? "'" : "",
                  *name ? colon + 1 : "the plugin's name is empty", *name ? "' is not a symbol's name" : "");
    done = found->path && found->problem;
  } else {
    if (colon)
      found->symbol = fl_strdup(colon + 1);
    done = name && (!colon || found->symbol) && find_file(directories, name, found);
  }
  free(name);
  if (!done) {
    fl_found_clear(found);
    return fl_error_no_memory();
  }
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------------ all */

/* What nobody named: in directories, those listed or else the default ones, and by manifests. */
static fl_status search_installed(const fl_config_sources *sources, const fl_strings *listed, fl_log *log,
                                  fl_strings *directories, fl_found_list *found) {
  fl_strings manifests = {0};
  fl_status status = FL_OK;
  bool done;
  if (listed) {
    done = search_listed(sources, listed, log, directories, found);
  } else {
    done = fl_default_plugin_directories(directories);
    for (uint32_t i = 0; i < directories->n && done; i++)
      done = search_directory(directories->items[i], NULL, log, found);
  }
  done = done && manifest_directories(sources, &manifests);
  if (done)
    status = fl_manifests_find(&manifests, found);
  fl_strings_free(&manifests);
  return done ? status : fl_error_no_memory();
}

static bool append(fl_found_list *to, fl_found_list *from) {
  for (uint32_t i = 0; i < from->n; i++) {
    fl_found *item = fl_found_list_add(to);
    if (!item)
      return false;
    *item = from->items[i];
    from->items[i] = (fl_found){.route = ""};
  }
  return true;
}

fl_status fl_discover(const fl_config_sources *sources, fl_log *log, fl_strings *directories, fl_found_list *found) {
  fl_strings path = {0}, modules = {0};
  fl_found_list installed = {0};
  bool has_path = false, done = fl_config_plugins(sources, &has_path, &path, &modules);
  fl_status status =
      done ? search_installed(sources, has_path ? &path : NULL, log, directories, &installed) : FL_ENOMEM;
  for (uint32_t i = 0; i < modules.n && done && !status; i++) {
    fl_found *item = fl_found_list_add(found);
    done = item != NULL;
    if (item)
      status = fl_find_module(directories, modules.items[i], item);
  }
  done = done && (status || append(found, &installed));
  fl_strings_free(&path);
  fl_strings_free(&modules);
  fl_found_list_free(&installed);
  return done ? status : fl_error_no_memory();
}
