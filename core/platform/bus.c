/* The PCI bus: see bus.h. */
#include "core/platform/bus.h"

#include "core/platform/probe.h"
#include "core/platform/topology.h"
#include "core/support.h"

#include <stdio.h>
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

static void read_here(void *answer, void *user) {
  fl_bus *bus = answer;
  hwloc_topology_t topology;
  (void)user;
  bus->known = fl_topology_load(&topology, true);
  if (!bus->known)
    return;
  bus->bus_known = !hwloc_topology_is_thissystem(topology) || !access("/sys/bus/pci/devices", F_OK);
  bus->cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  for (hwloc_obj_t object = NULL; bus->n < FL_BUS_DEVICES_MAX && (object = hwloc_get_next_pcidev(topology, object));)
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
