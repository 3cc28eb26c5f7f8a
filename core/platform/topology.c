/* The machine's topology: see topology.h. */
#include "core/platform/topology.h"

#include <stdlib.h>
#include <unistd.h>

/* Where /sys is missing hwloc knows nothing, unless it is told to read another machine's description. */
static bool has_anything_to_read(void) {
  return !access("/sys/devices/system/cpu", F_OK) || secure_getenv("HWLOC_XMLFILE");
}

/* From the kernel alone: hwloc's components for accelerators would load the vendors' libraries, its own for PCI leaks,
 * and its x86 one asks each processor in turn. */
bool fl_topology_load(hwloc_topology_t *topology, bool with_bus) {
  static const char *const unwanted[] = {"opencl", "gl", "cuda", "nvml", "rsmi", "levelzero", "pci", "x86"};
  if (!has_anything_to_read() || hwloc_topology_init(topology))
    return false;
  for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++)
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
  hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (with_bus)
    hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (!hwloc_topology_load(*topology))
    return true;
  hwloc_topology_destroy(*topology);
  return false;
}
