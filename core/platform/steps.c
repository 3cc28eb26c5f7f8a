/*
 * The steps from a device on the bus to one that can be used (H1), each with what to do when it is missing: what a
 * person otherwise finds out with lspci, lsmod, ls -l, ldconfig and the vendor's own tool.
 */
#include "core/platform/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A list of steps while it is made. */
typedef struct steps {
  fl_arena *arena;
  fl_platform_step *items; /* STEPS_MAX, or NULL: out of memory */
  uint32_t n;
} steps;

enum { STEPS_MAX = 6 };

/* Takes `finding` and frees it. Name and state are constants. */
static void add_step(steps *list, const char *name, const char *state, fl_text *finding, const char *advice) {
  const fl_platform_step step = {
      .name = name,
      .state = state,
      .finding = fl_arena_text(list->arena, finding),
      .advice = fl_arena_string(list->arena, advice),
  };
  if (list->items)
    list->items[list->n++] = step;
}

/* ----------------------------------------------------------------------------------------------------- permissions */

void fl_platform_add_permission(const char *node, fl_text *text) {
  struct stat status;
  char buffer[4096];
  struct group entry, *group = NULL;
  if (!node || !faccessat(AT_FDCWD, node, R_OK | W_OK, AT_EACCESS) || stat(node, &status))
    return;
  if (getgrgid_r(status.st_gid, &entry, buffer, sizeof buffer, &group))
    group = NULL;
  fl_text_add(text, "; permission denied on %s (mode %04o, group %s)", node, status.st_mode & 07777u,
              group ? group->gr_name : "unknown");
  if (group && status.st_mode & S_IRGRP && status.st_mode & S_IWGRP)
    fl_text_add(text, ": add the user to group '%s'", group->gr_name);
}

/* ----------------------------------------------------------------------------------------------------------- steps */

static void add_bus(steps *list, const fl_finding *f) {
  fl_text text = {0};
  if (!f->bus_known)
    fl_text_add(&text, "the PCI bus cannot be read");
  else if (f->on_bus)
    fl_text_add(&text, "%s", f->devices);
  else
    fl_text_add(&text, "no %s device on the PCI bus", f->kind->title);
  add_step(list, "bus",
           !f->bus_known ? "unknown"
           : f->on_bus   ? "ok"
                         : "missing",
           &text, f->bus_known && !f->on_bus ? "in a container or a virtual machine, pass the device through" : "");
}

/* The first word of the file that begins with a number and has a dot in it ("580.82.07"), into `version`. */
static bool find_version(const char *path, char *version, size_t size) {
  FILE *file = fopen(path, "re");
  char line[512];
  bool found = false;
  while (file && !found && fgets(line, sizeof line, file)) {
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t\n=", &rest); word && !found; word = strtok_r(NULL, " \t\n=", &rest)) {
      found = strspn(word, "0123456789") > 0 && word[strspn(word, "0123456789")] == '.';
      if (found)
        snprintf(version, size, "%s", word);
    }
  }
  if (file)
    fclose(file);
  return found;
}

static const char *first_there(const char *const *paths) {
  while (*paths && access(*paths, F_OK))
    paths++;
  return *paths;
}

static void add_kernel(steps *list, const fl_finding *f) {
  const fl_platform_kind *kind = f->kind;
  const char *loaded = first_there(kind->kernel);
  char version[64], advice[160] = "";
  fl_text text = {0};
  bool known = false;
  for (const char *const *path = kind->versions; *path && !known; path++)
    known = find_version(*path, version, sizeof version);
  if (kind->module)
    fl_text_add(&text, "module %s ", kind->module);
  if (loaded)
    fl_text_add(&text, "%s%s(%s)", known ? version : "", known ? " " : "", loaded);
  else
    fl_text_add(&text, "%snot loaded: there is no %s", kind->module ? "is " : "", kind->kernel[0]);
  if (!loaded)
    snprintf(advice, sizeof advice, "install the vendor's kernel driver%s%s",
             kind->module ? ", or load it: modprobe " : "", kind->module ? kind->module : "");
  add_step(list, "kernel driver", loaded ? "ok" : "missing", &text, advice);
}

static void add_nodes(steps *list, const fl_finding *f) {
  fl_text there = {0}, closed = {0};
  const char *state = f->node ? "ok" : "missing", *advice = "";
  for (const char *const *pattern = f->kind->patterns; *pattern; pattern++) {
    glob_t found;
    if (glob(*pattern, 0, NULL, &found))
      continue;
    for (size_t i = 0; i < found.gl_pathc; i++) {
      fl_text_add(&there, "%s%s", there.length ? ", " : "", found.gl_pathv[i]);
      fl_platform_add_permission(found.gl_pathv[i], &closed);
    }
    globfree(&found);
  }
  if (f->node && !there.length)
    fl_text_add(&there, "%s", f->node);
  if (!f->node) {
    fl_text_free(&there);
    fl_text_add(&there, "no device node %s", f->kind->nodes[0]);
    advice = "in a container, give it the device nodes; else the kernel driver makes them";
  }
  if (closed.length) {
    state = "failed";
    advice = "give this user access to the nodes, as a rule by the group that owns them";
    fl_text_add(&there, "%s", fl_text_get(&closed));
  }
  there.failed |= closed.failed;
  fl_text_free(&closed);
  add_step(list, "device node", state, &there, advice);
}

static void add_library(steps *list, const fl_finding *f, const fl_plugin_finding *plugin) {
  const fl_probe *probe = &f->probe;
  const char *version = plugin && plugin->list ? plugin->list->version : "";
  bool absent = !probe->opened && strstr(probe->words, "cannot open shared object file: No such file");
  fl_text text = {0};
  if (probe->opened)
    fl_text_add(&text, "%s%s%s", probe->driver, *version ? ", version " : "", version);
  else
    fl_text_add(&text, "%s", probe->words);
  add_step(list, "user driver",
           probe->opened ? "ok"
           : absent      ? "missing"
                         : "failed",
           &text,
           probe->opened ? ""
           : absent      ? "install the driver's libraries, or put their directory into LD_LIBRARY_PATH"
                         : "repair the driver's installation");
}

static void add_plugin(steps *list, const fl_plugin_finding *plugin) {
  fl_text text = {0};
  fl_text_add(&text, "plugin '%s' %s", plugin->plugin,
              plugin->active    ? "is active"
              : !plugin->loaded ? "is not loaded: "
              : plugin->asked   ? "says: "
                                : "is not asked: ");
  if (!plugin->active)
    fl_text_add(&text, "%s", *plugin->reason ? plugin->reason : "not active");
  add_step(list, "plugin", plugin->active ? "ok" : plugin->loaded && !plugin->asked ? "unknown" : "failed", &text, "");
}

/* A driver that answers and has no device: as a rule they are hidden from this process. */
static void advise_on_none(const fl_finding *f, char *advice, size_t size) {
  snprintf(advice, size, "look at the driver's own tool and its log");
  for (const char *const *mask = f ? f->kind->masks : (const char *const[]){NULL}; *mask; mask++)
    if (getenv(*mask)) {
      snprintf(advice, size, "%s is '%s', which may hide them: correct or unset it", *mask, getenv(*mask));
      return;
    }
}

static void add_devices(steps *list, const fl_finding *f, const fl_plugin_finding *plugin) {
  bool asked = plugin && plugin->active && plugin->list;
  int32_t count = asked ? plugin->list->count : -1;
  const char *words = asked ? plugin->list->words : "";
  char advice[256] = "";
  fl_text text = {0};
  if (count > 0)
    fl_text_add(&text, "%d device%s", count, count == 1 ? "" : "s");
  else if (!asked)
    fl_text_add(&text, "not asked, since an earlier step is not in order");
  else if (!count)
    fl_text_add(&text, "the driver reports no device");
  else
    fl_text_add(&text, "%s", *words ? words : "their number is not known");
  bool is_silent = count > 0 && *words; /* one of them */
  if (is_silent)
    fl_text_add(&text, "; %s", words);
  bool failed = is_silent || (asked && count < 0 && *words);
  if (failed || (asked && !count))
    advise_on_none(count ? NULL : f, advice, sizeof advice);
  add_step(list, "devices",
           failed      ? "failed"
           : count > 0 ? "ok"
           : !asked    ? "unknown"
           : !count    ? "missing"
                       : "unknown",
           &text, advice);
}

const fl_platform_step *fl_platform_steps(const fl_finding *finding, const fl_plugin_finding *plugin, fl_arena *arena,
                                          uint32_t *n) {
  steps list = {.arena = arena, .items = fl_arena_array(arena, STEPS_MAX, sizeof *list.items)};
  if (finding) {
    add_bus(&list, finding);
    add_kernel(&list, finding);
    add_nodes(&list, finding);
    add_library(&list, finding, plugin);
  }
  if (plugin)
    add_plugin(&list, plugin);
  add_devices(&list, finding, plugin);
  *n = list.n;
  return list.items;
}
