/* The machine's topology as hwloc reads it. In child processes alone: it crashes where memory runs out. */
#ifndef FLHOST_CORE_PLATFORM_TOPOLOGY_H
#define FLHOST_CORE_PLATFORM_TOPOLOGY_H

#include <hwloc.h>
#include <stdbool.h>

/* Makes *topology with the cores, and the devices of the PCI bus where these are wanted; false: it could not be read,
 * or there is nothing to read. */
bool fl_topology_load(hwloc_topology_t *topology, bool with_bus);

#endif
