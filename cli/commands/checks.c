/* The checks of `flhost doctor`, one function for each area; that of the settings is in checks_settings.c. They use the
 * public API and look at files and devices themselves only for what it does not say: permissions. */
#include "cli/cli.h"
#include "cli/commands/doctor.h"
#include "cli/trials/device.h"

#include <errno.h>
#include <flhost/vllm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In which a device has to say how it is. */
enum { HEALTH_SECONDS = 60 };

void check_writable(const char *path, const struct stat *status, const char *area, findings *list) {
  if ((status->st_mode & S_IWOTH) && !(status->st_mode & S_ISVTX))
    finding_add(list, FINDING_PROBLEM, area, "take the right away: chmod o-w", "every user may write to %s", path);
}

/* ----------------------------------------------------------------------------------------------------- directories */

bool is_variable_set(const char *variable) {
  const char *value = getenv(variable);
  return value && *value;
}

/* The host itself warns about directories that a setting names and that cannot be read. */
static void check_directory(const char *path, bool named, findings *list) {
  struct stat status;
  errno = ENOTDIR;
  if (!stat(path, &status) && S_ISDIR(status.st_mode) && !access(path, R_OK | X_OK)) {
    finding_add(list, FINDING_OK, "directories", "", "plugin directory %s", path);
    check_writable(path, &status, "directories", list);
  } else if (!named) {
    finding_add(list, FINDING_NOTE, "directories", "", "plugin directory %s: %s", path, strerror(errno));
  }
}

void check_directories(fl_host *host, findings *list) {
  bool named = is_variable_set("VLLM_FL_PLUGIN_PATH");
  for (const char *const *directory = fl_plugin_directories(host); directory && *directory; directory++)
    check_directory(*directory, named, list);
}

/* --------------------------------------------------------------------------------------------------------- plugins */

/* What to do about a plugin that failed: where a setting named it, there may be nothing wrong with a file. */
static const char *advice_for(const fl_plugin_info *plugin) {
  if (!strncmp(plugin->reason, "VLLM_FL_PLUGIN_PATH:", 20))
    return "correct the variable";
  if (!strcmp(plugin->route, "module"))
    return "correct VLLM_FL_PLUGIN_MODULES, or repair the file; the other plugins work without it";
  return "repair or remove the file; the other plugins work without it";
}

static const char *plural(uint32_t n) {
  return n == 1 ? "" : "s";
}

void check_plugins(fl_host *host, findings *list) {
  fl_plugins *plugins;
  uint32_t loaded = 0;
  fl_snapshot_release(fl_registry_snapshot(host)); /* loads those that wait for a call, too */
  if (fl_get_discovered_plugins(host, &plugins)) {
    finding_add(list, FINDING_PROBLEM, "plugins", "", "%s", fl_error_message());
    return;
  }
  for (uint32_t i = 0; i < plugins->n; i++) {
    const fl_plugin_info *plugin = fl_plugin_at(plugins, i);
    const char *name = *plugin->name ? plugin->name : plugin->file;
    if (!strcmp(plugin->status, "failed"))
      finding_add(list, FINDING_PROBLEM, "plugins", advice_for(plugin), "plugin %s failed: %s (%s)", name,
                  plugin->reason, plugin->file);
    else if (strcmp(plugin->status, "loaded") != 0)
      finding_add(list, FINDING_NOTE, "plugins", "", "plugin %s is %s: %s", name, plugin->status, plugin->reason);
    else
      finding_add(list, *plugin->reason ? FINDING_NOTE : FINDING_OK, "plugins", "",
                  "plugin %s %s: %u implementation%s%s%s", name, plugin->version, plugin->impls, plural(plugin->impls),
                  *plugin->reason ? "; " : "", plugin->reason);
    loaded += !strcmp(plugin->status, "loaded");
  }
  if (!loaded)
    finding_add(list, FINDING_PROBLEM, "plugins", "install plugins, or name their directory in VLLM_FL_PLUGIN_PATH",
                "no plugin is loaded");
  fl_plugins_free(plugins);
}

/* -------------------------------------------------------------------------------------------------------- platform */

/* Behind the last step that cannot be in order without the earlier ones: a container may have no bus to look at, Linux
 * on Windows no kernel driver. */
static uint32_t first_needed(const fl_platform_info *platform) {
  static const char *const telling[] = {"device node", "plugin", "devices"};
  for (uint32_t i = platform->n_steps; i > 0; i--) {
    const fl_platform_step *step = fl_platform_step_at(platform, i - 1);
    for (size_t j = 0; j < sizeof telling / sizeof *telling; j++)
      if (!strcmp(step->name, telling[j]) && !strcmp(step->state, "ok"))
        return i;
  }
  return 0;
}

/* A step on the way to a device, of a platform that is in force or whose device is on the bus. Behind the first that is
 * not in order (`broken`) the others follow from it, as a rule. */
static void check_step(const fl_platform_info *platform, uint32_t i, bool *broken, findings *list) {
  const fl_platform_step *step = fl_platform_step_at(platform, i);
  bool is_ok = !strcmp(step->state, "ok"), is_unknown = !strcmp(step->state, "unknown");
  bool is_needed = i >= first_needed(platform) || strcmp(step->state, "missing") != 0;
  finding_level level = is_ok                                 ? FINDING_OK
                        : is_unknown || !is_needed || *broken ? FINDING_NOTE
                        : platform->active                    ? FINDING_PROBLEM
                                                              : FINDING_WARNING;
  *broken |= level > FINDING_NOTE;
  finding_add(list, level, "platform", is_ok || !is_needed ? "" : step->advice, "%s, %s: %s", platform->name,
              step->name, step->finding);
}

/* The platform in force has a plugin that can do nothing there: too old a driver, other architectures. */
static void check_backend(fl_host *host, const fl_platform_info *platform, findings *list) {
  fl_plugins *plugins;
  if (!platform->active || !*platform->plugin || fl_get_discovered_plugins(host, &plugins))
    return;
  for (uint32_t i = 0; i < plugins->n; i++) {
    const fl_plugin_info *plugin = fl_plugin_at(plugins, i);
    if (!strcmp(plugin->name, platform->plugin) && !strcmp(plugin->status, "unavailable"))
      finding_add(list, FINDING_PROBLEM, "platform", "change what it names; until then nothing of the plugin runs",
                  "%s, operators: plugin '%s' says: %s", platform->name, plugin->name, plugin->reason);
  }
  fl_plugins_free(plugins);
}

/* What a driver lists may be lost all the same. A platform that cannot tell has nothing said against its devices. */
static void check_device(fl_host *host, const fl_platform_info *platform, uint32_t i, findings *list) {
  const fl_device_properties *device = fl_platform_device_at(platform, i);
  const trial_limits limits = {.seconds = HEALTH_SECONDS};
  char words[1024];
  fl_status status =
      cli_health_apart(host, (DLDevice){(DLDeviceType)platform->device_type, (int32_t)i}, &limits, words, sizeof words);
  finding_add(list, FINDING_OK, "platform", "", "%s:%u is %s%s%s%s", platform->name, i, device->name,
              *device->arch ? ", " : "", device->arch, status ? "" : ", and well");
  if (status && status != FL_ENOTSUP)
    finding_add(list, platform->active ? FINDING_PROBLEM : FINDING_WARNING, "platform",
                "end the processes that use it, reset it by its vendor's tool, and look into the kernel's log",
                "%s:%u: %s", platform->name, i, words);
}

static void check_hardware(fl_host *host, const fl_platform_info *platform, findings *list) {
  bool broken = false;
  if (!platform->active && !platform->pci_devices)
    return;
  if (!platform->n_steps)
    finding_add(list, FINDING_OK, "platform", "", "%s: %s", platform->name, platform->diagnosis);
  for (uint32_t i = 0; i < platform->n_steps; i++)
    check_step(platform, i, &broken, list);
  for (uint32_t i = 0; i < platform->n_devices; i++)
    check_device(host, platform, i, list);
  if (!broken)
    check_backend(host, platform, list);
}

void check_platform(fl_host *host, findings *list) {
  fl_platform_report *report;
  struct stat status;
  if (fl_get_platform(host, &report)) {
    finding_add(list, FINDING_PROBLEM, "platform", "", "%s", fl_error_message());
    return;
  }
  for (uint32_t i = 0; i < report->n; i++)
    check_hardware(host, fl_platform_at(report, i), list);
  if (*report->unserved)
    finding_add(list, FINDING_NOTE, "platform", "for an accelerator, install its vendor's plugin",
                "on the bus, and no plugin serves it: %s", report->unserved);
  if (!*report->config_file && !is_variable_set("VLLM_FL_CONFIG")) /* which stands in for it */
    finding_add(list, FINDING_NOTE, "platform", "", "no platform file for %s: built-in values are in force",
                report->active);
  else if (*report->config_file && !stat(report->config_file, &status))
    check_writable(report->config_file, &status, "settings", list);
  fl_platform_report_free(report);
}

/* ------------------------------------------------------------------------------------------------------------- ops */

/* Ops of which nothing runs for one reason. */
typedef struct refusal {
  char reason[256];
  char names[128]; /* the first of them */
  uint32_t n;
} refusal;

typedef struct op_counts {
  uint32_t ready, unimplemented, with_flagos, flagos_disabled;
  char reason[256]; /* why kind flagos is disabled for the first op where it is */
  refusal *refusals;
  uint32_t n_refusals;
} op_counts;

/* Has the op implementations of kind default, and do the settings turn them all off? */
static void count_flagos(fl_host *host, const fl_explanation *explanation, op_counts *counts) {
  for (uint32_t i = 0; i < explanation->n_impls; i++) {
    if (strcmp(fl_explained_at(explanation, i)->kind, "flagos") != 0)
      continue;
    counts->with_flagos++;
    if (fl_is_flagos_allowed(host, explanation->op))
      return;
    if (!counts->flagos_disabled++)
      snprintf(counts->reason, sizeof counts->reason, "%s", fl_explained_at(explanation, i)->reason);
    return;
  }
}

static void count_refusal(op_counts *counts, const char *op, const fl_explained *impl, findings *list) {
  char reason[sizeof counts->refusals->reason] = "none is for it";
  uint32_t at = 0;
  if (impl)
    snprintf(reason, sizeof reason, "%s: %s", impl->impl_id, impl->reason);
  while (at < counts->n_refusals && strcmp(counts->refusals[at].reason, reason) != 0)
    at++;
  if (at == counts->n_refusals) {
    refusal *grown = realloc(counts->refusals, (at + 1) * sizeof *grown);
    list->failed |= !grown;
    if (!grown)
      return;
    counts->refusals = grown;
    grown[counts->n_refusals++] = (refusal){0};
    memcpy(grown[at].reason, reason, sizeof reason);
  }
  refusal *r = &counts->refusals[at];
  size_t length = strlen(r->names);
  if (r->n++ < 3)
    snprintf(r->names + length, sizeof r->names - length, "%s%s", length ? ", " : "", op);
}

static void add_refusals(const op_counts *counts, int32_t device_type, findings *list) {
  char words[CLI_DEVICE_WORDS], advice[CLI_DEVICE_WORDS + 32];
  snprintf(advice, sizeof advice, "'flhost explain %sOP' tells more", cli_device_words(device_type, words));
  for (uint32_t i = 0; i < counts->n_refusals; i++) {
    const refusal *r = &counts->refusals[i];
    char more[32] = "";
    if (r->n > 3)
      snprintf(more, sizeof more, " and %u more", r->n - 3);
    finding_add(list, FINDING_WARNING, "ops", advice, "%s%s: no implementation may run on %s; %s", r->names, more,
                cli_device_name(device_type), r->reason);
  }
}

static void check_op(fl_host *host, const fl_snapshot *snapshot, uint32_t index, int32_t device_type, op_counts *counts,
                     findings *list) {
  const char *op = fl_snapshot_op_name(snapshot, index);
  fl_explanation *explanation;
  if (fl_explain(host, op, device_type, &explanation)) {
    finding_add(list, FINDING_PROBLEM, "ops", "", "%s", fl_error_message());
    return;
  }
  count_flagos(host, explanation, counts);
  if (explanation->selected)
    counts->ready++;
  else if (!explanation->n_impls)
    counts->unimplemented++;
  else
    count_refusal(counts, op, cli_most_telling(explanation, snapshot, index, device_type), list);
  fl_explanation_free(explanation);
}

/* Device type of the tensors on the platform in force. */
static int32_t active_device_type(fl_host *host) {
  fl_platform_report *report;
  int32_t device_type = kDLCPU;
  if (fl_get_platform(host, &report))
    return kDLCPU;
  for (uint32_t i = 0; i < report->n; i++)
    if (fl_platform_at(report, i)->active)
      device_type = fl_platform_at(report, i)->device_type;
  fl_platform_report_free(report);
  return device_type;
}

void check_ops(fl_host *host, findings *list) {
  op_counts counts = {0};
  int32_t device_type = active_device_type(host);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; snapshot && i < fl_snapshot_op_count(snapshot); i++)
    check_op(host, snapshot, i, device_type, &counts, list);
  add_refusals(&counts, device_type, list);
  finding_add(list, counts.ready ? FINDING_OK : FINDING_PROBLEM, "ops", "", "%u operator%s ready on %s", counts.ready,
              counts.ready == 1 ? " is" : "s are", cli_device_name(device_type));
  if (counts.unimplemented)
    finding_add(list, FINDING_NOTE, "ops", "", "%u operator%s no implementation in any plugin", counts.unimplemented,
                counts.unimplemented == 1 ? " has" : "s have");
  if (counts.with_flagos && counts.flagos_disabled == counts.with_flagos)
    finding_add(list, FINDING_WARNING, "ops", "remove the setting if that is not meant",
                "implementations of kind flagos are not used for any operator: %s", counts.reason);
  free(counts.refusals);
  fl_snapshot_release(snapshot);
}

/* --------------------------------------------------------------------------------------------------- communicators */

void check_communicators(fl_host *host, findings *list) {
  fl_communicators *all;
  fl_group_id id;
  if (fl_get_communicators(host, &all)) {
    finding_add(list, FINDING_PROBLEM, "communicators", "", "%s", fl_error_message());
    return;
  }
  for (uint32_t i = 0; i < all->n; i++) {
    const fl_communicator_info *c = fl_communicator_at(all, i);
    if (c->chosen)
      finding_add(list, FINDING_OK, "communicators", "", "groups of ranks on %s use '%s'",
                  cli_device_name(c->device_type), c->name);
  }
  /* A name that nobody brings is found when a group is made. */
  if (all->n && fl_group_make_id(host, kDLCPU, &id))
    finding_add(list, FINDING_PROBLEM, "communicators", "mend the setting communicator, or install what it names", "%s",
                fl_error_message());
  fl_communicators_free(all);
}
