/* The PCI bus: see bus.h. */
#include "core/platform/bus.h"

#include "core/platform/probe.h"
#include "core/support.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void copy_text(char to[FL_BUS_NAME], hwloc_obj_t object, const char *key) {
  const char *text = hwloc_obj_get_info_by_name(object, key);
  snprintf(to, FL_BUS_NAME, "%s", text ? text : "");
}

static void add_device(fl_bus *bus, hwloc_obj_t object) {
  const struct hwloc_pcidev_attr_s *device = &object->attr->pcidev;
  fl_bus_device *added = &bus->devices[bus->n++];
  *added = (fl_bus_device){.domain = device->domain,
                           .vendor_id = device->vendor_id,
                           .device_id = device->device_id,
                           .class_id = device->class_id,
                           .bus = device->bus,
                           .slot = device->dev,
                           .function = device->func};
  copy_text(added->name, object, "PCIDevice");
  copy_text(added->vendor, object, "PCIVendor");
}

/* Where /sys is missing hwloc knows nothing, unless it is told to read another machine's description. */
static bool has_anything_to_read(void) {
  return !access("/sys/devices/system/cpu", F_OK) || secure_getenv("HWLOC_XMLFILE");
}

/* Only the bus and the number of cores are wanted, from the kernel: hwloc's components for accelerators would load the
 * vendors' libraries, its own for PCI leaks, and its x86 one asks each processor in turn. */
static void read_here(void *answer, void *user) {
  static const char *const unwanted[] = {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci", "x86"};
  fl_bus *bus = answer;
  hwloc_topology_t topology;
  (void)user;
  if (hwloc_topology_init(&topology))
    return;
  for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
  hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  bus->known = has_anything_to_read() && !hwloc_topology_load(topology);
  bus->bus_known = bus->known && (!hwloc_topology_is_thissystem(topology) || !access("/sys/bus/pci/devices", F_OK));
  bus->cores = bus->known ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) : 0;
  for (hwloc_obj_t object = NULL;
       bus->known && bus->n < FL_BUS_DEVICES_MAX && (object = hwloc_get_next_pcidev(topology, object));)
    add_device(bus, object);
  hwloc_topology_destroy(topology);
}

void fl_bus_read(fl_bus *bus) {
  char words[FL_PROBE_WORDS];
  fl_ask_in_child("hwloc", read_here, NULL, FL_DRIVER_TIMEOUT_MS, bus, sizeof *bus, words, sizeof words);
  bus->n = bus->n < FL_BUS_DEVICES_MAX ? bus->n : FL_BUS_DEVICES_MAX;
  for (uint32_t i = 0; i < bus->n; i++)
    bus->devices[i].name[FL_BUS_NAME - 1] = bus->devices[i].vendor[FL_BUS_NAME - 1] = 0;
}
