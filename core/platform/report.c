/*
 * The platform report (H1): of each platform what is on the bus, which driver library opens, how many devices that
 * reports, and one sentence that says what this means.
 */
#include "core/platform/report.h"

#include "core/platform/bus.h"
#include "core/platform/device.h"
#include "core/platform/platform.h"
#include "core/platform/processor.h"
#include "core/platform/steps.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------------- bus */

static bool of_kind(const fl_platform_kind *kind, const fl_bus_device *device) {
  if (device->vendor_id != kind->pci_vendor)
    return false;
  for (const uint16_t *class_id = kind->pci_classes; *class_id; class_id++)
    if (device->class_id == *class_id)
      return true;
  return false;
}

static void add_place(fl_text *text, const fl_bus_device *device) {
  fl_text_add(text, "%04x:%04x at %04x:%02x:%02x.%x", device->vendor_id, device->device_id, device->domain, device->bus,
              device->slot, device->function);
}

/* Devices of one platform on the bus, with their names. */
static uint32_t list_devices(const fl_bus *bus, const fl_platform_kind *kind, fl_text *names) {
  uint32_t n = 0;
  for (const fl_bus_device *device = bus->devices; device < bus->devices + bus->n; device++) {
    if (!of_kind(kind, device))
      continue;
    fl_text_add(names, "%s%s %s (", n ? ", " : "", kind->title, *device->name ? device->name : "device");
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
static void list_unserved(const fl_bus *bus, const fl_platform_kind *kinds, fl_text *names) {
  for (const fl_bus_device *device = bus->devices; device < bus->devices + bus->n; device++) {
    bool is_served = !class_name(device->class_id);
    for (const fl_platform_kind *kind = kinds; kind->name && !is_served; kind++)
      is_served = of_kind(kind, device);
    if (is_served)
      continue;
    fl_text_add(names, "%s%s%s%s ", names->length ? ", " : "", device->vendor, *device->vendor ? " " : "",
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

/* A report while it is made. */
typedef struct draft {
  fl_arena *arena;
  fl_platform_info *platforms; /* has room for all there can be */
  uint32_t n;
} draft;

/* The next row, of which nothing is known. */
static fl_platform_info *add_platform(draft *r, const char *name, int32_t device_type, const char *plugin) {
  fl_platform_info *info = &r->platforms[r->n++];
  *info = (fl_platform_info){.name = fl_arena_string(r->arena, name),
                             .plugin = fl_arena_string(r->arena, plugin),
                             .pci = "",
                             .driver = "",
                             .device_count = -1,
                             .device_type = device_type,
                             .step_size = sizeof(fl_platform_step),
                             .device_size = sizeof(fl_device_properties)};
  return info;
}

static void add_devices(fl_platform_info *info, const fl_device_list *list) {
  info->n_devices = list ? list->n : 0;
  info->devices = list ? list->devices : NULL;
}

static void report_cpu(draft *r, const fl_platform_kind *kind, const fl_bus *bus) {
  fl_text text = {0};
  fl_platform_info *info = add_platform(r, kind->name, kind->device_type, "");
  fl_device_list *list = fl_arena_allocate(r->arena, sizeof *list);
  if (list)
    fl_list_devices(&fl_processor, NULL, list);
  fl_text_add(&text, "always available");
  if (bus->cores > 0)
    fl_text_add(&text, ", %d core%s", bus->cores, bus->cores == 1 ? "" : "s");
  info->driver_found = true;
  info->device_count = 1;
  info->diagnosis = fl_arena_text(r->arena, &text);
  add_devices(info, list);
}

/* What a plugin says of its platform; `diagnosis` gets a sentence. */
static fl_plugin_finding ask_plugin(draft *r, const fl_component_record *component, fl_text *diagnosis) {
  fl_said said;
  fl_plugin_finding found = {.plugin = component->plugin,
                             .loaded = true,
                             .asked = !component->not_asked,
                             .reason = "",
                             .list = fl_arena_allocate(r->arena, sizeof *found.list)};
  found.active = fl_component_is_active(component, &said);
  if (!found.active)
    found.reason = fl_arena_string(r->arena, fl_said_shown(&said, "not active"));
  fl_device_list *list = found.list;
  if (!list)
    return found;
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
    fl_text_add(diagnosis, "plugin '%s' %s: %s", component->plugin, found.asked ? "says" : "is not asked",
                found.reason);
  return found;
}

/* Its plugin is not there to be asked. */
static fl_plugin_finding miss_plugin(const fl_platform_kind *kind, fl_text *diagnosis) {
  fl_plugin_finding missed = {.plugin = kind->plugin, .reason = kind->problem ? kind->problem : "it was withdrawn"};
  fl_text_add(diagnosis, "plugin '%s' is not loaded: %s", kind->plugin, missed.reason);
  return missed;
}

/* A platform that a plugin describes, with what that says itself where it is not what the driver says already. */
static void report_kind(draft *r, const fl_platform_kind *kind, const fl_component_record *component,
                        const fl_bus *bus) {
  fl_text names = {0}, diagnosis = {0}, words = {0};
  fl_plugin_finding plugin = {0};
  fl_finding f = {.kind = kind, .bus_known = bus->bus_known, .node = fl_platform_node(kind)};
  f.on_bus = list_devices(bus, kind, &names);
  f.devices = fl_arena_text(r->arena, &names);
  fl_probe_driver(&kind->driver, FL_DRIVER_TIMEOUT_MS, &f.probe);
  plugin = component ? ask_plugin(r, component, &words) : miss_plugin(kind, &words);
  const fl_device_list *said = plugin.active ? plugin.list : NULL;
  diagnose(&f, said, &diagnosis);
  if (f.node && f.probe.opened ? !said : plugin.active) /* else it is in the diagnosis, or there is nothing to ask */
    fl_text_add(&diagnosis, "; %s", fl_text_get(&words));
  diagnosis.failed |= words.failed;
  fl_text_free(&words);
  fl_platform_info *info = add_platform(r, kind->name, kind->device_type, plugin.plugin);
  info->pci_devices = f.on_bus;
  info->pci = f.devices;
  info->driver_found = f.probe.opened;
  info->driver = fl_arena_string(r->arena, f.probe.opened ? f.probe.driver : f.probe.words);
  info->device_count = count_devices(&f, said);
  info->diagnosis = fl_arena_text(r->arena, &diagnosis);
  info->steps = fl_platform_steps(&f, &plugin, r->arena, &info->n_steps);
  add_devices(info, plugin.list);
}

static void report_component(draft *r, const fl_component_record *component) {
  fl_text diagnosis = {0};
  fl_plugin_finding plugin = ask_plugin(r, component, &diagnosis);
  fl_platform_info *info = add_platform(r, component->name, component->platform.device_type, component->plugin);
  info->driver_found = plugin.active;
  if (plugin.list && plugin.list->count >= 0)
    info->device_count = plugin.list->count;
  info->diagnosis = fl_arena_text(r->arena, &diagnosis);
  info->steps = fl_platform_steps(NULL, &plugin, r->arena, &info->n_steps);
  add_devices(info, plugin.list);
}

/* One that is forced, and known by its platform file alone. */
static void report_unknown(draft *r, const char *name) {
  static const char missing[] = "no plugin brings it";
  static const fl_platform_step step = {
      "plugin", "missing", missing,
      "install the vendor's plugin, or name its directory in VLLM_FL_PLUGIN_PATH; else force no platform"};
  fl_platform_info *info = add_platform(r, name, kDLExtDev, "");
  info->diagnosis = missing;
  info->steps = &step;
  info->n_steps = 1;
}

/* Is there a row for it, made from its kind? */
static bool is_described(const fl_platform_kind *kinds, const char *name) {
  while (kinds->name && (!kinds->is_described || strcmp(kinds->name, name)))
    kinds++;
  return kinds->name != NULL;
}

/* All platforms: those that are described, then those that plugins bring without a word. */
static void report_all(draft *r, const fl_platform_kind *kinds, const fl_component_record *components, uint32_t n,
                       const fl_bus *bus) {
  report_cpu(r, kinds, bus);
  for (const fl_platform_kind *kind = kinds + 1; kind->name; kind++)
    if (kind->is_described)
      report_kind(r, kind, fl_component_of_platform(kind->name, components, n), bus);
  for (uint32_t i = 0; i < n; i++)
    if (fl_component_is_platform(&components[i]) && !is_described(kinds, components[i].name))
      report_component(r, &components[i]);
}

/* The one in force has a row, if need be one of its own. */
static void mark_active(draft *r, const char *active) {
  uint32_t i = 0;
  while (i < r->n && strcmp(r->platforms[i].name, active) != 0)
    i++;
  if (i == r->n)
    report_unknown(r, active);
  r->platforms[i].active = true;
}

fl_status fl_platform_report_create(const fl_platform_kind *kinds, const char *active, const char *origin,
                                    const char *config_file, const fl_component_record *components, uint32_t n,
                                    fl_platform_report **result) {
  fl_bus *bus = NULL;
  draft r = {0};
  size_t n_kinds = 0;
  while (kinds[n_kinds].name)
    n_kinds++;
  fl_platform_report *made = fl_arena_create(sizeof *made, &r.arena);
  if (made)
    r.platforms = fl_arena_array(r.arena, n_kinds + n + 1, sizeof *r.platforms);
  if (r.platforms)
    bus = malloc(sizeof *bus);
  if (!bus) {
    fl_arena_destroy(made, sizeof *made);
    return fl_error_no_memory();
  }
  fl_text unserved = {0};
  fl_bus_read(bus);
  report_all(&r, kinds, components, n, bus);
  list_unserved(bus, kinds, &unserved);
  free(bus);
  mark_active(&r, active);
  *made = (fl_platform_report){
      .size = sizeof *made,
      .active = fl_arena_string(r.arena, active),
      .active_origin = fl_arena_string(r.arena, origin),
      .config_file = fl_arena_string(r.arena, config_file ? config_file : ""),
      .platforms = r.platforms,
      .n = r.n,
      .platform_size = sizeof *r.platforms,
      .unserved = fl_arena_text(r.arena, &unserved),
  };
  fl_status status = fl_arena_finish(made, sizeof *made);
  if (!status)
    *result = made;
  return status;
}

void fl_platform_report_free(fl_platform_report *report) {
  fl_arena_destroy(report, sizeof *report);
}
