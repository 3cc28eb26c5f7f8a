/*
 * The platform report (H1): of each platform what is on the bus, which driver library opens, how many devices that
 * reports, and one sentence that says what this means.
 */
#include "core/platform/report.h"

#include "core/platform/device.h"
#include "core/platform/memory.h"
#include "core/platform/platform.h"
#include "core/platform/steps.h"
#include "core/support.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- bus */

/* What hwloc sees. */
typedef struct machine {
  hwloc_topology_t topology;
  bool known; /* it could be loaded */
} machine;

/* Only the bus and the number of cores are wanted, from the kernel: hwloc's components for accelerators would load the
 * vendors' libraries into the process, its own for PCI leaks, and its x86 one asks each processor in turn. */
static bool machine_load(machine *m) {
  static const char *const unwanted[] = {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci", "x86"};
  *m = (machine){0};
  if (hwloc_topology_init(&m->topology))
    return false;
  for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
    hwloc_topology_set_components(m->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
  hwloc_topology_set_all_types_filter(m->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(m->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(m->topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  m->known = !hwloc_topology_load(m->topology);
  return true;
}

static bool of_kind(const fl_platform_kind *kind, const struct hwloc_pcidev_attr_s *device) {
  if (device->vendor_id != kind->pci_vendor)
    return false;
  for (const uint16_t *class_id = kind->pci_classes; *class_id; class_id++)
    if (device->class_id == *class_id)
      return true;
  return false;
}

static void add_place(fl_text *text, const struct hwloc_pcidev_attr_s *device) {
  fl_text_add(text, "%04x:%04x at %04x:%02x:%02x.%x", device->vendor_id, device->device_id, device->domain, device->bus,
              device->dev, device->func);
}

/* Devices of one platform on the bus, with their names. */
static uint32_t list_devices(const machine *m, const fl_platform_kind *kind, fl_text *names) {
  uint32_t n = 0;
  for (hwloc_obj_t object = NULL; m->known && (object = hwloc_get_next_pcidev(m->topology, object));) {
    const struct hwloc_pcidev_attr_s *device = &object->attr->pcidev;
    if (!of_kind(kind, device))
      continue;
    const char *name = hwloc_obj_get_info_by_name(object, "PCIDevice");
    fl_text_add(names, "%s%s %s (", n ? ", " : "", kind->title, name ? name : "device");
    add_place(names, device);
    fl_text_add(names, ")");
    n++;
  }
  return n;
}

/* What may compute, by the base class or the class of its kind of device. */
static const char *class_name(uint16_t class_id) {
  return class_id >> 8 == 0x03   ? "graphics"
         : class_id >> 8 == 0x12 ? "accelerator"
         : class_id == 0x0b40    ? "co-processor"
                                 : NULL;
}

/* Devices that may compute and are no kind's. */
static void list_unserved(const machine *m, const fl_platform_kind *kinds, fl_text *names) {
  for (hwloc_obj_t object = NULL; m->known && (object = hwloc_get_next_pcidev(m->topology, object));) {
    const struct hwloc_pcidev_attr_s *device = &object->attr->pcidev;
    const char *vendor = hwloc_obj_get_info_by_name(object, "PCIVendor");
    bool is_served = !class_name(device->class_id);
    for (const fl_platform_kind *kind = kinds; kind->name && !is_served; kind++)
      is_served = of_kind(kind, device);
    if (is_served)
      continue;
    fl_text_add(names, "%s%s%s%s ", names->length ? ", " : "", vendor ? vendor : "", vendor ? " " : "",
                class_name(device->class_id));
    add_place(names, device);
  }
}

/* ------------------------------------------------------------------------------------------------------- diagnosis */

static void add_bus(const fl_finding *f, fl_text *text) {
  if (!f->bus_known)
    fl_text_add(text, "the PCI bus cannot be read");
  else if (f->on_bus)
    fl_text_add(text, "%s device present", f->kind->title);
  else
    fl_text_add(text, "no %s device on the PCI bus", f->kind->title);
}

/* `list`: what an active plugin says of the devices; NULL: nobody was asked. */
static void add_driver(const fl_finding *f, const fl_device_list *list, fl_text *text) {
  const fl_probe *probe = &f->probe;
  bool missing = !probe->opened && strstr(probe->words, "cannot open shared object file: No such file");
  if (missing && !f->on_bus && !f->node) /* nothing speaks for such a device: no need for the loader's words */
    fl_text_add(text, "; driver library not found");
  else if (missing)
    fl_text_add(text, ", driver library not found: %s", probe->words);
  else if (!probe->opened)
    fl_text_add(text, ", driver library does not open: %s", probe->words);
  else if (!f->node)
    fl_text_add(text, "; driver library %s opens, but there is no device node %s", probe->driver, f->kind->nodes[0]);
  else if (list && !list->count)
    fl_text_add(text, "; driver reports no device");
  else if (list && *list->words)
    fl_text_add(text, "; driver failed: %s", list->words);
}

/* Devices that count for the platform: what says so has its driver and its node. */
static int32_t count_devices(const fl_finding *f, const fl_device_list *list) {
  return list && f->node && f->probe.opened ? list->count : -1;
}

static void diagnose(const fl_finding *f, const fl_device_list *list, fl_text *text) {
  int32_t count = count_devices(f, list);
  if (count > 0) {
    fl_text_add(text, "driver reports %d device%s", count, count == 1 ? "" : "s");
    if (f->bus_known && !f->on_bus)
      fl_text_add(text, ", though none is to be seen on the PCI bus (as in a container)");
    return;
  }
  add_bus(f, text);
  add_driver(f, list, text);
  fl_platform_add_permission(f->node, text);
}

/* ---------------------------------------------------------------------------------------------------------- report */

/* The lists of one platform. */
typedef struct owned_lists {
  fl_platform_step steps[FL_STEPS_MAX];
  fl_device_list *devices;
} owned_lists;

/* The report and all that it points to. */
typedef struct owned_report {
  fl_platform_report report; /* first: the pointer that is handed out leads back here */
  fl_strings strings;
  const char *unserved;
  owned_lists *lists; /* by platform */
  fl_platform_info platforms[];
} owned_report;

void fl_platform_report_free(fl_platform_report *report) {
  owned_report *owned = (owned_report *)report;
  if (!owned)
    return;
  for (uint32_t i = 0; i < report->n; i++)
    free(owned->lists[i].devices);
  free(owned->lists);
  fl_strings_free(&owned->strings);
  free(owned);
}

const char *fl_platform_unserved(const fl_platform_report *report) {
  return ((const owned_report *)report)->unserved;
}

/* A copy that lives as long as the report; "" and *failed when out of memory. */
static const char *keep(owned_report *owned, const char *string, bool *failed) {
  if (fl_strings_add(&owned->strings, string ? string : ""))
    return owned->strings.items[owned->strings.n - 1];
  *failed = true;
  return "";
}

/* The same of a text, which is freed. */
static const char *keep_text(owned_report *owned, fl_text *text, bool *failed) {
  const char *kept = keep(owned, fl_text_get(text), failed);
  *failed |= text->failed;
  fl_text_free(text);
  return kept;
}

/* Adds a platform, whose lists are empty so far. */
static void add_platform(owned_report *owned, fl_platform_info info) {
  owned->platforms[owned->report.n++] = info;
}

/* The steps, and the devices, of which `list` becomes the report's. */
static void add_lists(owned_report *owned, const fl_finding *finding, const fl_plugin_finding *plugin,
                      fl_device_list *list, bool *failed) {
  owned_lists *lists = &owned->lists[owned->report.n - 1];
  fl_platform_info *info = &owned->platforms[owned->report.n - 1];
  fl_strings words = {0};
  if ((finding || plugin) && !fl_platform_steps(finding, plugin, &words))
    *failed = true;
  for (uint32_t i = 0; !*failed && i < words.n; i += FL_STEP_WORDS)
    lists->steps[info->n_steps++] =
        (fl_platform_step){keep(owned, words.items[i], failed), keep(owned, words.items[i + 1], failed),
                           keep(owned, words.items[i + 2], failed), keep(owned, words.items[i + 3], failed)};
  fl_strings_free(&words);
  lists->devices = list;
  info->steps = lists->steps;
  info->n_devices = list ? list->n : 0;
  info->devices = list ? list->devices : NULL;
}

static void report_cpu(owned_report *owned, const fl_platform_kind *kind, const machine *m, bool *failed) {
  fl_text text = {0};
  int cores = m->known ? hwloc_get_nbobjs_by_type(m->topology, HWLOC_OBJ_CORE) : 0;
  fl_device_list *list = malloc(sizeof *list);
  *failed |= !list;
  if (list)
    fl_list_devices(&fl_host_memory, NULL, list);
  fl_text_add(&text, "always available");
  if (cores > 0)
    fl_text_add(&text, ", %d core%s", cores, cores == 1 ? "" : "s");
  add_platform(owned, (fl_platform_info){.name = kind->name,
                                         .plugin = "",
                                         .pci = "",
                                         .driver_found = true,
                                         .driver = "",
                                         .device_count = 1,
                                         .device_type = kind->device_type,
                                         .diagnosis = keep_text(owned, &text, failed)});
  add_lists(owned, NULL, NULL, list, failed);
}

/* What a plugin says of its platform; `diagnosis` gets a sentence. */
static fl_plugin_finding ask_plugin(const fl_component_record *component, fl_text *diagnosis, bool *failed) {
  const char *reason;
  fl_plugin_finding found = {.plugin = component->plugin, .loaded = true, .list = calloc(1, sizeof *found.list)};
  found.active = fl_component_is_active(component, &reason);
  if (!found.active)
    snprintf(found.reason, sizeof found.reason, "%s", reason ? reason : "not active");
  if (!found.list) {
    *failed = true;
    return found;
  }
  fl_device_list *list = found.list;
  list->count = -1;
  if (found.active && (component->platform.device_count || component->platform.properties))
    fl_probe_devices(&component->platform, component->self, component->plugin, FL_DRIVER_TIMEOUT_MS, list);
  if (list->count >= 0)
    fl_text_add(diagnosis, "plugin '%s' reports %d device%s", component->plugin, list->count,
                list->count == 1 ? "" : "s");
  else if (found.active)
    fl_text_add(diagnosis, "plugin '%s' says that it is active%s%s", component->plugin, *list->words ? "; " : "",
                list->words);
  else
    fl_text_add(diagnosis, "plugin '%s' says: %s", component->plugin, found.reason);
  return found;
}

/* Its plugin is not there to be asked. */
static fl_plugin_finding miss_plugin(const fl_platform_kind *kind, fl_text *diagnosis) {
  fl_plugin_finding missed = {.plugin = kind->plugin};
  snprintf(missed.reason, sizeof missed.reason, "%s", kind->problem ? kind->problem : "it was withdrawn");
  fl_text_add(diagnosis, "plugin '%s' is not loaded: %s", kind->plugin, missed.reason);
  return missed;
}

/* A platform that a plugin describes, with what that says itself where it is not what the driver says already. */
static void report_kind(owned_report *owned, const fl_platform_kind *kind, const fl_component_record *component,
                        const machine *m, bool *failed) {
  fl_text names = {0}, diagnosis = {0}, words = {0};
  fl_plugin_finding plugin = {0};
  fl_finding f = {.kind = kind, .bus_known = m->known, .node = fl_platform_node(kind)};
  f.on_bus = list_devices(m, kind, &names);
  f.devices = fl_text_get(&names);
  fl_probe_driver(&kind->driver, FL_DRIVER_TIMEOUT_MS, &f.probe);
  plugin = component ? ask_plugin(component, &words, failed) : miss_plugin(kind, &words);
  const fl_device_list *said = plugin.active ? plugin.list : NULL;
  int32_t count = count_devices(&f, said);
  diagnose(&f, said, &diagnosis);
  if (f.node && f.probe.opened ? !said : plugin.active) /* else it is in the diagnosis, or there is nothing to ask */
    fl_text_add(&diagnosis, "; %s", fl_text_get(&words));
  *failed |= words.failed;
  fl_text_free(&words);
  add_platform(owned, (fl_platform_info){.name = keep(owned, kind->name, failed),
                                         .plugin = keep(owned, plugin.plugin, failed),
                                         .pci_devices = f.on_bus,
                                         .pci = keep(owned, f.devices, failed),
                                         .driver_found = f.probe.opened,
                                         .driver = keep(owned, f.probe.opened ? f.probe.driver : f.probe.words, failed),
                                         .device_count = count,
                                         .device_type = kind->device_type,
                                         .diagnosis = keep_text(owned, &diagnosis, failed)});
  add_lists(owned, &f, &plugin, plugin.list, failed);
  *failed |= names.failed;
  fl_text_free(&names);
}

static void report_component(owned_report *owned, const fl_component_record *component, bool *failed) {
  fl_text diagnosis = {0};
  fl_plugin_finding plugin = ask_plugin(component, &diagnosis, failed);
  add_platform(owned,
               (fl_platform_info){.name = keep(owned, component->name, failed),
                                  .plugin = keep(owned, component->plugin, failed),
                                  .pci = "",
                                  .driver_found = plugin.active,
                                  .driver = "",
                                  .device_count = plugin.list && plugin.list->count >= 0 ? plugin.list->count : -1,
                                  .device_type = component->platform.device_type,
                                  .diagnosis = keep_text(owned, &diagnosis, failed)});
  add_lists(owned, NULL, &plugin, plugin.list, failed);
}

/* One that is forced, and known by its platform file alone. */
static void report_unknown(owned_report *owned, const char *name, bool *failed) {
  static const char missing[] = "no plugin brings it";
  static const fl_platform_step step = {
      "plugin", "missing", missing,
      "install the vendor's plugin, or name its directory in VLLM_FL_PLUGIN_PATH; else force no platform"};
  add_platform(owned, (fl_platform_info){.name = keep(owned, name, failed),
                                         .plugin = "",
                                         .pci = "",
                                         .driver = "",
                                         .device_count = -1,
                                         .diagnosis = missing,
                                         .device_type = kDLExtDev,
                                         .steps = &step,
                                         .n_steps = 1});
}

/* What a plugin brought for a kind, NULL if nothing. */
static const fl_component_record *component_of(const fl_platform_kind *kind, const fl_component_record *components,
                                               uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (fl_component_is_platform(&components[i]) && !strcmp(components[i].name, kind->name))
      return &components[i];
  return NULL;
}

/* Is there a row for it, made from its kind? */
static bool is_described(const fl_platform_kind *kinds, const char *name) {
  while (kinds->name && (!kinds->is_described || strcmp(kinds->name, name)))
    kinds++;
  return kinds->name != NULL;
}

static bool mark_active(fl_platform_info *platforms, uint32_t n, const char *active) {
  bool found = false;
  for (uint32_t i = 0; i < n; i++)
    found |= platforms[i].active = !strcmp(platforms[i].name, active);
  return found;
}

fl_status fl_platform_report_create(const fl_platform_kind *kinds, const char *active, const char *origin,
                                    const char *config_file, const fl_component_record *components, uint32_t n,
                                    fl_platform_report **report) {
  machine m;
  bool failed = false;
  uint32_t n_kinds = 0;
  while (kinds[n_kinds].name)
    n_kinds++;
  owned_report *owned = calloc(1, sizeof *owned + (n_kinds + n + 1) * sizeof owned->platforms[0]);
  if (owned)
    owned->lists = calloc(n_kinds + n + 1, sizeof *owned->lists);
  if (!owned || !owned->lists || !machine_load(&m)) {
    fl_platform_report_free((fl_platform_report *)owned);
    return fl_error_no_memory();
  }
  report_cpu(owned, kinds, &m, &failed);
  for (const fl_platform_kind *kind = kinds + 1; kind->name; kind++)
    if (kind->is_described)
      report_kind(owned, kind, component_of(kind, components, n), &m, &failed);
  for (uint32_t i = 0; i < n; i++)
    if (fl_component_is_platform(&components[i]) && !is_described(kinds, components[i].name))
      report_component(owned, &components[i], &failed);
  fl_text unserved = {0};
  list_unserved(&m, kinds, &unserved);
  owned->unserved = keep_text(owned, &unserved, &failed);
  hwloc_topology_destroy(m.topology);
  owned->report.active = keep(owned, active, &failed);
  owned->report.active_origin = keep(owned, origin, &failed);
  owned->report.config_file = keep(owned, config_file, &failed);
  owned->report.platforms = owned->platforms;
  if (!mark_active(owned->platforms, owned->report.n, active)) {
    report_unknown(owned, active, &failed);
    mark_active(owned->platforms, owned->report.n, active);
  }
  if (failed) {
    fl_platform_report_free(&owned->report);
    return fl_error_no_memory();
  }
  *report = &owned->report;
  return FL_OK;
}
